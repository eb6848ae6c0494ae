//! Measures the bars of the design and prints one table.
fn main() {}
