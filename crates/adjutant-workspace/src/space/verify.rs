//! Fresh workspaces for verify commands.
//!
//! The agent's work is committed to its reference, and the command runs in a new workspace with the files of that
//! commit: the same base and included files, but nothing that git ignores or that the agent built. So a passing
//! command has verified exactly what will be merged, and nothing it writes has to be undone. Files that judge the
//! work can be taken from the base instead ([`KeptFiles`]), so that the agent cannot change them.
//!
//! Start at [`Workspace::make_verify_workspace`]. Invariant: a verify workspace never has a result; leftovers are
//! removed by the next verification of the same agent or by the sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::{Bound, Deref};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::layers::retry_while_holder_exits;
use super::overlay::{OverlayWorkspace, WorkspaceStart};
use super::record::LayerName;
use super::workspace::{Workspace, WorkspaceFiles};
use super::workspace_dir::WorkspaceDir;
use super::workspaces::WorkspacesContext;
use super::worktree::WorktreeWorkspace;
use super::{WorkspaceBacking, WorkspaceError, WorkspaceRecord, Workspaces};
use crate::trees::remove_with_empty_parents;
use crate::{Diff, MissingParents, ObjectId, PathError, RelPath, ResultRef, Root, without_dots};

/// The suffix of names of verify workspaces; no agent's name has it.
const SUFFIX: &str = ".verify";

/// A workspace with the files of one commit, for one verify command. Dropping it removes it.
#[derive(Debug)]
pub struct VerifyWorkspace {
    workspace: Workspace,
    from_base: Vec<PathBuf>,
}

impl VerifyWorkspace {
    /// Returns the files that the work changed and that are those of the base here.
    #[must_use]
    pub fn from_base(&self) -> &[PathBuf] {
        &self.from_base
    }

    /// Writes files into it, in place of the work's own files at these paths.
    ///
    /// # Errors
    ///
    /// The first path that cannot be written, for example because the work has a link or a directory there.
    pub fn lay_over<'a>(
        &self,
        files: impl IntoIterator<Item = (&'a Path, &'a [u8])>,
    ) -> Result<(), WorkspaceError> {
        for (path, bytes) in files {
            let written = self.root().and_then(|root| {
                let target = root.file_target(
                    &RelPath::default(),
                    &root.relative(path)?,
                    MissingParents::Create,
                )?;
                match target.unlink() {
                    Ok(()) | Err(PathError::NotFound) => {}
                    Err(error) => return Err(error),
                }
                target.replace(bytes, None, OsStr::new(LAID_OVER_TEMP))
            });
            written.map_err(WorkspaceError::path(path))?;
        }
        Ok(())
    }
}

/// The name of the temporary file beside a file that is laid over the work.
const LAID_OVER_TEMP: &str = ".adjutant-laid-over";

/// The files that a verify workspace has from the base instead of from the work.
///
/// They are named by globs as in `.gitignore`: one without a slash matches names at any depth, one with a slash
/// matches paths from the top, and a glob that matches a directory covers everything below it.
#[derive(Clone, Debug, Default)]
pub struct KeptFiles(Option<GlobSet>);

/// The maximum length and number of brace groups of a glob; the parser of `globset` recurses into them.
const MAX_GLOB_BYTES: usize = 1024;
const MAX_GLOB_BRACES: usize = 16;

