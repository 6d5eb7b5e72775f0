//! All processes, and what befalls them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    checks::LIVE,
    process::Process,
    settings::{between, millis},
    tally::Event,
    world::{World, locked},
};

pub(crate) struct Cluster {
    pub(crate) world: Arc<World>,
    /// Whom clients reach; a dead process is reached until it is replaced.
    serving: Mutex<Vec<Arc<Process>>>,
    /// All that ever were.
    all: Mutex<Vec<Arc<Process>>>,
}

impl Cluster {
    pub(crate) fn start(world: Arc<World>) -> Self {
        let all: Vec<_> =
            (0..world.settings.processes).map(|number| Process::start(&world, number)).collect();
        Self { world, serving: Mutex::new(all.clone()), all: Mutex::new(all) }
    }

    pub(crate) fn any_process(&self) -> Arc<Process> {
        let serving = locked(&self.serving);
        serving[self.world.draw(|rng| rng.usize(..serving.len()))].clone()
    }

    pub(crate) fn processes(&self) -> Vec<Arc<Process>> {
        locked(&self.all).clone()
    }

    /// Things go wrong for a while.
    pub(crate) async fn disturb(self: Arc<Self>) {
        let lease = self.world.settings.lease();
        let disturbances = self.world.draw(|rng| rng.u8(0..=6));
        for _ in 0..disturbances {
            sleep(self.world.draw(|rng| between(rng, Duration::ZERO..=lease * 2))).await;
            let calm = self.world.settings.is_calm();
            match self.world.draw(|rng| rng.u8(0..100)) {
                0..25 => self.crash().await,
                25..40 => self.drain(),
                40..55 if !calm => self.freeze(),
                55..65 if !calm => self.break_store(),
                40..85 => self.jump(),
                _ => self.world.sweep(),
            }
        }
    }

    /// Everybody who is left works again.
    pub(crate) fn heal(&self) {
        self.world.heal();
        for slot in 0..self.world.settings.processes {
            let process = locked(&self.serving)[slot].clone();
            process.freeze(Duration::ZERO);
            if process.is_dead() {
                self.replace(slot);
            }
        }
    }

    async fn crash(&self) {
        let (slot, process) = self.any_slot();
        self.world.count(Event::Crash);
        self.world.trace(|| format!("process {} crashes", process.number));
        process.die();
        sleep(self.world.draw(|rng| between(rng, Duration::ZERO..=millis(500)))).await;
        self.replace(slot);
    }

    /// A new process takes the place of one that stops as it should.
    fn drain(&self) {
        let (slot, process) = self.any_slot();
        if process.is_dead() {
            return;
        }
        let world = self.world.clone();
        let patience = world.draw(|rng| between(rng, Duration::ZERO..=millis(3000)));
        world.count(Event::Drain);
        world.trace(|| format!("process {} drains for {patience:?}", process.number));
        self.replace(slot);
        tokio::spawn(async move {
            let drained = process.engine.drain(patience).await;
            world.trace(|| format!("process {} drained: {drained:?}", process.number));
            if drained.abandoned == 0 && !process.is_dead() {
                check_drained(&world, process.number);
            }
            process.die();
        });
    }

    fn freeze(&self) {
        let (_, process) = self.any_slot();
        let lease = self.world.settings.lease();
        let duration = self.world.draw(|rng| between(rng, Duration::ZERO..=lease * 3));
        self.world.count(Event::Freeze);
        self.world.trace(|| format!("process {} freezes for {duration:?}", process.number));
        process.freeze(duration);
    }

    fn break_store(&self) {
        let duration = self.world.draw(|rng| between(rng, Duration::ZERO..=millis(2500)));
        self.world.count(Event::Outage);
        self.world.trace(|| format!("the store is down for {duration:?}"));
        self.world.set_outage(duration);
    }

    /// Forwards or backwards by some leases, in total never by more than ten seconds.
    fn jump(&self) {
        let reach = 3 * self.world.settings.lease().as_millis() as i64;
        let jump = self.world.draw(|rng| rng.i64(-reach..=reach));
        if (self.world.clock.jumped_millis() + jump).abs() > 10_000 {
            return;
        }
        self.world.count(Event::Jump);
        self.world.trace(|| format!("the clock is set by {jump} ms"));
        self.world.clock.jump_millis(jump);
    }

    fn any_slot(&self) -> (usize, Arc<Process>) {
        let serving = locked(&self.serving);
        let slot = self.world.draw(|rng| rng.usize(..serving.len()));
        (slot, serving[slot].clone())
    }

    fn replace(&self, slot: usize) {
        let mut all = locked(&self.all);
        let process = Process::start(&self.world, all.len());
        all.push(process.clone());
        locked(&self.serving)[slot] = process;
    }
}

/// A drain that left nothing behind has settled everything that was to be settled.
fn check_drained(world: &World, process: usize) {
    let mut book = world.book();
    let left = (0..book.claims.len()).find(|claim| {
        let note = &book.claims[*claim];
        note.process == process && note.settling && !book.is_settled(*claim)
    });
    if let Some(claim) = left {
        book.violate(LIVE, format!("process {process} was drained, #{claim} is not settled"));
    }
}
