//! One execution: what a handler does with its claim, well or badly.

use std::{sync::Arc, time::Duration};

use onceward::{
    Ending, Outcome,
    engine::Renewal,
    protocol::{Claim, Fence, Found, Settled, Stored},
};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use crate::{
    answer::{Answer, Receipt},
    book::Ended,
    checks::{I5, I14},
    process::Process,
    sabotage::Sabotage,
    script::{Part, Script},
    settings::{Nature, millis},
    tally::Event,
    world::{Reply, World},
};

/// Runs a claim detached from whoever asked; the answer comes if there is one.
pub(crate) fn start(
    world: &Arc<World>,
    process: &Arc<Process>,
    claim: Claim,
    receipt: impl FnOnce(usize) -> Receipt,
) -> oneshot::Receiver<Answer> {
    let number = {
        let mut book = world.book();
        let number = book.claim_of(claim.execution()).expect("a claim that runs has landed");
        book.ran(number, claim.started_at(), claim.effect());
        number
    };
    let (sender, receiver) = oneshot::channel();
    let execution = Execution {
        world: world.clone(),
        process: process.clone(),
        script: Script::draw(world),
        receipt: receipt(number),
        claim,
        number,
        sender: Some(sender),
    };
    world.trace(|| format!("#{number} runs on process {}: {:?}", process.number, execution.script));
    let tracked = process.engine.track();
    tokio::spawn(async move {
        execution.run().await;
        drop(tracked);
    });
    receiver
}

struct Execution {
    world: Arc<World>,
    process: Arc<Process>,
    script: Script,
    receipt: Receipt,
    claim: Claim,
    number: usize,
    sender: Option<oneshot::Sender<Answer>>,
}

/// The claim is lost: whoever hears of it stops.
struct LeaseLost;

impl Execution {
    async fn run(mut self) {
        self.process.step().await;
        let played = match self.world.settings.nature {
            Nature::External => self.run_external().await,
            Nature::Transactional => self.run_transactional().await,
            Nature::Repeatable => self.run_repeatable().await,
        };
        if played.is_err() {
            self.reply(Answer::LeaseLost).await;
        }
    }

    async fn run_external(&mut self) -> Result<(), LeaseLost> {
        self.work(self.script.before).await?;
        match self.script.part {
            Part::Succeed => {
                self.world.effect(self.number);
                self.work(self.script.after).await?;
                self.settle_and_reply(Ending::Succeeded(self.receipt.done())).await;
            }
            Part::Refuse => self.settle_and_reply(Ending::FailedFinal(self.refusal())).await,
            Part::Retry => self.settle_and_reply(Ending::FailedRetryable).await,
            Part::Release => self.settle_and_reply(Ending::Released).await,
            Part::Doubt { effect } => {
                self.effect_if(effect);
                self.settle_and_reply(Ending::Unknown).await;
            }
            Part::TruthLater { effect } => {
                self.settle_and_reply(Ending::Unknown).await;
                self.rest().await;
                self.effect_if(effect);
                let truth = match effect {
                    true => Ending::Succeeded(self.receipt.done()),
                    false => Ending::FailedFinal(self.refusal()),
                };
                self.settle(truth).await;
            }
            Part::Vanish { effect } => {
                self.effect_if(effect);
                self.vanish();
            }
        }
        Ok(())
    }

    async fn run_transactional(&mut self) -> Result<(), LeaseLost> {
        self.work(self.script.before).await?;
        match self.script.part {
            Part::Succeed => {
                self.work(self.script.after).await?;
                let answer = self.commit().await;
                self.reply(answer).await;
            }
            Part::Refuse => self.settle_and_reply(Ending::FailedFinal(self.refusal())).await,
            Part::Retry => self.settle_and_reply(Ending::FailedRetryable).await,
            Part::Release => self.settle_and_reply(Ending::Released).await,
            Part::Doubt { .. } => self.settle_and_reply(Ending::Unknown).await,
            Part::TruthLater { effect } => {
                self.settle_and_reply(Ending::Unknown).await;
                self.rest().await;
                match effect {
                    true => drop(self.commit().await),
                    false => drop(self.settle(Ending::FailedFinal(self.refusal())).await),
                }
            }
            Part::Vanish { effect } => {
                if effect {
                    self.commit().await;
                }
                self.vanish();
            }
        }
        Ok(())
    }

