//! Rule 5 for client certificates: no caller can be named so that another's answers are its own.

use std::{fs, sync::Arc};

use tempfile::TempDir;

use crate::{
    gateway_support::{
        Certificates, Gateway, Link, Plan, Reply, Upstream, Version, element, route,
    },
    rules::pay,
};

const COMMON_NAME: u8 = 3;
const ORGANISATION: u8 = 10;
const UNIQUE_IDENTIFIER: u8 = 45;

const BIT_STRING: u8 = 0x03;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;

/// `kind=value` below 2.5.4, where names of people and organisations are.
fn attribute(kind: u8, tag: u8, value: &[u8]) -> Vec<u8> {
    element(0x30, &[element(0x06, &[0x55, 0x04, kind]), element(tag, value)].concat())
}

/// A name of these sets of attributes.
fn name(sets: &[&[Vec<u8>]]) -> Vec<u8> {
    let sets: Vec<_> = sets.iter().map(|set| element(0x31, &set.concat())).collect();
    element(0x30, &sets.concat())
}

/// A gateway, an upstream, and the certificates of clients.
struct Bench {
    upstream: Upstream,
    gateway: Gateway,
    directory: Arc<TempDir>,
}

impl Bench {
    /// `None` where there is no openssl.
    fn new(clients: &[(&str, Vec<u8>)]) -> Option<Self> {
        let upstream = Upstream::any();
        let tls = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"all.pem\"\n";
        let route = route("scope = [\"cert:subject\"]\nauthorize = \"mtls\"");
        let plan = Plan::new(&upstream.url(), &format!("{tls}{route}"));
        let directory = plan.directory.clone();
        let names: Vec<&str> = clients.iter().map(|(client, _)| *client).collect();
        Certificates::make(directory.path(), &names)?;
        Certificates::add_authority(directory.path(), "other", &["elsewhere"]);
        for (client, subject) in clients {
            Certificates::rename(directory.path(), "ca", client, subject);
        }
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        fs::write(directory.path().join("all.pem"), read("ca.pem") + &read("other.pem")).unwrap();
        let gateway = plan.start();
        Some(Self { upstream, gateway, directory })
    }

    async fn pay(&self, client: &str) -> Reply {
        let config = Certificates::client(self.directory.path(), Some(client));
        let mut link = Link::open_tls(self.gateway.address, Version::Http1, config).await;
        link.send(&pay("k")).await
    }
}

#[tokio::test]
async fn rule_5_names_that_read_alike_are_not_the_same_caller() {
    let common = |tag, text: &str| attribute(COMMON_NAME, tag, text.as_bytes());
    let acme = || attribute(ORGANISATION, UTF8, b"Acme");
    let bits = |bits: &[u8]| attribute(UNIQUE_IDENTIFIER, BIT_STRING, bits);
    let clients = [
        ("alice", name(&[&[common(UTF8, "alice")], &[acme()]])),
        ("pretender", name(&[&[common(UTF8, "alice, O=Acme")]])),
        ("one_set", name(&[&[common(UTF8, "alice"), acme()]])),
        ("other_type", name(&[&[common(PRINTABLE, "alice")], &[acme()]])),
        ("unshowable", name(&[&[bits(&[0, 1])]])),
        ("unshowable_too", name(&[&[bits(&[0, 2])]])),
    ];
    let Some(bench) = Bench::new(&clients) else { return };
    for (at, (client, _)) in clients.iter().enumerate() {
        let reply = bench.pay(client).await;
        assert_eq!((reply.status, reply.is_replay()), (201, false), "{client}");
        assert_eq!(bench.upstream.count().await, at as u64 + 1, "{client} has keys of its own");
    }
    for (client, _) in &clients {
        assert!(bench.pay(client).await.is_replay(), "{client}");
    }
    assert_eq!(bench.upstream.count().await, clients.len() as u64);
}

#[tokio::test]
async fn rule_5_a_certificate_without_a_whole_name_names_no_caller() {
    let alice = || vec![attribute(COMMON_NAME, UTF8, b"alice")];
    // What cannot be read must not be left out: both would be Alice.
    let unreadable = |value: &[u8]| vec![element(0x30, &element(UTF8, value))];
    let clients = [
        ("alice", name(&[&alice()])),
        ("nameless", name(&[])),
        ("nameless_too", name(&[])),
        ("half", name(&[&alice(), &unreadable(b"one")])),
        ("half_too", name(&[&alice(), &unreadable(b"two")])),
    ];
    let Some(bench) = Bench::new(&clients) else { return };
    assert_eq!(bench.pay("alice").await.status, 201);
    for (client, _) in &clients[1..] {
        let reply = bench.pay(client).await;
        assert_eq!(reply.problem(), (401, "scope-missing".into()), "{client}");
    }
    assert_eq!(bench.upstream.count().await, 1);
}

#[tokio::test]
async fn rule_5_a_caller_is_named_by_authority_and_subject_and_keeps_its_keys_when_it_is_renewed() {
    let alice = || name(&[&[attribute(COMMON_NAME, UTF8, b"alice")]]);
    let Some(bench) = Bench::new(&[("alice", alice()), ("renewed", alice())]) else { return };
    Certificates::rename(bench.directory.path(), "other", "elsewhere", &alice());
    assert_eq!(bench.pay("alice").await.status, 201);
    assert!(bench.pay("renewed").await.is_replay(), "another key, the same name");
    assert!(!bench.pay("elsewhere").await.is_replay(), "another authority has its own Alice");
    assert_eq!(bench.upstream.count().await, 2);
}
