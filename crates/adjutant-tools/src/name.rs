//! The names of all tools, those of this build and those it knows of.

use std::fmt;

/// A tool an agent may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ToolName {
    /// Shows a file.
    Read,
    /// Searches the contents of files.
    Grep,
    /// Finds files by name.
    Glob,
    /// Appends a line to the agent's scratchpad.
    Note,
    /// Fetches a page; needs the network.
    WebFetch,
    /// Asks a search engine; needs the network.
    WebSearch,
    /// Changes a part of a file.
    Edit,
    /// Writes a file.
    Write,
    /// Runs a command in the sandbox.
    Run,
    /// Hands tasks to subagents; done by the engine.
    Delegate,
    /// Hands one task to a named agent; done by the engine.
    Task,
    /// Delivers the agent's return; done by the engine.
    Return,
}

impl ToolName {
    /// Every tool, in the order they are listed to people and models.
    pub const ALL: [Self; 12] = [
        Self::Read,
        Self::Grep,
        Self::Glob,
        Self::Note,
        Self::WebFetch,
        Self::WebSearch,
        Self::Edit,
        Self::Write,
        Self::Run,
        Self::Delegate,
        Self::Task,
        Self::Return,
    ];

    /// Takes a name as a model wrote it; exact, because allow-lists are.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Grep => "Grep",
            Self::Glob => "Glob",
            Self::Note => "Note",
            Self::WebFetch => "WebFetch",
            Self::WebSearch => "WebSearch",
            Self::Edit => "Edit",
            Self::Write => "Write",
            Self::Run => "Run",
            Self::Delegate => "Delegate",
            Self::Task => "Task",
            Self::Return => "Return",
        }
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
