//! Whose keys they are, and who may see a replay: nothing is guessed.

use crate::config::support::{TOP, accepted, only_mistake, refused};

fn file(top: &str, scope: &str, authorize: &str) -> String {
    format!(
        "{TOP}{top}\n[[route]]\nmatch = \"POST /v1/{{tenant}}\"\nscope = {scope}\n\
         authorize = \"{authorize}\"\n"
    )
}

#[test]
fn a_missing_scope_or_authorize_lists_the_choices() {
    let said = refused(&format!("{TOP}[[route]]\nmatch = \"POST /v1\"\n"));
    assert!(
        said.contains("o.toml:2:1: error: `scope` is missing, and there is no default"),
        "{said}"
    );
    for choice in [
        "jwt:<claim>",
        "cert:subject",
        "header:<name>",
        "secret:<header>",
        "cookie:<name>",
        "global",
    ] {
        assert!(said.contains(choice), "{said}");
    }
    assert!(
        said.contains("o.toml:2:1: error: `authorize` is missing, and there is no def"),
        "{said}"
    );
    for choice in ["\"jwt\"", "\"mtls\"", "a URL", "\"none\""] {
        assert!(said.contains(choice), "{said}");
    }
    accepted(&format!("{TOP}[[route]]\nmatch = \"POST /v1\"\nkey = \"off\"\n"));
}

#[test]
fn a_refreshed_token_is_no_scope() {
    for name in ["authorization", "Authorization", "proxy-authorization", "cookie"] {
        let trusted = "trusted_proxies = [\"127.0.0.1\"]";
        let (said, help) = only_mistake(&file(trusted, &format!("[\"header:{name}\"]"), "none"));
        assert!(said.contains("a refreshed token would be a new scope"), "{said}");
        assert!(said.contains("the retry would execute again"), "{said}");
        assert!(help.contains("jwt:sub"), "{help}");
    }
    let said = accepted(&file("", "[\"secret:authorization\"]", "none"));
    assert!(said.contains("warning: `secret:authorization` is right only if"), "{said}");
    let said = accepted(&file("", "[\"cookie:sid\"]", "none"));
    assert!(said.contains("scope=cookie:sid"), "{said}");
    assert!(said.contains("note: `cookie:sid` is right only if that cookie keeps its"), "{said}");
}

#[test]
fn each_part_says_who_asks() {
    for (scope, message, help) in [
        ("[]", "`scope` is empty, and there is no default", "jwt:<claim>"),
        ("[1]", "`scope` has a part that is not a text", "jwt:<claim>"),
        ("\"global\"", "`scope` is a text; it must be a list", "[\"secret:x-api-key\"]"),
        ("[\"secrt:x\"]", "a part of an unknown kind", "did you mean `secret`?"),
        ("[\"whatever\"]", "a part of an unknown kind", "jwt:<claim>"),
        ("[\"jwt:\"]", "`jwt:` names no claim", "jwt:sub"),
        ("[\"jwt-number:\"]", "`jwt-number:` names no claim", "jwt-number:tenant"),
        ("[\"cooky:sid\"]", "a part of an unknown kind", "did you mean `cookie`?"),
        ("[\"cookie\"]", "`cookie:` names no cookie", "cookie:session"),
        ("[\"cookie:a=b\"]", "`cookie:` names no cookie", "cookie:session"),
        ("[\"cookie:a\", \"cookie:a\"]", "`scope` has `cookie:a` twice", "remove one"),
        ("[\"cert:issuer\"]", "only its subject", "cert:subject"),
        ("[\"secret:a b\"]", "behind `secret:` is no header name", "secret:x-api-key"),
        ("[\"header\"]", "`scope` names no header", "header:x-tenant"),
        ("[\"global\", \"json:account\"]", "there is no JSON pointer", "json:/account/id"),
        ("[\"global\", \"json:/a~2\"]", "there is no JSON pointer", "~0"),
        ("[\"global\", \"path:\"]", "`path:` names nothing", "path:tenant"),
        ("[\"global\", \"path:tenat\"]", "has no `{tenat}`", "did you mean \"path:tenant\"?"),
        ("[\"global\", \"path:x\"]", "has no `{x}`", "add `{x}` to /v1/{tenant}"),
        ("[\"path:tenant\"]", "says nothing about the caller", "secret:<header>"),
        ("[\"path:tenant\", \"json:/a\"]", "are additional parts", "secret:<header>"),
        ("[\"global\", \"secret:x\"]", "all callers share their keys", "remove `global`"),
        ("[\"secret:x\", \"secret:X\"]", "`scope` has `secret:x` twice", "remove one"),
    ] {
        let (said, advice) = only_mistake(&file("", scope, "none"));
        assert!(said.contains(message), "{scope}\n{said}");
        assert!(advice.contains(help), "{scope}\n{advice}");
    }
    let many: Vec<_> = (0..17).map(|part| format!("\"secret:x-{part}\"")).collect();
    let (said, help) = only_mistake(&file("", &format!("[{}]", many.join(", ")), "none"));
    assert!(said.contains("`scope` has 17 parts") && help.contains("16 at most"), "{said} {help}");
    let said = accepted(&file("", "[\"secret:x\", \"path:tenant\", \"json:/a~1b/0\"]", "none"));
    assert!(said.contains("scope=secret:x,path:tenant,json:/a~1b/0"), "{said}");
    let said = accepted(&file("", "[\"global\", \"path:tenant\"]", "none"));
    assert!(!said.contains("all callers share"), "{said}");
    assert!(accepted(&file("", "[\"global\"]", "none")).contains("all callers share"));
}

