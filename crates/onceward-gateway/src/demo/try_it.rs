//! Commands to try by hand, ready to be pasted.

use std::io;

use onceward::{Key, OperationId, OperationName};
use uuid::Uuid;

use super::{payments, screen::Screen, service::Service};

const CALLER: &str = "you";

/// Says that the service stays up, and how to try it.
pub(super) fn show(screen: &mut Screen, service: &Service) -> io::Result<()> {
    let server = service.address;
    screen.line("")?;
    let title = format!("Now you: http://{server} is up until you press Ctrl-C.");
    screen.line(screen.strong(&title))?;
    screen.line(format_args!("Its records: {}", service.records().display()))?;
    let key = Uuid::new_v4().to_string();
    let header = format!("-H 'X-Api-Key: {CALLER}'");
    let pay = |cents: u32| {
        format!(
            "curl -i -w '\\n' http://{server}/charges {header} \\\n  -H 'Idempotency-Key: {key}' \\\n  \
             -H 'Content-Type: application/json' -d '{{\"customer\":\"ada\",\"cents\":{cents}}}'"
        )
    };
    let reference = reference(&key).map_err(io::Error::other)?;
    let status = format!("http://{server}/.onceward/operations/{reference}");
    let steps = [
        ("Pay.", pay(500)),
        ("The same again: the same answer, and idempotent-replayed: true.", pay(500)),
        ("The same key for another amount: 422, and why.", pay(900)),
        ("What became of it?", format!("curl -w '\\n' {header} \\\n  {status}")),
        ("What were you charged? Once.", format!("curl -w '\\n' http://{server}/charges {header}")),
    ];
    for (number, (what, command)) in steps.into_iter().enumerate() {
        let what = format!("# {}. {what}", number + 1);
        screen.line("")?;
        screen.line(screen.dim(&what))?;
        screen.line(command)?;
    }
    Ok(())
}

/// The operation's reference, as `onceward-operation` will say it.
fn reference(key: &str) -> Result<String, String> {
    let scope = payments::scope_of(CALLER)?;
    let name = OperationName::new(payments::OPERATION).map_err(|error| error.to_string())?;
    let key = Key::new(key).map_err(|error| error.to_string())?;
    Ok(OperationId::new(scope, name, key).digest().to_string())
}
