//! One database under load, with so many kills.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use fastrand::Rng;
use onceward_crash::{
    load::{Addresses, Clients, Conclusion, Killed, Killer, Tally, World},
    service::{Driver, Stake},
};
use testbed::RedisServer;

pub(crate) const SERVICES: usize = 2;
pub(crate) const CLIENTS: usize = 12;
/// Short, so that much is taken over; a busy machine may even let a running claim expire.
pub(crate) const LEASE: Duration = Duration::from_millis(400);
pub(crate) const END_MARGIN: Duration = Duration::from_secs(5);

/// One database under load, with so many kills.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) stake: Stake,
    pub(crate) driver: Driver,
    pub(crate) kills: usize,
    /// After this the killers take shorter pauses, so that a slow machine sees as many kills.
    pub(crate) unhurried: Duration,
    pub(crate) seed: u64,
    /// Holds the records in place of the database, and is killed too.
    pub(crate) redis: Option<Arc<RedisServer>>,
}

impl Round {
    /// Returns how many services were killed.
    pub(crate) fn run(&self) -> usize {
        let (killed, conclusion) = self.end();
        for violation in &conclusion.violations {
            say(&format!("VIOLATION: {violation}"));
        }
        if !conclusion.violations.is_empty() {
            let history = conclusion.write_down().unwrap();
            panic!("promises were broken (seed {}): see {}", self.seed, history.display());
        }
        killed.all()
    }

    /// What was killed, and what came of it.
    pub(crate) fn end(&self) -> (Killed, Conclusion) {
        let start = Instant::now();
        let service = env!("CARGO_BIN_EXE_service");
        let mut world = World::new(service, self.stake, self.driver, LEASE).unwrap();
        if let Some(server) = &self.redis {
            world = world.on_redis(server.url());
        }
        let killed = self.break_things(&world);
        let faults = start.elapsed();
        let conclusion = world.conclude(&world.launch(), END_MARGIN).unwrap();
        let (stake, driver, seed) = (self.stake, self.driver, self.seed);
        let time = start.elapsed();
        say(&format!(
            "{stake:?} effects with {driver:?}, seed {seed}, {faults:.1?} of {time:.1?}:"
        ));
        say(&format!("  {killed}"));
        say(&format!("  {}", Tally::of(&conclusion)));
        (killed, conclusion)
    }

    /// Clients insist while killers kill; when the last kill is done, everybody stops.
    fn break_things(&self, world: &World) -> Killed {
        let (addresses, stop) = (Addresses::new(SERVICES), AtomicBool::new(false));
        let left = AtomicUsize::new(self.kills);
        let mut random = Rng::with_seed(self.seed);
        let hurry_after = Instant::now() + self.unhurried;
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let clients = Clients { world, addresses: &addresses, stop: &stop };
                let random = random.fork();
                scope.spawn(move || clients.run(client, random));
            }
            if let Some(server) = &self.redis {
                let (stop, random) = (&stop, random.fork());
                scope.spawn(move || kill_again_and_again(server, stop, random));
            }
            let killers: Vec<_> = (0..SERVICES)
                .map(|slot| {
                    let (addresses, left) = (&addresses, &left);
                    let killer = Killer { world, addresses, slot, left, hurry_after };
                    let random = random.fork();
                    scope.spawn(move || killer.kill(random))
                })
                .collect();
            let killed: Vec<_> = killers.into_iter().map(ScopedJoinHandle::join).collect();
            // Before anything panics, so that the clients end in any case.
            stop.store(true, Ordering::Relaxed);
            killed.into_iter().map(|killed| killed.unwrap().unwrap()).sum()
        })
    }
}

/// Kills a server and starts it with what it has left; in the end it is up.
fn kill_again_and_again(server: &RedisServer, stop: &AtomicBool, mut random: Rng) {
    let mut kills = 0;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(random.u64(100..500)));
        server.restart();
        kills += 1;
    }
    say(&format!("the server that has the records was killed {kills} times"));
}

/// `ONCEWARD_SEED`, or any.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("ONCEWARD_SEED").ok();
    seed.map_or_else(|| fastrand::u64(..1_000_000), |seed| seed.parse().unwrap())
}

/// Seen although the test passes.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
