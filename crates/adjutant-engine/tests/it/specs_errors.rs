//! `errors.json` on a real disk: atomic updates with concurrent writers.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its project has failed")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use adjutant_engine::specs::{MissingFolder, Specs};
use adjutant_formats::task::NewTask;
use serde_json::{Value, json};
use tempfile::TempDir;

const FOLDER: &str = ".adjutant/specs";
const FILE: &str = "errors.json";
const NEW: &str = ".errors.json.adjutant-new";

fn error(id: impl std::fmt::Display) -> Value {
    json!({ "id": format!("err_{id}"), "message": "it broke", "fix_status": "unfixed" })
}

fn place(root: &Path, name: &str) -> PathBuf {
    root.join(FOLDER).join(name)
}

fn ids(root: &Path) -> Vec<String> {
    let value: Value = serde_json::from_slice(&fs::read(place(root, FILE)).unwrap()).unwrap();
    let each = value["errors"].as_array().unwrap().iter();
    each.map(|error| error["id"].as_str().unwrap().to_owned()).collect()
}

fn names(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join(FOLDER)).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn specs_folder_is_created_for_errors_only_on_request() {
    let project = TempDir::new().unwrap();
    let specs = Specs::open(project.path()).unwrap();
    assert_eq!(specs.keep_errors(&[error(1)], MissingFolder::Leave).unwrap(), None);
    assert_eq!(specs.keep_errors(&[], MissingFolder::Create).unwrap(), None);
    assert!(fs::read_dir(project.path()).unwrap().next().is_none());
    let path = specs.keep_errors(&[error(1)], MissingFolder::Create).unwrap();
    assert_eq!(path.as_deref(), Some(".adjutant/specs/errors.json"));
    assert_eq!(
        specs.keep_errors(&[error(1)], MissingFolder::Create).unwrap(),
        None,
        "nothing is new"
    );
    assert_eq!(names(project.path()), [FILE]);
}

/// A process that is killed before the rename leaves only a temporary file.
#[test]
fn leftover_of_a_killed_process_is_removed() {
    let project = TempDir::new().unwrap();
    let specs = Specs::open(project.path()).unwrap();
    specs.keep_errors(&[error(1)], MissingFolder::Create).unwrap();
    let file = place(project.path(), FILE);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(place(project.path(), NEW), "{\"errors\": [half").unwrap();
    specs.keep_errors(&[error(2)], MissingFolder::Leave).unwrap();
    assert_eq!(ids(project.path()), ["err_1", "err_2"]);
    assert_eq!(names(project.path()), [FILE]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn unreadable_errors_file_is_not_changed() {
    for text in [&b"{\"errors\""[..], b"\xff", b"null", b"{\"errors\": {}}"] {
        let project = TempDir::new().unwrap();
        fs::create_dir_all(project.path().join(FOLDER)).unwrap();
        fs::write(place(project.path(), FILE), text).unwrap();
        let specs = Specs::open(project.path()).unwrap();
        let said = specs.keep_errors(&[error(1)], MissingFolder::Leave).unwrap_err().to_string();
        assert!(said.starts_with("`.adjutant/specs/errors.json` is "), "{said}");
        assert_eq!(fs::read(place(project.path(), FILE)).unwrap(), text);
        assert_eq!(names(project.path()), [FILE]);
    }
}

#[test]
fn concurrent_writers_lose_neither_errors_nor_tasks() {
    const WRITERS: usize = 8;
    const EACH: usize = 5;
    let project = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let root = project.path();
            scope.spawn(move || {
                let specs = Specs::open(root).unwrap();
                for nth in 0..EACH {
                    specs
                        .keep_errors(&[error(writer * EACH + nth)], MissingFolder::Create)
                        .unwrap();
                }
                specs.add(NewTask { title: format!("t{writer}"), ..NewTask::default() }).unwrap();
            });
        }
    });
    let mut found = ids(project.path());
    found.sort_unstable();
    let mut expected: Vec<_> = (0..WRITERS * EACH).map(|nth| format!("err_{nth}")).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let book = Specs::open(project.path()).unwrap().read().unwrap();
    assert_eq!(book.tasks().len(), WRITERS);
}
