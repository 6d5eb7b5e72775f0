//! The table of options of the process: what stands above the routes, and in its sections.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;
use onceward::server::Errors;

use super::{
    addresses,
    encryption::Encryption,
    kinds::{as_text, choice, count, duration, flag, list, share, size, text},
    limits, origins,
    sinks::{RelayTerms, Sink},
    table::{options, settings},
};
use crate::config::{
    AdminToken, Guarantee, Jwt, Mistake, Role, Route, StoreUrl, Tls, Unmatched, WebOrigin,
};

options! {
    /// What a file says above its first section.
    settings ProcessOptions;

    /// Everything, checked.
    becomes Config with CheckedParts {
        /// The public listener.
        listen: SocketAddr,
        /// The operators' listener, if there is one.
        admin: Option<SocketAddr>,
        /// Where requests go: `http://` or `https://`, host and port, no path.
        upstream: http::Uri,
        /// Where the records are.
        store: StoreUrl,
        tls: Option<Tls>,
        jwt: Option<Jwt>,
        /// Who may use the operators' listener; without a token only this machine may.
        admin_tokens: Vec<AdminToken>,
        /// Whether stored answers are hidden.
        encryption: Option<Encryption>,
        /// How requests are refused of which no route is known.
        errors: Errors,
        /// Whether records may be left without a route that finds them.
        accepts_identity_change: bool,
        /// First match wins.
        routes: Vec<Route>,
        /// Whether there is anything for `onceward serve` to do; not in a file for `onceward relay` alone.
        serves: bool,
        /// Where messages go.
        sinks: Vec<Sink>,
        /// How they get there.
        relay: RelayTerms,
        /// What is allowed and should be known: warnings and notes, by line.
        notes: Vec<Mistake>,
    }

    fitted {
        "Addresses" {
            /// Where clients connect. Only this machine can reach the default; 0.0.0.0:8080 is open to others.
            listen: String = text("\"127.0.0.1:8080\""), default limits::DEFAULT_LISTEN, at_restart;
            /// Where operators connect. There is no such listener by default; never make it public.
            admin: String = text("\"127.0.0.1:8081\""), example "\"127.0.0.1:8081\"", at_restart;
            /// Where requests go: your service. No path: the path of each request is passed on as it is. Schemes:
            /// http://, https://, and for HTTP/2 h2c:// (in the clear) and h2:// (with TLS).
            upstream: String = text("\"http://127.0.0.1:3000\""), required "\"http://127.0.0.1:3000\"";
        }
        "Records" {
            /// Where the records are. It must survive restarts: without its records every retry would run again. A
            /// file of this machine, or a PostgreSQL server, as
            /// `"postgres://user:password@host1,host2/database?sslmode=verify-full"`. With `dialect=wire` behind the `?` it
            /// is an engine that speaks PostgreSQL's protocol: CockroachDB, YugabyteDB. With guarantee = "relaxed" also a
            /// Redis or Valkey server: `"redis://user:password@host:6379?prefix=shop"`, rediss:// with TLS,
            /// `"redis+cluster://host1,host2"`, `"redis+sentinel://host1,host2?service=name"`; valkey:// is the same.
            store: String = text("\"sqlite://onceward.db\""), default limits::DEFAULT_STORE, at_restart;
            /// The names of operations and of the parts of a scope are part of what identifies a key. If they change
            /// while there are records of before, the gateway does not start, because completed keys would run
            /// again. true: it starts nevertheless, also for routes that are gone. Remove it after that start.
            accept_identity_change: bool = flag(), default false;
        }
    }

    plain {
        "Promises" {
            /// strict: the store must keep what it acknowledges, also through a power cut. relaxed: it need not; Redis
            /// and Valkey cannot.
            guarantee: Guarantee = choice(&Guarantee::WORDS), default Guarantee::Strict;
            /// What becomes of a POST, PATCH, PUT or DELETE that has a key and matches no route. pass: it goes on
            /// without protection, its answer says `Onceward-Unprotected: no-route`, and it is counted. refuse: 404
            /// `route-missing`. Another path is another one: /Charges and /charges/ do not match "POST /charges".
            unmatched: Unmatched = choice(&Unmatched::WORDS), default Unmatched::Pass;
        }
        "Browsers" {
            /// Pages of these origins may send requests, with cookies, and read answers: the gateway answers the
            /// preflights of browsers, and replaces what the service says of CORS. Other pages are the service's own
            /// business. `["*"]`: every page, without cookies.
            cors_origins: WebOrigin = list("[\"https://shop.example\"]", origins::origin, as_text), list "[]";
        }
        "What one client may hold" {
            /// The part of all places at the upstream, of all answers on their way, of all connections, and of the
            /// memory for bodies, that one client may hold. A client is an address, behind the proxies below, which
            /// have no share themselves. 1.0: as much as there is.
            peer_share: f64 = share(), default limits::DEFAULT_PEER_SHARE;
            /// The slowest that a client may send a body, in bytes per second, until its answer begins. "0B": any.
            min_body_rate: usize = size(&limits::BODY_RATE), default limits::DEFAULT_BODY_RATE;
            /// How long a client may take nothing of its answer: less than 16 KiB of it, or of what is left.
            client_timeout: Duration = duration(&limits::CLIENT_TIMEOUT), default limits::DEFAULT_CLIENT_TIMEOUT;
            /// How long a connection that was upgraded, as to a WebSocket, may be without a byte from either side.
            upgrade_idle: Duration = duration(&limits::UPGRADE_IDLE), default limits::DEFAULT_UPGRADE_IDLE;
            /// How many answers may be on their way from the upstream to clients at once. Each holds a connection to
            /// the upstream, so the process also needs file descriptors for them.
            max_answers: usize = count(&limits::ANSWERS), default limits::DEFAULT_ANSWERS;
            /// The proxies before the gateway: it believes only them in `header:<name>` scopes and `Forwarded`.
            trusted_proxies: IpNet = list("[\"127.0.0.1/32\"]", addresses::network, as_text), list "[]";
        }
    }
}

