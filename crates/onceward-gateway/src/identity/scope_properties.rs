//! Every source of a scope with the same question: can two callers share a value?

use std::{net::SocketAddr, sync::Arc};

use http::{HeaderValue, uri::Scheme};
use proptest::{collection::vec, prelude::*, sample::subsequence};
use serde_json::json;

use super::{
    super::{Peer, certificate, document},
    *,
};
use crate::config::Pattern;

/// What is proven about one request, as it came: nothing in it was read yet.
#[derive(Clone, Debug)]
struct Material {
    text_claim: String,
    number_claim: i64,
    /// The bytes of both names, as they stand in the certificate.
    issuer: Vec<u8>,
    subject: Vec<u8>,
    header: String,
    secret: Vec<u8>,
    cookie: String,
    /// The pieces of one segment of the path.
    segment: Vec<&'static str>,
    account: String,
}

/// Few characters, and those that mean something to an encoding, so that moved borders would meet.
fn material() -> impl Strategy<Value = Material> {
    let text = || "[a=,% \"\\\\/7-]{1,3}".prop_map(|text| format!("a{text}a"));
    let bytes = || vec(prop_oneof![Just(0), Just(b'a'), Just(0x30)], 0..3);
    let pieces =
        vec(prop_oneof![Just("a"), Just("%61"), Just("%2F"), Just("%25"), Just(",")], 1..3);
    let numbers = prop_oneof![Just(7), Just(-7), Just(0), any::<i64>()];
    let secret = vec(prop_oneof![Just(b'a'), Just(b','), Just(0xe9)], 1..3);
    let cookie = "[a=,%\"\\\\/7-]{1,3}";
    (text(), numbers, (bytes(), bytes()), text(), (secret, cookie), pieces, text()).prop_map(
        |(
            text_claim,
            number_claim,
            (issuer, subject),
            header,
            (secret, cookie),
            segment,
            account,
        )| {
            Material {
                text_claim,
                number_claim,
                issuer,
                subject,
                header,
                secret,
                cookie,
                segment,
                account,
            }
        },
    )
}

fn sources() -> Vec<ScopePart> {
    let name = HeaderName::from_static;
    vec![
        ScopePart::Jwt("sub".into()),
        ScopePart::Jwt("/realm/name".into()),
        ScopePart::JwtNumber("tenant".into()),
        ScopePart::CertificateSubject,
        ScopePart::Header(name("x-user")),
        ScopePart::Secret(name("x-api-key")),
        ScopePart::Cookie("sid".into()),
        ScopePart::Path("id".into()),
        ScopePart::Json("/account".into()),
        ScopePart::Global,
    ]
}

/// What the source says about the caller: two callers differ where this does. RFC 3986 calls `a` and `%61`
/// one spelling.
fn said(part: &ScopePart, material: &Material) -> Vec<Vec<u8>> {
    match part {
        ScopePart::Jwt(_) => vec![material.text_claim.clone().into()],
        ScopePart::JwtNumber(_) => vec![material.number_claim.to_be_bytes().into()],
        ScopePart::CertificateSubject => vec![material.issuer.clone(), material.subject.clone()],
        ScopePart::Header(_) => vec![material.header.clone().into()],
        ScopePart::Secret(_) => vec![material.secret.clone()],
        ScopePart::Cookie(_) => vec![material.cookie.clone().into()],
        ScopePart::Path(_) => vec![material.segment.concat().replace("%61", "a").into()],
        ScopePart::Json(_) => vec![material.account.clone().into()],
        ScopePart::Global => Vec::new(),
    }
}

