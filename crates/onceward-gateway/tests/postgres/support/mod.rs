//! A shop on PostgreSQL: a database with the tables of Onceward and those of the examples, a role for the
//! service, and gateways on it.

mod example;

use testbed::Database;

use crate::gateway_support::{Call, Finished, Plan, command, route_for};

pub(crate) use example::{EXAMPLES, Example, Service};

pub(crate) struct Shop {
    pub(crate) database: Database,
    role: String,
}

impl Shop {
    /// In a database of the server that all tests share.
    pub(crate) fn open() -> Self {
        Self::on(testbed::postgres().database())
    }

    pub(crate) fn on(database: Database) -> Self {
        let migrated = onceward(&["migrate"], database.url());
        assert!(migrated.is_success(), "{migrated}");
        // Roles belong to the whole server, which others use as well.
        let role = database.name().replace("onceward_test", "shop");
        let setup = include_str!("../../../../../examples/postgres/setup.sql");
        database.sql(&setup.replace(" shop", &format!(" {role}")));
        Self { database, role }
    }

    /// The address for the service.
    pub(crate) fn service_url(&self) -> String {
        let (_, place) = self.database.url().rsplit_once('@').unwrap();
        format!("postgres://{}:shop@{place}", self.role)
    }

    /// The role of the service.
    pub(crate) fn role(&self) -> &str {
        &self.role
    }

    /// A gateway before this upstream, with these lines in its route.
    pub(crate) fn plan(&self, upstream: &str, lines: &str) -> Plan {
        let lines = format!("effect = \"transactional\"\nkey = \"required\"\n{lines}");
        let text = format!("admin = \"127.0.0.1:0\"\n{}", route_for("POST /payments", &lines));
        Plan::new(upstream, &text).store(self.database.url())
    }

    /// How many there are, counted by what has no unique constraint.
    pub(crate) fn payments(&self) -> u32 {
        self.database.sql("SELECT count(*) FROM payment").parse().unwrap()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let role = &self.role;
        let _ = self.database.try_sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    }
}

/// Runs the command with this store in its environment.
pub(crate) fn onceward(arguments: &[&str], store: &str) -> Finished {
    Finished::of(command(arguments).env("ONCEWARD_STORE", store))
}

pub(crate) fn pay(key: &str, cents: i64) -> Call {
    let call = Call::post("/payments").key(key).header("x-api-key", "alice");
    call.json(serde_json::json!({ "cents": cents }))
}
