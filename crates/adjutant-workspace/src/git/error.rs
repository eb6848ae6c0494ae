//! Why git, or what was asked of it, failed.
//!
//! Texts of git are shortened and carry no control characters; the chain holds the rest.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::PathError;

/// Says why something with git did not work.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no git program.
    #[error("no git program in the search path; install git {MINIMUM} or newer", MINIMUM = super::run::MINIMUM_TEXT)]
    NoGit,
    /// The git program lacks what the safe calls need.
    #[error("git {found} is too old; {MINIMUM} or newer is needed", MINIMUM = super::run::MINIMUM_TEXT)]
    TooOld {
        /// The version found.
        found: String,
    },
    /// The folder lies in no repository.
    #[error("{} is not in a git repository; {}", path.display(), way_out(path))]
    NotARepository {
        /// The folder asked about.
        path: PathBuf,
    },
    /// `.git` is something that cannot be trusted to belong to the folder.
    #[error("{}: {reason}", path.display())]
    Untrusted {
        /// The `.git` in question.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// `.git` names a git directory that does not say it is the one of this folder.
    #[error(
        "{} names the git directory {}, which does not name it back; if they belong together, \
         `git config core.worktree` there must be the folder of the first", path.display(), git_dir.display()
    )]
    Foreign {
        /// The `.git` in question.
        path: PathBuf,
        /// What it names.
        git_dir: PathBuf,
    },
    /// A name that cannot be part of a reference.
    #[error("`{0}` cannot name a run or a child in a reference")]
    BadName(String),
    /// Git said something that could not be read.
    #[error("git {command} answered in a form that is not understood")]
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
        /// The end of what it said, shortened.
        message: String,
    },
    /// Git did not end in time.
    #[error("git {command} did not end within {} s", limit.as_secs())]
    TimedOut {
        /// The command.
        command: String,
        /// The time it had.
        limit: Duration,
    },
    /// Git said more than is taken.
    #[error("git {command} said more than {max_bytes} bytes")]
    TooMuch {
        /// The command.
        command: String,
        /// The most that is taken.
        max_bytes: usize,
    },
    /// The reference is not what it was expected to be; somebody else moved it.
    #[error("{reference} is not what it was; it was left alone")]
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
        /// Why not.
        #[source]
        source: PathError,
    },
    /// The system failed.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl GitError {
    /// Returns a closure that wraps what the system said with what was being done.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { doing, source: source.into() }
    }
}

/// Says what to do where there is no repository; nobody should make one of everything.
fn way_out(path: &std::path::Path) -> &'static str {
    if path.parent().is_none() {
        "go to the folder of your project, or name it with --root"
    } else {
        "`git init` there makes it one"
    }
}
