//! The `adjutant` command as its users meet it: the real binary, its output, its exit codes and
//! the files it leaves behind.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod approval;
mod bad_calls;
mod bad_files;
mod bad_limits;
mod bad_stores;
mod delegate;
mod demo;
mod exits;
mod help;
mod injection;
mod journal;
mod live;
mod pipes;
mod pure;
mod records;
mod redact;
mod rig;
mod running;
mod schema;
mod signals;
mod terminal;

/// A file that no `mod` names would silently not be tested.
#[test]
fn every_file_here_is_declared() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let declared = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".rs").filter(|name| *name != "main") {
            assert!(declared.contains(&format!("mod {name};")), "{name} is not declared");
        }
    }
}
