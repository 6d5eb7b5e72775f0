//! Whom servers run as: they refuse to run as root.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// The account of the servers when we are root; `None` when we are somebody already.
static ACCOUNT: LazyLock<Option<Account>> = LazyLock::new(|| {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    // Debian's package makes the account `postgres`; every Unix has `nobody`.
    let account = ["postgres", "nobody"].iter().find_map(|name| Account::named(name, &accounts));
    Some(account.unwrap_or(Account { user: 65534, group: 65534 }))
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// Reads it from the lines of `/etc/passwd`: `name:x:user:group:…`.
    fn named(name: &str, accounts: &str) -> Option<Self> {
        let fields = accounts
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.first() == Some(&name))?;
        Some(Self { user: fields.get(2)?.parse().ok()?, group: fields.get(3)?.parse().ok()? })
    }
}

/// Lets the command run as the account of the servers.
pub(crate) fn as_server(command: &mut Command) -> &mut Command {
    match *ACCOUNT {
        Some(Account { user, group }) => command.uid(user).gid(group),
        None => command,
    }
}

/// Gives a file or directory to the account of the servers.
pub(crate) fn give(path: &Path) -> io::Result<()> {
    match *ACCOUNT {
        Some(Account { user, group }) => chown(path, Some(user), Some(group)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts =
            "root:x:0:0:root:/root:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:101:104::/:\n";
        assert_eq!(Account::named("postgres", accounts), Some(Account { user: 101, group: 104 }));
        assert_eq!(Account::named("nobody", accounts), None);
    }
}
