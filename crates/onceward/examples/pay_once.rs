//! A payment that is tried again and again and lands once.
//!
//! ```text
//! cargo run -p onceward --example pay_once              # charges, then answers from memory
//! cargo run -p onceward --example pay_once              # again: another process, nothing charged
//! cargo run -p onceward --example pay_once -- order-2   # another key: another payment
//! ```
#![allow(clippy::print_stdout, reason = "this is what it is for")]

use std::{env, error::Error};

use onceward::{protocol::*, store::sqlite::SqliteStore, *};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let key = env::args().nth(1).unwrap_or_else(|| "order-1".into());
    let path = env::temp_dir().join("onceward-pay-once.db");
    println!("records are in {}", path.display());

    let engine = Engine::new(SqliteStore::open(&path)?);
    for _ in 0..3 {
        println!("{}", pay(&engine, &key, r#"{"cents": 500}"#).await?);
    }
    println!("{}", pay(&engine, &key, r#"{"cents": 900}"#).await?);
    engine.drain(std::time::Duration::from_secs(30)).await;
    Ok(())
}

/// What a request handler does, without HTTP.
async fn pay(engine: &Engine, key: &str, body: &str) -> Result<String, Box<dyn Error>> {
    let request = Request {
        operation: OperationId::new(
            Scope::of("tenant", "acme")?,
            OperationName::new("POST /payments")?,
            Key::new(key)?,
        ),
        fingerprints: Fingerprint::v1(&RequestHead::new("POST", "/payments"), body.as_bytes())
            .into(),
        terms: Terms::of(Effect::External).build()?,
    };
    Ok(match engine.admit(request).await? {
        Verdict::Run(claim) => {
            // Here the card is charged; the provider gets `claim.key_for("card.charge")` as its key.
            let receipt = format!("receipt {} for {body}", claim.execution());
            let outcome = Outcome::inline(201, receipt.clone().into_bytes());
            match engine.settle(claim, Ending::Succeeded(outcome)).await? {
                Settled::Stored { .. } => format!("charged:   {receipt}"),
                Settled::FencedOff(_) => "somebody else took over; ask again".into(),
            }
        }
        Verdict::Replay(replay) => match replay.outcome.body {
            StoredBody::Inline(receipt) => format!("replayed:  {}", String::from_utf8(receipt)?),
            other => format!("replayed:  {other:?}"),
        },
        Verdict::Busy { retry_after } => format!("busy:      ask again in {retry_after:?}"),
        Verdict::Mismatch => {
            format!("refused:   this key was used for another payment than {body}")
        }
        Verdict::Unknown(_) => "unknown:   a person must look at it".into(),
        Verdict::ClockSuspect => "refused:   the store's clock jumped; ask again later".into(),
    })
}
