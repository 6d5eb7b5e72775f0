//! Networks whose addresses are compared in one form.

use std::net::IpAddr;

use ipnet::IpNet;

/// The network in the form in which addresses are compared: `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
///
/// A listener on `[::]` sees the IPv4 address of a client as IPv6, `::ffff:10.0.0.1`, which is the IPv4
/// address. So `::/0` holds no IPv4 address.
pub(super) fn canonical(network: IpNet) -> IpNet {
    let prefix = network.prefix_len().checked_sub(96);
    match (network.addr().to_canonical(), prefix) {
        (address @ IpAddr::V4(_), Some(prefix)) => IpNet::new(address, prefix).unwrap_or(network),
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        canonical(network.parse().unwrap()).contains(&address.to_canonical())
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
}
