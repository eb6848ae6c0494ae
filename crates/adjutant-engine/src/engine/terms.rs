//! A person's workspace settings in the journal: written when a run starts, restored when it is resumed.
//!
//! Invariant: restored settings never permit more than the recorded ones.

use std::path::{Path, PathBuf};

use adjutant_core::workspace::WorkspaceTerms;
use adjutant_workspace::toolchains::{FoundToolchain, SYSTEM_TOOLCHAIN};
use adjutant_workspace::{Repository, without_dots};

use crate::error_chain::error_chain;
use crate::workspaces::WorkspaceSetup;

impl WorkspaceSetup {
    /// Returns the settings to record.
    #[must_use]
    pub fn terms(&self) -> WorkspaceTerms {
        let texts = |paths: &[PathBuf]| paths.iter().map(|it| it.display().to_string()).collect();
        // A lossy conversion could name another directory, so paths that are not UTF-8 are left out.
        let named = self.include_ignored.iter().filter_map(|it| it.to_str().map(str::to_owned));
        WorkspaceTerms {
            kind: self.kind,
            include_ignored: named.collect(),
            grants: texts(&self.grants),
            sandbox_off: self.sandbox_off,
            toolchains: self
                .toolchains
                .iter()
                .filter(|it| it.name != SYSTEM_TOOLCHAIN)
                .map(|it| it.name.to_owned())
                .collect(),
            toolchains_off: self.toolchains_off.clone(),
            no_toolchains: self.no_toolchains,
            needed_tools: self.needed_tools.clone(),
            commands_see: self.commands_see(),
            merge: self.merge,
            verify: self.verify.clone(),
        }
    }

    /// Restores recorded settings. Returns a message for each granted directory that is gone.
    pub fn restore(&mut self, terms: &WorkspaceTerms) -> Vec<String> {
        self.kind = terms.kind;
        self.include_ignored = terms.include_ignored.iter().map(PathBuf::from).collect();
        self.sandbox_off = terms.sandbox_off;
        self.merge = terms.merge;
        // A journal of a version that knew no toolchains names none, and then the run gets none.
        let is_recorded = |it: &FoundToolchain| terms.toolchains.iter().any(|name| name == it.name);
        self.toolchains.retain(|it| it.name == SYSTEM_TOOLCHAIN || is_recorded(it));
        self.no_toolchains |= terms.no_toolchains;
        for name in &terms.toolchains_off {
            if !self.toolchains_off.contains(name) {
                self.toolchains_off.push(name.clone());
            }
        }
        self.needed_tools.clone_from(&terms.needed_tools);
        self.verify.clone_from(&terms.verify);
        // If the directory was replaced by a symbolic link, the link's author would choose what commands can read.
        let is_same = |path: &Path| path.canonicalize().is_ok_and(|now| now == path);
        let mut lost = Vec::new();
        for grant in terms.grants.iter().map(PathBuf::from) {
            if grant.is_dir() && is_same(&grant) {
                self.grants.push(grant);
            } else {
                let grant = grant.display();
                lost.push(format!(
                    "{grant} was granted and no longer exists; commands run without it"
                ));
            }
        }
        lost
    }

    /// Converts the ignored directories to include, which are relative to `tree`, to paths relative to the top of its
    /// repository. Returns a warning for each that is dropped or unusual. Without a repository nothing is changed;
    /// opening workspaces reports that.
    pub fn resolve_included(&mut self, tree: &Path) -> Vec<String> {
        if self.include_ignored.is_empty() {
            return Vec::new();
        }
        let Ok(all) = self.open(tree, false) else { return Vec::new() };
        let top = all.repository().work_tree();
        let (mut settled, mut strange) = (Vec::new(), Vec::new());
        let ignored = match all.repository().ignored() {
            Ok(ignored) => Some(ignored),
            Err(error) => {
                let why = error_chain(&error);
                strange.push(format!("cannot list the files that git ignores: {why}"));
                None
            }
        };
        for typed in &self.include_ignored {
            let Some(path) = relative_to_top(top, &all.subfolder().join(typed)) else {
                let (typed, top) = (typed.display(), top.display());
                strange
                    .push(format!("{typed} is outside the repository {top} and is not included"));
                continue;
            };
            if path.to_str().is_none() {
                let typed = typed.display();
                strange.push(format!("{typed} is not valid UTF-8 and is not included"));
                continue;
            }
            strange.extend(remark(all.repository(), &path, ignored.as_deref()));
            settled.push(path);
        }
        self.include_ignored = settled;
        strange
    }
}

