//! Ambiguous and malformed requests: no crash, no hang, and the upstream sees only what is meant.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use crate::{
    client,
    gateway_support::{Kind, TEST_TIMEOUT},
    plan,
    requests::{self, Allowed, Case},
    witnesses::{Line, Witness},
};

/// Nothing more comes after so long a silence, most probably; if it does, nothing is lost.
const SILENCE: Duration = Duration::from_millis(150);

/// How many attackers there are at once.
const ATTACKERS: usize = 24;

/// When the innocent request follows on the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follow {
    AtOnce,
    AfterTheAnswer,
}

#[test]
fn there_are_enough_cases_and_no_two_have_one_name() {
    let cases = requests::all();
    let names: BTreeMap<_, _> = cases.iter().map(|case| (&case.name, ())).collect();
    assert!(names.len() == cases.len() && cases.len() >= 100, "{}", cases.len());
}

#[test]
fn hyper_sees_only_what_is_meant() {
    crate::run(async { only_what_is_meant(Some(Witness::hyper().await)).await });
}

#[test]
fn node_sees_only_what_is_meant() {
    crate::run(async { only_what_is_meant(Witness::script(Kind::Node)).await });
}

#[test]
fn python_sees_only_what_is_meant() {
    crate::run(async { only_what_is_meant(Witness::script(Kind::Python)).await });
}

#[test]
fn nginx_sees_only_what_is_meant() {
    crate::run(async { only_what_is_meant(Witness::nginx()).await });
}

/// Otherwise the cases of HTTP/2 would be refused for another reason than theirs.
#[test]
fn the_frames_of_the_cases_are_right() {
    crate::run(async {
        let witness = Witness::hyper().await;
        let gateway = plan(witness.address(), "").start();
        let mut cases = requests::all().into_iter();
        let case = cases.find(|case| case.name == "HTTP/2: nothing special").unwrap();
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(&case.bytes).await.unwrap();
        let came = async {
            while witness.seen().await.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(TEST_TIMEOUT, came).await.expect("it never comes");
        assert_eq!(witness.seen().await, [("POST".into(), "/c0000/intended".into())]);
    });
}

async fn only_what_is_meant(witness: Option<Witness>) {
    let Some(witness) = witness else { return };
    let gateway = plan(witness.address(), "").start();
    let manners = [Follow::AtOnce, Follow::AfterTheAnswer];
    let cases: Vec<(Case, Follow)> = manners
        .into_iter()
        .flat_map(|follow| requests::all().into_iter().map(move |case| (case, follow)))
        .collect();
    let (mut attacks, room) = (JoinSet::new(), Arc::new(Semaphore::new(ATTACKERS)));
    for (number, (case, follow)) in cases.iter().enumerate() {
        let (bytes, follow, room) = (numbered(&case.bytes, number), *follow, room.clone());
        let address = gateway.address;
        attacks.spawn(async move {
            let _place = room.acquire().await.unwrap();
            (number, attack(address, number, &bytes, follow).await)
        });
    }
    let mut complaints = Vec::new();
    while let Some(attacked) = attacks.join_next().await {
        let (number, complaint) = attacked.unwrap();
        complaints.extend(complaint.map(|complaint| (number, complaint)));
    }
    let seen = witness.seen().await;
    complaints.extend(cases.iter().enumerate().filter_map(|(number, (case, _))| {
        Some((number, classified(number, case.allowed, &seen)?))
    }));
    complaints.sort();
    let complaints: Vec<String> = complaints
        .into_iter()
        .map(|(number, complaint)| {
            let (case, follow) = &cases[number];
            format!("{} ({follow:?}): {complaint}", case.name)
        })
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    let strangers: Vec<&Line> = seen.iter().filter(|line| !is_numbered(line)).collect();
    assert!(strangers.is_empty(), "nobody asked for {strangers:?}");
    gateway.assert_well();
}

fn marker(number: usize) -> String {
    format!("c{number:04}")
}

/// The same bytes with the number of the case in them.
fn numbered(bytes: &[u8], number: usize) -> Vec<u8> {
    let (mut numbered, marker) = (bytes.to_vec(), marker(number));
    for start in 0..bytes.len() {
        if bytes[start..].starts_with(b"c0000") {
            numbered[start..start + marker.len()].copy_from_slice(marker.as_bytes());
        }
    }
    numbered
}

/// Only an asterisk leaves no place for a number.
fn is_numbered((method, target): &Line) -> bool {
    if method == "OPTIONS" && target == "*" {
        return true;
    }
    target
        .split('c')
        .skip(1)
        .any(|rest| rest.len() >= 4 && rest.bytes().take(4).all(|byte| byte.is_ascii_digit()))
}

/// Sends the bytes and an innocent request, lets the connection end, and asks for something else.
async fn attack(
    address: SocketAddr,
    number: usize,
    bytes: &[u8],
    follow: Follow,
) -> Option<String> {
    let innocent = format!(
        "GET /{}/innocent HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        marker(number)
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut answers = Vec::new();
    // The gateway may close while it is written to: that is its right.
    let _ = stream.write_all(bytes).await;
    if follow == Follow::AfterTheAnswer {
        let _ = timeout(SILENCE, stream.read_to_end(&mut answers)).await;
    }
    let _ = stream.write_all(innocent.as_bytes()).await;
    if timeout(SILENCE, stream.read_to_end(&mut answers)).await.is_err() {
        let _ = stream.shutdown().await;
        if timeout(TEST_TIMEOUT, stream.read_to_end(&mut answers)).await.is_err() {
            return Some("the connection never ends".into());
        }
    }
    if answered(&answers) > 2 {
        return Some(format!("too many answers: {}", String::from_utf8_lossy(&answers)));
    }
    let after = client::get(&format!("/{}/after", marker(number)));
    match client::ask(address, &after).await {
        Ok(answer) if answer.status < 300 => None,
        other => Some(format!("the gateway does not serve others: {other:?}")),
    }
}

/// How many answers these bytes begin, interim ones not counted.
fn answered(bytes: &[u8]) -> usize {
    let starts = |window: &[u8]| window.starts_with(b"HTTP/1.") && !window.ends_with(b"1 1");
    bytes.windows(10).filter(|window| starts(window)).count()
}

/// What is wrong with what the upstream saw of a case.
fn classified(number: usize, allowed: Allowed, seen: &[Line]) -> Option<String> {
    let marker = marker(number);
    let of_case: Vec<&Line> = seen.iter().filter(|(_, target)| target.contains(&marker)).collect();
    let count = |word: &str| of_case.iter().filter(|(_, target)| target.contains(word)).count();
    let (innocent, after, smuggled) = (count("/innocent"), count("/after"), count("/smuggled"));
    let intended = of_case.len() - innocent - after - smuggled;
    let is_right = match allowed {
        Allowed::Nothing => intended == 0,
        Allowed::Once => intended == 1,
        Allowed::AtMostOnce => intended <= 1,
        Allowed::AtMostOnceAndTheEnd => intended <= 1 && innocent == 0,
    };
    if is_right && smuggled == 0 && innocent <= 1 && after == 1 {
        return None;
    }
    Some(format!(
        "{allowed:?} allowed; intended {intended}, smuggled {smuggled}, innocent {innocent}, after \
         {after}: {:.300}",
        format!("{of_case:?}")
    ))
}
