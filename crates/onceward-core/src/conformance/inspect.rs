//! What operators see and may do.

use alloc::{collections::BTreeSet, string::String};

use super::*;
use crate::{
    Cursor, Filter, Inspect, Note, NoteKind, Order, PURGE_MARGIN, Page, Purge, Resolution, Status,
    StoreError, Trail,
};

/// Page by page every record is listed exactly once.
pub async fn list_shows_every_record_once_over_pages<B: Bench<Store: Inspect>>(bench: &B) {
    let store = bench.open().await;
    let mut expected = BTreeSet::new();
    for _ in 0..23 {
        let sample = Sample::new(Effect::External);
        ended(bench, &store, &sample, Ending::Succeeded(answer(201))).await;
        expected.insert(sample.id());
    }
    let pages = pages(&store, Filter { limit: 10, ..Filter::default() }).await;
    assert!(pages.iter().all(|page| page.listed.len() <= 10), "a page keeps to its limit");
    let listed: Vec<Digest> =
        pages.iter().flat_map(|page| page.listed.iter().map(|listed| listed.id)).collect();
    assert_eq!(listed.len(), expected.len());
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);

    let bad = Filter { after: Some(Cursor(String::from("?"))), ..Filter::default() };
    let error = store.list(&bad).await;
    assert!(matches!(error, Err(StoreError::Unusable(_))), "a cursor of no page: {error:?}");
}

/// Status is computed: a claim of an external effect past its lease is listed as unknown.
pub async fn list_filters_by_what_a_record_means_now<B: Bench<Store: Inspect>>(bench: &B) {
    let store = bench.open().await;
    let mut by_status = Vec::new();
    for (effect, age, status) in [
        (Effect::External, SECOND, Status::InProgress),
        (Effect::External, HOUR, Status::Unknown),
        (Effect::Transactional, HOUR, Status::Interrupted),
        (REPEATABLE, WITHIN, Status::Unknown),
    ] {
        let sample = Sample::new(effect);
        claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), age).await;
        by_status.push((status, sample.id()));
    }
    for (ending, age, status) in [
        (Ending::Succeeded(answer(201)), SECOND, Status::Succeeded),
        (Ending::FailedFinal(answer(402)), SECOND, Status::FailedFinal),
        (Ending::FailedRetryable, SECOND, Status::FailedRetryable),
        (Ending::Released, SECOND, Status::Released),
        (Ending::Unknown, SECOND, Status::Unknown),
        (Ending::Succeeded(answer(201)), RETAIN, Status::Expired),
    ] {
        let sample = Sample::new(Effect::External);
        ended(bench, &store, &sample, ending).await;
        bench.age(&store, &sample.id(), age).await;
        by_status.push((status, sample.id()));
    }
    let of = |wanted: Status| {
        by_status.iter().filter(|(status, _)| *status == wanted).map(|(_, id)| *id).collect()
    };
    for status in Status::ALL {
        let listed = ids(&store, Filter { status: Some(status), ..Filter::default() }).await;
        assert_eq!(listed, of(status), "{status}");
    }

    let key = Key::new("k").expect("a valid key");
    let other = Sample { operation: operation("globex", "refund", key), terms: terms(REPEATABLE) };
    claim(bench, &store, &other).await;
    let only = BTreeSet::from([other.id()]);
    let scope = Some(other.operation.scope().clone());
    assert_eq!(ids(&store, Filter { scope, ..Filter::default() }).await, only);
    let operation = Some(other.operation.name().clone());
    assert_eq!(ids(&store, Filter { operation, ..Filter::default() }).await, only);
    let older = ids(&store, Filter { older: Some(HOUR * 2), ..Filter::default() }).await;
    assert_eq!(older.len(), 2, "one abandoned for half a day, one expired");
}

