//! Integration tests of `adjutant-core`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops at the first surprise, and names only the events it is about"
)]

mod admission;
mod contract;
mod lifecycle;
mod policy;
mod properties;
mod sim;

/// A file that nobody declares is never compiled, and its tests pass for ever.
#[test]
fn every_file_of_this_folder_is_declared() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let declared = include_str!("main.rs");
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_module = path.extension().is_some_and(|extension| extension == "rs");
        if is_module && name != "main" {
            assert!(declared.contains(&format!("mod {name};")), "{name}.rs is not declared");
        }
    }
}
