//! The specs folder on a real disk: its place, permissions, links and concurrent writers.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its project has failed")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use adjutant_core::assignment::TaskDetails;
use adjutant_engine::slash::TaskLookup;
use adjutant_engine::specs::{Specs, TaskFinder};
use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{NewTask, TaskArtifact, TaskNumber, TaskStatus, TaskUpdate};
use tempfile::TempDir;

struct Project(TempDir);

impl Project {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn specs(&self) -> Specs {
        Specs::open(self.0.path()).unwrap()
    }

    /// Returns the error of adding a task.
    fn refused(&self) -> String {
        let specs = match Specs::open(self.0.path()) {
            Ok(specs) => specs,
            Err(error) => return error.to_string(),
        };
        specs.add(named("x")).unwrap_err().to_string()
    }
}

fn named(title: &str) -> NewTask {
    NewTask { title: title.into(), ..NewTask::default() }
}

fn number(number: u64) -> TaskNumber {
    TaskNumber::new(number).unwrap()
}

#[test]
fn specs_folder_is_created_only_by_the_first_task() {
    let project = Project::new();
    let specs = project.specs();
    assert_eq!(specs.folder().unwrap(), ".adjutant/specs");
    assert!(specs.read().unwrap().tasks().is_empty());
    let error = specs.set_status(number(1), TaskStatus::Planning, None).unwrap_err();
    assert_eq!(error.to_string(), "there is no task 1");
    specs.add(named(" ")).unwrap_err();
    assert!(!project.path(".adjutant").exists());
    let added = specs.with_clock(|| 1_738_326_896_000).add(named("First")).unwrap();
    assert_eq!(added.task.created.as_deref(), Some("2025-01-31T12:34:56Z"));
    assert!(project.read(".adjutant/specs/TODO.md").contains("### 1. First\n"));
    assert!(project.read(".adjutant/specs/state.json").contains("\"next_project_number\": 2"));
}

#[test]
fn task_folder_is_named_by_number_and_project() {
    let place = Project::new();
    place.write(
        ".adjutant/specs/TODO.md",
        "### 1. Add JWT\n- **Status**: [PLANNED]\n- **Complexity**: high\n\n**Description**: Sign sessions.\n\n\
         ### 2. Fix\n- **Status**: [PLANNED]\n",
    );
    place.write(
        ".adjutant/specs/state.json",
        r#"{"next_project_number": 4, "active_projects": [
            {"project_number": 1, "project_name": "jwt-sessions", "status": "planned"},
            {"project_number": 2, "project_name": "../../etc", "status": "planned", "complexity": "low"},
            {"project_number": 3, "project_name": "only_here", "status": "planned"}]}"#,
    );
    let lookout = TaskFinder::new(&place.path(""));
    let facts = |number| match lookout.find(number) {
        TaskLookup::Found(task) => task.facts,
        other => panic!("{other:?}"),
    };
    let text = |text: &str| Some(text.to_owned());
    let found = |number, description: &str, complexity: Option<&str>, folder: &str| TaskDetails {
        number,
        description: text(description),
        complexity: complexity.map(str::to_owned),
        folder: Some(format!(".adjutant/specs/{folder}")),
    };
    assert_eq!(facts(1), found(1, "Sign sessions.", Some("high"), "1_jwt-sessions"));
    assert_eq!(facts(2), found(2, "Fix", Some("low"), "2_fix"));
    assert_eq!(facts(3), found(3, "only_here", None, "3_only_here"));
}

#[test]
fn opencode_specs_folder_is_used_if_it_exists() {
    let project = Project::new();
    project.write(".opencode/specs/TODO.md", "# Mine\n");
    let specs = project.specs();
    assert_eq!(specs.folder().unwrap(), ".opencode/specs");
    let task = specs.add(named("First")).unwrap().task;
    specs.set_status(task.number, TaskStatus::Researching, None).unwrap();
    let path = ".opencode/specs/1_first/r.md".to_owned();
    let links = vec![TaskArtifact { kind: ArtifactKind::Research, path }];
    specs.update(task.number, TaskUpdate { links, ..TaskUpdate::default() }).unwrap();
    let todo = project.read(".opencode/specs/TODO.md");
    assert!(todo.starts_with("# Mine\n\n### 1. First\n"), "{todo}");
    assert!(
        todo.contains("- **Research**: [.opencode/specs/1_first/r.md](1_first/r.md)\n"),
        "{todo}"
    );
    assert_eq!(
        specs.read().unwrap().task(task.number).unwrap().status,
        Some(TaskStatus::Researching)
    );
    assert!(!project.path(".adjutant").exists());
}

