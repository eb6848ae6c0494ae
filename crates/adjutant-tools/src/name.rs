//! The built-in tools, by the names that models use.

use std::fmt;

/// A tool that an agent may call.
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
    /// Fetches a web page; needs the network.
    WebFetch,
    /// Queries a search engine; needs the network.
    WebSearch,
    /// Changes a part of a file.
    Edit,
    /// Writes a file.
    Write,
    /// Runs a command in the sandbox.
    Run,
    /// Delegates tasks to subagents; executed by the engine.
    Delegate,
    /// Delegates one task to a named agent; executed by the engine.
    Task,
    /// Delivers the agent's return; executed by the engine.
    Return,
}

impl ToolName {
    /// All tools, in display order.
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

    /// Parses a tool name. Exact, because allow-lists are exact too.
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
