//! The wheel: `pip install onceward` gives the command.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::binary::Linkage;
use super::files::{EXECUTABLE, FILE, copy, output, put};
use super::{Contents, LICENCES, THIRD_PARTIES};
use crate::tools;

pub(super) fn assemble(contents: &Contents<'_>) -> Result<PathBuf, String> {
    let python = tools::packaging(contents.workspace)?;
    let staging = contents.staging()?;
    let (tree, packed) = (staging.path().join("tree"), staging.path().join("packed"));
    let name = format!("onceward-{}", contents.version);
    copy(&contents.binary, &tree.join(format!("{name}.data/scripts/onceward")), EXECUTABLE)?;
    let about = tree.join(format!("{name}.dist-info"));
    put(&about.join("METADATA"), metadata(contents)?, FILE)?;
    put(&about.join("WHEEL"), tagged(contents.linkage), FILE)?;
    contents.put_licences(&about.join("licenses"))?;
    let moved = |error: io::Error| format!("the wheel cannot be moved: {error}");
    fs::create_dir(&packed).map_err(moved)?;
    // It writes the list of files with their digests, and names the file by the tags.
    output(
        Command::new(python).args(["-m", "wheel", "pack", "--dest-dir"]).args([&packed, &tree]),
    )?;
    let file = fs::read_dir(&packed).map_err(moved)?.next();
    let file = file.ok_or("`wheel pack` made no file")?.map_err(moved)?;
    let wheel = contents.to.join(file.file_name());
    fs::rename(file.path(), &wheel).map_err(moved)?;
    Ok(wheel)
}

fn metadata(contents: &Contents<'_>) -> Result<String, String> {
    let Contents { version, description, licence, .. } = contents;
    let files = LICENCES.iter().chain([&THIRD_PARTIES]);
    let files: String = files.map(|name| format!("License-File: {name}\n")).collect();
    let readme = contents.readme()?;
    Ok(format!(
        "Metadata-Version: 2.4\nName: onceward\nVersion: {version}\nSummary: {description}\n\
         License-Expression: {licence}\n{files}Requires-Python: >=3.8\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    ))
}

/// A static command runs on every Linux, whichever C library that has.
fn tagged(linkage: Linkage) -> String {
    let platforms = match linkage {
        Linkage::Static => vec![
            "manylinux_2_17_x86_64".to_owned(),
            "manylinux2014_x86_64".to_owned(),
            "musllinux_1_1_x86_64".to_owned(),
        ],
        Linkage::Glibc(major, minor) => vec![format!("manylinux_{major}_{minor}_x86_64")],
    };
    let tags: String =
        platforms.iter().map(|platform| format!("Tag: py3-none-{platform}\n")).collect();
    format!("Wheel-Version: 1.0\nGenerator: cargo xtask package\nRoot-Is-Purelib: false\n{tags}")
}

/// Into an environment of its own, with no index to ask.
pub(super) fn install(wheel: &Path, home: &Path) -> Result<Command, String> {
    let environment = home.join("venv");
    tools::virtual_environment(&environment)?;
    let mut install = Command::new(environment.join("bin/pip"));
    install.args(["install", "--quiet", "--no-index", "--no-cache-dir"]).arg(wheel);
    install.env("PIP_CONFIG_FILE", "/dev/null").env_remove("PIP_FIND_LINKS");
    output(install.env("PIP_DISABLE_PIP_VERSION_CHECK", "1"))?;
    let mut serve = Command::new(environment.join("bin/onceward"));
    serve.args(["serve", "--scope", "secret:x-api-key", "--authorize", "none"]).current_dir(home);
    Ok(serve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tags_say_what_it_needs() {
        let tags = tagged(Linkage::Static);
        assert!(
            tags.contains("none-manylinux2014_x86_64\n") && tags.contains("none-musllinux_1_1")
        );
        let tags = tagged(Linkage::Glibc(2, 36));
        assert!(
            tags.ends_with("\nTag: py3-none-manylinux_2_36_x86_64\n") && !tags.contains("musl")
        );
    }
}
