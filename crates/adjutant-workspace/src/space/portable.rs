//! The state that agents of a run start from, carried to a machine that does not have the user's checkout.
//!
//! [`PortableBase::capture`] makes the commit of that state where the checkout is; [`recreate_checkout`] makes a checkout
//! from it somewhere else. Both machines then capture the same commit from their trees, so work that starts from one
//! applies to the other. Carrying the objects between them is the caller's part, with bundles.
//!
//! Invariant: a state that contains credentials is never captured for another machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::WorkspaceError;
use super::adopt_foreign::base_ref;
use super::credentials::{
    contains_private_key, is_credential, is_credential_name, may_hold_private_key,
};
use crate::git::DiffStatus;
use crate::git::path_of;
use crate::private;
use crate::{Git, GitError, HeadRef, ObjectId, Repository, ResultRef, head_around};

/// The mode of a submodule, whose id is a commit of another repository.
const SUBMODULE_MODE: u32 = 0o160_000;

/// The most files that an error names.
const NAMED: usize = 5;

/// The state of a user's checkout, as another machine can recreate it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortableBase {
    /// The commit of the captured state, uncommitted files included.
    pub commit: String,
    /// The commit of HEAD; `None` before the first commit.
    pub head: Option<String>,
    /// What HEAD names, as git writes it: a branch or a commit.
    pub head_text: String,
    /// The commits at which a shallow clone ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shallow: Vec<String>,
    /// The path of the checkout on the user's machine.
    pub checkout: PathBuf,
    /// Where agents start: a directory relative to the checkout, empty for its top.
    pub folder: PathBuf,
}

impl PortableBase {
    /// Captures the state of the checkout around `folder` and keeps its commit, and the commits `more`, for a run.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Credentials`] if the state contains any; otherwise why it could not be captured.
    pub fn capture(
        repository: &Repository,
        folder: &Path,
        run: &str,
        more: &[ObjectId],
    ) -> Result<Self, WorkspaceError> {
        let captured = repository.capture_reproducibly()?;
        refuse_credentials(repository, &captured.commit)?;
        // What was deleted and not committed yet is still in HEAD, which goes along.
        let differs = captured.head.iter().filter(|head| **head != captured.commit);
        differs
            .into_iter()
            .try_for_each(|head| refuse_new_credentials(repository, &captured.commit, head))?;
        for commit in more.iter().chain(&captured.head).chain([&captured.commit]) {
            keep_base(repository, run, commit)?;
        }
        let folder = fs::canonicalize(folder).map_err(WorkspaceError::io("opening a directory"))?;
        let checkout = repository.work_tree().to_owned();
        let head_text = head_around(&checkout).unwrap_or(HeadRef::Branch("main".to_owned()));
        let shallow = fs::read_to_string(repository.common_dir().join("shallow"));
        Ok(Self {
            commit: captured.commit.to_string(),
            head: captured.head.map(|head| head.to_string()),
            head_text: head_text.to_string(),
            shallow: shallow.unwrap_or_default().lines().map(str::to_owned).collect(),
            folder: folder.strip_prefix(&checkout).unwrap_or(Path::new("")).to_owned(),
            checkout,
        })
    }

    /// Returns the commits that this state consists of: of HEAD and of the captured state.
    ///
    /// # Errors
    ///
    /// [`GitError::BadObjectId`] if they were not written by [`PortableBase::capture`].
    pub fn commits(&self) -> Result<(Option<ObjectId>, ObjectId), GitError> {
        let parse =
            |id: &String| ObjectId::parse(id).ok_or_else(|| GitError::BadObjectId(id.clone()));
        Ok((self.head.as_ref().map(parse).transpose()?, parse(&self.commit)?))
    }
}

/// Returns the references that keep commits for a run, as [`PortableBase::capture`] made them.
#[must_use]
pub fn base_references(run: &str, commits: &[ObjectId]) -> Vec<String> {
    commits.iter().map(|commit| base_ref(run, commit)).collect()
}

/// Returns a reference that names a commit of the work of a delegation: its result, or one that is made here.
///
/// # Errors
///
/// When git fails.
pub fn work_reference(
    repository: &Repository,
    run: &str,
    child: &str,
    commit: &ObjectId,
) -> Result<String, WorkspaceError> {
    let result = ResultRef::new(run, child)?;
    if repository.result(&result)?.as_ref() == Some(commit) {
        return Ok(result.to_string());
    }
    keep_base(repository, run, commit)?;
    Ok(base_ref(run, commit))
}

