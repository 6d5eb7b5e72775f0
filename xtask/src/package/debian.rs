//! The Debian package: the command, its systemd unit, and a configuration that upgrades leave alone.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::binary::Linkage;
use super::files::{EXECUTABLE, FILE, copy, output, put, text};
use super::{Contents, THIRD_PARTIES};

const UNIT: &str = "usr/lib/systemd/system/onceward.service";
const CONFIGURATION: &str = "etc/onceward/onceward.toml";
/// What lintian says of every static command.
const EXCEPTIONS: &str =
    "onceward: statically-linked-binary\nonceward: shared-library-lacks-prerequisites\n";
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

pub(super) fn assemble(contents: &Contents<'_>) -> Result<PathBuf, String> {
    let staging = contents.staging()?;
    let (tree, deploy) = (staging.path().join("tree"), contents.root.join("deploy"));
    let documents = tree.join("usr/share/doc/onceward");
    copy(&contents.binary, &tree.join("usr/bin/onceward"), EXECUTABLE)?;
    copy(&deploy.join("onceward.service"), &tree.join(UNIT), FILE)?;
    copy(&deploy.join("onceward.toml"), &tree.join(CONFIGURATION), FILE)?;
    put(&documents.join("copyright"), copyright(contents)?, FILE)?;
    put(&documents.join("README.md"), contents.readme()?, FILE)?;
    put(&documents.join(THIRD_PARTIES), &contents.third_parties, FILE)?;
    if contents.linkage == Linkage::Static {
        let place = tree.join("usr/share/lintian/overrides/onceward");
        put(&place, EXCEPTIONS, FILE)?;
    }
    let bytes = installed_bytes(&tree)?;
    let control = tree.join("DEBIAN");
    put(&control.join("control"), description(contents, bytes), FILE)?;
    put(&control.join("conffiles"), format!("/{CONFIGURATION}\n"), FILE)?;
    for script in SCRIPTS {
        copy(&deploy.join("debian").join(script), &control.join(script), EXECUTABLE)?;
    }
    // Without them `dpkg --verify` has nothing to compare with.
    let mut digests = Command::new("sh");
    digests.args(["-c", "find usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums"]);
    output(digests.current_dir(&tree))?;
    open_directories(&tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    let package = contents.to.join(format!("onceward_{}_amd64.deb", contents.version));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz"]);
    // A command for tests is large, and its package is thrown away.
    build.args(if contents.linkage == Linkage::Static { None } else { Some("-z0") });
    output(build.arg("--build").arg(&tree).arg(&package))?;
    Ok(package)
}

fn description(contents: &Contents<'_>, bytes: u64) -> String {
    let Contents { version, description, .. } = contents;
    let needs = match contents.linkage {
        Linkage::Static => String::new(),
        Linkage::Glibc(major, minor) => format!("Depends: libc6 (>= {major}.{minor})\n"),
    };
    format!(
        "Package: onceward\nVersion: {version}\nArchitecture: amd64\nMaintainer: The Onceward authors\n\
         Installed-Size: {}\n{needs}Recommends: ca-certificates\nSection: net\nPriority: optional\n\
         Description: gateway that makes writes safe to retry\n \
         {description}\n .\n It stands in front of an HTTP API in any language. Requests with an\n \
         Idempotency-Key run once, and retries get the stored answer.\n",
        bytes.div_ceil(1024)
    )
}

/// Debian has the text of the Apache License on every system.
fn copyright(contents: &Contents<'_>) -> Result<String, String> {
    let mit = text(&contents.root.join("LICENSE-MIT"))?;
    Ok(format!(
        "Onceward is licensed under {}, at your choice.\nThe text of the Apache License is in \
         /usr/share/common-licenses/Apache-2.0.\nThe licences of what is compiled in are in {THIRD_PARTIES}.\n\n{mit}",
        contents.licence
    ))
}

fn installed_bytes(directory: &Path) -> Result<u64, String> {
    let sum = || -> std::io::Result<u64> {
        let (mut sum, mut waiting) = (0, vec![directory.to_owned()]);
        while let Some(path) = waiting.pop() {
            let metadata = fs::symlink_metadata(&path)?;
            sum += metadata.len();
            if metadata.is_dir() {
                for entry in fs::read_dir(&path)? {
                    waiting.push(entry?.path());
                }
            }
        }
        Ok(sum)
    };
    sum().map_err(|error| format!("{}: {error}", directory.display()))
}

/// A person's umask says nothing about the directories of a system.
fn open_directories(directory: &Path) -> std::io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(EXECUTABLE))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}

