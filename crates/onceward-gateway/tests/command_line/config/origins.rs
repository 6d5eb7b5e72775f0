//! `cors_origins`: whose pages may read answers.

use crate::config::support::{accepted, only_mistake, route};

#[test]
fn an_origin_is_written_as_browsers_write_it() {
    for (origins, message, help) in [
        ("\"shop.example\"", "no browser writes so", "write \"https://shop.example\""),
        ("\"https://shop.example/\"", "no browser writes so", "write \"https://shop.example\""),
        ("\"https://Shop.example:443\"", "would never match", "write \"https://shop.example\""),
        ("\"http://a.example/cart?x\"", "no browser writes so", "write \"http://a.example\""),
        ("\"https://*.shop.example\"", "a pattern", "\"*\" alone stands for all of them"),
        ("\"null\"", "sandboxed page", "name that"),
        ("\"https://läden.example\"", "not an origin", "write the scheme, the host and the port"),
        ("\"https://u:sesame@a.example\"", "not an origin", "write the scheme, the host"),
        ("\"\"", "not an origin", "https://shop.example"),
        ("7", "not an origin", "https://shop.example"),
        ("\"https://a.example\", \"*\"", "\"*\" beside other origins", "for none with cookies"),
    ] {
        let (said, advice) = only_mistake(&format!("cors_origins = [\n{origins}]\n{}", route("")));
        assert!(said.starts_with("2:") && said.contains("`cors_origins` has"), "{origins}\n{said}");
        assert!(said.contains(message) && advice.contains(help), "{origins}\n{said}\n{advice}");
        assert!(!format!("{said}{advice}").contains("sesame"), "{said}\n{advice}");
    }
    let (said, help) = only_mistake(&format!("cors_origins = \"*\"\n{}", route("")));
    assert!(
        said.contains("must be a list") && help.contains("[\"https://shop.example\"]"),
        "{said}"
    );
    let right = "cors_origins = [\"https://shop.example\", \"http://localhost:5173\", \"capacitor://localhost\"]";
    accepted(&format!("{right}\n{}", route("")));
}

#[test]
fn every_origin_and_a_cookie_do_not_fit_together() {
    let any = format!("cors_origins = [\"*\"]\n{}", route(""));
    assert!(!accepted(&any).contains("cors_origins` is"));
    let said = accepted(&any.replace("secret:x-api-key", "cookie:session"));
    assert!(said.contains("warning: `cors_origins` is \"*\"") && said.contains("name the origins"));
}
