//! Workspaces of both kinds, through the type that the engine uses.

mod begin_with;
mod borrowed;
mod choice;
mod closed;
mod crash;
mod dates;
mod flood;
mod index;
mod life;
mod long_lived;
mod nested;
mod portable;
mod speed;
mod submodules;
mod take_in;
mod take_in_killed;
mod verify;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use adjutant_workspace::sandbox::{BoundedOutput, CancelHandle, ProgramSpec, SandboxedExit};
use adjutant_workspace::space::{
    SandboxOptions, Workspace, WorkspaceBacking, WorkspaceBackingChoice, WorkspaceOptions,
    Workspaces,
};
use adjutant_workspace::{MissingParents, ObjectId, RelPath};
use tempfile::TempDir;

use crate::git::{User, now};
use crate::overlay::helper;
use crate::rel;

/// Both kinds; every test of behaviour runs with each.
const KINDS: [(WorkspaceBackingChoice, WorkspaceBacking); 2] = [
    (WorkspaceBackingChoice::Overlay, WorkspaceBacking::Overlay),
    (WorkspaceBackingChoice::Worktree, WorkspaceBacking::Worktree),
];

/// A user whose files are not below `/tmp`, which sandboxes replace.
fn user() -> User {
    User::folder_in(TempDir::new_in("/var/tmp").unwrap()).initialised().filled()
}

fn state(user: &User) -> PathBuf {
    user.outer.path().join("state")
}

fn options(backing: WorkspaceBackingChoice) -> WorkspaceOptions {
    WorkspaceOptions { backing, ..WorkspaceOptions::new(helper()) }
}

fn open(user: &User, backing: WorkspaceBackingChoice) -> Workspaces {
    Workspaces::open(&user.tree, &state(user), options(backing)).unwrap()
}

fn write(space: &Workspace, path: &str, text: &str) {
    let root = space.root().unwrap();
    let place = root.file_target(&rel(""), &rel(path), MissingParents::Create).unwrap();
    let before = place.read(1 << 20).unwrap();
    place.replace(text.as_bytes(), before.as_ref(), OsStr::new(".new")).unwrap();
}

fn remove(space: &Workspace, path: &str) {
    let root = space.root().unwrap();
    root.file_target(&rel(""), &rel(path), MissingParents::Leave).unwrap().remove().unwrap();
}

/// The content of a file; `None` if it does not exist.
pub(crate) fn read(space: &Workspace, path: &str) -> Option<String> {
    let opened = space.root().unwrap().open_file(&rel(path)).ok()?;
    Some(std::io::read_to_string(opened.file).unwrap())
}

/// All files of a workspace as the file tools see them, `.git` left out.
fn files(space: &Workspace) -> BTreeMap<String, String> {
    let root = space.root().unwrap();
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(at) = open.pop() {
        let folder = root.open_dir(&RelPath::new(&at).unwrap()).unwrap();
        for entry in folder.list(10_000).unwrap().entries {
            let path = at.join(&entry.name);
            if path == Path::new(".git") {
                continue;
            }
            if entry.kind == adjutant_workspace::FileKind::Directory {
                open.push(path);
            } else {
                let name = path.to_str().unwrap().to_owned();
                let text = read(space, &name).unwrap_or_else(|| "link".to_owned());
                found.insert(name, text);
            }
        }
    }
    found
}

/// Runs a shell command in the sandbox of the workspace.
pub(crate) fn run(space: &Workspace, text: &str) -> (SandboxedExit, String) {
    run_with(space, text, Vec::new())
}

/// Like `run`, with granted directories.
pub(crate) fn run_with(
    space: &Workspace,
    text: &str,
    grants: Vec<PathBuf>,
) -> (SandboxedExit, String) {
    let sandbox = space.sandbox(SandboxOptions { grants, ..SandboxOptions::default() }).unwrap();
    let mut captured = BoundedOutput::new(64 << 10);
    let ended = sandbox
        .run(&ProgramSpec::shell(text), &CancelHandle::new().unwrap(), &mut captured)
        .unwrap();
    (ended, String::from_utf8_lossy(&captured.bytes()).into_owned())
}

fn contents(user: &User, commit: &ObjectId) -> BTreeMap<String, String> {
    let plain = |(path, text): (String, String)| (path, text[7..].to_owned());
    user.files(commit).into_iter().map(plain).collect()
}
