//! `examples/checkout`: an order and its message in one commit, and an invoice for it once.

use std::{fs, path::Path};

use testbed::{Database, Process};

use crate::pages::Example;

/// A folder of the example with the two databases that its page asks for.
struct Checkout {
    example: Example,
    shop: Database,
    billing: Database,
    roles: [String; 2],
}

impl Checkout {
    /// `None`, loudly, if this machine cannot run it.
    fn new() -> Option<Self> {
        let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tools");
        let stamp = fs::read_to_string(tools.join("python/packages.txt")).unwrap_or_default();
        let needed = include_str!("../../../../examples/checkout/requirements.txt");
        if !needed.lines().all(|line| stamp.split(' ').any(|word| word == line)) {
            eprintln!(
                "SKIPPED: the example checkout: its packages of Python are not here; `cargo xtask test` installs them"
            );
            return None;
        }
        let [shop, billing] = [(), ()].map(|()| testbed::postgres().database());
        let psql = testbed::Installation::preferred().unwrap().directory().to_owned();
        let example = Example::new("checkout", &["3001", "3002"])
            .with_programs(tools.join("python/bin"))
            .with_programs(psql)
            .with_variable("PIP_NO_INDEX", "1".to_owned());
        // Roles belong to the whole server, which others use as well.
        let roles = [("shop", &shop), ("billing", &billing)].map(|(name, database)| {
            let role = database.name().replace("onceward_test", name);
            let file = example.file(format!("{name}.sql"));
            let text = fs::read_to_string(&file).unwrap();
            let text = text.replace(&format!("ROLE {name} "), &format!("ROLE {role} "));
            fs::write(file, text.replace(&format!(" TO {name};"), &format!(" TO {role};")))
                .unwrap();
            role
        });
        let url = |database: &Database, role: &str, name: &str| {
            let (_, place) = database.url().rsplit_once('@').unwrap();
            format!("postgres://{role}:{name}@{place}")
        };
        let example = example
            .with_variable("SHOP", url(&shop, &roles[0], "shop"))
            .with_variable("BILLING", url(&billing, &roles[1], "billing"))
            .with_variable("SHOP_OWNER", shop.url().to_owned())
            .with_variable("BILLING_OWNER", billing.url().to_owned());
        Some(Self { example, shop, billing, roles })
    }

    /// The first steps of the page: the tables.
    fn with_tables(self) -> Self {
        let steps = "onceward migrate --store $SHOP_OWNER && onceward migrate --store $BILLING_OWNER && \
                     psql -q -f shop.sql $SHOP_OWNER && psql -q -f billing.sql $BILLING_OWNER";
        let made = self.example.command("bash").args(["-c", steps]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        self
    }

    /// A program of the example, run to its end: its status, and what it said.
    fn python(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let process =
            Process::start(self.example.command("python").arg("-B").args(arguments)).unwrap();
        let ended = process.wait_for_end().unwrap();
        let said = process.stdout.text();
        eprintln!("{arguments:?}: {ended}\n{said}{}", process.stderr.text());
        (ended.code(), said)
    }

    /// That the ledger finds this, which is then taken back.
    fn assert_found(&self, database: &Database, mistake: &str, found: &str, mended: &str) {
        database.sql(mistake);
        let (status, said) = self.python(&["ledger.py"]);
        assert_eq!(status, Some(1), "{mistake}: {said}");
        assert!(said.contains(found), "{mistake}: {said}");
        database.sql(mended);
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        for (database, role) in [&self.shop, &self.billing].into_iter().zip(&self.roles) {
            let _ = database.try_sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
        }
    }
}

#[test]
fn the_page_says_what_happens_and_the_ledger_is_right() {
    let Some(checkout) = Checkout::new() else { return };
    checkout.example.walk_readme(&["export ", "createdb "]);
    let repeated: u32 = checkout.billing.sql("SELECT count(*) FROM repeated").parse().unwrap();
    assert!(repeated > 0, "a run in which nothing was repeated proves nothing");
    // Every mistake that the example is there to avoid.
    let copy = "INSERT INTO entry (order_number, kind, pieces)";
    let invoice = "SELECT min(id) FROM entry WHERE kind = 'invoice'";
    checkout.assert_found(
        &checkout.billing,
        &format!("{copy} SELECT order_number, kind, pieces FROM entry WHERE order_number = 7"),
        "order 7 is placed, must have invoice of 2, and has invoice of 2, then invoice of 2",
        "DELETE FROM entry WHERE id = (SELECT max(id) FROM entry)",
    );
    checkout.assert_found(
        &checkout.billing,
        &format!("{copy} VALUES (8, 'invoice', 4)"),
        "order 8 does not exist, and has: invoice of 4",
        "DELETE FROM entry WHERE order_number = 8",
    );
    checkout.assert_found(
        &checkout.billing,
        "UPDATE entry SET kind = CASE kind WHEN 'invoice' THEN 'credit note' ELSE 'invoice' END \
         WHERE order_number = 9",
        "has credit note of 1, then invoice of 1",
        "UPDATE entry SET kind = CASE kind WHEN 'invoice' THEN 'credit note' ELSE 'invoice' END \
         WHERE order_number = 9",
    );
    checkout.assert_found(
        &checkout.billing,
        &format!("DELETE FROM entry WHERE id = ({invoice})"),
        "order 7 is placed, must have invoice of 2, and has nothing",
        &format!("{copy} VALUES (7, 'invoice', 2)"),
    );
    assert_eq!(checkout.python(&["ledger.py"]).0, Some(0), "all is mended");
}

/// Billing whose receipts are worth nothing: the run itself finds it out.
#[test]
fn a_billing_that_forgets_is_found_out() {
    let Some(checkout) = Checkout::new().map(Checkout::with_tables) else { return };
    checkout.billing.sql(
        "CREATE OR REPLACE FUNCTION onceward.first_time(consumer text, message_id text, retain interval \
         DEFAULT '7 days') RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    );
    let (status, said) = checkout.python(&["run.py", "30"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("WRONG: order 10"), "{said}");
    assert!(said.ends_with("the ledger is wrong\n"), "{said}");
}

/// The inbox, as a consumer in another language has it, with the rights that the example grants.
#[test]
fn a_consumer_in_python_receives_each_message_once() {
    let Some(checkout) = Checkout::new().map(Checkout::with_tables) else { return };
    let script = checkout.example.file("consumer.py");
    fs::write(script, include_str!("checkout/consumer.py")).unwrap();
    let (status, said) = checkout.python(&["consumer.py"]);
    assert_eq!((status, said.as_str()), (Some(0), "everything is as it is promised\n"));
    let entries = checkout.billing.sql("SELECT order_number FROM entry ORDER BY order_number");
    assert_eq!(entries, "1\n2\n3\n4");
}