#[test]
fn what_a_scope_or_authorize_needs_must_be_there() {
    let tls = "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"";
    for (top, scope, authorize, message, help) in [
        ("", "jwt:sub", "none", "only with [jwt]", "jwks"),
        ("", "jwt-number:tenant", "none", "only with [jwt]", "jwks"),
        ("", "secret:x", "jwt", "only with [jwt]", "secret_env"),
        ("", "cert:subject", "none", "`client_ca` of [tls]", "client_ca"),
        (tls, "cert:subject", "none", "`client_ca` of [tls]", "client_ca"),
        (tls, "secret:x", "mtls", "`client_ca` of [tls]", "client_ca"),
        ("", "header:x", "none", "needs `trusted_proxies`", "trusted_proxies = ["),
        ("trusted_proxies = []", "header:x", "none", "needs `trusted_proxies`", "trusted_proxies"),
    ] {
        let (said, advice) = only_mistake(&file(top, &format!("[\"{scope}\"]"), authorize));
        assert!(said.contains(message) && advice.contains(help), "{said}\n{advice}");
    }
    let clients = format!("{tls}\nclient_ca = \"clients.pem\"");
    accepted(&file(&clients, "[\"cert:subject\"]", "mtls"));
    accepted(&file("[jwt]\njwks = \"keys.json\"", "[\"jwt:sub\"]", "jwt"));
    accepted(&file("trusted_proxies = [\"::1\"]", "[\"header:x\"]", "none"));
}

#[test]
fn a_claim_has_one_type_wherever_keys_are_shared() {
    let top = "[jwt]\njwks = \"keys.json\"";
    let (said, _) = only_mistake(&file(top, "[\"jwt:t\", \"jwt-number:t\"]", "jwt"));
    assert!(
        said.contains("`scope` has `jwt:t` and `jwt-number:t`: a claim has one type"),
        "{said}"
    );
    let route = |path: &str, name: &str, part: &str| {
        format!(
            "[[route]]\nmatch = \"POST {path}\"\nname = \"{name}\"\nscope = [\"{part}\"]\n\
             authorize = \"jwt\"\n"
        )
    };
    let both = |other: &str| {
        let routes = route("/a", "pay", "jwt:t") + &route("/b", other, "jwt-number:t");
        format!("{TOP}{top}\n{routes}")
    };
    let said = refused(&both("pay"));
    assert!(said.contains("has the same name and reads this claim as another type"), "{said}");
    accepted(&both("refund"));
}

#[test]
fn authorize_is_one_of_four() {
    for (word, message, help) in [
        ("non", "`authorize` is none of the choices", "did you mean \"none\"?"),
        ("my-service", "`authorize` is none of the choices", "a URL"),
        ("ftp://a", "`authorize` has an unknown scheme", "https://"),
        ("http://a:sesame@b/", "`authorize` has a name or password in it", "leave it out"),
    ] {
        let (said, advice) = only_mistake(&file("", "[\"secret:x\"]", word));
        assert!(said.contains(message) && advice.contains(help), "{said}\n{advice}");
    }
    let said = accepted(&file("", "[\"secret:x\"]", "http://127.0.0.1:9/may?token=sesame"));
    assert!(said.contains("authorize=http://127.0.0.1:9/may in_flight="), "{said}");
    let said = accepted(&file("", "[\"secret:x\"]", "none"));
    assert!(said.contains("o.toml:6:13: note: `authorize = \"none\"`"), "{said}");
}

#[test]
fn secrets_are_never_quoted() {
    let file = include_str!("golden/secrets.toml");
    let environment = [("ONCEWARD_ADMIN", "sesame"), ("JWT", "sesame")];
    let output = crate::config::support::check_with(file, &environment);
    assert_eq!(output.code, 1);
    let said = &output.stderr;
    assert!(said.contains("o.toml: 14 mistakes;"), "{said}");
    assert!(!said.contains("sesame"), "{said}");
}

#[test]
fn a_change_of_identity_is_accepted_by_one_route_and_said() {
    let lines = "match = \"POST /v1\"\nscope = [\"secret:x\"]\nauthorize = \"none\"\n";
    let route = |line: &str| format!("{TOP}[[route]]\n{lines}{line}\n");
    let said = accepted(&route("accept_identity_change = true"));
    assert!(said.contains("note: `accept_identity_change = true`: if this route"), "{said}");
    assert!(!accepted(&route("accept_identity_change = false")).contains("accept_identity_change"));
    let (said, _) = only_mistake(&route("accept_identity_change = \"yes\""));
    assert!(said.contains("`accept_identity_change` is a text"), "{said}");
    let defaults = format!("{TOP}[defaults]\naccept_identity_change = true\n[[route]]\n{lines}");
    let (said, _) = only_mistake(&defaults);
    assert!(said.contains("`accept_identity_change` belongs to one route"), "{said}");
}
