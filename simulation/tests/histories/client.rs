//! Clients: they ask, lose patience, and ask again with the same key.

use std::{cell::Cell, sync::Arc, time::Duration};

use onceward::{State, Verdict};
use tokio::time::{sleep, timeout};

use crate::{
    answer::{Answer, Receipt},
    checks::{I7, I17},
    cluster::Cluster,
    execution,
    hearing::Asker,
    process::{ADMISSION, Process, Proposed},
    sabotage::Sabotage,
    settings::{between, millis, pick},
    tally::Event,
    world::World,
};

/// Somebody who wants one operation done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) key: u8,
    pub(crate) fingerprint: u8,
}

impl Client {
    pub(crate) fn draw(world: &World, number: usize) -> Self {
        let keys = world.settings.keys;
        world.draw(|rng| Self { number, key: rng.u8(0..keys), fingerprint: pick(rng, b"aaaab") })
    }

    /// Tries some times and does not care what comes of it.
    pub(crate) async fn try_on(self, cluster: Arc<Cluster>) {
        let world = &cluster.world;
        let lease = world.settings.lease();
        let attempts = world.draw(|rng| rng.u8(1..=5));
        for _ in 0..attempts {
            let (gap, patience) = world.draw(|rng| {
                let gap = match rng.u8(0..10) {
                    0..3 => Duration::ZERO,
                    _ => between(rng, Duration::ZERO..=lease * 2),
                };
                let patience = match rng.u8(0..10) {
                    0..3 => between(rng, Duration::ZERO..=millis(40)),
                    _ => between(rng, millis(50)..=lease * 3 + millis(1000)),
                };
                (gap, patience)
            });
            sleep(gap).await;
            self.attempt(&cluster, patience).await;
        }
    }

    /// Tries until there is nothing more to be said; `None`: that never comes.
    pub(crate) async fn insist(self, cluster: Arc<Cluster>) -> Option<Answer> {
        for _ in 0..8 {
            let answer = self.attempt(&cluster, Duration::from_secs(30)).await;
            if answer.is_last_word() {
                return Some(answer);
            }
            sleep(Duration::from_secs(1)).await;
        }
        None
    }

    async fn attempt(self, cluster: &Cluster, patience: Duration) -> Answer {
        let Self { number: client, key, fingerprint } = self;
        let world = &cluster.world;
        let process = cluster.any_process();
        let asked = {
            let mut book = world.book();
            book.count(Event::Attempt);
            book.next_moment()
        };
        let letter = char::from(fingerprint);
        world.trace(|| {
            format!("client {client} asks process {} for key {key} ({letter})", process.number)
        });
        let answer = tokio::select! {
            biased;
            () = process.death() => Answer::Nothing,
            answer = timeout(patience, self.serve(world, &process)) => {
                answer.unwrap_or(Answer::Nothing)
            }
        };
        world.trace(|| format!("client {client} hears {answer:?}"));
        let asker = Asker { client, key, fingerprint, asked };
        world.book().hear(asker, answer, !world.settings.forgets);
        answer
    }

    /// What the process does with the request, as long as the client is there.
    async fn serve(self, world: &Arc<World>, process: &Arc<Process>) -> Answer {
        let Self { key, fingerprint, .. } = self;
        process.step().await;
        let admission = async {
            let verdict = process.engine.admit(world.request(key, fingerprint)).await;
            (verdict, ADMISSION.with(Cell::get))
        };
        let (verdict, proposed) = ADMISSION.scope(Cell::new(None), admission).await;
        let Ok(verdict) = verdict else { return Answer::Unavailable };
        check_admission(world, key, &verdict, proposed.expect("a verdict needs the store"));
        if let Verdict::Run(claim) = verdict {
            let receipt = |claim| Receipt { key, fingerprint, claim, result: 0 };
            let answer = execution::start(world, process, claim, receipt);
            return answer.await.unwrap_or(Answer::Nothing);
        }
        answer_to(world, &verdict)
    }
}

/// Whoever is told to run has just got its lease. Whoever is told anything else must not hold the
/// claim all the same: nobody would run it.
fn check_admission(world: &World, key: u8, verdict: &Verdict, proposed: Proposed) {
    let Proposed { execution, found_over } = proposed;
    if let Verdict::Run(_) = verdict {
        if found_over {
            world.book().violate(I7, "a claim runs that was found past its lease".into());
        }
        return;
    }
    if let Some(stored) = world.stored(&world.ids[usize::from(key)])
        && stored.record.state == State::InProgress
        && stored.record.execution == execution
    {
        let status = stored.status();
        let text = format!("an admission ended without its claim, which is left {status}");
        world.book().violate(I17, text);
    }
}

fn answer_to(world: &World, verdict: &Verdict) -> Answer {
    match verdict {
        Verdict::Run(_) => unreachable!("it runs"),
        Verdict::Replay(replay) => {
            world.count(Event::Replay);
            Answer::of(&replay.outcome)
        }
        Verdict::Busy { .. } => Answer::Busy,
        Verdict::Mismatch => Answer::Mismatch,
        Verdict::Unknown(Some(stored))
            if world.sabotage == Some(Sabotage::UnknownCalledFailure) =>
        {
            let claim = world.book().claim_of(stored.record.execution);
            Answer::Retryable { claim: claim.expect("its claim landed") }
        }
        Verdict::Unknown(_) => Answer::Unknown,
        Verdict::ClockSuspect => unreachable!("the clock is set by seconds only"),
    }
}
