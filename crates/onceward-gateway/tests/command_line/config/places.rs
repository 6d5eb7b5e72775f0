//! Listeners, upstream, store, files: where things are.

use std::fs;

use crate::config::support::{TOP, accepted, check_with, directory, onceward, only_mistake, route};

/// Everything but the first line, which names the upstream.
fn rest() -> String {
    route("").replace(TOP, "")
}

#[test]
fn an_upstream_is_a_host_and_nothing_else() {
    for (upstream, message, help) in [
        ("127.0.0.1:3000", "`upstream` has no scheme", "http://127.0.0.1:3000"),
        ("http://", "`upstream` is not a URL", "http://127.0.0.1:3000"),
        ("ftp://a", "`upstream` has an unknown scheme", "https://"),
        ("http://u:p@a", "`upstream` has a name or password", "leave it out"),
        ("http://a/v1", "`upstream` has a path", "passed on as it is"),
        ("http://a/?b", "`upstream` has a path", "passed on as it is"),
        ("http://a:0", "`upstream` has port 0", "http://127.0.0.1:3000"),
        ("http://a/#b", "`upstream` has a fragment", "leave out"),
    ] {
        let (said, advice) = only_mistake(&format!("upstream = \"{upstream}\"\n{}", rest()));
        assert!(said.starts_with("1:12: ") && said.contains(message), "{upstream}\n{said}");
        assert!(advice.contains(help), "{upstream}\n{advice}");
    }
    let (said, help) = only_mistake(&rest());
    assert!(said.contains("`upstream` is missing"), "{said}");
    assert!(help.contains("--upstream"), "{help}");
    accepted(&format!("upstream = \"https://service.internal/\"\n{}", rest()));
}

#[test]
fn a_listener_is_an_address_and_a_port() {
    for (listen, help) in [
        ("localhost:8080", "write \"127.0.0.1:8080\""),
        (":9000", "\"0.0.0.0:9000\" for all"),
        ("9000", "\"0.0.0.0:9000\" for all"),
        ("everywhere", "write \"127.0.0.1:8080\" for this machine only"),
        ("127.0.0.1:99999", "write \"127.0.0.1:8080\""),
    ] {
        for option in ["listen", "admin"] {
            let file = format!("{option} = \"{listen}\"\n{}", route(""));
            let (said, advice) = only_mistake(&file);
            assert!(said.contains(&format!("`{option}` is not an address and a port")), "{said}");
            assert!(advice.contains(help), "{listen}\n{advice}");
        }
    }
}

#[test]
fn requests_do_not_go_in_circles() {
    for (listen, admin, upstream, message) in [
        ("0.0.0.0:8080", "127.0.0.1:8080", "a:1", "`admin` and `listen` are the same"),
        ("[::1]:8080", "[::1]:8080", "a:1", "`admin` and `listen` are the same"),
        ("127.0.0.1:8080", "127.0.0.1:1", "127.0.0.1:8080", "where `listen` listens"),
        ("0.0.0.0:8080", "127.0.0.1:1", "localhost:8080", "where `listen` listens"),
        ("0.0.0.0:80", "127.0.0.1:1", "127.0.0.1", "where `listen` listens"),
        ("[::]:8080", "127.0.0.1:1", "[::1]:8080", "where `listen` listens"),
        ("0.0.0.0:8080", "127.0.0.1:8081", "127.0.0.1:8081", "where `admin` listens"),
    ] {
        let top = format!(
            "listen = \"{listen}\"\nadmin = \"{admin}\"\nupstream = \"http://{upstream}\"\n"
        );
        let (said, _) = only_mistake(&(top + &rest()));
        assert!(said.contains(message), "{said}");
    }
    let ports = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n";
    accepted(&format!("{ports}{}", route("")));
    accepted(&format!("listen = \"10.0.0.1:3000\"\n{}", route("")));
}