fn keep_base(repository: &Repository, run: &str, commit: &ObjectId) -> Result<(), WorkspaceError> {
    match repository.update_ref(&base_ref(run, commit), commit, None) {
        // The reference is named after its commit, so it already has the right value.
        Err(GitError::Moved { .. }) => Ok(()),
        done => Ok(done?),
    }
}

/// Creates an empty repository for the checkout of a state. The objects are taken in next, with
/// [`Repository::take_bundle`], and then [`recreate_checkout`] writes the files.
///
/// # Errors
///
/// Why it could not be created.
pub fn create_repository(
    git: &Git,
    tree: &Path,
    state: &Path,
    base: &PortableBase,
) -> Result<Repository, WorkspaceError> {
    private::ensure_dir(tree).map_err(WorkspaceError::io("creating a checkout"))?;
    let format = if base.commit.len() == 64 { "sha256" } else { "sha1" };
    let call = git.call("init").args(["--quiet", "--template=", "--object-format", format]);
    call.arg(tree).run()?;
    let git_dir = tree.join(".git");
    let write = || -> io::Result<()> {
        fs::write(git_dir.join("HEAD"), format!("{}\n", base.head_text))?;
        if !base.shallow.is_empty() {
            fs::write(git_dir.join("shallow"), base.shallow.join("\n") + "\n")?;
        }
        Ok(())
    };
    write().map_err(WorkspaceError::io("creating a checkout"))?;
    Ok(Repository::open(git, tree, state)?)
}

/// Writes the files of a state into the empty checkout of `repository`, which has the objects.
///
/// # Errors
///
/// Why they could not be written.
pub fn recreate_checkout(
    repository: &Repository,
    run: &str,
    base: &PortableBase,
) -> Result<(), WorkspaceError> {
    let (head, commit) = base.commits()?;
    keep_base(repository, run, &commit)?;
    if let (Some(head), Some(HeadRef::Branch(branch))) = (&head, HeadRef::parse(&base.head_text)) {
        match repository.update_ref(&format!("refs/heads/{branch}"), head, None) {
            Err(GitError::Moved { .. }) => {}
            done => done?,
        }
    }
    let tree = repository.work_tree();
    let index = repository.git_dir().join("index");
    let on_tree = |command| repository.call(command).env("GIT_INDEX_FILE", &index).folder(tree);
    on_tree("read-tree").args(["--reset", "-u", commit.as_str()]).run()?;
    if let Some(head) = head {
        // Keeps what the index knows of unchanged files, so that capturing does not read them.
        on_tree("read-tree").args(["-m", head.as_str()]).run()?;
    }
    Ok(())
}

/// Refuses a commit with files that are credentials by their names or contents.
fn refuse_credentials(repository: &Repository, commit: &ObjectId) -> Result<(), WorkspaceError> {
    let args = ["-r", "-z", "--full-tree", "--name-only", commit.as_str()];
    let paths = listed_paths(&repository.call("ls-tree").args(args).run()?.bytes);
    let top = repository.work_tree();
    refuse(paths.into_iter().filter(|path| is_credential(top, path)))
}

/// Refuses a commit of an agent's work in which files that it added or changed are credentials by their names or
/// contents.
///
/// # Errors
///
/// [`WorkspaceError::Credentials`] if there are any; otherwise why git failed.
pub fn refuse_new_credentials(
    repository: &Repository,
    base: &ObjectId,
    commit: &ObjectId,
) -> Result<(), WorkspaceError> {
    let mut found = Vec::new();
    for file in repository.diff(base, commit)?.entries {
        // Deleted files and submodules have no content.
        let has_content = file.status != DiffStatus::Deleted && file.new_mode != SUBMODULE_MODE;
        let holds_key = || -> Result<bool, GitError> {
            let read = repository.call("cat-file").args(["blob", file.new_id.as_str()]).run()?;
            Ok(contains_private_key(&read.bytes))
        };
        let may_hold_key = has_content && may_hold_private_key(&file.path);
        if has_content && is_credential_name(&file.path) || may_hold_key && holds_key()? {
            found.push(file.path.clone());
        }
    }
    refuse(found.into_iter())
}

fn refuse(found: impl Iterator<Item = PathBuf>) -> Result<(), WorkspaceError> {
    let found: Vec<PathBuf> = found.take(NAMED).collect();
    if found.is_empty() { Ok(()) } else { Err(WorkspaceError::Credentials { paths: found }) }
}

/// Returns the paths that git listed with a zero byte after each.
fn listed_paths(listed: &[u8]) -> Vec<PathBuf> {
    listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(path_of).collect()
}
