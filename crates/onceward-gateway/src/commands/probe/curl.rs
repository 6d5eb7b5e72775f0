//! A request as a command that its reader can send.

use http::{HeaderName, header};

use super::operation::Attempt;
use crate::commands::arguments::Line;

/// What a body may have before it is only described.
const MOST: usize = 2_000;

pub(super) fn command(attempt: &Attempt) -> String {
    let mut words = vec!["curl -i".to_owned()];
    if attempt.method != "POST" || attempt.body.is_none() {
        words.push(format!("-X {}", attempt.method));
    }
    let secret = attempt.credential.as_ref().map(|(name, _)| name);
    for (name, value) in attempt.lines() {
        let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
        words.push(match (Some(&name) == secret, text.as_str()) {
            (true, _) => format!("-H \"{name}: ${}\"", attempt.alias),
            _ if is_secret(&name) => {
                let variable = name.as_str().to_uppercase().replace('-', "_");
                format!("-H \"{name}: ${variable}\"")
            }
            // curl leaves out a line without a value, unless it ends so.
            (false, "") => format!("-H '{name};'"),
            (false, text) => format!("-H {}", quoted(&format!("{name}: {text}"))),
        });
    }
    if attempt.chunked {
        words.push("-H 'transfer-encoding: chunked'".to_owned());
    }
    if let Some(body) = &attempt.body {
        words.push(match (body.len(), std::str::from_utf8(body)) {
            (0..=MOST, Ok(text)) => format!("--data-binary {}", quoted(text)),
            (size, _) => format!("--data-binary @file-of-{size}-bytes"),
        });
    }
    words.push(quoted(&attempt.url.to_string()));
    words.join(" ")
}

/// Whether a line of this name is secret, though the command line does not call it a credential.
pub(super) fn is_secret(name: &HeaderName) -> bool {
    let known = [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE];
    let parts = ["api-key", "apikey", "token", "secret", "password"];
    known.contains(name) || parts.iter().any(|part| name.as_str().contains(part))
}

pub(super) struct Secrets(Vec<String>);

impl Secrets {
    pub(super) fn of<'a>(
        credentials: impl IntoIterator<Item = &'a Line>,
        headers: impl IntoIterator<Item = &'a Line>,
    ) -> Self {
        /// What is shorter is part of ordinary words.
        const SHORTEST: usize = 4;
        let headers = headers.into_iter().filter(|(name, _)| is_secret(name));
        let values = credentials.into_iter().chain(headers);
        let texts = values.map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).into_owned());
        // Of `Bearer abc` also the `abc`.
        let words = texts.flat_map(|text| {
            let last = text.split_whitespace().last().unwrap_or_default().to_owned();
            [text, last]
        });
        Self(words.filter(|word| word.len() >= SHORTEST).collect())
    }

    pub(super) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "$CREDENTIAL"))
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::super::operation::Operation;
    use super::*;
    use crate::commands::arguments::line;

    #[test]
    fn a_command_has_everything_but_the_credential() {
        let mut operation = Operation::example("http://h/pay", "{}");
        operation.headers.push(line("X-Shop: it's").unwrap());
        operation.credentials.push(line("X-Api-Key: secret").unwrap());
        let attempt = operation.fresh().keys(&["", "k"]);
        assert_eq!(
            command(&attempt),
            "curl -i -H 'x-shop: it'\\''s' -H \"x-api-key: $CREDENTIAL\" -H 'idempotency-key;' \
             -H 'idempotency-key: k' --data-binary '{}' 'http://h/pay'"
        );
    }

    #[test]
    fn a_secret_is_hidden_wherever_it_comes_from() {
        let lines =
            ["Authorization: Bearer s3cret", "X-Shop: shop"].map(|text| line(text).unwrap());
        let secrets = Secrets::of(&[], &lines);
        let hidden = secrets.hide("no shop for s3cret, Bearer s3cret");
        assert_eq!(hidden, "no shop for $CREDENTIAL, $CREDENTIAL");
        assert!(lines.iter().map(|(name, _)| is_secret(name)).eq([true, false]));
    }
}