impl KeptFiles {
    /// Compiles globs. One with a slash is relative to `subfolder`, or to the top of the repository if it starts with
    /// the slash; one without matches in every directory of the repository.
    ///
    /// # Errors
    ///
    /// Which glob is invalid, and why.
    pub fn new(globs: &[String], subfolder: &Path) -> Result<Self, String> {
        if globs.is_empty() {
            return Ok(Self(None));
        }
        let mut set = GlobSetBuilder::new();
        for written in globs {
            let fail = |why: &str| format!("`{}`: {why}", written.escape_debug());
            if written.len() > MAX_GLOB_BYTES || written.matches('{').count() > MAX_GLOB_BRACES {
                return Err(fail("too long or too many braces"));
            }
            let text = written.trim_start_matches("./").trim_end_matches('/');
            if Path::new(text).components().any(|part| part.as_os_str() == "..") {
                return Err(fail("it leads out of the repository"));
            }
            let anchored = match text.strip_prefix('/') {
                Some(from_top) => from_top.to_owned(),
                None if text.contains('/') && subfolder.as_os_str().is_empty() => text.to_owned(),
                None if text.contains('/') => {
                    format!("{}/{text}", globset::escape(&subfolder.to_string_lossy()))
                }
                None => format!("**/{text}"),
            };
            if text.trim_start_matches('/').is_empty() {
                return Err(fail("it names no file"));
            }
            for glob in [anchored.clone(), format!("{anchored}/**")] {
                let glob = GlobBuilder::new(&glob).literal_separator(true).build();
                set.add(glob.map_err(|error| fail(&error.kind().to_string()))?);
            }
        }
        set.build().map(|set| Self(Some(set))).map_err(|error| error.to_string())
    }

    fn covers(&self, path: &Path) -> bool {
        self.0.as_ref().is_some_and(|set| set.is_match(path))
    }

    /// Removes from `diff`, the changes from the base to the work, those of covered files, and returns their paths.
    ///
    /// A change in whose place the base has a covered file or directory is removed too: otherwise a link called
    /// `tests` could take the place of a covered `tests/a.py`. So is a change to what a covered link of the base leads
    /// to.
    fn withdraw_from(&self, diff: &mut Diff, links: &BaseLinks) -> Vec<PathBuf> {
        if self.0.is_none() {
            return Vec::new();
        }
        let mut withdrawn: Vec<PathBuf> = Vec::new();
        let mut restored: BTreeSet<PathBuf> = BTreeSet::new();
        diff.entries.retain(|entry| {
            let is_covered = links.names_of(&entry.path).iter().any(|name| self.covers(name));
            if is_covered {
                withdrawn.push(entry.path.clone());
                restored.extend((entry.old_mode != 0).then(|| entry.path.clone()));
            }
            !is_covered
        });
        // Paths are ordered by their components, so what is below a path follows it directly.
        let has_below = |path: &Path| {
            let mut after = restored.range::<Path, _>((Bound::Included(path), Bound::Unbounded));
            after.next().is_some_and(|next| next.starts_with(path))
        };
        let is_in_place_of =
            |path: &Path| has_below(path) || path.ancestors().any(|above| restored.contains(above));
        diff.entries.retain(|entry| {
            let is_in_the_way = entry.new_mode != 0 && is_in_place_of(&entry.path);
            if is_in_the_way {
                withdrawn.push(entry.path.clone());
            }
            !is_in_the_way
        });
        withdrawn
    }
}

