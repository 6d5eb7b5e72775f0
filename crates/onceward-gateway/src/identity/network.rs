//! Which addresses belong to a network.

use std::net::IpAddr;

use crate::config::Network;

impl Network {
    /// Whether the address is in the network.
    ///
    /// An IPv4 address written as IPv6, `::ffff:10.0.0.1`, is the IPv4 address: a listener on `[::]`
    /// sees IPv4 clients in that form. So `::/0` holds no IPv4 address.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let (network, prefix) = self.canonical();
        match (network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                same_prefix(network.to_bits().into(), address.to_bits().into(), prefix, 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                same_prefix(network.to_bits(), address.to_bits(), prefix, 128)
            }
            _ => false,
        }
    }

    /// `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
    fn canonical(&self) -> (IpAddr, u8) {
        match (self.address, self.address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(address)) if self.prefix >= 96 => {
                (IpAddr::V4(address), self.prefix - 96)
            }
            _ => (self.address, self.prefix),
        }
    }
}

/// Whether the first bits agree; a prefix longer than the address agrees with nothing.
fn same_prefix(network: u128, address: u128, prefix: u8, width: u8) -> bool {
    let Some(ignored) = width.checked_sub(prefix) else { return false };
    (network ^ address).checked_shr(ignored.into()).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        let (first, prefix) = network.split_once('/').unwrap();
        let network = Network { address: first.parse().unwrap(), prefix: prefix.parse().unwrap() };
        network.contains(address.parse().unwrap())
    }

    #[test]
    fn an_ipv4_network_holds_the_addresses_that_share_its_prefix() {
        assert!(contains("10.0.0.0/8", "10.255.0.1"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("127.0.0.1/32", "127.0.0.1"));
        assert!(!contains("127.0.0.1/32", "127.0.0.2"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(contains("192.168.7.9/16", "192.168.0.1"), "bits after the prefix do not matter");
        assert!(contains("172.16.0.0/12", "172.31.255.255"));
        assert!(!contains("172.16.0.0/12", "172.32.0.0"));
    }

    #[test]
    fn an_ipv6_network_holds_the_addresses_that_share_its_prefix() {
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!contains("2001:db8::/32", "2001:db9::1"));
        assert!(contains("::1/128", "::1"));
        assert!(!contains("::1/128", "::2"));
        assert!(contains("::/0", "fe80::1"));
    }

    #[test]
    fn an_ipv4_address_is_the_same_in_its_ipv6_form() {
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!contains("10.0.0.0/8", "::ffff:11.1.2.3"));
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(contains("::ffff:10.0.0.0/104", "::ffff:10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.1.2.3"));
    }

    #[test]
    fn the_families_do_not_mix() {
        assert!(!contains("0.0.0.0/0", "2001:db8::1"));
        assert!(!contains("::/0", "10.0.0.1"));
        assert!(!contains("::/0", "::ffff:10.0.0.1"));
        assert!(!contains("::a00:0/104", "10.0.0.0"), "an IPv4-compatible address is IPv6");
    }

    #[test]
    fn a_prefix_that_is_too_long_holds_nothing() {
        assert!(!contains("10.0.0.1/33", "10.0.0.1"));
        assert!(!contains("::1/129", "::1"));
    }
}
