//! The names of what the gateway's spans say.
//!
//! A span is called by its method and route. The first four names are those of OpenTelemetry's
//! conventions.

/// The method, if it is a known one.
pub const METHOD: &str = "http.request.method";
/// The route, as it is called in metrics.
pub const ROUTE: &str = "http.route";
/// The status of the answer.
pub const STATUS: &str = "http.response.status_code";
/// Why there is no answer.
pub const ERROR: &str = "error.type";
/// Which answer the request got, as in metrics.
pub const RESULT: &str = "onceward.result";
/// The reference of the operation, which is a digest.
pub const OPERATION: &str = "onceward.operation";
/// Which run of the operation this is.
pub const ATTEMPT: &str = "onceward.attempt";
/// To which sink a message is sent.
pub const SINK: &str = "onceward.sink";
/// The id of a message.
pub const MESSAGE: &str = "onceward.message";
