//! The tools of one workspace: the single place where a call becomes a result.
//!
//! Whether the agent may make the call was judged before (`core`'s `decide`); when it must end is
//! said from outside (`should_stop`). Start at [`Toolbox::call`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use adjutant_core::message::ToolSpec;
use adjutant_core::{ContentChange, HostSet, WriteScope, content_hash};
use adjutant_workspace::sandbox::CancelHandle;
use adjutant_workspace::{MissingParents, OpenedFile, PathError, RelPath, Root};
use serde_json::Value;

use crate::args::brief;
use crate::custom_tools::{CustomTool, CustomTools, capped};
use crate::output::ToolCallResult;
use crate::run::TimeoutLimit;
use crate::web::{WebAccess, fetch, search};
use crate::{
    Confinement, Masker, PreparedWrite, ToolCaps, ToolName, glob, grep, note, read, run, spec,
    write,
};

/// The tools that act inside one root.
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
}

/// The locks of all roots that toolboxes made of one another write in, by the identity of the root.
type RootLocks = Arc<Mutex<BTreeMap<(u64, u64), Weak<Mutex<()>>>>>;

/// One call as the tools see it.
pub(crate) struct ToolCallContext<'call> {
    pub(crate) root: &'call Root,
    pub(crate) caps: &'call ToolCaps,
    pub(crate) masker: &'call Masker,
    pub(crate) arguments: &'call Value,
    pub(crate) should_stop: &'call dyn Fn() -> bool,
    /// Whom a fetch may ask; absent where every public host may be.
    pub(crate) approved: Option<ApprovedHosts<'call>>,
}

/// Whom a fetch may ask.
#[derive(Clone, Copy, Debug)]
pub struct ApprovedHosts<'call> {
    /// The host the call was approved for.
    pub host: &'call str,
    /// The hosts a redirect may lead to.
    pub hosts: &'call HostSet,
}

impl ToolCallContext<'_> {
    /// Opens a file by the path a model wrote.
    pub(crate) fn open(&self, written: &str) -> Result<(RelPath, OpenedFile), PathError> {
        let path = self.root.relative(written)?;
        let opened = self.root.open_file(&path)?;
        Ok((path, opened))
    }
}

impl Toolbox {
    /// Makes the tools of `root`, masking secrets by shape.
    #[must_use]
    pub fn new(root: Root, caps: ToolCaps) -> Self {
        let (masker, own, locks) =
            (Masker::default(), CustomTools::default(), RootLocks::default());
        let writing = lock_of(&locks, &root);
        Self { root, caps, masker, web: None, own, writing, locks }
    }

    /// Makes the same tools for another root, such as a workspace.
    ///
    /// Toolboxes made of one another that have the same root write one at a time.
    #[must_use]
    pub fn with_root(&self, root: Root) -> Self {
        let Self { root: _, caps, masker, web, own, writing: _, locks } = self;
        Self {
            writing: lock_of(locks, &root),
            root,
            caps: *caps,
            masker: masker.clone(),
            web: web.clone(),
            own: own.clone(),
            locks: Arc::clone(locks),
        }
    }

    /// Keeps a directory out of reach of every tool that opens files in the root.
    pub fn close(&mut self, folder: &Path) {
        self.root.protect(folder);
    }

    /// Keeps every tool from writing in a directory; it may be read.
    pub fn make_read_only(&mut self, folder: &Path) {
        self.root.make_read_only(folder);
    }

    /// Masks with `masker`, which may know literals such as the engine's own keys.
    #[must_use]
    pub fn with_masker(self, masker: Masker) -> Self {
        Self { masker, ..self }
    }

    /// Adds the tools of the web, which do not exist without a handle to it.
    #[must_use]
    pub fn with_web(self, web: WebAccess) -> Self {
        Self { web: Some(Arc::new(web)), ..self }
    }

    /// Adds a tool of the embedding program. One of a known name, ours or its own, is never reached.
    #[must_use]
    pub fn with_tool(mut self, tool: Arc<dyn CustomTool>) -> Self {
        self.own.add(tool);
        self
    }

    /// Returns the tools that can be performed, as models are shown them.
    ///
    /// A search engine that nobody configured is not offered; a call that comes all the same is
    /// told how to configure one.
    #[must_use]
    pub fn specs(&self) -> Vec<ToolSpec> {
        let offered = ToolName::ALL.into_iter().filter(|tool| self.missing(*tool).is_none());
        offered
            .filter_map(|tool| spec::of(tool, &self.caps))
            .chain(self.own.specs().cloned())
            .collect()
    }