/// The account that stands for the one that systemd would make: it owns nothing else.
const UNPRIVILEGED: u32 = 65_534;

/// Into an empty root, with the system's own dpkg; what its unit starts is started there, by a user without
/// rights. There is no other file, and no systemd: the directory that it would make is made here.
pub(super) fn install(package: &Path, home: &Path) -> Result<Command, String> {
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Err("NOT TRIED: only root can install it into an empty root".to_owned());
    }
    let root = home.join("root");
    for file in ["status", "available"] {
        put(&root.join("var/lib/dpkg").join(file), "", FILE)?;
    }
    let mut install = Command::new("dpkg");
    install.arg("--root").arg(&root);
    // An empty root has no shell for the scripts, and no libc6 for a command for tests.
    install.args(["--force-script-chrootless", "--force-depends", "--install"]).arg(package);
    output(&mut install)?;
    let mut check = Command::new("dpkg");
    let changed = output(check.arg("--root").arg(&root).args(["--verify", "onceward"]))?;
    if !changed.is_empty() {
        return Err(format!("what dpkg installed is not what was packaged:\n{changed}"));
    }
    let unit = root.join(UNIT);
    let start = started_by(&text(&unit)?)?;
    libraries(&root.join("usr/bin/onceward"), &root)?;
    let state = root.join("var/lib/onceward");
    fs::create_dir(&state)
        .and_then(|()| chown(&state, Some(UNPRIVILEGED), Some(UNPRIVILEGED)))
        .map_err(|error| format!("{}: {error}", state.display()))?;
    verify_unit(&unit, &root)?;
    let mut serve = Command::new("chroot");
    serve.arg(format!("--userspec={UNPRIVILEGED}:{UNPRIVILEGED}")).arg(&root).args(start);
    Ok(serve)
}

/// The words of the line that starts it.
fn started_by(unit: &str) -> Result<Vec<String>, String> {
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let line = line.ok_or("the unit starts nothing: it has no ExecStart")?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

/// What systemd says about the unit, where there is one to ask.
fn verify_unit(unit: &Path, root: &Path) -> Result<(), String> {
    let copy = root.with_file_name("onceward.service");
    // systemd looks for the program, which is not on this machine.
    let program = root.join("usr/bin/onceward").display().to_string();
    put(
        &copy,
        text(unit)?.replace("ExecStart=/usr/bin/onceward", &format!("ExecStart={program}")),
        FILE,
    )?;
    let asked =
        |arguments: &[&str]| output(Command::new("systemd-analyze").args(arguments).arg(&copy));
    // Other units of this machine may be wrong; ours is the one that is named in the answer.
    match asked(&["verify", "--recursive-errors=no", "--man=no"]) {
        Err(reason) if reason.ends_with("is not installed") => {
            println!("NOT TRIED: the unit, by systemd-analyze: {reason}");
            Ok(())
        }
        Err(reason) => Err(reason),
        // 2.0 of 10: what can be taken away was taken away.
        Ok(_) => asked(&["security", "--offline=yes", "--threshold=20"]).map(|_| ()),
    }
}

/// A command for tests needs those of this machine; one that is published needs none.
fn libraries(binary: &Path, root: &Path) -> Result<(), String> {
    let Ok(said) = output(Command::new("ldd").arg(binary)) else { return Ok(()) };
    let words = said.split_whitespace().filter(|word| word.starts_with('/'));
    for library in words.map(Path::new) {
        let place = root.join(library.strip_prefix("/").unwrap_or(library));
        copy(library, &place, EXECUTABLE)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_says_what_is_started() {
        let start = started_by("[Service]\nExecStart=/usr/bin/onceward serve\n").unwrap();
        assert_eq!(start, ["/usr/bin/onceward", "serve"]);
        assert!(started_by("[Service]\nExecStop=/bin/true\n").is_err());
    }
}
