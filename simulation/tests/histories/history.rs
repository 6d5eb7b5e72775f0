//! One history: a seed, a world, some rounds of trouble, and the end.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use tokio::{runtime::Builder, time::sleep};

use crate::{
    answer::Answer,
    book::Violation,
    checks,
    client::Client,
    cluster::Cluster,
    sabotage::Sabotage,
    tally::{Event, Tally},
    world::World,
};

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) violations: Vec<Violation>,
    pub(crate) tally: Tally,
    pub(crate) trace: Vec<String>,
}

/// Plays the history of this seed, on virtual time.
pub(crate) fn play(seed: u64, sabotage: Option<Sabotage>, traced: bool) -> Report {
    let _tells = TellsSeed(seed);
    // The engine's pauses are jittered by the thread's own generator.
    fastrand::seed(!seed);
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(World::new(Rng::with_seed(seed), sabotage, traced));
        play_in(&world).await;
        let trace = world.take_trace();
        let mut book = world.book();
        let violations = std::mem::take(&mut book.violations);
        Report { seed, violations, tally: book.tally.clone(), trace }
    })
}

async fn play_in(world: &Arc<World>) {
    let cluster = Arc::new(Cluster::start(world.clone()));
    let clients: Vec<_> =
        (0..world.settings.clients).map(|number| Client::draw(world, number)).collect();
    for round in 0..world.settings.rounds {
        let trouble = tokio::spawn(cluster.clone().disturb());
        for_all(&clients, |client| client.try_on(cluster.clone())).await;
        trouble.await.expect("trouble does not panic");
        if round == 0 && world.settings.night {
            night(world).await;
        }
    }
    cluster.heal();
    come_to_rest(&cluster).await;
    let last_words = for_all(&clients, |client| client.insist(cluster.clone())).await;
    come_to_rest(&cluster).await;
    count_last_words(world, &last_words);
    checks::check_end(&cluster, &last_words);
}

async fn for_all<F>(clients: &[Client], task: impl Fn(Client) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let tasks: Vec<_> = clients.iter().map(|client| tokio::spawn(task(*client))).collect();
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.expect("a client does not panic"));
    }
    results
}

/// Longer than the margin of an hour that a sweep keeps.
async fn night(world: &World) {
    world.trace(|| "a night passes".into());
    world.count(Event::Night);
    sleep(Duration::from_secs(3700)).await;
    world.sweep();
}

/// Leases end, what is on its way lands, and the live processes finish what they have begun.
async fn come_to_rest(cluster: &Cluster) {
    let mut pause = Duration::from_secs(15);
    for _ in 0..12 {
        sleep(pause).await;
        let at_rest = |engine: &onceward::Engine| engine.unsettled() == 0;
        let all = cluster.processes();
        if all.iter().all(|process| process.is_dead() || at_rest(&process.engine)) {
            return;
        }
        pause *= 2;
    }
}

fn count_last_words(world: &World, last_words: &[Option<Answer>]) {
    for word in last_words.iter().flatten() {
        world.count(match word {
            Answer::Ok(_) => Event::FinalOk,
            Answer::Refused(_) => Event::FinalRefused,
            Answer::Mismatch => Event::FinalMismatch,
            _ => Event::FinalUnknown,
        });
    }
}

/// A panic, too, must say which history it was.
struct TellsSeed(u64);

impl Drop for TellsSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", how_to_replay(self.0));
        }
    }
}

pub(crate) fn how_to_replay(seed: u64) -> String {
    format!(
        "seed {seed}; replay it with: \
         ONCEWARD_SEED={seed} cargo test -p onceward-simulation -- --nocapture"
    )
}
