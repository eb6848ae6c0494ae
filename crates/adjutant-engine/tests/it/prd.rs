//! PRD files on a real disk: permissions, concurrent edits, and killed processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its project has failed")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use adjutant_core::{Usd, outcome};
use adjutant_engine::prd::{PrdFile, PrdFileError, SaveOutcome};
use adjutant_formats::prd::{Prd, PrdOutcome};
use tempfile::TempDir;

const TWO: &str = "{\n  \"stories\": [\n    {\n      \"id\": \"US-001\",\n      \"title\": \"One\"\n    },\n    {\n      \"id\": \"US-002\",\n      \"title\": \"Two\"\n    }\n  ]\n}\n";

const LEFTOVER: &str = ".prd.json.adjutant-new";

struct Project(TempDir);

impl Project {
    fn with(text: impl AsRef<[u8]>) -> Self {
        let project = Self(TempDir::new().unwrap());
        fs::write(project.path("prd.json"), text).unwrap();
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path("prd.json")).unwrap()
    }

    fn edit(&self, from: &str, to: &str) {
        let text = self.text();
        assert!(text.contains(from), "{text}");
        fs::write(self.path("prd.json"), text.replacen(from, to, 1)).unwrap();
    }

    fn open(&self) -> Result<PrdFile, PrdFileError> {
        PrdFile::open(self.path("prd.json"))
    }

    /// Returns the error of opening it, without the path of the directory.
    fn refused(&self) -> String {
        self.shown(&self.open().unwrap_err())
    }

    fn shown(&self, error: &PrdFileError) -> String {
        error.to_string().replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn done(run: &str) -> PrdOutcome {
    PrdOutcome {
        passes: true,
        run: run.into(),
        status: outcome::Outcome::Completed,
        summary: "Done.".into(),
        branch: None,
        reference: None,
        commit: None,
        cost: Usd::ZERO,
        estimated: false,
        tokens_in: 1,
        tokens_out: 2,
        finished_ms: 0,
        children: Vec::new(),
    }
}

fn passing(text: &str) -> Vec<String> {
    let read = Prd::read(text).unwrap();
    read.stories().iter().filter(|story| story.passes).map(|story| story.id.clone()).collect()
}

#[test]
fn outcome_is_written_once_and_the_file_mode_stays() {
    let project = Project::with(TWO);
    fs::set_permissions(project.path("prd.json"), fs::Permissions::from_mode(0o640)).unwrap();
    let mut file = project.open().unwrap();
    assert_eq!(project.text(), TWO);
    assert_eq!(file.save("US-001", &done("run_1")).unwrap(), SaveOutcome::Written);
    assert_eq!(passing(&project.text()), ["US-001"]);
    assert!(file.prd().story("US-001").unwrap().passes);
    let (inode, text) = (fs::metadata(project.path("prd.json")).unwrap().ino(), project.text());
    assert_eq!(file.save("US-001", &done("run_1")).unwrap(), SaveOutcome::Unchanged);
    assert_eq!(
        project.open().unwrap().save("US-001", &done("run_1")).unwrap(),
        SaveOutcome::Unchanged
    );
    let now = fs::metadata(project.path("prd.json")).unwrap();
    assert_eq!((now.ino(), now.mode() & 0o777, project.text()), (inode, 0o640, text));
    assert_eq!(file.save("US-002", &done("run_1")).unwrap(), SaveOutcome::Written);
    assert_eq!(passing(&project.text()), ["US-001", "US-002"]);
    assert!(!project.path(LEFTOVER).exists());
}

#[test]
fn invalid_or_irreplaceable_prd_is_refused_when_opened() {
    for (text, said) in [
        (b"{" as &[u8], "`prd.json`: not JSON, line 1 column 1: EOF while parsing an object"),
        (b"{\"stories\": \"\xff\"}", "`prd.json` is not UTF-8 text (byte 13)"),
        (
            b"{\"stories\": [{\"id\": \"A\", \"title\": 1}]}",
            "`prd.json`: line 1 column 35: story A: `title` must be a string, not a number",
        ),
    ] {
        assert_eq!(Project::with(text).refused(), said);
    }
    let large = Project::with(vec![b' '; 16 * 1024 * 1024 + 1]);
    assert_eq!(large.refused(), "`prd.json` has more than 16777216 bytes");
    let locked = Project::with(TWO);
    fs::set_permissions(locked.path("prd.json"), fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(
        locked.refused(),
        "`prd.json` is read-only; the outcomes of stories are written to it, so make it writable first"
    );
    let linked = Project::with(TWO);
    fs::rename(linked.path("prd.json"), linked.path("real.json")).unwrap();
    assert_eq!(linked.refused(), "cannot open prd.json");
    symlink("real.json", linked.path("prd.json")).unwrap();
    assert_eq!(linked.refused(), "`prd.json` is a symbolic link; name the file it leads to");
    fs::remove_file(linked.path("prd.json")).unwrap();
    fs::create_dir(linked.path("prd.json")).unwrap();
    assert_eq!(linked.refused(), "cannot read prd.json");
}

#[test]
fn reading_a_prd_needs_no_lock_and_no_write_permission() {
    let project = Project::with(TWO);
    let folder = project.0.path();
    let (file, held) = (project.path("prd.json"), fs::File::open(folder).unwrap());
    held.lock().unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let changed = || fs::metadata(folder).unwrap().modified().unwrap();
    let before = changed();
    let stories = PrdFile::read_unlocked(&file).unwrap();
    assert_eq!(stories.stories().len(), 2);
    assert_eq!(changed(), before, "a copy was written beside it");
    assert!(PrdFile::read_unlocked(project.path("none.json")).is_err());
    let broken = Project::with("{");
    let error = PrdFile::read_unlocked(broken.path("prd.json")).unwrap_err();
    assert_eq!(broken.shown(&error), broken.refused(), "it is told like one that is opened");
}

#[test]
fn read_only_directory_is_refused() {
    // Root ignores directory permissions, so another user opens the file.
    let project = Project::with(TWO);
    let helper = project.path("helper");
    fs::copy(env!("CARGO_BIN_EXE_engine-helper"), &helper).unwrap();
    fs::set_permissions(project.path("prd.json"), fs::Permissions::from_mode(0o666)).unwrap();
    let asked = |folder: u32| {
        fs::set_permissions(project.0.path(), fs::Permissions::from_mode(folder)).unwrap();
        let mut command = Command::new(&helper);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(65534).gid(65534);
        }
        let output = command.arg("open").arg(project.path("prd.json")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(asked(0o777), "open 1\n");
    let said = asked(0o555);
    assert!(said.starts_with("the folder of `") && said.contains("cannot be written to"), "{said}");
    fs::set_permissions(project.path("prd.json"), fs::Permissions::from_mode(0o444)).unwrap();
    assert!(asked(0o777).contains("is read-only"));
    fs::set_permissions(project.0.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn edit_elsewhere_in_the_prd_is_kept() {
    let project = Project::with(TWO);
    let mut file = project.open().unwrap();
    project.edit("\"title\": \"Two\"", "\"title\":   \"Zwei\"");
    assert_eq!(file.save("US-001", &done("run_1")).unwrap(), SaveOutcome::Merged);
    assert!(project.text().contains("\"title\":   \"Zwei\""));
    assert_eq!(passing(&project.text()), ["US-001"]);
    assert_eq!(file.prd().story("US-002").unwrap().title, "Zwei");
    // The merged version is now the version in memory.
    assert_eq!(file.save("US-002", &done("run_1")).unwrap(), SaveOutcome::Written);
}

#[test]
fn version_with_a_changed_story_is_not_overwritten() {
    let cases: [(&str, &str, &str); 4] = [
        ("\"title\": \"One\"", "\"title\": \"Eins\"", "its entry was changed"),
        ("\"id\": \"US-001\"", "\"id\": \"US-009\"", "its entry was removed"),
        (
            "\"id\": \"US-002\"",
            "\"id\": \"US-001\"",
            "it is no longer a valid PRD (line 7 column 5: story US-001: the id is already used by the story at line 3)",
        ),
        (
            "\"stories\": [",
            "\"stories\": ",
            "it is no longer a valid PRD (not JSON, line 7 column 5: key must be a string)",
        ),
    ];
    for (from, to, what) in cases {
        let project = Project::with(TWO);
        let mut file = project.open().unwrap();
        project.edit(from, to);
        let theirs = project.text();
        let error = file.save("US-001", &done("run_1")).unwrap_err();
        assert!(matches!(error, PrdFileError::Changed { .. }), "{error:?}");
        let said = project.shown(&error);
        assert!(said.contains(what), "{said}");
        assert!(
            said.ends_with("since story `US-001` began; nothing was written, and its outcome is kept in run run_1"),
            "{said}"
        );
        assert_eq!(project.text(), theirs);
        assert!(!project.path(LEFTOVER).exists());
    }
}

#[test]
fn missing_or_linked_prd_is_not_created_again() {
    let project = Project::with(TWO);
    let mut file = project.open().unwrap();
    fs::rename(project.path("prd.json"), project.path("kept.json")).unwrap();
    let said = project.shown(&file.save("US-001", &done("run_1")).unwrap_err());
    assert!(said.starts_with("`prd.json`: it was removed since story"), "{said}");
    symlink("kept.json", project.path("prd.json")).unwrap();
    let error = file.save("US-001", &done("run_1")).unwrap_err();
    assert!(matches!(error, PrdFileError::Changed { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(project.path("kept.json")).unwrap(), TWO);
    assert!(fs::symlink_metadata(project.path("prd.json")).unwrap().is_symlink());
}

#[test]
fn unknown_story_is_refused() {
    let project = Project::with(TWO);
    let error = project.open().unwrap().save("US-003", &done("run_1")).unwrap_err();
    assert_eq!(
        project.shown(&error),
        "`prd.json`: there is no story `US-003`; its outcome is kept in run run_1"
    );
    assert_eq!(project.text(), TWO);
}

#[test]
fn concurrent_prd_writers_lose_nothing() {
    let count = 8;
    let story = |n: usize| format!("{{\"id\": \"S{n}\", \"title\": \"t\"}}");
    let stories: Vec<String> = (0..count).map(story).collect();
    let project = Project::with(format!("{{\"stories\": [\n{}\n]}}", stories.join(",\n")));
    // All writers read the first version, so each but the first must merge.
    let files: Vec<PrdFile> = (0..count).map(|_| project.open().unwrap()).collect();
    std::thread::scope(|scope| {
        for (n, mut file) in files.into_iter().enumerate() {
            scope.spawn(move || file.save(&format!("S{n}"), &done(&format!("run_{n}"))).unwrap());
        }
    });
    assert_eq!(passing(&project.text()).len(), count);
    let read = Prd::read(&project.text()).unwrap();
    for n in 0..count {
        assert!(read.entry(&format!("S{n}")).unwrap().contains(&format!("\"run_{n}\"")));
    }
}

#[test]
fn temporary_file_of_an_interrupted_save_is_ignored() {
    let project = Project::with(TWO);
    let mut file = project.open().unwrap();
    fs::write(project.path(LEFTOVER), "{\"stories\": [").unwrap();
    assert_eq!(project.open().unwrap().prd().to_text(), TWO);
    assert!(!project.path(LEFTOVER).exists());
    fs::write(project.path(LEFTOVER), "{\"stories\": [").unwrap();
    file.save("US-001", &done("run_1")).unwrap();
    assert_eq!(passing(&project.text()), ["US-001"]);
    assert!(!project.path(LEFTOVER).exists());
}

#[test]
fn kill_between_write_and_rename_leaves_a_complete_file() {
    // Large, so that a save takes some time.
    let padding = "x".repeat(1024 * 1024);
    let first = TWO.replacen('{', &format!("{{\"padding\": \"{padding}\","), 1);
    let project = Project::with(&first);
    let mut interrupted = 0;
    for _ in 0..20 {
        let mut writer = Command::new(env!("CARGO_BIN_EXE_engine-helper"))
            .arg("save-forever")
            .arg(project.path("prd.json"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "open 1");
        // The process saves repeatedly, so that the kill comes during a save.
        while !project.path(LEFTOVER).exists() {
            assert_eq!(writer.try_wait().unwrap(), None);
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        interrupted += usize::from(project.path(LEFTOVER).exists());
        let text = project.text();
        assert!(text.contains(&padding) && text.ends_with("\n}\n"));
        assert_eq!(Prd::read(&text).unwrap().stories().len(), 2);
    }
    assert!(interrupted > 0, "no save was met before its rename");
    let mut file = project.open().unwrap();
    assert!(!project.path(LEFTOVER).exists());
    file.save("US-002", &done("run_1")).unwrap();
    assert!(passing(&project.text()).contains(&"US-002".to_owned()));
}