#[test]
fn a_store_is_a_file_that_stays() {
    for (store, message, help) in [
        ("onceward.db", "`store` has no scheme", "sqlite://onceward.db"),
        ("mysql://h/0", "this version has no such `store`", "sqlite://onceward.db"),
        ("postgress://h/d", "`store` is of an unknown kind", "did you mean \"postgres://\"?"),
        ("postgres://h", "`store` names no database", "@host:5432/database"),
        ("postgres://h/d?sslmod=require", "unknown option `sslmod`", "did you mean `sslmode`?"),
        ("sqlit://a.db", "`store` is of an unknown kind", "did you mean \"sqlite://\"?"),
        ("file://a.db", "`store` is of an unknown kind", "sqlite://onceward.db"),
        ("sqlite://", "`store` names no file", "sqlite://onceward.db"),
        ("sqlite://:memory:", "would forget every key", "sqlite://onceward.db"),
        ("sqlite://a.db?mode=ro", "`store` has options", "leave out"),
    ] {
        let (said, advice) = only_mistake(&format!("store = \"{store}\"\n{}", route("")));
        assert!(said.starts_with("1:9: ") && said.contains(message), "{store}\n{said}");
        assert!(advice.contains(help), "{store}\n{advice}");
    }
    for scheme in ["postgres", "postgresql"] {
        let store = format!("store = \"{scheme}://shop:sesame@db:5432,db2:5432/shop\"\n");
        let said = accepted(&(store + &route("")));
        let shown = format!("store     {scheme}://shop:***@db:5432,db2:5432/shop (strict)");
        assert!(said.contains(&shown) && !said.contains("sesame"), "{said}");
    }
    let said = accepted(&format!("store = \"sqlite://no/such/a.db\"\n{}", route("")));
    assert!(said.contains("warning: `store`: there is no directory no/such"), "{said}");
}

#[test]
fn trusted_proxies_are_networks() {
    for (network, message, help) in [
        ("\"proxy.internal\"", "an item that is not a network", "10.0.0.0/8"),
        ("\"10.0.0.0/33\"", "an item that is not a network", "10.0.0.0/8"),
        ("1", "an item that is not a network", "10.0.0.0/8"),
        ("\"10.1.2.3/8\"", "has digits behind its prefix", "write \"10.0.0.0/8\" for all"),
        ("\"fd00::1/8\"", "has digits behind its prefix", "\"fd00::1/128\" for one"),
    ] {
        let (said, advice) = only_mistake(&format!("trusted_proxies = [{network}]\n{}", route("")));
        assert!(said.starts_with("1:20: ") && said.contains(message), "{said}");
        assert!(advice.contains(help), "{advice}");
    }
    let said = accepted(&format!("trusted_proxies = [\"0.0.0.0/0\", \"::1\"]\n{}", route("")));
    assert!(said.contains("warning: `trusted_proxies` holds every address"), "{said}");
}

#[test]
fn files_must_be_there_and_tls_and_jwt_be_whole() {
    for (section, message, help) in [
        ("[tls]\nkey = \"key.pem\"", "6:1: [tls] has no `cert`", "cert = \"cert.pem\""),
        (
            "[tls]\ncert = \"cert.pem\"\nkey = \"no.pem\"",
            "8:7: `key`: there is no file no.pem",
            "start",
        ),
        ("[jwt]", "6:1: [jwt] does not say how", "jwks = "),
        ("[jwt]\njwks = \"no.json\"", "7:8: `jwks`: there is no file no.json", "relative"),
        ("[jwt]\njwks = \"https://a/keys\"", "`jwks` is a URL", "fetch it"),
        (
            "[jwt]\njwks = \"keys.json\"\nsecret_env = \"A\"",
            "both `jwks` and `secret_env`",
            "jwks = ",
        ),
        ("[jwt]\nsecret_env = \"a b\"", "not the name of an environment variable", "JWT_SECRET"),
        ("[jwt]\njwks = \"keys.json\"\nissuer = \"\"", "`issuer` is empty", "leave it out"),
    ] {
        let (said, advice) =
            only_mistake(&format!("{}{section}\n", route("").trim_end().to_owned() + "\n"));
        assert!(said.contains(message), "{section}\n{said}");
        assert!(advice.contains(help), "{section}\n{advice}");
    }
    let secret = format!("{}[jwt]\nsecret_env = \"SECRET\"\n", route(""));
    assert!(
        accepted(&secret).contains("warning: the environment variable that `secret_env` names")
    );
    let output = check_with(&secret, &[("SECRET", "sesame")]);
    assert!(!output.stdout.contains("warning"), "{}", output.stdout);
}

#[test]
fn relative_names_start_where_the_file_is() {
    let directory = directory();
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("c.pem"), "").unwrap();
    let tls = "[tls]\ncert = \"c.pem\"\nkey = \"../key.pem\"\n";
    let file = format!("store = \"sqlite://a.db\"\n{}{tls}", route(""));
    fs::write(inner.join("o.toml"), file).unwrap();
    let output = onceward(directory.path(), &["check", "inner/o.toml"], &[]);
    assert!(output.is_success(), "{}", output.stderr);
    assert!(output.stdout.contains("store     sqlite://inner/a.db"));
    let here = [("ONCEWARD_STORE", "sqlite://a.db")];
    let output = onceward(directory.path(), &["check", "inner/o.toml"], &here);
    assert!(output.stdout.contains("store     sqlite://a.db"));
}
