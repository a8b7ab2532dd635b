//! The `whylag` command.
fn main() {}
