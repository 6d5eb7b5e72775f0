//! A browser as far as CORS goes: it asks first, and shows a page only what the answers allow. The rules
//! are those of the Fetch standard, sections "CORS check" and "CORS-preflight fetch".

use crate::gateway_support::{Call, Gateway, Reply, Version};

/// A script of a page with this origin.
pub(super) struct Page<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) origin: &'a str,
    /// `credentials: "include"`
    pub(super) with_cookies: bool,
}

/// Always readable.
const SAFE: [&str; 7] = [
    "cache-control",
    "content-language",
    "content-length",
    "content-type",
    "expires",
    "last-modified",
    "pragma",
];

/// An answer that a page may read.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) reply: Reply,
    exposed: Vec<String>,
}

impl Shown {
    /// A header, as `response.headers.get(…)` gives it.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let is_shown = SAFE.contains(&name) || self.exposed.iter().any(|shown| shown == name);
        self.reply.header(name).filter(|_| is_shown)
    }
}

impl Page<'_> {
    /// `fetch(…)`, after a preflight as every request with a key has one; or why the browser refuses.
    pub(super) async fn fetch(&self, version: Version, call: &Call) -> Result<Shown, String> {
        let preflight = self.preflight(version, call).await;
        self.check(&preflight).map_err(|why| format!("preflight: {why}"))?;
        if !(200..300).contains(&preflight.status) {
            return Err(format!("preflight: {}", preflight.status));
        }
        let methods = list(&preflight, "access-control-allow-methods");
        if !methods.contains(&call.method().to_ascii_lowercase()) {
            return Err(format!("preflight: {} is not in {methods:?}", call.method()));
        }
        let headers = list(&preflight, "access-control-allow-headers");
        if let Some(missing) = call.header_names().find(|name| !headers.contains(&(*name).into())) {
            return Err(format!("preflight: {missing} is not in {headers:?}"));
        }
        self.fetch_again(version, call).await
    }

    /// The same within the time for which a preflight counts.
    pub(super) async fn fetch_again(&self, version: Version, call: &Call) -> Result<Shown, String> {
        let reply =
            self.gateway.send_by(version, &call.clone().header("origin", self.origin)).await;
        self.check(&reply)?;
        let exposed = list(&reply, "access-control-expose-headers");
        Ok(Shown { reply, exposed })
    }

    pub(super) async fn preflight(&self, version: Version, call: &Call) -> Reply {
        let mut names: Vec<_> = call.header_names().collect();
        names.sort_unstable();
        let asking = Call::new("OPTIONS", call.path())
            .header("origin", self.origin)
            .header("access-control-request-method", call.method())
            .header("access-control-request-headers", names.join(","));
        self.gateway.send_by(version, &asking).await
    }

    fn check(&self, reply: &Reply) -> Result<(), String> {
        let lines: Vec<_> = reply.headers.get_all("access-control-allow-origin").iter().collect();
        let [line] = &lines[..] else {
            return Err(format!("{} lines of Access-Control-Allow-Origin", lines.len()));
        };
        match (line.to_str().unwrap(), self.with_cookies) {
            ("*", false) => Ok(()),
            (origin, _) if origin != self.origin => Err(format!("it is for {origin}")),
            (_, false) => Ok(()),
            (_, true) => match reply.header("access-control-allow-credentials") {
                Some("true") => Ok(()),
                other => Err(format!("with cookies: {other:?}")),
            },
        }
    }
}

/// The items of all lines of this name, in small letters.
pub(super) fn list(reply: &Reply, name: &str) -> Vec<String> {
    let lines = reply.headers.get_all(name).iter().map(|line| line.to_str().unwrap());
    let items = lines.flat_map(|line| line.split(',')).map(|item| item.trim().to_ascii_lowercase());
    items.filter(|item| !item.is_empty()).collect()
}