/// Returns a path relative to the repository's top directory; `None` for a path outside or the top itself.
fn relative_to_top(top: &Path, typed: &Path) -> Option<PathBuf> {
    let path = without_dots(top.join(typed).strip_prefix(top).ok()?)?;
    (!path.as_os_str().is_empty()).then_some(path)
}

fn remark(repository: &Repository, path: &Path, ignored: Option<&[PathBuf]>) -> Option<String> {
    let shown = path.display();
    if repository.work_tree().join(path).symlink_metadata().is_err() {
        return Some(format!("{shown} does not exist and is not included"));
    }
    let is_ignored = ignored?.iter().any(|it| path.starts_with(it) || it.starts_with(path));
    (!is_ignored).then(|| format!("{shown} is not ignored, so it is included anyway"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_paths_are_relative_to_the_repository() {
        let top = Path::new("/repo");
        for (typed, path) in [
            ("target", Some("target")),
            ("./a/../target/", Some("target")),
            ("/repo/a/node_modules", Some("a/node_modules")),
            (".", None),
            ("..", None),
            ("a/../../other", None),
            ("/etc", None),
            ("/repository", None),
        ] {
            assert_eq!(relative_to_top(top, Path::new(typed)), path.map(PathBuf::from), "{typed}");
        }
    }

    #[test]
    fn directory_that_is_not_utf8_is_not_recorded() {
        use std::os::unix::ffi::OsStrExt as _;
        let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"odd\xff"));
        let mut setup = WorkspaceSetup::new(PathBuf::from("/state"));
        setup.include_ignored = vec![PathBuf::from("target"), odd];
        assert_eq!(setup.terms().include_ignored, ["target"]);
    }

    #[test]
    fn a_resumed_run_sees_only_the_toolchains_it_was_started_with() {
        let named = |names: &[&'static str]| {
            let one = |name: &&'static str| FoundToolchain { name, ..FoundToolchain::default() };
            names.iter().map(one).collect::<Vec<_>>()
        };
        let mut before = WorkspaceSetup::new(PathBuf::from("/state"));
        before.toolchains = named(&["rust", SYSTEM_TOOLCHAIN]);
        before.toolchains_off = vec!["go".to_owned()];
        let mut after = WorkspaceSetup::new(PathBuf::from("/state"));
        after.toolchains = named(&["rust", "node (nvm)", SYSTEM_TOOLCHAIN]);
        after.toolchains_off = vec!["maven".to_owned()];
        after.restore(&before.terms());
        assert_eq!(after.toolchains, named(&["rust", SYSTEM_TOOLCHAIN]));
        assert_eq!(after.toolchains_off, ["maven", "go"]);
        assert!(!after.no_toolchains);
        // A journal of an earlier version.
        after.restore(&WorkspaceTerms::default());
        assert_eq!(after.toolchains, named(&[SYSTEM_TOOLCHAIN]));
        before.no_toolchains = true;
        after.restore(&before.terms());
        assert!(after.no_toolchains);
    }

    #[test]
    fn granted_directories_are_restored_unless_replaced_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let (kept, gone, linked) = (top.join("kept"), top.join("gone"), top.join("linked"));
        std::fs::create_dir(&kept).unwrap();
        std::os::unix::fs::symlink("/", &linked).unwrap();
        let mut before = WorkspaceSetup::new(top.clone());
        before.grants = vec![kept.clone(), gone, linked];
        before.include_ignored = vec!["target".into()];
        before.sandbox_off = true;
        let mut after = WorkspaceSetup::new(top);
        let lost = after.restore(&before.terms());
        assert_eq!(after.grants, [kept]);
        assert_eq!(lost.len(), 2, "{lost:?}");
        assert!(after.sandbox_off);
        assert_eq!(after.include_ignored, before.include_ignored);
        assert_eq!(after.kind, None);
    }
}
