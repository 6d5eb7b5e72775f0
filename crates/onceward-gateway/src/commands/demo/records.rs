//! Where the gateways of the demo keep their records: in a file of their own, or on a server, apart from what others
//! have there.

use std::{path::Path, sync::Arc};

use onceward::store::redis::RedisStore;

use super::BoxError;
use crate::{
    config::{Guarantee, StoreUrl},
    records::{self, Records, Tables},
};

const FILE: &str = "onceward.db";

#[derive(Clone)]
pub(super) struct DemoRecords(StoreUrl);

impl DemoRecords {
    /// What `--store` names, or a file in this directory.
    pub(super) fn choose(said: Option<&str>, directory: &Path) -> Result<Self, BoxError> {
        let Some(said) = said else { return Ok(Self(StoreUrl::Sqlite(directory.join(FILE)))) };
        match StoreUrl::of_argument(said)? {
            StoreUrl::Redis(url) => {
                let url = url.apart(&format!("-demo-{:08x}", fastrand::u32(..)));
                let url = url.map_err(|mistake| format!("{}; {}", mistake.message, mistake.help))?;
                Ok(Self(StoreUrl::Redis(url)))
            }
            _ => Err("--store of the demo is a Redis or Valkey server, where its keys are removed at the end: \
                      redis://127.0.0.1:6379; without --store it uses a SQLite file in a temporary directory"
                .into()),
        }
    }

    /// What the configuration of the gateways says of it. The directory of that file is for this user alone.
    pub(super) fn options(&self) -> String {
        match &self.0 {
            StoreUrl::Redis(url) => {
                // A text of JSON is one of TOML.
                let url = serde_json::Value::from(url.with_password());
                let why =
                    "# The server may lose a record; a retry of its operation then runs again.";
                format!("store = {url}\n{why}\nguarantee = \"relaxed\"")
            }
            _ => format!("store = \"sqlite://{FILE}\""),
        }
    }

    /// In one word, and a name for people.
    pub(super) fn kind(&self) -> &'static str {
        match &self.0 {
            StoreUrl::Redis(_) => "one Redis store",
            _ => "one SQLite store",
        }
    }

    /// Whether a server that was named can be used: the gateways would say it in more words.
    pub(super) async fn check(&self) -> Result<(), BoxError> {
        match &self.0 {
            StoreUrl::Redis(_) => self.open().await.map(drop),
            _ => Ok(()),
        }
    }

    /// To look at them while gateways use them.
    pub(super) async fn open(&self) -> Result<Arc<dyn Records>, BoxError> {
        records::open(&self.0, None, Tables::AsTheyAre, Guarantee::Relaxed).await
    }

    /// Removes what is not in the directory; says what stays, if that fails.
    pub(super) async fn remove(&self) -> Option<String> {
        let StoreUrl::Redis(url) = &self.0 else { return None };
        let removed = async {
            let store = RedisStore::builder(url.with_password())?.accept_relaxed().open().await?;
            Ok::<_, BoxError>(store.erase().await?)
        };
        let error = removed.await.err()?;
        Some(format!(
            "the keys of the demo stay in {url}, under the prefix in this address: {error}"
        ))
    }
}

/// Without a password.
impl std::fmt::Display for DemoRecords {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            StoreUrl::Sqlite(file) => write!(formatter, "{}", file.display()),
            url => write!(formatter, "{url}"),
        }
    }
}
