//! Errors of git operations.
//!
//! Git's messages are shortened and have no control characters; the source chain has the rest.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::PathError;

/// Says why a git operation failed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No git program was found.
    #[error("no git program in the search path; install git {MINIMUM} or newer", MINIMUM = super::run::MINIMUM_TEXT)]
    NoGit,
    /// The git program is too old for the options that are used.
    #[error("git {found} is too old; {MINIMUM} or newer is needed", MINIMUM = super::run::MINIMUM_TEXT)]
    TooOld {
        /// The version found.
        found: String,
    },
    /// The directory is in no repository.
    #[error("{} is not in a git repository; {}", path.display(), advice(path))]
    NotARepository {
        /// The directory.
        path: PathBuf,
    },
    /// `.git` cannot be trusted to belong to the directory.
    #[error("{}: {reason}", path.display())]
    Untrusted {
        /// The `.git` in question.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// `.git` names a git directory that does not refer back to this directory.
    #[error(
        "{} names the git directory {}, which does not refer back to it; if they belong \
         together, set `git config core.worktree` there to the directory of the first", path.display(), git_dir.display()
    )]
    Foreign {
        /// The `.git` in question.
        path: PathBuf,
        /// The git directory that it names.
        git_dir: PathBuf,
    },
    /// The name cannot be part of a reference.
    #[error("`{0}` cannot be part of a git reference; this is a bug in Adjutant")]
    BadName(String),
    /// The workspaces in use leave no room for another base checkout.
    #[error(
        "workspaces occupy {} MiB, more than the policy key `disk_bytes` allows ({} MiB); wait until agents have ended, \
         run `adjutant prune`, or raise the key",
        used.div_ceil(1 << 20),
        bound >> 20
    )]
    DiskBound {
        /// The bytes that are in use.
        used: u64,
        /// The most bytes allowed.
        bound: u64,
    },
    /// The text is not the id of a git object.
    #[error("`{0}` is not a git object id")]
    BadObjectId(String),
    /// Git's output could not be parsed.
    #[error("cannot parse the output of git {command}")]
    Unreadable {
        /// The command.
        command: String,
    },
    /// Git ended with an error.
    #[error("git {command} failed ({status}): {message}")]
    Failed {
        /// The command.
        command: String,
        /// Its exit status, or the signal.
        status: String,
        /// The end of its error output, shortened.
        message: String,
    },
    /// Git exceeded the timeout.
    #[error("git {command} did not finish within {} s", limit.as_secs())]
    TimedOut {
        /// The command.
        command: String,
        /// The timeout.
        limit: Duration,
    },
    /// Git's output exceeded the limit.
    #[error("git {command} printed more than {max_bytes} bytes")]
    TooMuch {
        /// The command.
        command: String,
        /// The limit.
        max_bytes: usize,
    },
    /// The reference does not have the expected value: another process moved it.
    #[error("another process changed {reference}; it was not updated")]
    Moved {
        /// The reference.
        reference: String,
    },
    /// There is no such reference or commit.
    #[error("there is no {0}")]
    Missing(String),
    /// A file kept changing while it was read.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A path beneath a work tree could not be opened.
    #[error("{}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why it could not be opened.
        #[source]
        source: PathError,
    },
    /// A system call failed.
    #[error("{doing}")]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl GitError {
    /// Returns a closure that adds the failed operation to a system error.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { doing, source: source.into() }
    }
}

/// Suggests what to do without a repository; `git init` is no good advice for `/`.
fn advice(path: &std::path::Path) -> &'static str {
    if path.parent().is_none() {
        "change to the directory of your project, or give it with --root"
    } else {
        "run `git init` there to create one"
    }
}
