//! The npm package: `npm install --global onceward` and `npx onceward` give the command.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::Contents;
use super::binary::Linkage;
use super::files::{EXECUTABLE, FILE, copy, output, put};

pub(super) fn assemble(contents: &Contents<'_>) -> Result<PathBuf, String> {
    let staging = contents.staging()?;
    let tree = staging.path();
    copy(&contents.binary, &tree.join("bin/onceward"), EXECUTABLE)?;
    put(&tree.join("README.md"), contents.readme()?, FILE)?;
    contents.put_licences(tree)?;
    put(&tree.join("package.json"), format!("{:#}\n", manifest(contents)), FILE)?;
    let mut pack = npm();
    pack.args(["pack", "--silent", "--pack-destination"]).arg(&contents.to).arg(tree);
    let said = output(&mut pack)?;
    let name = said.lines().last().ok_or("`npm pack` named no file")?;
    Ok(contents.to.join(name))
}

/// No script runs at installation, and none stands before the command: it is the program itself.
fn manifest(contents: &Contents<'_>) -> Value {
    let mut manifest = json!({
        "name": "onceward",
        "version": contents.version,
        "description": contents.description,
        "license": format!("({})", contents.licence),
        "os": ["linux"],
        "cpu": ["x64"],
        "bin": { "onceward": "bin/onceward" },
        "files": ["bin/onceward", "LICENSE-*"],
    });
    if contents.linkage != Linkage::Static {
        manifest["libc"] = json!(["glibc"]);
    }
    manifest
}

/// Into an empty folder, offline.
pub(super) fn install(package: &Path, home: &Path) -> Result<Command, String> {
    let folder = home.join("folder");
    put(&folder.join("package.json"), "{\"private\": true}\n", FILE)?;
    let mut install = npm();
    install.args(["install", "--no-audit", "--no-fund", "--silent"]).arg(package);
    output(alone(&mut install, home).current_dir(&folder))?;
    let mut serve = Command::new("npx");
    serve.args(["onceward", "serve", "--scope", "secret:x-api-key", "--authorize", "none"]);
    alone(&mut serve, home).current_dir(&folder);
    Ok(serve)
}

fn npm() -> Command {
    let mut npm = Command::new("npm");
    npm.env("npm_config_update_notifier", "false");
    npm
}

/// With nothing that this person has configured or downloaded before.
fn alone<'a>(command: &'a mut Command, home: &Path) -> &'a mut Command {
    command
        .env("npm_config_offline", "true")
        .env("npm_config_cache", home.join("npm"))
        .env("npm_config_userconfig", home.join("npmrc"))
}
