//! Set-up, tests, checks and benchmarks: `cargo xtask --help`.
fn main() {}
