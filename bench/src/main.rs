//! Side-by-side benchmarks: `cargo xtask bench --help`.
fn main() {}
