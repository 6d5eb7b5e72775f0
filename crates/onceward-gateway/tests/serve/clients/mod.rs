//! Ordinary clients: HTTP libraries and the libraries that people retry with, as they come from the
//! registries, before a route that says nothing but whose keys they are.

mod ledger;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, task::JoinSet, time::timeout};

use crate::{
    gateway_support::{Gateway, Plan, TEST_TIMEOUT, route_for},
    installed,
};
use ledger::Ledger;

/// The stacks of one language: one process makes one call by each of those that it is told.
struct Language {
    stacks: &'static [&'static str],
    words: Vec<PathBuf>,
}

const PYTHON: [&str; 5] = [
    "requests+urllib3",
    "requests+backoff",
    "httpx+tenacity",
    "httpx+stamina",
    "aiohttp+aiohttp-retry",
];
const NODE: [&str; 5] = ["axios+axios-retry", "got", "ky", "fetch+p-retry", "fetch+fetch-retry"];

/// Those that `cargo xtask test` has installed; the others are skipped, loudly.
fn languages(directory: &TempDir) -> Vec<Language> {
    let python = installed::python("aiohttp-retry", "clients/stacks.py");
    let node = installed::node("clients", "clients/stacks.mjs", directory.path());
    let all = [("Python", &PYTHON, python), ("Node", &NODE, node)];
    let found = all.into_iter().filter_map(|(name, stacks, words)| {
        let Some(words) = words else {
            let stacks = stacks.join(", ");
            eprintln!(
                "SKIPPED: clients in {name} ({stacks}) are not here; `cargo xtask test` installs them"
            );
            return None;
        };
        Some(Language { stacks, words })
    });
    found.collect()
}

impl Language {
    /// What each stack was told in the end: one call to each of these, each attempt with this time-out.
    async fn call(&self, seconds: u32, urls: &BTreeMap<&str, String>) -> BTreeMap<String, Value> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(seconds.to_string());
        command.arg(serde_json::to_string(urls).unwrap()).kill_on_drop(true);
        for proxy in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(proxy);
        }
        let output = timeout(TEST_TIMEOUT, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("one of {:?} hangs", self.stacks)).unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            panic!("{:?}: {error}: {said}", self.stacks)
        })
    }
}

fn gateway(ledger: &Ledger) -> Gateway {
    let text = format!("admin = \"127.0.0.1:0\"\n{}", route_for("POST /{what}", ""));
    Plan::new(&format!("http://{}", ledger.address), &text).start()
}

/// What is not as it should be with these stacks, each by its name.
fn complaints(
    language: &Language,
    told: &BTreeMap<String, Value>,
    ledger: &Ledger,
    (asked, is_replay): (u32, bool),
) -> Vec<String> {
    let complaint = |stack: &&&str| {
        let (answer, account) = (told.get(**stack).unwrap_or(&Value::Null), ledger.account(stack));
        let receipt = account.receipt(stack);
        let expected = json!({
            "status": 201, "replayed": is_replay.then_some("true"), "body": receipt,
        });
        let is_right = *answer == expected && (account.asked, account.effects) == (asked, 1);
        (!is_right).then(|| format!("{stack} was told {answer}, and the upstream was {account}"))
    };
    language.stacks.iter().filter_map(|stack| complaint(&stack)).collect()
}

/// The upstream cannot do it now. By default a 503 is believed, so that a retry is carried out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_clients_get_past_a_503_under_the_same_key() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = Ledger::start().await;
    let gateway = gateway(&ledger);
    let url = format!("http://{}/busy", gateway.address);
    let mut calls = JoinSet::new();
    for language in languages(&directory) {
        let (ledger, url) = (ledger.clone(), url.clone());
        calls.spawn(async move {
            let urls = language.stacks.iter().map(|stack| (*stack, url.clone())).collect();
            let told = language.call(60, &urls).await;
            complaints(&language, &told, &ledger, (2, false))
        });
    }
    let wrong = calls.join_all().await.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// They give up after a second, and the upstream takes two: a retry waits for what it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_clients_get_the_answer_that_they_gave_up_on() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = Ledger::start().await;
    let mut calls = JoinSet::new();
    for language in languages(&directory) {
        let ledger = ledger.clone();
        calls.spawn(async move {
            // One for each, so that who waits there is known to be a retry of this stack.
            let gateways = language.stacks.iter().map(|stack| (*stack, gateway(&ledger)));
            let gateways: BTreeMap<_, _> = gateways.collect();
            let url = |gateway: &Gateway| format!("http://{}/slow", gateway.address);
            let urls = gateways.iter().map(|(stack, gateway)| (*stack, url(gateway))).collect();
            let told = tokio::select! {
                told = language.call(1, &urls) => told,
                () = let_on_who_retries(&gateways, &ledger) => unreachable!("it never ends"),
            };
            complaints(&language, &told, &ledger, (1, true))
        });
    }
    let wrong = calls.join_all().await.concat();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The upstream ends no call before its client has tried again, however slow this machine is.
async fn let_on_who_retries(gateways: &BTreeMap<&str, Gateway>, ledger: &Ledger) {
    loop {
        for (stack, gateway) in gateways {
            if gateway.metric("onceward_waiters").await > 0 {
                ledger.let_on(stack);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