    async fn run_repeatable(&mut self) -> Result<(), LeaseLost> {
        self.work(self.script.before).await?;
        match self.script.part {
            Part::Succeed | Part::Refuse => {
                let ending = self.ask_downstream();
                self.work(self.script.after).await?;
                self.settle_and_reply(ending).await;
            }
            Part::Retry => self.settle_and_reply(Ending::FailedRetryable).await,
            Part::Release => self.settle_and_reply(Ending::Released).await,
            // The provider's answer was lost: asking again is harmless, or somebody must look.
            Part::Doubt { effect } => {
                self.ask_downstream();
                let ending = if effect { Ending::Unknown } else { Ending::FailedRetryable };
                self.settle_and_reply(ending).await;
            }
            Part::TruthLater { .. } => {
                self.settle_and_reply(Ending::Unknown).await;
                self.rest().await;
                let ending = self.ask_downstream();
                self.settle(ending).await;
            }
            Part::Vanish { effect } => {
                if effect {
                    self.ask_downstream();
                }
                self.vanish();
            }
        }
        Ok(())
    }

    /// Takes its time, renewing its claim or not.
    async fn work(&self, duration: Duration) -> Result<(), LeaseLost> {
        let end = Instant::now() + duration;
        let slice = self.world.settings.lease() / 3;
        while Instant::now() < end {
            let left = end - Instant::now();
            sleep(if self.script.renews { left.min(slice) } else { left }).await;
            self.process.step().await;
            if self.script.renews
                && let Ok(Renewal::Lost(_)) = self.process.engine.renew(&self.claim).await
            {
                self.lost_renewal();
                return Err(LeaseLost);
            }
            self.process.step().await;
        }
        Ok(())
    }

    fn lost_renewal(&self) {
        let stored = self.world.stored(&self.claim.id());
        let number = self.number;
        let mut book = self.world.book();
        book.count(Event::Lost);
        if stored.is_some_and(|stored| stored.record.fence == self.claim.fence()) {
            book.violate(I5, format!("#{number} was told that it lost the claim that it holds"));
        }
    }

    async fn rest(&self) {
        sleep(self.script.after).await;
        self.process.step().await;
    }

    fn effect_if(&self, effect: bool) {
        if effect {
            self.world.effect(self.number);
        }
    }

    fn refusal(&self) -> Outcome {
        self.receipt.refused()
    }

    fn ask_downstream(&self) -> Ending {
        let Receipt { fingerprint, .. } = self.receipt;
        let Reply { result, done, .. } =
            self.world.ask_downstream(&self.claim, self.number, fingerprint);
        let receipt = Receipt { result, ..self.receipt };
        match done {
            true => Ending::Succeeded(receipt.done()),
            false => Ending::FailedFinal(receipt.refused()),
        }
    }

    fn vanish(&self) {
        self.world.trace(|| format!("#{} vanishes", self.number));
        self.world.book().claims[self.number].vanished = true;
    }

    async fn settle_and_reply(&mut self, ending: Ending) {
        if self.world.sabotage == Some(Sabotage::AnswersBeforeDurable)
            && let Ending::Succeeded(outcome) = &ending
        {
            self.reply(Answer::of(outcome)).await;
        }
        let answer = self.settle(ending).await;
        self.reply(answer).await;
    }

    /// Ends the claim through the engine; what the client may be told then.
    async fn settle(&self, ending: Ending) -> Answer {
        self.process.step().await;
        self.world.book().claims[self.number].settling = true;
        let (ended, answer) = self.answer_to(&ending);
        match self.process.engine.settle(self.claim.clone(), ending).await {
            Ok(Settled::Stored { .. }) => {
                self.check_stored(ended);
                answer
            }
            Ok(Settled::FencedOff(found)) => {
                self.check_fenced_off(ended, &found);
                Answer::LeaseLost
            }
            Err(_) => {
                self.world.count(Event::Unsettled);
                Answer::Unknown
            }
        }
    }

    fn answer_to(&self, ending: &Ending) -> (Ended, Answer) {
        let retryable = Answer::Retryable { claim: self.number };
        match ending {
            Ending::Succeeded(outcome) => (Ended::Succeeded, Answer::of(outcome)),
            Ending::FailedFinal(outcome) => (Ended::Refused, Answer::of(outcome)),
            Ending::FailedRetryable => (Ended::Retryable, retryable),
            Ending::Released => (Ended::Released, retryable),
            Ending::Unknown => (Ended::Unknown, Answer::Unknown),
        }
    }