fn scope(parts: &[ScopePart], material: &Material) -> Scope {
    let claims = json!({
        "sub": material.text_claim, "realm": {"name": material.text_claim},
        "tenant": material.number_claim,
    });
    let certified = certificate::digest_of_names(&material.issuer, &material.subject);
    let address: SocketAddr = "127.0.0.1:4711".parse().unwrap();
    let peer = Peer::new(address, &Scheme::HTTPS, Some(certified));
    let caller = Caller { peer, is_trusted_proxy: true, claims: Ok(Arc::new(claims)) };
    let mut headers = HeaderMap::new();
    headers.insert("x-user", HeaderValue::from_str(&material.header).unwrap());
    headers.insert("x-api-key", HeaderValue::from_bytes(&material.secret).unwrap());
    let cookies = format!("theme=dark; sid={}; xsid=a", material.cookie);
    headers.insert("cookie", HeaderValue::from_str(&cookies).unwrap());
    let path = format!("/v1/{}", material.segment.concat());
    let path_parameters = Pattern::parse("/v1/{id}").unwrap().parameters(&path).unwrap();
    let text = json!({"account": material.account}).to_string();
    let body = document(text.as_bytes(), ["/account"]).unwrap();
    let account = plain(body.at("/account").unwrap()).unwrap();
    let json_parts = BTreeMap::from([("/account".to_owned(), account)]);
    let known = ScopeSources {
        caller: &caller,
        headers: &headers,
        path_parameters: &path_parameters,
        json_parts: &json_parts,
    };
    join(parts, &names(parts), &known).unwrap()
}

proptest! {
    #[test]
    fn two_callers_have_one_scope_only_if_every_source_says_the_same_of_both(
        parts in subsequence(sources(), 1..=sources().len()),
        (one, other) in (material(), material()),
        equal in any::<[bool; 9]>(),
    ) {
        // Most of the other is what the one says: else nothing but the last difference would be tried.
        let keep = |index: usize| equal[index];
        let other = Material {
            text_claim: if keep(0) { one.text_claim.clone() } else { other.text_claim },
            number_claim: if keep(1) { one.number_claim } else { other.number_claim },
            issuer: if keep(2) { one.issuer.clone() } else { other.issuer },
            subject: if keep(3) { one.subject.clone() } else { other.subject },
            header: if keep(4) { one.header.clone() } else { other.header },
            secret: if keep(5) { one.secret.clone() } else { other.secret },
            cookie: if keep(8) { one.cookie.clone() } else { other.cookie },
            segment: if keep(6) { one.segment.clone() } else { other.segment },
            account: if keep(7) { one.account.clone() } else { other.account },
        };
        let all = |material: &Material| -> Vec<_> {
            parts.iter().map(|part| said(part, material)).collect()
        };
        let (of_one, of_other) = (scope(&parts, &one), scope(&parts, &other));
        prop_assert_eq!(all(&one) == all(&other), of_one == of_other);
        prop_assert_eq!(of_one == of_other, of_one.to_string() == of_other.to_string());
        prop_assert_eq!(of_one.to_string().parse::<Scope>(), Ok(of_one));
    }

    /// A claim has one type on a route: no text is taken for a number, and no number for a text.
    #[test]
    fn a_claim_of_another_type_is_no_value(number in any::<i64>(), truth in any::<bool>()) {
        let (text, not_text) = (json!(number.to_string()), [json!(number), json!(truth)]);
        let claim = |value: &Value, part: ScopePart| {
            let address: SocketAddr = "127.0.0.1:4711".parse().unwrap();
            let peer = Peer::new(address, &Scheme::HTTP, None);
            let claims = Ok(Arc::new(json!({"sub": value})));
            let caller = Caller { peer, is_trusted_proxy: false, claims };
            let (nothing, headers) = (BTreeMap::new(), HeaderMap::new());
            let known = ScopeSources {
                caller: &caller,
                headers: &headers,
                path_parameters: &nothing,
                json_parts: &nothing,
            };
            join(std::slice::from_ref(&part), &[part.stored_name()], &known).is_ok()
        };
        let (texts, numbers) = (ScopePart::Jwt("sub".into()), ScopePart::JwtNumber("sub".into()));
        prop_assert!(claim(&text, texts.clone()) && !claim(&text, numbers.clone()));
        prop_assert!(not_text.iter().all(|value| !claim(value, texts.clone())));
        prop_assert!(claim(&not_text[0], numbers.clone()) && !claim(&not_text[1], numbers));
    }
}

fn names(parts: &[ScopePart]) -> Vec<String> {
    parts.iter().map(ScopePart::stored_name).collect()
}
