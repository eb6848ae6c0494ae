//! The tools of one workspace: the only place where a call becomes a result.
//!
//! Permissions were checked before (`core`'s `decide`), and the caller says when a call must end
//! (`should_stop`). Start at [`Toolbox::call`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use adjutant_core::message::ToolSpec;
use adjutant_core::{HostSet, ToolSet, WriteIntent, WriteScope, content_hash};
use adjutant_workspace::sandbox::CancelHandle;
use adjutant_workspace::{MissingParents, OpenedFile, PathError, RelPath, Root};
use serde_json::Value;

use crate::args::brief;
use crate::custom_tools::{CustomTool, CustomTools, cut_to_limit, run_caught};
use crate::output::ToolCallResult;
use crate::run::TimeoutLimit;
use crate::web::{WebAccess, fetch, search};
use crate::{
    Confinement, Masker, PreparedWrite, ToolAvailability, ToolCaps, ToolName, glob, grep, note,
    read, run, spec, write,
};

/// The tools for one root directory.
#[derive(Debug)]
pub struct Toolbox {
    root: Root,
    caps: ToolCaps,
    masker: Masker,
    web: Option<Arc<WebAccess>>,
    own: CustomTools,
    // A std mutex: held while one file is read and replaced, on threads that may block.
    writing: Arc<Mutex<()>>,
    locks: RootLocks,
    availability: ToolAvailability,
}

/// The write locks of all roots of related toolboxes, by the identity of the root.
type RootLocks = Arc<Mutex<BTreeMap<(u64, u64), Weak<Mutex<()>>>>>;

/// What a tool needs to execute one call.
pub(crate) struct ToolCallContext<'call> {
    pub(crate) root: &'call Root,
    pub(crate) caps: &'call ToolCaps,
    pub(crate) masker: &'call Masker,
    pub(crate) arguments: &'call Value,
    pub(crate) should_stop: &'call dyn Fn() -> bool,
    /// What to say about a program that is not there.
    pub(crate) availability: &'call ToolAvailability,
    /// The hosts that a fetch may contact; absent if every public host is allowed.
    pub(crate) approved: Option<ApprovedHosts<'call>>,
}

/// The hosts that an approved fetch may contact.
#[derive(Clone, Copy, Debug)]
pub struct ApprovedHosts<'call> {
    /// The host for which the call was approved.
    pub host: &'call str,
    /// The hosts to which it may be redirected.
    pub hosts: &'call HostSet,
}

impl ToolCallContext<'_> {
    /// Opens a file by the path that a model wrote.
    pub(crate) fn open(&self, written: &str) -> Result<(RelPath, OpenedFile), PathError> {
        let path = self.root.relative(written)?;
        let opened = self.root.open_file(&path)?;
        Ok((path, opened))
    }
}

impl Toolbox {
    /// Makes the tools for `root`; secrets are masked by shape.
    #[must_use]
    pub fn new(root: Root, caps: ToolCaps) -> Self {
        let (masker, own, locks) =
            (Masker::default(), CustomTools::default(), RootLocks::default());
        let writing = lock_of(&locks, &root);
        let availability = ToolAvailability::default();
        Self { root, caps, masker, web: None, own, writing, locks, availability }
    }

    /// Makes the same tools for another root, such as a workspace.
    ///
    /// Toolboxes that are derived from each other and have the same root write one at a time.
    #[must_use]
    pub fn with_root(&self, root: Root) -> Self {
        let Self { root: _, caps, masker, web, own, writing: _, locks, availability } = self;
        Self {
            writing: lock_of(locks, &root),
            root,
            caps: *caps,
            masker: masker.clone(),
            web: web.clone(),
            own: own.clone(),
            locks: Arc::clone(locks),
            availability: availability.clone(),
        }
    }

    /// Sets what a command that misses a program is told about toolchains.
    pub fn set_tool_availability(&mut self, availability: ToolAvailability) {
        self.availability = availability;
    }

