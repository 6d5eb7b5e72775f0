//! Whether the caller may see the stored answer: a replay is authorised again.

use super::Caller;
use crate::config::Authorize;

/// Whether the caller is allowed, now, by what the request itself proves, or why not; an earlier
/// permission does not count. A hook asks a URL, which allows nothing here.
pub(crate) fn may_see(authorize: &Authorize, caller: &Caller) -> Result<(), String> {
    match authorize {
        Authorize::None => Ok(()),
        Authorize::Jwt => caller.claims().map(drop).map_err(ToString::to_string),
        Authorize::Mtls => {
            caller.certified().map(drop).ok_or_else(|| "there is no client certificate".to_owned())
        }
        Authorize::Url(_) => Err(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Peer, TokenRefused};
    use super::*;

    fn caller(certified: Option<&str>) -> Caller {
        let address = "203.0.113.9:4711".parse().unwrap();
        let peer = Peer::new(address, &http::uri::Scheme::HTTP, certified.map(Into::into));
        Caller { peer, is_trusted_proxy: false, claims: Err(TokenRefused::Expired) }
    }

    #[test]
    fn a_route_with_jwt_needs_a_token_that_is_valid_now() {
        assert!(may_see(&Authorize::Jwt, &caller(Some("CN=a"))).is_err());
        let valid = Caller { claims: Ok(Arc::new(serde_json::json!({}))), ..caller(None) };
        assert!(may_see(&Authorize::Jwt, &valid).is_ok());
    }

    #[test]
    fn a_route_with_mtls_needs_a_certificate() {
        assert!(may_see(&Authorize::Mtls, &caller(Some("CN=a"))).is_ok());
        assert!(may_see(&Authorize::Mtls, &caller(None)).is_err());
    }

    #[test]
    fn none_allows_all_and_a_url_nothing_before_it_is_asked() {
        assert!(may_see(&Authorize::None, &caller(None)).is_ok());
        let address = http::Uri::from_static("http://127.0.0.1:9/allow");
        assert!(may_see(&Authorize::Url(address), &caller(Some("CN=a"))).is_err());
    }
}
