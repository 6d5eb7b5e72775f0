//! What clients ask a server: `MONITOR`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use crate::tool::{TEST_TIMEOUT, Trouble};

/// Sees every command that a client sends to a server, and none that a script runs there.
///
/// ```no_run
/// let server = testbed::RedisServer::start(&testbed::RedisInstallation::preferred()?, &[])?;
/// let mut watch = server.watch()?;
/// server.command(&["SET", "a", "b"]);
/// assert_eq!(watch.commands()?, [["SET", "a", "b"].map(|word| word.as_bytes().to_vec())]);
/// # Ok::<(), testbed::Trouble>(())
/// ```
#[derive(Debug)]
pub struct RedisWatch {
    port: u16,
    stream: BufReader<TcpStream>,
    marks: u32,
}

impl RedisWatch {
    pub(super) fn start(port: u16) -> Result<Self, Trouble> {
        let failed = |error: std::io::Error| Trouble::new(format!("port {port}: {error}"));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
        stream.set_read_timeout(Some(TEST_TIMEOUT)).map_err(failed)?;
        stream.write_all(b"MONITOR\r\n").map_err(failed)?;
        let mut watch = Self { port, stream: BufReader::new(stream), marks: 0 };
        match watch.line()?.as_str() {
            "+OK" => Ok(watch),
            other => Err(Trouble::new(format!("the server is not to be watched: {other}"))),
        }
    }

    /// What clients have sent since the watch began, or since this was asked last; each as its words.
    ///
    /// # Errors
    ///
    /// When the connection to the server breaks.
    pub fn commands(&mut self) -> Result<Vec<Vec<Vec<u8>>>, Trouble> {
        self.marks += 1;
        let mark = format!("watch {} of port {}", self.marks, self.port);
        super::wire::ask(self.port, &["ECHO", &mark])?;
        let mut commands = Vec::new();
        loop {
            let line = self.line()?;
            let Some((origin, words)) = read(&line) else {
                return Err(Trouble::new(format!("this is no line of MONITOR: {line}")));
            };
            if words.last().is_some_and(|word| word == mark.as_bytes()) {
                return Ok(commands);
            }
            if origin != "lua" {
                commands.push(words);
            }
        }
    }

    fn line(&mut self) -> Result<String, Trouble> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        match read.map_err(|error| Trouble::new(format!("port {}: {error}", self.port)))? {
            0 => Err(Trouble::new(format!("port {}: the server has gone", self.port))),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

/// Reads `+1700000000.123456 [0 127.0.0.1:5000] "SET" "a" "b\x00"`: who sent it, and the words.
fn read(line: &str) -> Option<(&str, Vec<Vec<u8>>)> {
    let (_, rest) = line.split_once(" [")?;
    let (origin, mut rest) = rest.split_once("] ")?;
    let (_, origin) = origin.split_once(' ')?;
    let mut words = Vec::new();
    while let Some(quoted) = rest.trim_start().strip_prefix('"') {
        let (word, after) = word(quoted)?;
        words.push(word);
        rest = after;
    }
    Some((origin, words))
}

/// The word up to its closing quote, and what comes behind that.
fn word(quoted: &str) -> Option<(Vec<u8>, &str)> {
    let (mut word, mut letters) = (Vec::new(), quoted.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((word, &quoted[at + 1..])),
            '\\' => word.push(match letters.next()?.1 {
                'x' => {
                    let digits: String = letters.by_ref().take(2).map(|(_, digit)| digit).collect();
                    u8::from_str_radix(&digits, 16).ok()?
                }
                'n' => b'\n',
                'r' => b'\r',
                't' => b'\t',
                'a' => 7,
                'b' => 8,
                other => u8::try_from(other).ok()?,
            }),
            other => word.push(u8::try_from(other).ok()?),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_sent() {
        let line = r#"+1700000000.123456 [0 127.0.0.1:5000] "SET" "a b" "\x00\"\\\n\xff" """#;
        let (origin, words) = read(line).unwrap();
        assert_eq!(origin, "127.0.0.1:5000");
        assert_eq!(words, [&b"SET"[..], b"a b", b"\0\"\\\n\xff", b""]);
        assert_eq!(read("+1.2 [0 lua] \"TIME\"").unwrap().0, "lua");
        assert_eq!(read("+OK"), None);
        assert_eq!(read("+1.2 [0 lua] \"TIME"), None);
    }
}
