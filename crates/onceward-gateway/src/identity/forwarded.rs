//! Reads `Forwarded` (RFC 7239) and `X-Forwarded-For`: the hops that a request says it took.

use std::net::{IpAddr, Ipv4Addr};

/// Who sent the request to a proxy, as that proxy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    Address(IpAddr),
    /// `unknown`, an obfuscated identifier or nonsense: no address.
    Hidden,
}

/// The hops of `Forwarded`, first the farthest; `None` if any of it breaks the grammar, because a
/// stray quote moves the border between what a client and what a proxy wrote.
pub(super) fn forwarded_hops(text: &str) -> Option<Vec<Hop>> {
    let mut reader = Reader { rest: text };
    let mut hops = Vec::new();
    loop {
        reader.skip_space();
        if !reader.rest.is_empty() && !reader.rest.starts_with(',') {
            hops.push(reader.element()?);
        }
        reader.skip_space();
        match reader.rest.strip_prefix(',') {
            Some(rest) => reader.rest = rest,
            None if reader.rest.is_empty() => return Some(hops),
            None => return None,
        }
    }
}

/// The hops of `X-Forwarded-For`, first the farthest.
pub(super) fn x_forwarded_for_hops(text: &str) -> Vec<Hop> {
    text.split(',').map(str::trim).filter(|node| !node.is_empty()).map(hop).collect()
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// `for=192.0.2.1;proto=https`
    fn element(&mut self) -> Option<Hop> {
        let mut found = None;
        loop {
            self.skip_space();
            let name = self.take_while(is_token);
            if name.is_empty() {
                return None;
            }
            self.rest = self.rest.strip_prefix('=')?;
            let value = self.value()?;
            if name.eq_ignore_ascii_case("for") && found.replace(hop(&value)).is_some() {
                return None;
            }
            self.skip_space();
            match self.rest.strip_prefix(';') {
                Some(rest) => self.rest = rest,
                None => return Some(found.unwrap_or(Hop::Hidden)),
            }
        }
    }

    /// A quoted string or a token. Unquoted ports and brackets are common and harmless mistakes.
    fn value(&mut self) -> Option<String> {
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let plain =
                self.take_while(|letter| is_token(letter) || matches!(letter, ':' | '[' | ']'));
            return (!plain.is_empty()).then(|| plain.to_owned());
        };
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        while let Some((index, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &quoted[index + 1..];
                    return Some(value);
                }
                '\\' => value.push(letters.next()?.1),
                _ => value.push(letter),
            }
        }
        None
    }

    fn take_while(&mut self, accepted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !accepted(letter)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }
}

fn is_token(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter)
}

/// `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]:80` or, as older proxies write, `2001:db8::1`.
fn hop(node: &str) -> Hop {
    let address = match node.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if port.is_empty() || port.strip_prefix(':').is_some_and(is_port) => {
            address.parse().ok().map(IpAddr::V6)
        }
        Some(_) => None,
        None => node.parse().ok().or_else(|| ipv4_with_port(node)),
    };
    address.map_or(Hop::Hidden, |address| Hop::Address(address.to_canonical()))
}

fn ipv4_with_port(node: &str) -> Option<IpAddr> {
    let (address, port) = node.split_once(':')?;
    let address: Ipv4Addr = address.parse().ok()?;
    is_port(port).then_some(IpAddr::V4(address))
}

/// Digits, or an obfuscated port as `_hidden`.
fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
        || text.strip_prefix('_').is_some_and(|rest| rest.chars().all(is_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Hop {
        Hop::Address(text.parse().unwrap())
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        assert_eq!(forwarded_hops(r#"for="_gazonk""#), Some(vec![Hop::Hidden]));
        let ipv6 = r#"For="[2001:db8:cafe::17]:4711""#;
        assert_eq!(forwarded_hops(ipv6), Some(vec![address("2001:db8:cafe::17")]));
        let several = "for=192.0.2.60;proto=http;by=203.0.113.43, for=198.51.100.17";
        let expected = vec![address("192.0.2.60"), address("198.51.100.17")];
        assert_eq!(forwarded_hops(several), Some(expected));
        assert_eq!(forwarded_hops("for=unknown"), Some(vec![Hop::Hidden]));
    }

    #[test]
    fn quotes_ports_and_empty_elements_are_understood() {
        let text = r#", for="192.0.2.1:80" ; host="a,b;c=\"d\"" ,, by=x ,for=192.0.2.2:_x"#;
        let expected = vec![address("192.0.2.1"), Hop::Hidden, address("192.0.2.2")];
        assert_eq!(forwarded_hops(text), Some(expected));
        assert_eq!(forwarded_hops(""), Some(vec![]));
        assert_eq!(forwarded_hops("for=[::1]"), Some(vec![address("::1")]));
        assert_eq!(forwarded_hops(r#"for="[::ffff:10.0.0.1]""#), Some(vec![address("10.0.0.1")]));
    }

    #[test]
    fn nonsense_as_a_node_is_no_address() {
        for node in ["300.1.1.1", "[::1]x", "[1.2.3.4]", "1.2.3.4:", "1.2.3.4:99999", "x", "[::1"] {
            assert_eq!(
                forwarded_hops(&format!("for=\"{node}\"")),
                Some(vec![Hop::Hidden]),
                "{node}"
            );
            assert_eq!(x_forwarded_for_hops(node), [Hop::Hidden], "{node}");
        }
    }

    #[test]
    fn a_broken_grammar_is_not_believed_at_all() {
        let broken = [
            r#"for="1.2.3.4, for=192.0.2.1"#,
            r#"x=", for="[2001:db8::1]""#,
            "for=1.2.3.4 5",
            "for",
            "for=",
            "=1",
            "for=1.2.3.4;",
            "for=1.2.3.4;for=1.2.3.5",
            r#"for="a\"#,
            "for=\u{e9}",
            "for =1.2.3.4",
        ];
        for text in broken {
            assert_eq!(forwarded_hops(text), None, "{text}");
        }
    }

    #[test]
    fn the_older_header_has_addresses_with_and_without_ports() {
        let text = "203.0.113.9, 192.0.2.1:80,2001:db8::1 , [2001:db8::2]:80,, unknown, _x";
        let expected = [
            address("203.0.113.9"),
            address("192.0.2.1"),
            address("2001:db8::1"),
            address("2001:db8::2"),
            Hop::Hidden,
            Hop::Hidden,
        ];
        assert_eq!(x_forwarded_for_hops(text), expected);
    }
}
