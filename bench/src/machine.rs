//! Where a run took place: figures mean nothing without it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::Failure;

/// The machine and the directory of a run, in words.
pub(crate) struct Machine {
    /// Processor and number of cores.
    pub(crate) processor: String,
    /// The kernel's name and version.
    pub(crate) kernel: String,
    /// The type of the file system that holds the stores.
    pub(crate) file_system: String,
}

impl Machine {
    /// Looks at the machine, and refuses a directory in memory.
    pub(crate) fn at(directory: &Path) -> Result<Self, Failure> {
        let file_system = file_system(directory).unwrap_or_else(|| "unknown".into());
        if ["tmpfs", "ramfs"].contains(&file_system.as_str()) {
            return Err(format!(
                "{} is on {file_system}, in memory: there a sync costs nothing and no byte is \
                 written, so the figures would mean nothing; choose a directory on a disk with --dir",
                directory.display()
            )
            .into());
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let model = processor_model().map(|model| format!(" of {model}")).unwrap_or_default();
        let version = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let kernel = format!("{} {}", std::env::consts::OS, version.trim()).trim().to_owned();
        Ok(Self { processor: format!("{cores} cores{model}"), kernel, file_system })
    }
}

fn processor_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The type of the file system that a path is on, as Linux names it.
fn file_system(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    file_system_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, &path)
}

/// The mount with the longest prefix of the path; of equal ones the last, which hides the others.
fn file_system_in(mounts: &str, path: &Path) -> Option<String> {
    let mounted = mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let point = PathBuf::from(place.split(' ').nth(4)?.replace("\\040", " "));
        path.starts_with(&point).then(|| (point, kind.split(' ').next().unwrap_or_default()))
    });
    let (_, kind) = mounted.max_by_key(|(point, _)| point.components().count())?;
    Some(kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_mount_counts() {
        let mounts = "1 0 8:1 / / rw,noatime - ext4 /dev/sda rw\n\
                      2 1 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n\
                      3 2 8:2 / /tmp/a\\040disk rw - xfs /dev/sdb rw\n";
        let at = |path: &str| file_system_in(mounts, Path::new(path));
        assert_eq!(at("/home/x").as_deref(), Some("ext4"));
        assert_eq!(at("/tmp/y").as_deref(), Some("tmpfs"));
        assert_eq!(at("/tmp/a disk/z").as_deref(), Some("xfs"));
        assert_eq!(at("/tmpfoo").as_deref(), Some("ext4"));
    }
}