#[test]
fn status_and_links_are_written_atomically() {
    let project = Project::new();
    let specs = project.specs().with_clock(|| 1_738_326_896_000);
    let task = specs.add(named("First")).unwrap().task.number;
    let link = |path: &str| TaskArtifact { kind: ArtifactKind::Implementation, path: path.into() };
    let update = |paths: &[&str]| TaskUpdate {
        status: Some(TaskStatus::Completed),
        reason: None,
        links: paths.iter().map(|path| link(path)).collect(),
    };
    let both =
        || ["TODO.md", "state.json"].map(|name| project.read(&format!(".adjutant/specs/{name}")));
    let before = both();
    specs.update(task, update(&["src/a.rs", "/etc/passwd"])).unwrap_err();
    assert_eq!(both(), before);
    let changed = specs.update(task, update(&["src/a.rs", "src/b.rs"])).unwrap();
    assert_eq!(changed.from, Some(TaskStatus::NotStarted));
    let [todo, state] = both();
    assert_eq!((&changed.todo, &changed.state), (&todo, &state));
    assert!(todo.contains("- **Completed**: 2025-01-31\n"), "{todo}");
    assert!(todo.contains("[src/a.rs](../../src/a.rs), [src/b.rs](../../src/b.rs)\n"), "{todo}");
    let specs = specs.with_clock(|| 1_738_926_896_000);
    assert!(!specs.update(task, update(&["src/b.rs"])).unwrap().is_different);
    assert_eq!(both(), [todo, state]);
}

#[test]
fn file_mode_is_preserved() {
    let project = Project::new();
    project.write(".adjutant/specs/TODO.md", "");
    let todo = project.path(".adjutant/specs/TODO.md");
    fs::set_permissions(&todo, fs::Permissions::from_mode(0o600)).unwrap();
    project.specs().add(named("x")).unwrap();
    assert_eq!(fs::metadata(&todo).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Links and special files that could redirect a write are refused, and nothing changes.
#[test]
fn links_and_special_files_are_refused() {
    for (link, is_folder) in [
        (".opencode", true),
        (".opencode/specs", true),
        (".adjutant", true),
        (".adjutant/specs", true),
        (".adjutant/specs/TODO.md", false),
        (".adjutant/specs/state.json", false),
        (".adjutant/specs/.adjutant-pending.json", false),
    ] {
        let (project, elsewhere) = (Project::new(), TempDir::new().unwrap());
        let target = elsewhere.path().join("target");
        if is_folder {
            fs::create_dir_all(target.join("specs")).unwrap();
            fs::write(target.join("TODO.md"), "theirs").unwrap();
        } else {
            fs::write(&target, "{}").unwrap();
        }
        fs::create_dir_all(project.path(link).parent().unwrap()).unwrap();
        symlink(&target, project.path(link)).unwrap();
        let error = project.refused();
        assert!(error.contains("is a symbolic link"), "{link}: {error}");
        if is_folder {
            assert_eq!(fs::read_to_string(target.join("TODO.md")).unwrap(), "theirs");
            assert_eq!(fs::read_dir(target.join("specs")).unwrap().count(), 0, "{link}");
        } else {
            assert_eq!(fs::read_to_string(&target).unwrap(), "{}", "{link}");
        }
    }
    let project = Project::new();
    project.write(".adjutant", "a file");
    assert_eq!(project.refused(), "`.adjutant` is not a folder");
    let project = Project::new();
    project.write(".adjutant/specs/TODO.md", b"ok \xff");
    let error = project.refused();
    assert_eq!(error, "`.adjutant/specs/TODO.md` is not UTF-8 text (byte 3); nothing was written");
    let project = Project::new();
    fs::create_dir_all(project.path(".adjutant/specs/TODO.md")).unwrap();
    assert_eq!(project.refused(), "cannot read .adjutant/specs/TODO.md");
}

#[test]
fn damaged_state_file_is_reported_and_not_changed() {
    let project = Project::new();
    project.write(".adjutant/specs/TODO.md", "### 4. x\n- **Status**: [PLANNED]\n");
    project.write(".adjutant/specs/state.json", "{\"active_projects\": [");
    assert_eq!(
        project.refused(),
        ".adjutant/specs/state.json: not JSON, line 1 column 21: EOF while parsing a list; nothing was written"
    );
    assert_eq!(project.read(".adjutant/specs/state.json"), "{\"active_projects\": [");
    // After it was moved away, it is created again from TODO.md.
    fs::remove_file(project.path(".adjutant/specs/state.json")).unwrap();
    assert_eq!(project.specs().add(named("y")).unwrap().task.number, number(5));
    let book = project.specs().read().unwrap();
    assert_eq!(book.disagreements(), []);
    assert_eq!(book.task(number(4)).unwrap().status, Some(TaskStatus::Planned));
}

#[test]
fn concurrent_task_writers_lose_nothing() {
    let project = Project::new();
    let writer = |name: usize| {
        let specs = project.specs();
        (0..10).map(|nth| specs.add(named(&format!("{name} {nth}"))).unwrap().task.number).collect()
    };
    let mut numbers: Vec<TaskNumber> = std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..4).map(|name| scope.spawn(move || -> Vec<_> { writer(name) })).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=40).map(number).collect::<Vec<_>>());
    let book = project.specs().read().unwrap();
    assert_eq!(book.tasks().len(), 40);
    assert_eq!(book.disagreements(), []);
}
