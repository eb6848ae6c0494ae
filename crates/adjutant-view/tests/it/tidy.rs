//! Every file of this folder is declared, so no test is forgotten.

use std::path::Path;

#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads its own folder")]
fn every_test_file_is_declared() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(name == "main" || main.contains(&format!("mod {name};")), "{name}");
    }
}
