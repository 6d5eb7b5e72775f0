//! Reads a trace into the disk's states, one after the other.

use std::{collections::HashMap, path::Path};

use super::disk::{Disk, Sync};
use crate::strace::{Call, Moment, parse};

/// The options with which strace must write the trace; what to trace is not among them.
const OPTIONS: [&str; 6] = ["-f", "-y", "-xx", "-s", "1000000", "-e"];

/// What a process did to one directory.
pub struct Trace {
    /// The lines that it said on stdout.
    pub said: Vec<String>,
    /// The disk after each change.
    pub points: Vec<Point>,
}

/// The disk at one moment.
pub struct Point {
    /// What is on it.
    pub disk: Disk,
    /// How many lines had been said by then.
    pub said: usize,
}

impl Trace {
    /// The arguments for strace.
    #[must_use]
    pub fn options() -> Vec<String> {
        let mut options = OPTIONS.map(str::to_owned).to_vec();
        // All of them, so that a call which the model does not know is not overlooked.
        options.push(format!("trace={}", crate::strace::MUTATING));
        options
    }

    /// Reads what strace has written about the files in the directory whose names begin so; `disk` is
    /// what was there before.
    pub fn read(record: &str, directory: &Path, prefix: &str, disk: Disk) -> Result<Self, String> {
        let mut reader = Reader {
            directory: directory.to_str().ok_or("the directory has a strange name")?.to_owned(),
            prefix: prefix.to_owned(),
            disk,
            syncs: HashMap::new(),
            said: Vec::new(),
        };
        let mut points = Vec::new();
        for moment in parse(record) {
            let (call, changed) = match &moment {
                Moment::Begun(call) => (call, reader.begun(call)),
                Moment::Ended(call, result) => (call, reader.ended(call, *result)),
            };
            let changed = changed.ok_or_else(|| {
                format!("the model does not know {} {:.200}", call.name, call.arguments)
            })?;
            if changed {
                points.push(Point { disk: reader.disk.clone(), said: reader.said.len() });
            }
        }
        Ok(Self { said: reader.said, points })
    }
}

struct Reader {
    directory: String,
    prefix: String,
    disk: Disk,
    /// The syncs under way, by thread.
    syncs: HashMap<u32, Sync>,
    said: Vec<String>,
}

impl Reader {
    /// Whether something is different now. What a call does may happen as soon as it is made.
    fn begun(&mut self, call: &Call) -> Option<bool> {
        let Call { thread, name, arguments } = call;
        if call.says() {
            self.said.push(String::from_utf8(buffer(arguments)?.0).ok()?.trim_end().to_owned());
            return Some(true);
        }
        let Some(target) = self.target(arguments) else { return Some(false) };
        match (name.as_str(), target) {
            ("fsync" | "fdatasync", Target::File(file)) => {
                self.syncs.insert(*thread, self.disk.begin_sync(&file)?);
                return Some(false);
            }
            ("fsync", Target::Directory) => {
                self.syncs.insert(*thread, self.disk.begin_sync_of_directory());
                return Some(false);
            }
            ("pwrite64", Target::File(file)) => {
                let (bytes, rest) = buffer(arguments)?;
                let offset = rest.rsplit_once(", ")?.1.parse().ok()?;
                self.disk.write(&file, offset, bytes)?;
            }
            ("ftruncate", Target::File(file)) => {
                self.disk.resize(&file, arguments.rsplit_once(", ")?.1.parse().ok()?)?;
            }
            ("unlink", Target::File(file)) => self.disk.delete(&file),
            ("openat", _) if !arguments.contains("O_TRUNC") => return Some(false),
            // Who owns a file matters to nobody here.
            ("fchown", _) => return Some(false),
            _ => return None,
        }
        Some(true)
    }

    /// Whether something is different now. What was waited for has happened.
    fn ended(&mut self, call: &Call, result: i64) -> Option<bool> {
        let Call { thread, name, arguments } = call;
        match (name.as_str(), self.target(arguments)) {
            (_, None) => Some(false),
            ("fsync" | "fdatasync", _) => {
                let sync = self.syncs.remove(thread)?;
                match result {
                    0 => self.disk.end_sync(sync),
                    _ => self.disk.fail_sync(sync),
                }
                Some(true)
            }
            ("pwrite64", _) => (buffer(arguments)?.0.len() as i64 == result).then_some(false),
            ("openat", Some(Target::File(file))) if arguments.contains("O_CREAT") => {
                if result >= 0 {
                    self.disk.open(&file);
                }
                Some(result >= 0)
            }
            _ => Some(false),
        }
    }

    /// What a call is about; `None`: nothing that is looked at here.
    fn target(&self, arguments: &str) -> Option<Target> {
        let path = match arguments.starts_with(|letter: char| letter.is_ascii_digit()) {
            true => arguments.split_once('<')?.1.split_once('>')?.0,
            false => arguments.split_once('"')?.1.split_once('"')?.0,
        };
        let path = String::from_utf8(bytes(path)?).ok()?;
        let rest = path.strip_prefix(&self.directory)?;
        match rest.strip_prefix('/') {
            None => rest.is_empty().then_some(Target::Directory),
            Some(name) if name.ends_with("-shm") || !name.starts_with(&self.prefix) => None,
            Some(name) => Some(Target::File(name.to_owned())),
        }
    }
}

enum Target {
    Directory,
    File(String),
}

/// The buffer of a write, and the arguments behind it.
fn buffer(arguments: &str) -> Option<(Vec<u8>, &str)> {
    let (hex, rest) = arguments.split_once('"')?.1.split_once('"')?;
    Some((bytes(hex)?, rest))
}

/// Reads `\x41\x42`.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (bytes, []) = hex.as_bytes().as_chunks::<4>() else { return None };
    let byte = |chunk: &[u8; 4]| match chunk {
        [b'\\', b'x', high, low] => Some(16 * digit(*high)? + digit(*low)?),
        _ => None,
    };
    bytes.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_buffers_are_hexadecimal() {
        let (bytes, rest) = buffer(r#"4<\x2f>, "\x41\x0f", 2, 8"#).expect("it is well formed");
        assert_eq!((&bytes[..], rest), (&[0x41, 0x0f][..], ", 2, 8"));
    }

    #[test]
    fn what_the_model_does_not_know_is_refused() {
        let record = r#"7 fallocate(3<\x2f\x64\x2f\x61>, 0, 0, 512) = 0"#;
        let error = Trace::read(record, Path::new("/d"), "a", Disk::default())
            .err()
            .expect("it is refused");
        assert!(error.contains("does not know fallocate"), "{error}");
        assert!(
            Trace::read(record, Path::new("/e"), "a", Disk::default()).is_ok(),
            "another directory"
        );
    }
}
