//! Kernel programs.
fn main() {}
