//! The invariants, by name, and what is checked when a history is over.

use onceward::{Effect, State, Status, protocol::Stored};

use crate::{
    answer::Answer,
    book::{Book, Ended},
    cluster::Cluster,
    settings::{Nature, Settings},
};

pub(crate) const I1: &str = "I1 at most one effect";
pub(crate) const I2: &str = "I2 an acknowledged success has exactly one effect";
pub(crate) const I3: &str = "I3 all final answers are equal";
pub(crate) const I4: &str = "I4 record and transactional effect live and die together";
pub(crate) const I5: &str = "I5 a write under an old fence changes nothing";
pub(crate) const I7: &str = "I7 only what may be run again is run again";
pub(crate) const I8: &str = "I8 unknown is never reported as failure";
pub(crate) const I9: &str = "I9 nobody gets the answer to another request";
pub(crate) const I10: &str = "I10 nobody gets the answer of another principal";
pub(crate) const I11: &str = "I11 only what may be deleted is deleted";
pub(crate) const I14: &str = "I14 durable before it is told";
pub(crate) const I17: &str = "I17 a cancelled request leaves no claim that nobody runs";
pub(crate) const LIVE: &str = "liveness: everything ends once faults stop";

pub(crate) const ALL: [&str; 13] = [I1, I2, I3, I4, I5, I7, I8, I9, I10, I11, I14, I17, LIVE];

/// Looks at the whole history: the ledger, the answers, the records.
pub(crate) fn check_end(cluster: &Cluster, last_words: &[Option<Answer>]) {
    let world = &cluster.world;
    for (client, word) in last_words.iter().enumerate() {
        if word.is_none() {
            world.book().violate(LIVE, format!("client {client} never hears a last word"));
        }
    }
    check_processes(cluster);
    let records: Vec<_> = world.ids.iter().map(|id| world.stored(id)).collect();
    let dead: Vec<bool> = cluster.processes().iter().map(|process| process.is_dead()).collect();
    let mut book = world.book();
    check_generations(&mut book);
    check_claims(&mut book, &dead);
    if !world.settings.forgets {
        check_keys(&mut book);
    }
    for stored in records.into_iter().flatten() {
        check_record(&mut book, &world.settings, &stored, &dead);
    }
}

fn check_processes(cluster: &Cluster) {
    for process in cluster.processes() {
        let unsettled = process.engine.unsettled();
        if !process.is_dead() && unsettled > 0 {
            let text = format!("process {} still has {unsettled} unsettled", process.number);
            cluster.world.book().violate(LIVE, text);
        }
    }
}

fn check_generations(book: &mut Book) {
    for number in 0..book.generations.len() {
        let generation = &book.generations[number];
        let effects = generation.effects;
        let repeated = generation.remembered && effects == 0;
        let answer = generation.answer;
        let claims = book.claims.iter().filter(|claim| claim.generation == number);
        let last = claims.clone().next_back();
        let released = last.is_some_and(|claim| claim.endings.last() == Some(&Ended::Released));
        let succeeded = claims.flat_map(|claim| &claim.endings).any(|end| *end == Ended::Succeeded);
        if effects > 1 || (released && effects > 0) {
            book.violate(I1, format!("generation {number}: {effects} effects"));
        }
        if let Some((ok, _)) = answer {
            if ok && effects != 1 && !repeated {
                book.violate(I2, format!("generation {number}: ok, and {effects} effects"));
            }
            if !ok && effects > 0 {
                book.violate(I8, format!("generation {number}: refused, and {effects} effects"));
            }
        }
        if book.nature == Nature::Transactional && succeeded != (effects > 0) {
            let text = format!("generation {number}: {effects} effects, ended well: {succeeded}");
            book.violate(I4, text);
        }
    }
}

/// Where nothing is forgotten a key has one effect, however often it was given back in between.
fn check_keys(book: &mut Book) {
    for key in 0..book.ids.len() {
        let generations = book.generations.iter().filter(|one| usize::from(one.key) == key);
        let effects: u32 = generations.map(|one| one.effects).sum();
        if effects > 1 {
            book.violate(I1, format!("key {key}: {effects} effects"));
        }
    }
}

fn check_claims(book: &mut Book, dead: &[bool]) {
    for number in 0..book.claims.len() {
        let claim = &book.claims[number];
        if claim.denied && claim.effects > 0 && book.nature != Nature::Repeatable {
            book.violate(I8, format!("#{number} was called a failure and had its effect"));
        }
        let claim = &book.claims[number];
        if claim.settling && !dead[claim.process] && !book.is_settled(number) {
            book.violate(LIVE, format!("#{number} was to be settled and is not"));
        }
    }
}

fn check_record(book: &mut Book, settings: &Settings, stored: &Stored, dead: &[bool]) {
    let status = stored.status();
    let Some(number) = book.claim_of(stored.record.execution) else {
        return book.violate(LIVE, format!("nobody made {stored:?}"));
    };
    let claim = &book.claims[number];
    let nobody_runs = !claim.ran && stored.record.state == State::InProgress;
    // A claim may land after its lease would have been over. Then giving it back was in vain.
    let in_vain = book.given_back.contains(&claim.execution) && !settings.is_calm();
    if nobody_runs && !dead[claim.process] && !in_vain {
        book.violate(I17, format!("#{number} is in progress and was never run"));
    }
    let claim = &book.claims[number];
    let said = stored.record.state == State::Unknown;
    let abandoned = claim.vanished || !claim.ran || dead[claim.process];
    let has_cause = match settings.terms.effect() {
        Effect::Transactional => said,
        Effect::External => said || abandoned,
        Effect::Repeatable { within } => said || stored.age() >= within,
    };
    match status {
        Status::Succeeded | Status::FailedFinal => {}
        Status::Expired if settings.forgets => {}
        Status::Unknown if has_cause => {}
        _ => book.violate(LIVE, format!("#{number} is left {status} without a cause")),
    }
}
