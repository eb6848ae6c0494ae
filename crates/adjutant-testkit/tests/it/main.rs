//! Integration tests of `adjutant-testkit`: the fakes, tried with hand-written HTTP.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

mod anthropic;
mod binary;
mod chat;
mod connections;
mod delivery;
mod faults;
mod gemini;
mod responses;
mod rig;
mod script;

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
