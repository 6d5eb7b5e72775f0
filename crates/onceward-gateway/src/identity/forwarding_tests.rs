use http::Request;
use ipnet::IpNet;

use super::{super::Peer, *};

const OUTSIDER: &str = "203.0.113.9:4711";
const PROXY: &str = "10.0.0.1:4711";

/// A gateway that trusts `10.0.0.0/8` and `2001:db8:1::/48`.
fn identity() -> Identity {
    let networks: [IpNet; 2] =
        ["10.0.0.0/8", "2001:db8:1::/48"].map(|network| network.parse().unwrap());
    Identity::build(None, &networks, |_| None).unwrap()
}

fn request(headers: &[(&'static str, &str)]) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    for (name, value) in headers {
        parts.headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    parts
}

fn client(peer: &str, headers: &[(&'static str, &str)]) -> String {
    let (identity, parts) = (identity(), request(headers));
    let peer = Peer::new(peer.parse().unwrap(), &Scheme::HTTP, None);
    let caller = identity.caller(&parts.headers, peer);
    identity.client_address(&parts.headers, &caller).to_string()
}

/// What the upstream gets, one `name: value` for each line.
fn sent(peer: &str, headers: &[(&'static str, &str)]) -> Vec<String> {
    let (identity, mut parts) = (identity(), request(headers));
    let peer = Peer::new(peer.parse().unwrap(), &Scheme::HTTPS, None);
    let caller = identity.caller(&parts.headers, peer);
    identity.clean(&mut parts, &caller);
    let mut headers = parts.headers;
    headers.remove("host");
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
    };
    let mut headers: Vec<String> = headers.iter().map(line).collect();
    headers.sort();
    headers
}

#[test]
fn an_outsider_is_its_own_client_whatever_it_says() {
    assert_eq!(client(OUTSIDER, &[]), "203.0.113.9");
    let lie = [("forwarded", "for=10.0.0.9"), ("x-forwarded-for", "10.0.0.9")];
    assert_eq!(client(OUTSIDER, &lie), "203.0.113.9");
    assert_eq!(client("[::ffff:203.0.113.9]:1", &lie), "203.0.113.9");
}

#[test]
fn behind_trusted_proxies_the_client_is_the_rightmost_that_is_not_trusted() {
    assert_eq!(client(PROXY, &[]), "10.0.0.1");
    assert_eq!(client(PROXY, &[("x-forwarded-for", "203.0.113.9")]), "203.0.113.9");
    let chain = "192.0.2.66, 203.0.113.9, 10.0.0.3, 10.0.0.2";
    assert_eq!(client(PROXY, &[("x-forwarded-for", chain)]), "203.0.113.9");
    let headers = [("x-forwarded-for", "192.0.2.66, 203.0.113.9"), ("x-forwarded-for", "10.0.0.2")];
    assert_eq!(client(PROXY, &headers), "203.0.113.9");
    assert_eq!(client(PROXY, &[("x-forwarded-for", "10.0.0.3, 10.0.0.2")]), "10.0.0.3");
    let standard = r#"for=192.0.2.66, for="[2001:db8:2::7]:80", for="[2001:db8:1::7]""#;
    assert_eq!(client("[2001:db8:1::1]:1", &[("forwarded", standard)]), "2001:db8:2::7");
}

#[test]
fn beyond_a_hop_without_an_address_nothing_is_believed() {
    for hidden in ["unknown", "_proxy", "nonsense", "1.2.3.4.5"] {
        let chain = format!("203.0.113.9, {hidden}, 10.0.0.2");
        assert_eq!(client(PROXY, &[("x-forwarded-for", &chain)]), "10.0.0.2");
        let chain = format!("for=203.0.113.9, for={hidden}, for=10.0.0.2");
        assert_eq!(client(PROXY, &[("forwarded", &chain)]), "10.0.0.2");
    }
    let broken = r#"for=203.0.113.9, for="10.0.0.2"#;
    assert_eq!(client(PROXY, &[("forwarded", broken)]), "10.0.0.1");
    assert_eq!(client(PROXY, &[("forwarded", "for=203.0.113.9;x=\"\u{e9}\"")]), "10.0.0.1");
    assert_eq!(client(PROXY, &[("x-forwarded-for", "\u{e9}")]), "10.0.0.1");
}

#[test]
fn two_headers_that_disagree_are_not_believed() {
    let older = ("x-forwarded-for", "203.0.113.9");
    assert_eq!(client(PROXY, &[("forwarded", "for=203.0.113.9"), older]), "203.0.113.9");
    assert_eq!(client(PROXY, &[("forwarded", "for=192.0.2.66"), older]), "10.0.0.1");
    assert_eq!(client(PROXY, &[("forwarded", "\""), older]), "10.0.0.1");
}

#[test]
fn a_client_that_makes_its_address_unclear_has_the_share_of_its_proxy() {
    let share = |headers: &[(&'static str, &str)]| {
        let (identity, parts) = (identity(), request(headers));
        let peer = Peer::new(PROXY.parse().unwrap(), &Scheme::HTTP, None);
        let caller = identity.caller(&parts.headers, peer);
        identity.origin(&parts.headers, &caller).address.map(|address| address.to_string())
    };
    let older = ("x-forwarded-for", "203.0.113.9");
    for added in ["for=x", "for=192.0.2.66", "for=203.0.113.9, for=unknown", "\"", "\u{e9}"] {
        assert_eq!(share(&[("forwarded", added), older]).as_deref(), Some("10.0.0.1"), "{added}");
    }
    let hidden = [("x-forwarded-for", "203.0.113.9, unknown, 10.0.0.2")];
    assert_eq!(share(&hidden).as_deref(), Some("10.0.0.1"));
    assert_eq!(share(&[older]).as_deref(), Some("203.0.113.9"));
    assert_eq!((share(&[]), share(&[("x-forwarded-for", "10.0.0.3")])), (None, None));
}

#[test]
fn what_an_outsider_says_is_replaced() {
    let lies = [
        ("host", "shop.example:8443"),
        ("forwarded", "for=10.0.0.9;proto=http"),
        ("forwarded", "for=10.0.0.8"),
        ("x-forwarded-for", "10.0.0.9"),
        ("x_forwarded_for", "10.0.0.9"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-prefix", "/admin"),
        ("x-real-ip", "10.0.0.9"),
        ("accept", "*/*"),
    ];
    let expected = [
        "accept: */*",
        r#"forwarded: for=203.0.113.9;host="shop.example:8443";proto=https"#,
        "x-forwarded-for: 203.0.113.9",
        "x-forwarded-host: shop.example:8443",
        "x-forwarded-proto: https",
    ];
    assert_eq!(sent(OUTSIDER, &lies), expected);
}

#[test]
fn what_a_trusted_proxy_says_is_continued() {
    let headers = [
        ("host", "inner.example"),
        ("forwarded", "for=192.0.2.66"),
        ("forwarded", "for=203.0.113.9;proto=http"),
        ("x-forwarded-for", "192.0.2.66"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "shop.example"),
    ];
    let expected = [
        r#"forwarded: for=192.0.2.66, for=203.0.113.9;proto=http, for=10.0.0.1;host="inner.example";proto=https"#,
        "x-forwarded-for: 192.0.2.66, 203.0.113.9, 10.0.0.1",
        "x-forwarded-host: shop.example",
        "x-forwarded-proto: http",
    ];
    assert_eq!(sent(PROXY, &headers), expected);
}

#[test]
fn a_dialect_that_the_trusted_proxy_does_not_speak_is_not_started() {
    let older = ["x-forwarded-for: 203.0.113.9, 10.0.0.1", "x-forwarded-proto: https"];
    assert_eq!(sent(PROXY, &[("x-forwarded-for", "203.0.113.9")]), older);
    let standard = ["forwarded: for=203.0.113.9, for=10.0.0.1;proto=https"];
    assert_eq!(sent(PROXY, &[("forwarded", "for=203.0.113.9")]), standard);
    let both = [
        "forwarded: for=10.0.0.1;proto=https",
        "x-forwarded-for: 10.0.0.1",
        "x-forwarded-proto: https",
    ];
    assert_eq!(sent(PROXY, &[]), both);
}

#[test]
fn a_broken_list_of_a_trusted_proxy_is_replaced() {
    let expected = ["forwarded: for=10.0.0.1;proto=https"];
    assert_eq!(sent(PROXY, &[("forwarded", r#"for="192.0.2.66"#)]), expected);
    assert_eq!(sent(PROXY, &[("forwarded", " , ")]), expected);
    let expected = ["x-forwarded-for: 10.0.0.1", "x-forwarded-proto: https"];
    assert_eq!(sent(PROXY, &[("x-forwarded-for", "\u{e9}")]), expected);
}

#[test]
fn ipv6_is_written_as_each_header_wants_it() {
    let expected = [
        r#"forwarded: for="[2001:db8:2::7]";host="a\"b";proto=https"#,
        "x-forwarded-for: 2001:db8:2::7",
        "x-forwarded-host: a\"b",
        "x-forwarded-proto: https",
    ];
    assert_eq!(sent("[2001:db8:2::7]:4711", &[("host", "a\"b")]), expected);
}

#[test]
fn requests_of_one_connection_may_name_different_hosts() {
    let (identity, peer) = (identity(), Peer::new(OUTSIDER.parse().unwrap(), &Scheme::HTTP, None));
    for host in ["a.example", "b.example", "a.example"] {
        let mut parts = request(&[("host", host)]);
        let caller = identity.caller(&parts.headers, peer.clone());
        identity.clean(&mut parts, &caller);
        assert_eq!(parts.headers["x-forwarded-host"], host);
        let element = format!("for=203.0.113.9;host=\"{host}\";proto=http");
        assert_eq!(parts.headers["forwarded"], element);
    }
}