impl Deref for VerifyWorkspace {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl Drop for VerifyWorkspace {
    fn drop(&mut self) {
        // Best effort: the sweep removes leftovers.
        let _ = self.workspace.discard();
    }
}

impl Workspace {
    /// Keeps the work as [`Workspace::keep`] does, and makes a fresh workspace from that commit for a verify
    /// command. The files in `keep` are those of the base.
    ///
    /// `name` identifies the verify workspace; leftovers of an interrupted verification with the same name are
    /// removed first. The files of this workspace stay as they are.
    ///
    /// # Errors
    ///
    /// Why the work could not be kept or the workspace could not be made.
    pub fn make_verify_workspace(
        &self,
        name: &str,
        message: &str,
        at: SystemTime,
        keep: &KeptFiles,
    ) -> Result<VerifyWorkspace, WorkspaceError> {
        let kept = self.keep(message, at)?;
        let shared = self.shared();
        let reference = ResultRef::new(self.reference().run(), &format!("{name}{SUFFIX}"))?;
        let work = kept.commit.as_ref().unwrap_or(&kept.base);
        let (space, from_base) = shared.make_fresh(&reference, &self.record(), work, keep)?;
        Ok(VerifyWorkspace { workspace: Workspace::new(shared, reference, space), from_base })
    }
}

impl Workspaces {
    /// Makes a workspace with the present files of the user's tree for one verify command. `run` and `name` identify
    /// it, as in [`Workspaces::make`].
    ///
    /// # Errors
    ///
    /// Why it could not be made.
    pub fn make_verify_workspace(
        &self,
        run: &str,
        name: &str,
    ) -> Result<VerifyWorkspace, WorkspaceError> {
        let workspace = self.make(run, &format!("{name}{SUFFIX}"), name, None)?;
        Ok(VerifyWorkspace { workspace, from_base: Vec::new() })
    }
}

/// The symbolic links of the base by what they lead to, so that globs also cover a file by the paths of links to it.
struct BaseLinks(BTreeMap<PathBuf, Vec<PathBuf>>);

/// The most names that are tried for one file; links may lead to each other.
const MAX_NAMES: usize = 64;

impl BaseLinks {
    /// Takes links with their targets as written. A target outside the repository is left out.
    fn new(links: Vec<(PathBuf, PathBuf)>) -> Self {
        let mut by_target: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for (link, written) in links {
            let folder = link.parent().unwrap_or(Path::new(""));
            if let Some(target) = without_dots(&folder.join(written)) {
                by_target.entry(target).or_default().push(link);
            }
        }
        Self(by_target)
    }

    /// Returns a path, and the paths that lead to the same file through links.
    fn names_of(&self, path: &Path) -> Vec<PathBuf> {
        let mut names = vec![path.to_owned()];
        let mut next = 0;
        while let Some(name) = names.get(next).cloned().filter(|_| names.len() < MAX_NAMES) {
            next += 1;
            for above in name.ancestors() {
                let Ok(rest) = name.strip_prefix(above) else { continue };
                for link in self.0.get(above).into_iter().flatten() {
                    let other =
                        if rest.as_os_str().is_empty() { link.clone() } else { link.join(rest) };
                    if !names.contains(&other) {
                        names.push(other);
                    }
                }
            }
        }
        names
    }
}

/// Says whether a reference names a verify workspace.
pub(super) fn is_verify_workspace(reference: &ResultRef) -> bool {
    reference.child().ends_with(SUFFIX)
}

impl WorkspacesContext {
    /// Makes a workspace that starts like the recorded one and has the files of `work`, except those in `keep`.
    /// Returns the paths of changed files that it has from the base.
    fn make_fresh(
        self: &Arc<Self>,
        reference: &ResultRef,
        record: &WorkspaceRecord,
        work: &ObjectId,
        keep: &KeptFiles,
    ) -> Result<(WorkspaceFiles, Vec<PathBuf>), WorkspaceError> {
        let base = record.base()?;
        let mut diff = self.repository.differences(&base, work)?;
        let links =
            if keep.0.is_some() { self.repository.link_targets(&base)? } else { Vec::new() };
        let links = BaseLinks::new(links);
        let from_base = keep.withdraw_from(&mut diff, &links);
        let mut space = match record.kind {
            WorkspaceBacking::Worktree => {
                WorktreeWorkspace::discard_leftover(self, reference)?;
                let space =
                    WorktreeWorkspace::create_or_reopen(self, reference, &base, Vec::new())?;
                space.write_changes(self, &diff)?;
                WorkspaceFiles::Worktree(Box::new(space))
            }
            WorkspaceBacking::Overlay => {
                let dir = WorkspaceDir::lock_or_create(self.dir_path(reference))?;
                WorkspaceFiles::Overlay(self.make_overlay(reference, dir, record, &diff)?)
            }
        };
        let root = space.root()?;
        remove_emptied_directories(&root, &diff)?;
        // The base is a layer on top of a checkout; its whiteouts hide files but leave their directories.
        if let Some(LayerName::Base(tree)) = record.layers()?.first() {
            let mut of_tree = self.repository.differences(tree, work)?;
            keep.withdraw_from(&mut of_tree, &links);
            remove_emptied_directories(&root, &of_tree)?;
        }
        Ok((space, from_base))
    }

