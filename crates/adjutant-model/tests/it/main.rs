//! Integration tests of `adjutant-model`.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

mod catalogue;
mod examples;
mod exchange;
mod faults;
mod golden;
mod malformed;
mod placeholders;
mod requests;
mod rig;
mod selection;
mod server;
mod streams;
mod turns;

#[test]
fn every_file_of_this_test_is_declared() {
    let main = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(name == "main" || main.contains(&format!("mod {name};")), "{name} is not declared");
    }
}
