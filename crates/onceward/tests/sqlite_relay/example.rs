//! The program of the page about messages, and its ledger.

#[allow(dead_code, reason = "its main function is for people")]
#[path = "../../examples/order_and_event.rs"]
mod order_and_event;

use std::fs;

#[tokio::test]
async fn each_order_is_billed_once_also_when_the_program_runs_again() {
    let directory = testbed::directory();
    let ledger = || {
        let text = fs::read_to_string(directory.path().join("invoices.txt")).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    order_and_event::run(directory.path(), &[500, 0, 725]).await.unwrap();
    assert_eq!(ledger(), ["order 1: 500 cents", "order 2: 725 cents"]);
    order_and_event::run(directory.path(), &[0, 100]).await.unwrap();
    assert_eq!(ledger(), ["order 1: 500 cents", "order 2: 725 cents", "order 3: 100 cents"]);
}
