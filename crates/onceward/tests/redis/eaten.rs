//! A network that eats a question or an answer, at every place of a claim and its end.

use std::time::Duration;

use onceward::{
    Engine,
    conformance::block_on,
    store::redis::{OpenError, RedisStore},
};

use crate::{
    proxy::{Proxy, Spoil},
    support::{private, with_prefix},
    till::Till,
};

/// More than a claim and its end ask.
const PLACES: usize = 12;

/// One operation with a fault at this place; how many were spoilt.
async fn ask_with(server: u16, waits: bool, (spoil, place, count): (Spoil, usize, usize)) -> usize {
    let proxy = Proxy::before(server).await;
    let address = with_prefix(&format!("redis://127.0.0.1:{}", proxy.port()));
    let mut store = RedisStore::builder(&address).unwrap().connections(1).accept_relaxed();
    if waits {
        store = store.wait_replicas(1, Duration::from_secs(20));
    }
    let till = Till::new(Engine::new(store.open().await.unwrap()));
    proxy.spoil(spoil, place, count);
    let mut tries = 0;
    while !till.ask("k").await {
        tries += 1;
        assert!(tries < 1000, "{spoil:?} at {place}: no answer");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (spoilt, sum) = (proxy.spoilt(), till.sum().await);
    assert_eq!(
        (sum.effects, sum.answered, sum.unknown),
        (1, 1, 0),
        "{spoil:?} at {place}: {sum:?}"
    );
    assert_eq!(sum.lost, [""; 0], "{spoil:?} at {place}");
    spoilt
}

async fn every_place(server: u16, waits: bool) {
    for spoil in [Spoil::Question, Spoil::Answer, Spoil::HalfAnAnswer] {
        // Once; and twice in a row, so that what is asked again is eaten too.
        for count in [1, 2] {
            let ask = |place| tokio::spawn(ask_with(server, waits, (spoil, place, count)));
            let places: Vec<_> = (0..PLACES).map(ask).collect();
            let mut reached = 0;
            for place in places {
                reached += usize::from(place.await.unwrap() > 0);
            }
            println!("{spoil:?}, {count} in a row: {reached} places");
            // Two scripts are sent and two are run.
            assert!(reached >= 4, "{spoil:?}: {reached} places were reached");
            assert!(reached < PLACES, "{spoil:?}: there may be more places than were tried");
        }
    }
}

#[test]
fn a_question_or_an_answer_that_is_eaten_at_any_place_doubles_nothing() {
    let (server, _) = private(&[]);
    block_on(every_place(server.port(), false));
}

#[test]
fn the_same_where_changes_wait_for_a_replica() {
    let (server, _) = private(&[]);
    let _replica = server.replica(&[]).unwrap();
    block_on(every_place(server.port(), true));
}

/// An operator who starts a service while its server is away, or goes away, tries again; a wrong setting is something else.
#[test]
fn a_server_that_goes_away_while_a_store_is_opened_is_called_unreachable() {
    block_on(async {
        let (server, _) = private(&[]);
        let mut failed = 0;
        for place in 0..PLACES {
            let proxy = Proxy::before(server.port()).await;
            let address = with_prefix(&format!("redis://127.0.0.1:{}", proxy.port()));
            proxy.spoil(Spoil::Question, place, PLACES);
            let opened = RedisStore::builder(&address).unwrap().accept_relaxed().open().await;
            if let Err(error) = opened {
                assert!(matches!(error, OpenError::Unreachable(_)), "at {place}: {error:?}");
                failed += 1;
            }
        }
        assert!((2..PLACES).contains(&failed), "at {failed} places");
    });
}
