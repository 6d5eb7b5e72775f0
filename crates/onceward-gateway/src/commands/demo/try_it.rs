//! Commands to try by hand, ready to be pasted.

use std::io;

use uuid::Uuid;

use super::{
    gateways::{Gateways, OPERATION},
    screen::Screen,
};

const CALLER: &str = "you";

pub(super) fn show(screen: &mut Screen, gateways: &Gateways) -> io::Result<()> {
    let (a, b) = (gateways.address(0), gateways.address(1));
    screen.line("")?;
    let title = format!("Now you: http://{a} and http://{b} are up until you press Ctrl-C.");
    screen.line(screen.strong(&title))?;
    screen.line(format_args!("Their configuration: {}", gateways.configuration().display()))?;
    screen.line(format_args!("Their records:       {}", gateways.records))?;
    let key = Uuid::new_v4().to_string();
    let header = format!("-H 'X-Api-Key: {CALLER}'");
    let pay = |server, cents: u32| {
        format!(
            "curl -i -w '\\n' http://{server}/charges {header} \\\n  -H 'Idempotency-Key: {key}' \\\n  \
             -H 'Content-Type: application/json' -d '{{\"customer\":\"ada\",\"cents\":{cents}}}'"
        )
    };
    let status = format!("'http://{a}/.onceward/operations?operation={OPERATION}&key={key}'");
    let steps = [
        ("Pay, at gateway A.", pay(a, 500)),
        (
            "The same again, at gateway B: the same answer, and idempotent-replayed: true.",
            pay(b, 500),
        ),
        ("The same key for another amount: 422, and why.", pay(a, 900)),
        ("What became of it?", format!("curl -w '\\n' {header} \\\n  {status}")),
        ("What were you charged? Once.", format!("curl -w '\\n' http://{b}/charges {header}")),
    ];
    for (number, (what, command)) in steps.into_iter().enumerate() {
        let what = format!("# {}. {what}", number + 1);
        screen.line("")?;
        screen.line(screen.dim(&what))?;
        screen.line(command)?;
    }
    Ok(())
}