settings! {
    /// `[tls]`
    TlsOptions;
    "[tls]: to speak TLS" {
        /// A file with the certificate and those that lead to its issuer, in PEM.
        cert: String = text("\"file.pem\""), required "\"cert.pem\"", at_restart;
        /// A file with the private key of the certificate, in PEM.
        key: String = text("\"file.pem\""), required "\"key.pem\"", at_restart;
        /// A file with the authorities for certificates of clients, for "cert:subject" and "mtls". Without it the
        /// gateway asks clients for none.
        client_ca: String = text("\"file.pem\""), example "\"clients.pem\"", at_restart;
    }
}

settings! {
    /// `[jwt]`
    JwtOptions;
    "[jwt]: to verify tokens, for \"jwt:<claim>\" and authorize = \"jwt\"" {
        /// A file of public keys. The gateway reads it again when they rotate.
        jwks: String = text("\"file.pem\""), example "\"keys.json\"";
        /// Instead, the name of the environment variable that holds a shared secret.
        secret_env: String = text("\"JWT_SECRET\""), example "\"JWT_SECRET\"";
        /// Who must have issued a token; without it any issuer whose keys these are.
        issuer: String = text("\"https://login.example.com\""), example "\"https://login.example.com\"";
        /// For whom a token must be; without it any audience.
        audience: String = text("\"payments\""), example "\"payments\"";
    }
}

settings! {
    /// `[encryption]`
    EncryptionOptions;
    "[encryption]: to hide stored answers from a reader who gets hold of the file but not of the key" {
        /// A file of keys, made with `openssl rand -base64 32 > onceward.key; chmod 600 onceward.key`. One key in a
        /// line: the first one writes, all of them read. Keep it elsewhere than the database: what is sealed with a
        /// lost key is lost.
        key_file: String = text("\"onceward.key\""), example "\"onceward.key\"", at_restart;
        /// Instead, the name of the environment variable that holds such keys.
        key_env: String = text("\"ONCEWARD_KEY\""), example "\"ONCEWARD_KEY\"", at_restart;
    }
}

settings! {
    /// One line of `[admin_tokens]`.
    TokenOptions;
    "[admin_tokens.ops]: who may use `admin`; each name below [admin_tokens] is one in the trail" {
        /// The name of the environment variable that holds the token.
        token_env: String = text("\"ONCEWARD_TOKEN\""), required "\"ONCEWARD_TOKEN\"", at_restart;
        /// What the operator with this token may do; resolve includes release and read, purge includes both.
        role: Role = choice(&Role::WORDS), required "\"resolve\"", at_restart;
    }
}
