//! The tools of one workspace: the single place where a call becomes a result.
//!
//! Whether the agent may make the call was judged before (`core`'s `decide`); when it must end is
//! said from outside (`should_stop`). Start at [`Toolbox::call`].

use adjutant_workspace::{OpenedFile, PathError, RelPath, Root};
use serde_json::Value;

use crate::args::brief;
use crate::output::ToolOutput;
use crate::{Caps, Masker, ToolName, glob, grep, note, read};

/// The tools that act inside one root.
#[derive(Debug)]
pub struct Toolbox {
    root: Root,
    caps: Caps,
    masker: Masker,
}

/// One call as the tools see it.
pub(crate) struct Call<'call> {
    pub(crate) root: &'call Root,
    pub(crate) caps: &'call Caps,
    pub(crate) masker: &'call Masker,
    pub(crate) arguments: &'call Value,
    pub(crate) should_stop: &'call dyn Fn() -> bool,
}

impl Call<'_> {
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
    pub fn new(root: Root, caps: Caps) -> Self {
        Self { root, caps, masker: Masker::default() }
    }

    /// Masks with `masker`, which may know literals such as the engine's own keys.
    #[must_use]
    pub fn with_masker(self, masker: Masker) -> Self {
        Self { masker, ..self }
    }

    /// Returns the root the tools act in.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Performs a call; blocks, and returns soon after `should_stop` says so.
    ///
    /// Every failure is a result with `is_error` set, in words the model can act on.
    #[must_use]
    pub fn call(
        &self,
        name: ToolName,
        arguments: &Value,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolOutput {
        let Self { root, caps, masker } = self;
        let call = Call { root, caps, masker, arguments, should_stop };
        let output = match name {
            ToolName::Read => read::read(&call),
            ToolName::Grep => grep::grep(&call),
            ToolName::Glob => glob::glob(&call),
            ToolName::Note => note::note(&call),
            ToolName::WebFetch
            | ToolName::WebSearch
            | ToolName::Edit
            | ToolName::Write
            | ToolName::Run
            | ToolName::Delegate
            | ToolName::Task
            | ToolName::Return => Ok(not_available(name)),
        };
        self.masked(output.unwrap_or_else(ToolOutput::error))
    }

    /// Performs a call by the name the model wrote; an unknown name is answered with the known ones.
    #[must_use]
    pub fn call_by_name(
        &self,
        name: &str,
        arguments: &Value,
        should_stop: &dyn Fn() -> bool,
    ) -> ToolOutput {
        match ToolName::parse(name) {
            Some(name) => self.call(name, arguments, should_stop),
            None => {
                let (name, available) = (brief(name), ToolName::available());
                let text = format!("unknown tool `{name}`; available: {available}");
                self.masked(ToolOutput::error(text))
            }
        }
    }

    fn masked(&self, output: ToolOutput) -> ToolOutput {
        let ToolOutput { text, is_error, notes, touched } = output;
        ToolOutput {
            text: self.masker.mask_owned(text),
            is_error,
            notes: notes.map(|line| self.masker.mask_owned(line)),
            touched: touched.into_iter().map(|path| self.masker.mask_owned(path)).collect(),
        }
    }
}

fn not_available(name: ToolName) -> ToolOutput {
    let why = name.missing().unwrap_or("not available");
    let available = ToolName::available();
    ToolOutput::error(format!("`{name}` is {why}; available: {available}"))
}