    /// Returns the root the tools act in.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Performs a call; blocks, and returns soon after `should_stop` says so.
    ///
    /// Every failure is a result with `is_error` set, in words the model can act on. The tools of
    /// the web run a small runtime of their own, so this is not for a thread that drives another.
    #[must_use]
    pub fn call(
        &self,
        name: ToolName,
        arguments: &Value,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolCallResult {
        self.perform(name, arguments, None, should_stop)
    }

    /// Performs a WebFetch that was approved for one host.
    ///
    /// Whoever approved it read the URL with another parser. Where the two disagree about the host,
    /// nothing is fetched; and a redirect to a host that was not approved ends the fetch.
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
        let Self { root, caps, masker, web, .. } = self;
        let call = ToolCallContext { root, caps, masker, arguments, should_stop, approved };
        let output = match (name, web) {
            (ToolName::Read, _) => read::read(&call),
            (ToolName::Grep, _) => grep::grep(&call),
            (ToolName::Glob, _) => glob::glob(&call),
            (ToolName::Note, _) => note::note(&call),
            (ToolName::WebFetch, Some(web)) => fetch::fetch(&call, web),
            (ToolName::WebSearch, Some(web)) => search::search(&call, web),
            // Where they may write is handed to `prepare_write`, and only there.
            (ToolName::Edit | ToolName::Write, _) => {
                Ok(ToolCallResult::error("you may not write files"))
            }
            // What holds a command is handed to `run`, and only there.
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
        self.masked(output.unwrap_or_else(ToolCallResult::error))
    }

    /// Performs a call by the name the model wrote; an unknown name is answered with the known ones.
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
                // Masked first: half a secret at the cut would not be known as one.
                capped(self.masked(tool.run(arguments, should_stop)), self.caps.read_bytes)
            }
            None => {
                let (name, available) = (brief(name), self.available());
                let text = format!("unknown tool `{name}`; available: {available}");
                self.masked(ToolCallResult::error(text))
            }
        }
    }

    /// Works out what a call of Write or Edit would change, where `writes` lets it; changes nothing.
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
            PreparedWrite::Answer(output) => PreparedWrite::Answer(self.masked(output)),
            change @ PreparedWrite::Change { .. } => change,
        }
    }

    /// Makes the change that a call was prepared for, if the file is still as it was then. `temp`
    /// names the file beside it that is written first.
    #[must_use]
    pub fn commit_write(
        &self,
        name: &str,
        arguments: &Value,
        writes: &WriteScope,
        change: &ContentChange,
        temp: &str,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolCallResult {
        let Some(tool) = writer(name) else {
            return self.call_by_name(name, arguments, should_stop);
        };
        let call = self.as_call(arguments, should_stop);
        // Two who found the same file would both replace it, and the first would lose its change.
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.masked(write::commit(&call, tool, writes, change, OsStr::new(temp)))
    }

    /// Runs a command and waits for its end, held by `confinement`; blocks.
    ///
    /// `environment` is added to what every command gets and wins over it. `on_output` is shown what the command
    /// says while it runs, masked and made safe: whole lines, at most 4 KiB ten times a second, of a flood the
    /// latest. It holds the command up while it runs.
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
        self.masked(output.unwrap_or_else(ToolCallResult::error))
    }

    /// Like [`Toolbox::run`], for a command of a person that decides whether work is done: it may take as long as
    /// its `timeout` says.
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
        self.masked(output.unwrap_or_else(ToolCallResult::error))
    }

    /// Returns the hash of a file's content, nothing where there is no file.
    ///
    /// # Errors
    ///
    /// Why nobody can tell.
    pub fn look(&self, path: &str) -> Result<Option<String>, PathError> {
        let path = self.root.relative(path)?;
        let place = self.root.file_target(&RelPath::default(), &path, MissingParents::Leave)?;
        Ok(place.read(self.caps.write_bytes)?.map(|image| content_hash(&image.bytes)))
    }

    /// Removes the file that an interrupted change left beside `path`, if it did.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
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
        let Self { root, caps, masker, .. } = self;
        ToolCallContext { root, caps, masker, arguments, should_stop, approved: None }
    }

    fn masked(&self, output: ToolCallResult) -> ToolCallResult {
        let ToolCallResult { text, is_error, notes, touched, sandbox } = output;
        ToolCallResult {
            text: self.masker.mask_owned(text),
            is_error,
            notes: notes.map(|line| self.masker.mask_owned(line)),
            touched: touched.into_iter().map(|path| self.masker.mask_owned(path)).collect(),
            sandbox,
        }
    }

    fn not_available(&self, name: ToolName) -> ToolCallResult {
        let why = self.missing(name).unwrap_or("not available");
        let available = self.available();
        ToolCallResult::error(format!("`{name}` is {why}; available: {available}"))
    }

    /// Says why a tool cannot be performed here, if it cannot.
    fn missing(&self, name: ToolName) -> Option<&'static str> {
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

    /// Lists the tools that every agent can perform, for messages; who may write or run knows it.
    fn available(&self) -> String {
        let ours = ToolName::ALL
            .into_iter()
            .filter(|tool| !matches!(tool, ToolName::Edit | ToolName::Write | ToolName::Run))
            .filter(|tool| self.missing(*tool).is_none());
        let mut names: Vec<&str> = ours.map(ToolName::as_str).collect();
        names.extend(self.own.specs().map(|spec| spec.name.as_str()));
        names.join(", ")
    }
}

/// Returns the lock of a root. Roots that nobody can tell apart share one, which costs only time.
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