    /// Makes a directory inaccessible to all tools that open files.
    pub fn close(&mut self, folder: &Path) {
        self.root.protect(folder);
    }

    /// Makes a directory read-only for all tools.
    pub fn make_read_only(&mut self, folder: &Path) {
        self.root.make_read_only(folder);
    }

    /// Sets the masker, which may contain literals such as the engine's own keys.
    #[must_use]
    pub fn with_masker(self, masker: Masker) -> Self {
        Self { masker, ..self }
    }

    /// Adds the web tools.
    #[must_use]
    pub fn with_web(self, web: WebAccess) -> Self {
        Self { web: Some(Arc::new(web)), ..self }
    }

    /// Adds a tool of the embedding program. A tool whose name is already taken is never called.
    #[must_use]
    pub fn with_tool(mut self, tool: Arc<dyn CustomTool>) -> Self {
        self.own.add(tool);
        self
    }

    /// Returns the descriptions of all available tools.
    ///
    /// WebSearch is not offered without a configured search engine; a call of it returns how to configure
    /// one.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        let offered =
            ToolName::ALL.into_iter().filter(|tool| self.unavailable_reason(*tool).is_none());
        offered
            .filter_map(|tool| spec::of(tool, &self.caps))
            .chain(self.own.specs().cloned())
            .collect()
    }

    /// Returns the names of the tools of the embedding program.
    #[must_use]
    pub fn custom_tools(&self) -> ToolSet {
        ToolSet::new(self.own.specs().map(|spec| spec.name.as_str()))
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Executes a call. Blocks, but returns soon after `should_stop` returns true.
    ///
    /// Every failure is a result with `is_error` set and a text for the model. The web tools start a small
    /// tokio runtime, so do not call this on a thread that drives another one.
    #[must_use]
    pub fn call(
        &self,
        name: ToolName,
        arguments: &Value,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolCallResult {
        self.perform(name, arguments, None, should_stop)
    }

    /// Executes a WebFetch that was approved for one host.
    ///
    /// The approval parsed the URL with another parser. If the two disagree about the host, nothing is
    /// fetched. A redirect to a host that is not approved ends the fetch.
    #[must_use]
    pub fn fetch(
        &self,
        arguments: &Value,
        approved: ApprovedHosts<'_>,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolCallResult {
        self.perform(ToolName::WebFetch, arguments, Some(approved), should_stop)
    }

    fn perform(
        &self,
        name: ToolName,
        arguments: &Value,
        approved: Option<ApprovedHosts<'_>>,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolCallResult {
        let Self { root, caps, masker, web, availability, .. } = self;
        let call =
            ToolCallContext { root, caps, masker, arguments, should_stop, availability, approved };
        let output = match (name, web) {
            (ToolName::Read, _) => read::read(&call),
            (ToolName::Grep, _) => grep::grep(&call),
            (ToolName::Glob, _) => glob::glob(&call),
            (ToolName::Note, _) => note::note(&call),
            (ToolName::WebFetch, Some(web)) => fetch::fetch(&call, web),
            (ToolName::WebSearch, Some(web)) => search::search(&call, web),
            // Only `prepare_write` gets the paths that may be written.
            (ToolName::Edit | ToolName::Write, _) => {
                Ok(ToolCallResult::error("you may not write files"))
            }
            // Only `run` gets the confinement of commands.
            (ToolName::Run, _) => Ok(ToolCallResult::error("you may not run commands")),
            (
                ToolName::WebFetch
                | ToolName::WebSearch
                | ToolName::Delegate
                | ToolName::Task
                | ToolName::Return,
                _,
            ) => Ok(self.not_available(name)),
        };
        self.mask_result(output.unwrap_or_else(ToolCallResult::error))
    }

    /// Executes a call by tool name; the error for an unknown name lists the known ones.
    #[must_use]
    pub fn call_by_name(
        &self,
        name: &str,
        arguments: &Value,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolCallResult {
        match ToolName::parse(name) {
            Some(name) => self.call(name, arguments, should_stop),
            None if let Some(tool) = self.own.find(name) => {
                // Masked before it is cut, because part of a secret would not be recognized.
                cut_to_limit(
                    self.mask_result(run_caught(tool, name, arguments, should_stop)),
                    self.caps.read_bytes,
                )
            }
            None => {
                let (name, available) = (brief(name), self.available());
                let text = format!("unknown tool `{name}`; available: {available}");
                self.mask_result(ToolCallResult::error(text))
            }
        }
    }

    /// Computes what a call of Write or Edit would change, within the limits of `writes`. Changes nothing.
    #[must_use]
    pub fn prepare_write(
        &self,
        name: &str,
        arguments: &Value,
        writes: &WriteScope,
    ) -> PreparedWrite {
        let Some(tool) = writer(name) else {
            return PreparedWrite::Answer(self.call_by_name(name, arguments, &|| false));
        };
        match write::prepare(&self.as_call(arguments, &|| false), tool, writes) {
            PreparedWrite::Answer(output) => PreparedWrite::Answer(self.mask_result(output)),
            change @ PreparedWrite::Change { .. } => change,
        }
    }

    /// Makes prepared changes, if the files have not changed since. `temp` is the name of the temporary file
    /// next to it that is written first.
    #[must_use]
    pub fn commit_write(
        &self,
        name: &str,
        arguments: &Value,
        writes: &WriteScope,
        intent: &WriteIntent,
        temp: &str,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolCallResult {
        let Some(tool) = writer(name) else {
            return self.call_by_name(name, arguments, should_stop);
        };
        let call = self.as_call(arguments, should_stop);
        // Without the lock, two calls that read the same file would both replace it, and one change would be
        // lost.
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.mask_result(write::commit(&call, tool, writes, intent, OsStr::new(temp)))
    }

    /// Runs a command under `confinement` and waits for its end; blocks.
    ///
    /// `environment` overrides the variables that every command gets. `on_output` receives the output while
    /// the command runs, masked and cleaned: whole lines, at most 4 KiB ten times per second, and only the
    /// latest of a flood. It blocks the command while it runs.
    #[must_use]
    pub fn run(
        &self,
        arguments: &Value,
        confinement: &Confinement,
        environment: &[(String, String)],
        cancel: &CancelHandle,
        on_output: &mut dyn FnMut(&str),
    ) -> ToolCallResult {
        let call = self.as_call(arguments, &|| false);
        let longest = TimeoutLimit::OfAgent;
        let output = run::run(&call, longest, confinement, environment, cancel, on_output);
        self.mask_result(output.unwrap_or_else(ToolCallResult::error))
    }

    /// Like [`Toolbox::run`], for the user's verify command, whose `timeout` is not limited.
    #[must_use]
    pub fn run_check(
        &self,
        arguments: &Value,
        confinement: &Confinement,
        environment: &[(String, String)],
        cancel: &CancelHandle,
        on_output: &mut dyn FnMut(&str),
    ) -> ToolCallResult {
        let call = self.as_call(arguments, &|| false);
        let longest = TimeoutLimit::AsAsked;
        let output = run::run(&call, longest, confinement, environment, cancel, on_output);
        self.mask_result(output.unwrap_or_else(ToolCallResult::error))
    }

    /// Returns the hash of a file's content; `None` if there is no file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn content_hash(&self, path: &str) -> Result<Option<String>, PathError> {
        let path = self.root.relative(path)?;
        let place = self.root.file_target(&RelPath::default(), &path, MissingParents::Leave)?;
        Ok(place.read(self.caps.write_bytes)?.map(|image| content_hash(&image.bytes)))
    }

    /// Removes the temporary file that an interrupted change may have left next to `path`.
    ///
    /// # Errors
    ///
    /// If it could not be removed.
    pub fn clean(&self, path: &str, temp: &str) -> Result<(), PathError> {
        let path = self.root.relative(path)?;
        let place = self.root.file_target(&RelPath::default(), &path, MissingParents::Leave)?;
        place.remove_temp(OsStr::new(temp))
    }

    fn as_call<'call>(
        &'call self,
        arguments: &'call Value,
        should_stop: &'call dyn Fn() -> bool,
    ) -> ToolCallContext<'call> {
        let Self { root, caps, masker, availability, .. } = self;
        ToolCallContext { root, caps, masker, arguments, should_stop, availability, approved: None }
    }

    fn mask_result(&self, output: ToolCallResult) -> ToolCallResult {
        let ToolCallResult { text, is_error, notes, touched, sandbox, exit } = output;
        ToolCallResult {
            text: self.masker.mask_owned(text),
            is_error,
            notes: notes.map(|line| self.masker.mask_owned(line)),
            touched: touched.into_iter().map(|path| self.masker.mask_owned(path)).collect(),
            sandbox,
            exit,
        }
    }

    fn not_available(&self, name: ToolName) -> ToolCallResult {
        let why = self.unavailable_reason(name).unwrap_or("not available");
        let available = self.available();
        ToolCallResult::error(format!("`{name}` is {why}; available: {available}"))
    }

    /// Returns why a tool is not available here; `None` if it is.
    fn unavailable_reason(&self, name: ToolName) -> Option<&'static str> {
        match name {
            ToolName::Read
            | ToolName::Grep
            | ToolName::Glob
            | ToolName::Note
            | ToolName::Edit
            | ToolName::Write
            | ToolName::Run => None,
            ToolName::WebFetch | ToolName::WebSearch if self.web.is_none() => {
                Some("not available without network")
            }
            ToolName::WebFetch => None,
            ToolName::WebSearch => {
                let has_engine = self.web.as_ref().is_some_and(|web| web.search().is_some());
                if has_engine { None } else { Some("not available without a search engine") }
            }
            ToolName::Delegate | ToolName::Task | ToolName::Return => {
                Some("not available in this build")
            }
        }
    }

    /// Lists the available tools for messages, without Write, Edit and Run.
    fn available(&self) -> String {
        let ours = ToolName::ALL
            .into_iter()
            .filter(|tool| !matches!(tool, ToolName::Edit | ToolName::Write | ToolName::Run))
            .filter(|tool| self.unavailable_reason(*tool).is_none());
        let mut names: Vec<&str> = ours.map(ToolName::as_str).collect();
        names.extend(self.own.specs().map(|spec| spec.name.as_str()));
        names.join(", ")
    }
}

