//! Requests that two readers may understand differently are refused: rule 25 of the contract.
//!
//! hyper refuses most of them. One with both lengths, `Content-Length` and `Transfer-Encoding`, never
//! shows here: hyper reads it as chunked, forgets the other, and closes the connection behind it, as
//! RFC 9112, section 6.3, allows.

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header, uri::Authority};
use onceward::{
    Body,
    server::{Code, Problem},
};

/// How many lines a head may have. With HTTP/1.1 hyper itself refuses more than 100; with HTTP/2 a repeated
/// name and value take one byte on the wire, and a hundred times that here.
const MAX_LINES: usize = 128;

/// The request, if it means one thing, with the host that its target names.
pub(super) fn checked<B>(mut request: Request<B>) -> Result<Request<B>, Problem> {
    if request.method() == Method::CONNECT {
        let problem = malformed("there are no tunnels here");
        return Err(problem.status(StatusCode::METHOD_NOT_ALLOWED));
    }
    if request.headers().len() > MAX_LINES {
        let problem = malformed("the head has too many lines");
        return Err(problem.status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    }
    check_target(&request)?;
    check_encoding(&request)?;
    check_host(&request)?;
    if let Some(authority) = request.uri().authority() {
        // RFC 9112, section 3.2.2, and RFC 9113, section 8.3.1: the line counts for nothing then.
        let host = authority.as_str().parse::<HeaderValue>();
        let host = host.map_err(|_| malformed("the target names no host"))?;
        request.headers_mut().insert(header::HOST, host);
    }
    Ok(request)
}

/// What a client gets whose request was refused. Where the next one begins is not certain, so there
/// is none on this connection.
pub(super) fn refusal(problem: Problem, version: Version) -> Response<Body> {
    let mut response = problem.into_response();
    if version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// RFC 9112, section 3.2: an authority alone is for tunnels, an asterisk for OPTIONS.
fn check_target<B>(request: &Request<B>) -> Result<(), Problem> {
    let target = request.uri();
    let is_authority = target.scheme().is_none() && target.authority().is_some();
    let is_asterisk = target.path() == "*" && request.method() != Method::OPTIONS;
    match is_authority || is_asterisk {
        true => Err(malformed("the target is neither a path nor a URL")),
        false => Ok(()),
    }
}

/// Another encoding would be lost on the way, and chunks within chunks would be read once only.
fn check_encoding<B>(request: &Request<B>) -> Result<(), Problem> {
    let mut headers = request.headers().get_all(header::TRANSFER_ENCODING).iter();
    let is_plain = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"chunked");
    match (headers.next(), headers.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if is_plain(only) => Ok(()),
        _ => Err(malformed("Transfer-Encoding can only be one `chunked`")),
    }
}

/// RFC 9112, section 3.2: one host, and only a host.
fn check_host<B>(request: &Request<B>) -> Result<(), Problem> {
    let mut headers = request.headers().get_all(header::HOST).iter();
    let needs_line = request.version() == Version::HTTP_11;
    let is_right = match (headers.next(), headers.next()) {
        (None, _) => !needs_line,
        (Some(only), None) => only.is_empty() || is_host(only.as_bytes()),
        (Some(_), Some(_)) => false,
    };
    let target = request.uri().authority();
    let is_right = is_right && target.is_none_or(|target| is_host(target.as_str().as_bytes()));
    is_right.then_some(()).ok_or_else(|| malformed("a request names one host, and nothing else"))
}

fn is_host(text: &[u8]) -> bool {
    // Most hosts are plain, and need no copy to be looked at.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    text.iter().all(is_plain) || !text.contains(&b'@') && Authority::try_from(text).is_ok()
}

fn malformed(text: &'static str) -> Problem {
    Problem::new(Code::RequestMalformed, format!("{text}; nothing was run: correct the request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&'static str, &'static str)]) -> Request<()> {
        let request = Request::builder().version(Version::HTTP_11);
        headers
            .iter()
            .fold(request, |request, line| request.header(line.0, line.1))
            .body(())
            .unwrap()
    }

    #[test]
    fn one_host_and_one_chunked_are_fine() {
        for host in ["h", "h:80", "[::1]:80", "127.0.0.1", ""] {
            let headers = [("host", host), ("transfer-encoding", "Chunked")];
            assert!(checked(request(&headers)).is_ok(), "{host}");
        }
    }

    #[test]
    fn several_hosts_or_none_are_refused() {
        assert!(checked(request(&[])).is_err());
        assert!(checked(request(&[("host", "h"), ("host", "h")])).is_err());
        for host in ["h/x", "a@h", "h other", "h, other"] {
            assert!(checked(request(&[("host", host)])).is_err(), "{host}");
        }
    }

    #[test]
    fn other_encodings_than_one_chunked_are_refused() {
        for encoding in ["gzip, chunked", "chunked, chunked", "identity", "chunked,"] {
            let headers = [("host", "h"), ("transfer-encoding", encoding)];
            assert!(checked(request(&headers)).is_err(), "{encoding}");
        }
    }

    #[test]
    fn the_host_of_the_target_counts() {
        let mut request = request(&[("host", "other")]);
        *request.uri_mut() = "http://h:81/x".parse().unwrap();
        assert_eq!(checked(request).unwrap().headers()["host"], "h:81");
    }
}