/// A caller knows only its key: a list finds it in every scope and operation.
pub async fn list_finds_a_key_in_every_scope_and_operation<B: Bench<Store: Inspect>>(bench: &B) {
    let store = bench.open().await;
    let key = |text| Key::new(text).expect("a valid key");
    let sample = |tenant, name, text| Sample {
        operation: operation(tenant, name, key(text)),
        terms: terms(Effect::External),
    };
    let mut by_key = BTreeSet::new();
    for tenant in ["acme", "globex", "initech"] {
        for name in ["POST /charges", "refund"] {
            for text in ["one", "two", "three"] {
                let sample = sample(tenant, name, text);
                claim(bench, &store, &sample).await;
                by_key.insert((text, tenant, name, sample.id()));
            }
        }
    }
    let of = |wanted: &dyn Fn(&str, &str, &str) -> bool| -> BTreeSet<Digest> {
        let wanted = by_key.iter().filter(|(text, tenant, name, _)| wanted(text, tenant, name));
        wanted.map(|(.., id)| *id).collect()
    };
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let two = Filter { key: Some(key("two")), order, limit: 2, ..Filter::default() };
        assert_eq!(ids(&store, two.clone()).await, of(&|text, _, _| text == "two"));
        let scope = Some(sample("globex", "refund", "two").operation.scope().clone());
        let in_scope = Filter { scope, ..two.clone() };
        let expected = of(&|text, tenant, _| (text, tenant) == ("two", "globex"));
        assert_eq!(ids(&store, in_scope.clone()).await, expected);
        let operation = Some(OperationName::new("refund").expect("a valid name"));
        let of_operation = Filter { operation: operation.clone(), ..two.clone() };
        let expected = of(&|text, _, name| (text, name) == ("two", "refund"));
        assert_eq!(ids(&store, of_operation).await, expected);
        let exactly = Filter { operation, ..in_scope };
        let expected =
            of(&|text, tenant, name| (text, tenant, name) == ("two", "globex", "refund"));
        assert_eq!(ids(&store, exactly.clone()).await, expected);
        let ended = Filter { status: Some(Status::Succeeded), ..exactly };
        assert_eq!(ids(&store, ended).await, BTreeSet::new(), "it is in progress");
        let unused = Filter { key: Some(key("four")), ..two };
        assert_eq!(ids(&store, unused).await, BTreeSet::new());
    }
}

/// Between two pages records come and change; what was there is listed once, and in order.
pub async fn list_order_is_stable_while_records_come_and_change<B: Bench<Store: Inspect>>(
    bench: &B,
) {
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let store = bench.open().await;
        let samples: Vec<_> = (0..9).map(|_| Sample::new(Effect::External)).collect();
        let mut claims = Vec::new();
        for sample in &samples {
            claims.push(claim(bench, &store, sample).await);
        }
        let sample = &samples[0];
        let operation = Some(sample.operation.name().clone());
        let scope = Some(sample.operation.scope().clone());
        for filter in [
            Filter::default(),
            Filter { operation: operation.clone(), ..Filter::default() },
            Filter { scope: scope.clone(), ..Filter::default() },
            Filter { operation, scope, ..Filter::default() },
            Filter { status: Some(Status::InProgress), ..Filter::default() },
            Filter { older: Some(Duration::ZERO), ..Filter::default() },
        ] {
            let mut filter = Filter { order, limit: 2, ..filter };
            let mut listed = Vec::new();
            loop {
                let page = store.list(&filter).await.expect("the store answers");
                listed.extend(page.listed.iter().map(|listed| listed.id));
                let Some(next) = page.next else { break };
                filter.after = Some(next);
                if listed.len() < samples.len() {
                    // A newcomer, and a change of what was or will be listed.
                    claim(bench, &store, &Sample::new(Effect::External)).await;
                    store.swap(&claims[4].renew()).await.expect("the store answers");
                }
            }
            let mut expected: Vec<Digest> = samples.iter().map(Sample::id).collect();
            if order == Order::NewestFirst {
                expected.reverse();
            }
            let ours: Vec<_> = listed.iter().filter(|id| expected.contains(id)).copied().collect();
            assert_eq!(ours, expected, "{filter:?}");
            let distinct: BTreeSet<_> = listed.iter().collect();
            assert_eq!(distinct.len(), listed.len(), "nothing is listed twice: {filter:?}");
        }
    }
}