    /// "Stored" must be true, and only the owner may hear it: the book saw what landed.
    fn check_stored(&self, ended: Ended) {
        let number = self.number;
        let mut book = self.world.book();
        let endings = &book.claims[number].endings;
        // The release of a re-run that may have had its effect is kept as a retryable failure.
        let kept = ended == Ended::Released && endings.contains(&Ended::Retryable);
        if !endings.contains(&ended) && !kept {
            book.violate(I14, format!("#{number} was told that {ended:?} is stored"));
        }
    }

    /// Whose end is stored is told so, also if the reply was lost; and the truth wins over unknown.
    fn check_fenced_off(&self, ended: Ended, found: &Found) {
        let number = self.number;
        self.world.trace(|| format!("#{number} is fenced off"));
        let mut book = self.world.book();
        book.count(Event::FencedOff);
        if let Found::Record(stored) = found
            && stored.record.execution == self.claim.execution()
            && let Some(state) = Ended::of(&stored.record.state)
            && (state == ended || state == Ended::Unknown)
        {
            book.violate(I5, format!("{ended:?} of #{number} was fenced off by its own {state:?}"));
        }
    }

    /// The effect and the end of the claim in one transaction, then the truth by reading.
    async fn commit(&self) -> Answer {
        self.process.step().await;
        let fence = Fence::from_random(self.world.draw(|rng| rng.u128(..)).to_be_bytes());
        let settlement = self.claim.settle(Ending::Succeeded(self.receipt.done()), fence);
        let (world, number, process) = (self.world.clone(), self.number, self.process.number);
        if world.sabotage == Some(Sabotage::EffectOutsideCommit) {
            world.effect(number);
        }
        let in_doubt = !world.is_healed() && world.chance(20);
        let after = millis(if in_doubt { world.draw(|rng| rng.u64(0..=1500)) } else { 0 });
        let on_its_way = tokio::spawn(async move {
            sleep(after).await;
            world.commit(settlement, number, process)
        });
        if in_doubt {
            self.world.count(Event::InDoubt);
            sleep(millis(self.world.draw(|rng| rng.u64(0..=1500)))).await;
            if self.world.sabotage == Some(Sabotage::DoubtCalledFailure) {
                return Answer::Retryable { claim: number };
            }
        } else {
            let settled = on_its_way.await.expect("a commit does not panic");
            if let Settled::FencedOff(found) = settled {
                self.check_fenced_off(Ended::Succeeded, &found);
            }
        }
        self.process.step().await;
        self.read_back().await
    }

    async fn read_back(&self) -> Answer {
        match self.ended().await {
            Err(answer) => answer,
            Ok(Some(answer)) => answer,
            // Still open: what is on its way must not land after the client was told to try again.
            Ok(None) => match self.settle(Ending::FailedRetryable).await {
                Answer::LeaseLost => match self.ended().await {
                    Ok(Some(answer)) | Err(answer) => answer,
                    Ok(None) => Answer::Unknown,
                },
                answer => answer,
            },
        }
    }

    /// How this execution's record ended; `None`: it is still open. `Err`: no more can be said.
    async fn ended(&self) -> Result<Option<Answer>, Answer> {
        let mut found = Err(());
        for _ in 0..3 {
            if let Ok(answer) = self.process.engine.store().get(&self.claim.id()).await {
                found = Ok(answer);
                break;
            }
            sleep(millis(10)).await;
            self.process.step().await;
        }
        match found {
            Err(()) => Err(Answer::Unknown),
            Ok(Found::Record(stored)) => self.ended_as(&stored),
            Ok(_) => Err(Answer::LeaseLost),
        }
    }

    fn ended_as(&self, stored: &Stored) -> Result<Option<Answer>, Answer> {
        if stored.record.execution != self.claim.execution() {
            return Err(Answer::LeaseLost);
        }
        match &stored.record.state {
            onceward::State::InProgress => Ok(None),
            onceward::State::Succeeded(outcome) | onceward::State::FailedFinal(outcome) => {
                Ok(Some(Answer::of(outcome)))
            }
            _ => Ok(Some(Answer::Unknown)),
        }
    }

    async fn reply(&mut self, answer: Answer) {
        self.process.step().await;
        if let Some(sender) = self.sender.take() {
            // The client may be gone.
            let _ = sender.send(answer);
        }
    }
}