    /// Makes an overlay workspace in a directory after emptying it: the base of the recorded workspace with the
    /// changes of `diff`.
    pub(super) fn make_overlay(
        self: &Arc<Self>,
        reference: &ResultRef,
        dir: WorkspaceDir,
        record: &WorkspaceRecord,
        diff: &Diff,
    ) -> Result<OverlayWorkspace, WorkspaceError> {
        let mut start = self.layers_for_commit(&record.layers()?, record.base()?)?;
        start.remarks.clone_from(&record.remarks);
        self.make_overlay_on(reference, dir, start, diff)
    }

    /// Makes an overlay workspace in a directory after emptying it: `start` with the changes of `diff`.
    pub(super) fn make_overlay_on(
        self: &Arc<Self>,
        reference: &ResultRef,
        dir: WorkspaceDir,
        start: WorkspaceStart,
        diff: &Diff,
    ) -> Result<OverlayWorkspace, WorkspaceError> {
        // The holder of a killed process may still be ending.
        let emptied = retry_while_holder_exits(|| match dir.remove_contents() {
            Err(WorkspaceError::InUse { .. }) => Ok(None),
            done => done.map(Some),
        })?;
        emptied.ok_or_else(|| WorkspaceError::InUse { path: self.dir_path(reference) })?;
        // Before the record is written: if this is interrupted, it starts again from the beginning.
        dir.make_upper(0)?;
        self.write_files(diff, &dir.upper(0))?;
        OverlayWorkspace::mount(Arc::clone(self), reference.clone(), dir, start, 0)
    }
}

/// Removes directories that a checkout of the commit would not have: git stores files only.
fn remove_emptied_directories(root: &Root, diff: &Diff) -> Result<(), WorkspaceError> {
    for entry in diff.entries.iter().filter(|entry| entry.new_mode == 0) {
        let removed = remove_with_empty_parents(root, &entry.path);
        removed.map_err(WorkspaceError::path(&entry.path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_cover_names_at_any_depth_paths_from_the_top_and_directories() {
        for (glob, covered, uncovered) in [
            ("conftest.py", &["conftest.py", "a/b/conftest.py"][..], &["conftest.pyc"][..]),
            ("tests/**", &["tests/a.py", "tests/b/c"], &["tests", "src/tests/a.py"]),
            ("tests/", &["tests/a.py", "src/tests/b/c.py", "tests"], &["src/test.py"]),
            ("/check.sh", &["check.sh"], &["bin/check.sh"]),
            ("./src/*_test.go", &["src/a_test.go"], &["src/b/a_test.go", "a_test.go"]),
            ("**/*.test.{ts,js}", &["a.test.ts", "x/y/b.test.js"], &["a.ts"]),
        ] {
            let keep = KeptFiles::new(&[glob.to_owned()], Path::new("")).unwrap();
            for path in covered {
                assert!(keep.covers(Path::new(path)), "{glob} {path}");
            }
            for path in uncovered {
                assert!(!keep.covers(Path::new(path)), "{glob} {path}");
            }
        }
        for invalid in ["a[", "../x", "", "/", "a/../../b"] {
            let error = KeptFiles::new(&[invalid.to_owned()], Path::new("")).unwrap_err();
            assert!(error.starts_with(&format!("`{invalid}`: ")), "{error}");
        }
        assert!(!KeptFiles::new(&[], Path::new("")).unwrap().covers(Path::new("a")));
    }
}