/// What is open must be resolved first; what changed meanwhile is not deleted.
pub async fn purge_deletes_only_ended_records<B: Bench<Store: Inspect>>(bench: &B) {
    let store = bench.open().await;
    let note = Note {
        kind: NoteKind::Purge,
        execution: Execution::from_bytes([0; 16]),
        actor: Some("ada".into()),
        reason: Some("asked by the customer".into()),
    };
    let open = Sample::new(Effect::External);
    let running = claim(bench, &store, &open).await;
    let purge = store.purge(&open.id(), running.fence(), &note).await;
    assert_eq!(purge, Ok(Purge::Open), "in progress");
    bench.age(&store, &open.id(), HOUR).await;
    let purge = store.purge(&open.id(), running.fence(), &note).await;
    assert_eq!(purge, Ok(Purge::Open), "computed unknown");

    let unknown = Sample::new(Effect::External);
    ended(bench, &store, &unknown, Ending::Unknown).await;
    let fence = read(&store, &unknown.id()).await.record.fence;
    assert_eq!(store.purge(&unknown.id(), fence, &note).await, Ok(Purge::Open), "stored unknown");

    for ending in endings().into_iter().chain([Ending::Released]) {
        let sample = Sample::new(Effect::External);
        let claim = ended(bench, &store, &sample, ending).await;
        let stale = store.purge(&sample.id(), claim.fence(), &note).await;
        assert!(matches!(stale, Ok(Purge::Conflict(Found::Record(_)))), "{stale:?}");
        let fence = read(&store, &sample.id()).await.record.fence;
        let soon = store.purge(&sample.id(), fence, &note).await;
        assert_eq!(soon, Ok(Purge::Recent), "a claim may still be on its way");
        bench.age(&store, &sample.id(), PURGE_MARGIN).await;
        assert_eq!(store.purge(&sample.id(), fence, &note).await, Ok(Purge::Purged));
        assert!(is_absent(&store, &sample.id()).await);
        let again = store.purge(&sample.id(), fence, &note).await;
        assert_eq!(again, Ok(Purge::Conflict(Found::Nothing)));
    }
}

/// Claim and completion leave no entry; take-over, release, unknown, resolution and purge do.
pub async fn trail_tells_exceptional_changes_only<B: Bench<Store: Inspect + Trail>>(bench: &B) {
    let store = bench.open().await;
    let plain = Sample::new(Effect::External);
    ended(bench, &store, &plain, Ending::Succeeded(answer(201))).await;
    assert_eq!(store.trail(&plain.id()).await, Ok(Vec::new()));

    let sample = Sample::new(Effect::Transactional);
    let first = claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    let second = ended(bench, &store, &sample, Ending::Unknown).await;
    bench.settle(&store, &second, Ending::Released).await;
    let fence = read(&store, &sample.id()).await.record.fence;
    let note = Note {
        kind: NoteKind::Purge,
        execution: second.execution(),
        actor: Some("ada".into()),
        reason: Some("cleared by hand".into()),
    };
    bench.age(&store, &sample.id(), PURGE_MARGIN).await;
    assert_eq!(store.purge(&sample.id(), fence, &note).await, Ok(Purge::Purged));

    let trail = store.trail(&sample.id()).await.expect("the store answers");
    let notes: Vec<Note> = trail.iter().map(|entry| entry.note.clone()).collect();
    let expected = [
        Note::of_protocol(NoteKind::TakeOver, first.execution()),
        Note::of_protocol(NoteKind::Unknown, second.execution()),
        Note::of_protocol(NoteKind::Release, second.execution()),
        note,
    ];
    assert_eq!(notes, expected, "in order, and kept after the record is gone");
    assert!(trail.is_sorted_by_key(|entry| entry.at));

    let sample = Sample::new(Effect::External);
    let claim = ended(bench, &store, &sample, Ending::Unknown).await;
    let unknown = read(&store, &sample.id()).await;
    let change = propose(&sample, Resolution::Applied(answer(201)), &unknown);
    let change = change.expect("an unknown outcome can be resolved");
    store.swap(&change).await.expect("the store answers");
    let trail = store.trail(&sample.id()).await.expect("the store answers");
    let notes: Vec<Note> = trail.into_iter().map(|entry| entry.note).collect();
    let resolved = Note {
        kind: NoteKind::Resolve,
        execution: claim.execution(),
        actor: Some("ada".into()),
        reason: Some("the provider says so".into()),
    };
    let unknown = Note::of_protocol(NoteKind::Unknown, claim.execution());
    assert_eq!(notes, [unknown, resolved], "who resolved what, and why");
}

async fn pages<S: Inspect>(store: &S, mut filter: Filter) -> Vec<Page> {
    let mut pages = Vec::new();
    loop {
        let page = store.list(&filter).await.expect("the store answers");
        filter.after.clone_from(&page.next);
        pages.push(page);
        if filter.after.is_none() {
            return pages;
        }
    }
}

async fn ids<S: Inspect>(store: &S, filter: Filter) -> BTreeSet<Digest> {
    let pages = pages(store, filter).await;
    pages.iter().flat_map(|page| page.listed.iter().map(|listed| listed.id)).collect()
}