/// Returns the write lock of a root. Roots whose identity is unknown share one, which only costs time.
fn lock_of(locks: &RootLocks, root: &Root) -> Arc<Mutex<()>> {
    let key = root.identity().unwrap_or_default();
    let mut locks = locks.lock().unwrap_or_else(PoisonError::into_inner);
    locks.retain(|_, lock| lock.strong_count() > 0);
    locks.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
        let fresh = Arc::default();
        locks.insert(key, Arc::downgrade(&fresh));
        fresh
    })
}

fn writer(name: &str) -> Option<ToolName> {
    ToolName::parse(name).filter(|tool| matches!(tool, ToolName::Edit | ToolName::Write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolboxes_of_one_root_share_its_lock_whatever_it_is_called() {
        let outer = tempfile::tempdir().unwrap();
        let [here, there, link] = ["here", "there", "link"].map(|name| outer.path().join(name));
        std::fs::create_dir(&here).unwrap();
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&here, &link).unwrap();
        let first = Toolbox::new(Root::open(&here).unwrap(), ToolCaps::default());
        let other = first.with_root(Root::open(&there).unwrap());
        let again = other.with_root(Root::open(&link).unwrap());
        assert!(Arc::ptr_eq(&first.writing, &again.writing));
        assert!(!Arc::ptr_eq(&first.writing, &other.writing));
        drop((first, again));
        assert_eq!(other.with_root(Root::open(&there).unwrap()).locks.lock().unwrap().len(), 1);
    }
}
