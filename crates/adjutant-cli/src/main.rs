//! The `adjutant` command.
fn main() {}
