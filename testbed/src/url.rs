//! The parts of a server's address that tests change.

/// Puts another database into `postgres://user:password@host:port/database?options`.
pub(crate) fn with_database(url: &str, database: &str) -> String {
    let (before, options) = match url.split_once('?') {
        Some((before, options)) => (before, format!("?{options}")),
        None => (url, String::new()),
    };
    format!("{}/{database}{options}", &before[..end_of_authority(before)])
}

/// What stands between the scheme and the database, options aside: `user:password@host:port`.
pub(crate) fn authority(url: &str) -> &str {
    let before = url.split('?').next().unwrap_or(url);
    let start = before.find("://").map_or(0, |at| at + 3);
    &before[start..end_of_authority(before)]
}

fn end_of_authority(url: &str) -> usize {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find('/').map_or(url.len(), |at| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_is_put_into_an_address() {
        for (url, expected) in [
            ("postgres://a:b@h:1/main?x=1", "postgres://a:b@h:1/other?x=1"),
            ("postgres://a@h:1,i:2/main", "postgres://a@h:1,i:2/other"),
            ("postgres://h", "postgres://h/other"),
            ("postgres://h?x=/1", "postgres://h/other?x=/1"),
        ] {
            assert_eq!(with_database(url, "other"), expected);
        }
    }

    #[test]
    fn the_authority_stands_between_scheme_and_database() {
        assert_eq!(authority("postgres://a:b@h:1/main?x=1"), "a:b@h:1");
        assert_eq!(authority("postgres://h?x=/1"), "h");
    }
}
