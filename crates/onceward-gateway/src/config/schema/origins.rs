//! `cors_origins`: whose pages may send requests and read answers.

use std::fmt;

use http::Uri;

use crate::config::{
    SourceLocation, WebOrigin,
    diagnostics::mistake::Mistakes,
    parse::reader::{Placed, Setting, Value},
};

const EXAMPLE: &str =
    "write the scheme, the host and the port of its pages, as \"https://shop.example\"";

impl fmt::Display for WebOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Named(name) => formatter.write_str(name),
        }
    }
}

/// An item of the list: as browsers write an origin, because they send nothing else.
pub(crate) fn origin(
    value: &Value,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<WebOrigin> {
    let mut refuse = |message: &str, help: &str| {
        mistakes.error(place, format!("`cors_origins` has {message}"), help);
        None
    };
    let Value::Text(text) = value else {
        return refuse("an item that is not an origin", EXAMPLE);
    };
    match text.as_str() {
        "*" => return Some(WebOrigin::Any),
        "null" => {
            let message = "\"null\", which is the origin of files and of every sandboxed page";
            return refuse(message, "serve the page from a host, and name that");
        }
        pattern if pattern.contains('*') => {
            let help = "name each origin; \"*\" alone stands for all of them, without cookies";
            return refuse("a pattern", help);
        }
        _ => {}
    }
    match as_browsers_write_it(text) {
        Some(written) if written == *text => Some(WebOrigin::Named(written)),
        // What is before an `@` is not quoted.
        Some(written) if !text.contains('@') => {
            let message = "an origin that no browser writes so, and that would never match";
            refuse(message, &format!("write \"{written}\""))
        }
        _ => refuse("an item that is not an origin", EXAMPLE),
    }
}

/// Scheme, host and port in small letters, the port only if it is not the usual one, and nothing else.
fn as_browsers_write_it(text: &str) -> Option<String> {
    let text = match text.contains("://") {
        true => text.to_owned(),
        false => format!("https://{text}"),
    };
    let uri = text.parse::<Uri>().ok()?;
    let (scheme, host) = (uri.scheme_str()?.to_ascii_lowercase(), uri.host()?.to_ascii_lowercase());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    if scheme.is_empty() || host.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    let usual = match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let port = uri.port_u16().filter(|port| Some(*port) != usual);
    Some(port.map_or(format!("{scheme}://{host}"), |port| format!("{scheme}://{host}:{port}")))
}

/// What would mean something else than it says: every origin, and cookies or some origins beside it.
pub(crate) fn check(
    origins: &Setting<Vec<Placed<WebOrigin>>>,
    needs_cookies: bool,
    mistakes: &mut Mistakes,
) {
    let Some(origins) = origins.given().map(|origins| &origins.value) else { return };
    let Some(any) = origins.iter().find(|origin| origin.value == WebOrigin::Any) else { return };
    if origins.len() > 1 {
        let message = "`cors_origins` has \"*\" beside other origins";
        let help = "leave \"*\" out, or leave it alone: it stands for every origin, and for none with cookies";
        mistakes.error(&any.place, message, help);
    } else if needs_cookies {
        let message =
            "`cors_origins` is \"*\", with which browsers send no cookies, and a scope is a cookie";
        mistakes.warning(&any.place, message, "name the origins of your pages instead");
    }
}

#[cfg(test)]
mod tests {
    use super::as_browsers_write_it;

    #[test]
    fn an_origin_is_scheme_host_and_port_and_nothing_else() {
        for (text, written) in [
            ("https://shop.example", "https://shop.example"),
            ("https://Shop.Example/", "https://shop.example"),
            ("HTTPS://shop.example:443/cart?a#b", "https://shop.example"),
            ("http://shop.example:80", "http://shop.example"),
            ("http://localhost:5173/", "http://localhost:5173"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("shop.example", "https://shop.example"),
            ("capacitor://localhost", "capacitor://localhost"),
            ("chrome-extension://abcdefgh", "chrome-extension://abcdefgh"),
        ] {
            assert_eq!(as_browsers_write_it(text).as_deref(), Some(written), "{text}");
        }
        for text in ["", "https://", "https://läden.example", "https://a b", "://x", "https://a,b"]
        {
            assert_eq!(as_browsers_write_it(text), None, "{text}");
        }
    }
}
