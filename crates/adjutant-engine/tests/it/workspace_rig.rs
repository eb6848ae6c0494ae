//! A user's repository, and runs whose agents write in workspaces.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its tree has failed")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use adjutant_core::Event;
use adjutant_core::workspace::{KeptWork, WorkspaceKind};
use adjutant_engine::WorkspaceSetup;
use adjutant_testkit::{Rig, RunTrace};
use tempfile::TempDir;

/// Both kinds of workspaces, in which agents must see the same.
pub(crate) const KINDS: [WorkspaceKind; 2] = [WorkspaceKind::Overlay, WorkspaceKind::Worktree];

/// A repository with one commit and one untracked file.
pub(crate) struct UserRepository {
    outer: TempDir,
}

impl UserRepository {
    pub(crate) fn new() -> Self {
        let yard = Self::without_repository();
        yard.git(&["init", "-q", "-b", "main", "."]);
        yard.git(&["add", "list"]);
        yard.git(&["commit", "-q", "-m", "first"]);
        yard
    }

    pub(crate) fn without_repository() -> Self {
        // Not below /tmp, because sandboxes have their own /tmp.
        let yard = Self { outer: TempDir::new_in("/var/tmp").unwrap() };
        std::fs::create_dir(yard.tree()).unwrap();
        std::fs::write(yard.tree().join("list"), "END\n").unwrap();
        std::fs::write(yard.tree().join("mine"), "untracked\n").unwrap();
        yard
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.outer.path().join("tree")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.outer.path().join("state")
    }

    pub(crate) fn setup(&self, kind: WorkspaceKind) -> WorkspaceSetup {
        let helper = Some(env!("CARGO_BIN_EXE_engine-helper").into());
        WorkspaceSetup { kind: Some(kind), helper, ..WorkspaceSetup::new(self.state()) }
    }

    /// Returns a rig for writers. The repository outlives it.
    pub(crate) fn rig(&self, kind: WorkspaceKind, script: &str) -> Rig {
        Rig::new().in_folder(self.tree()).spaces(self.setup(kind)).script(script)
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        let out = Command::new("git")
            .args(args)
            .current_dir(self.tree())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.outer.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs([("GIT_AUTHOR_NAME", "U"), ("GIT_COMMITTER_NAME", "U")])
            .envs([("GIT_AUTHOR_EMAIL", "u@localhost"), ("GIT_COMMITTER_EMAIL", "u@localhost")])
            .output()
            .unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Returns the state of the user's tree, which a run must not change.
    pub(crate) fn mine(&self) -> String {
        let status = self.git(&["status", "--porcelain=v2", "--untracked-files=all"]);
        let read = |name: &str| std::fs::read_to_string(self.tree().join(name)).unwrap();
        let heads = self.git(&["for-each-ref", "refs/heads", "refs/stash"]);
        format!("{status}{heads}{}{}", read("list"), read("mine"))
    }

    /// Returns the files of a commit with their contents.
    pub(crate) fn files(&self, commit: &str) -> BTreeMap<String, String> {
        let names = self.git(&["ls-tree", "-r", "--name-only", commit]);
        let text = |name: &str| self.git(&["show", &format!("{commit}:{name}")]);
        names.lines().map(|name| (name.to_owned(), text(name))).collect()
    }

    /// Returns the files of a task's kept result, which must exist.
    pub(crate) fn work(&self, trace: &RunTrace, label: &str) -> BTreeMap<String, String> {
        let kept = kept(trace, label);
        let reference = kept.reference.unwrap_or_else(|| panic!("{label} left nothing"));
        let commit = kept.commit.unwrap();
        assert_eq!(self.git(&["rev-parse", &reference]).trim_end(), commit, "{label}");
        self.files(&commit)
    }
}

/// Returns a task's kept result by its label, which must have been kept exactly once.
pub(crate) fn kept(trace: &RunTrace, label: &str) -> KeptWork {
    let of = |event: &Event| match event {
        Event::SpaceKept { session, kept, problem } => {
            let is_meant = trace.label(*session).as_deref() == Some(label);
            is_meant.then(|| (kept.clone(), problem.clone()))
        }
        _ => None,
    };
    let all: Vec<_> = trace.events.iter().filter_map(|(_, event)| of(event)).collect();
    assert_eq!(all.len(), 1, "{label}: {all:?}");
    let (kept, problem) = all.into_iter().next().unwrap();
    assert_eq!(problem, None, "{label}");
    kept
}

/// Returns the tool results of an agent, in order.
pub(crate) fn told(trace: &RunTrace, label: &str) -> Vec<String> {
    let said = trace.events.iter().filter_map(|(_, event)| match event {
        Event::ToolReturned { session, output, .. } => Some((*session, output.content.clone())),
        Event::ToolRefused { session, text, .. } => Some((*session, text.clone())),
        _ => None,
    });
    let of = |session| trace.label(session).as_deref() == Some(label);
    said.filter(|(session, _)| of(*session)).map(|(_, text)| text).collect()
}

/// A turn that calls a tool.
pub(crate) fn call(label: &str, tool: &str, args: &str) -> String {
    format!("[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"{tool}\"\nargs = {args}\n")
}

/// A turn with text.
pub(crate) fn says(label: &str, text: &str) -> String {
    format!("[[turn]]\nlabel = \"{label}\"\ntext = \"{text}\"\n")
}

/// A turn that appends a line to a file; a duplicate line shows that it was done twice.
pub(crate) fn adds(label: &str, line: &str) -> String {
    let args =
        format!("{{ file_path = \"list\", old_string = \"END\", new_string = \"{line}\\nEND\" }}");
    call(label, "Edit", &args)
}
