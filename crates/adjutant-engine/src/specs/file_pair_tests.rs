//! If the process is killed after any step, both files are old or both new, and no temporary file stays.

use std::fs;
use std::path::Path;

use adjutant_workspace::Root;
use tempfile::TempDir;

use super::*;
use crate::specs::Specs;

const OLD_TODO: &str = "### 1. a\n- **Status**: [NOT STARTED]\n";
const OLD_STATE: &str = r#"{"active_projects":[{"project_number":1,"status":"not_started"}]}"#;
const NEW_TODO: &str = "### 1. a\n- **Status**: [PLANNING]\n";
const NEW_STATE: &str = r#"{"active_projects":[{"project_number":1,"status":"planning"}]}"#;

struct Project {
    dir: TempDir,
    folder: SpecsFolder,
}

impl Project {
    fn new(old: FilePair<'_>) -> Self {
        let dir = TempDir::new().unwrap();
        let folder = SpecsFolder::create(&Root::open(dir.path()).unwrap()).unwrap();
        for (name, text) in [TODO, STATE].into_iter().zip(old) {
            if let Some(text) = text {
                fs::write(dir.path().join(folder.path).join(name), text).unwrap();
            }
        }
        Self { dir, folder }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join(self.folder.path)
    }

    /// Performs the first `count` steps of a change, as if the process were killed then.
    fn killed_after(&self, count: usize, old: FilePair<'_>, new: FilePair<'_>) -> bool {
        let mut steps = steps(&self.folder, old, new).unwrap();
        let is_whole = count >= steps.len();
        steps.truncate(count);
        perform(&self.folder, old, steps).unwrap();
        is_whole
    }

    /// Returns whether both files have exactly these contents.
    fn holds(&self, texts: FilePair<'_>) -> bool {
        take(&self.folder, texts, WriteStep::Compare).unwrap() == FilePairOutcome::Replaced
    }
}

fn both<'a>(todo: &'a str, state: &'a str) -> FilePair<'a> {
    [Some(todo), Some(state)]
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn kill_after_any_step_leaves_both_files_old_or_both_new() {
    let new = both(NEW_TODO, NEW_STATE);
    for old in [both(OLD_TODO, OLD_STATE), [None, None]] {
        let mut was_new = false;
        for count in 0.. {
            let place = Project::new(old);
            let is_whole = place.killed_after(count, old, new);
            let specs = Specs::open(place.dir.path()).unwrap();
            let is_new = place.holds(new);
            assert!(is_new || place.holds(old), "after {count} steps");
            assert!(is_new || !was_new, "after {count} steps a change was undone");
            was_new = is_new;
            // The next change removes all leftovers.
            let title = adjutant_formats::task::NewTask { title: "b".into(), ..Default::default() };
            specs.add(title).unwrap();
            assert_eq!(names(&place.path()), [TODO, STATE], "after {count} steps");
            if is_whole {
                break;
            }
        }
        assert!(was_new);
    }
}

#[test]
fn edit_after_a_crash_and_the_interrupted_change_are_both_kept() {
    let (old, new) = (both(OLD_TODO, OLD_STATE), both(NEW_TODO, NEW_STATE));
    // After six steps both files and the record are written, and the record is durable.
    let place = Project::new(old);
    place.killed_after(6, old, new);
    fs::write(place.path().join(TODO), "### 1. Mine\n").unwrap();
    let specs = Specs::open(place.dir.path()).unwrap();
    let said = specs.take_notices().join("\n");
    assert!(said.contains(".adjutant/specs/TODO.md stays as it is"), "{said}");
    assert_eq!(names(&place.path()), [TODO, "TODO.md.kept-1", STATE, "state.json.kept-1"]);
    assert!(place.holds(both("### 1. Mine\n", OLD_STATE)));
    assert_eq!(fs::read_to_string(place.path().join("TODO.md.kept-1")).unwrap(), NEW_TODO);
    assert!(Specs::open(place.dir.path()).unwrap().take_notices().is_empty());
}

#[test]
fn concurrent_edit_is_detected_before_replacing() {
    let (old, new) = (both(OLD_TODO, OLD_STATE), both(NEW_TODO, NEW_STATE));
    let place = Project::new(both("### 1. Mine\n", OLD_STATE));
    assert_eq!(write(&place.folder, old, new).unwrap(), FilePairOutcome::Overtaken);
    assert_eq!(names(&place.path()), [TODO, STATE]);
    assert!(place.holds(both("### 1. Mine\n", OLD_STATE)));
}

#[test]
fn file_created_at_the_last_moment_is_kept() {
    let (old, new) = ([None, None], both(NEW_TODO, NEW_STATE));
    let place = Project::new(old);
    // The record is durable; then another program creates the file before the rename.
    place.killed_after(6, old, new);
    fs::write(place.path().join(TODO), "### 1. Mine\n").unwrap();
    let settle = WriteStep::Settle { name: TODO, temp: FILES[0].1, over: Overwrite::Refused };
    take(&place.folder, old, settle).unwrap_err();
    Specs::open(place.dir.path()).unwrap();
    assert_eq!(fs::read_to_string(place.path().join(TODO)).unwrap(), "### 1. Mine\n");
    assert_eq!(fs::read_to_string(place.path().join("TODO.md.kept-1")).unwrap(), NEW_TODO);
}

#[test]
fn read_only_file_is_not_replaced() {
    let (old, new) = (both(OLD_TODO, OLD_STATE), both(NEW_TODO, NEW_STATE));
    let place = Project::new(old);
    let mut mode = fs::metadata(place.path().join(STATE)).unwrap().permissions();
    mode.set_readonly(true);
    fs::set_permissions(place.path().join(STATE), mode).unwrap();
    let error = write(&place.folder, old, new).unwrap_err().to_string();
    assert_eq!(error, "cannot write .adjutant/specs/state.json");
    assert!(place.holds(old));
    assert_eq!(names(&place.path()), [TODO, STATE]);
}

#[test]
fn invalid_record_is_an_error_with_advice() {
    for text in [
        "",
        "{}",
        r#"{"v":2,"files":[]}"#,
        r#"{"v":1,"files":[{"name":"../x","before":null,"after":1}]}"#,
    ] {
        let old = both(OLD_TODO, OLD_STATE);
        let place = Project::new(old);
        fs::write(place.path().join(PENDING), text).unwrap();
        let error = Specs::open(place.dir.path()).unwrap_err().to_string();
        assert!(error.contains("move it away to continue"), "{text}: {error}");
        assert!(place.holds(old));
    }
}
