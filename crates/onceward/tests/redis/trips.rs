//! How often a request asks the server: each command is a round trip that the client waits for.

use onceward::{
    Effect, Verdict,
    protocol::conformance::{Bench, Sample},
};
use testbed::RedisWatch;

use crate::{
    store::{claim, ended, paid},
    support::private,
};

/// What was asked since, without the connection that only listens.
fn asked(watch: &mut RedisWatch) -> Vec<String> {
    let commands = watch.commands().unwrap().into_iter();
    let names = commands.map(|words| String::from_utf8_lossy(&words[0]).into_owned());
    names.filter(|name| !["PING", "SUBSCRIBE"].contains(&name.as_str())).collect()
}

#[tokio::test]
async fn a_claim_a_duplicate_and_a_settlement_are_one_command_each() {
    let (server, bench) = private(&[]);
    let store = bench.open().await;
    // Both connections are made, and the server knows the scripts.
    for _ in 0..20 {
        ended(&bench, &store, paid()).await;
    }
    let mut watch = server.watch().unwrap();
    for _ in 0..20 {
        let sample = Sample::new(Effect::External);
        let running = claim(&bench, &store, &sample).await;
        assert_eq!(asked(&mut watch), ["EVALSHA"], "a claim");
        let busy = bench.admit(&store, sample.request(b'a')).await;
        assert!(matches!(busy, Verdict::Busy { .. }), "{busy:?}");
        assert_eq!(asked(&mut watch), ["EVALSHA"], "a duplicate of what runs");
        bench.settle(&store, &running, paid()).await;
        assert_eq!(asked(&mut watch), ["EVALSHA"], "a settlement");
        let replay = bench.admit(&store, sample.request(b'a')).await;
        assert!(matches!(replay, Verdict::Replay(_)), "{replay:?}");
        assert_eq!(asked(&mut watch), ["EVALSHA"], "a duplicate of what has ended");
    }
}
