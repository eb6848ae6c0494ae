//! Decides which files a search skips: `.gitignore`, `.ignore` and `.git/info/exclude`.
//!
//! The `ignore` crate interprets single rules; this module decides which rules apply where. As in ripgrep,
//! `.ignore` wins over `.gitignore`, deeper files win over shallower ones, and the git rules of an outer
//! repository end where an inner one begins.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_workspace::Dir;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The maximum number of bytes read from one rule file.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The maximum length of a rule and number of brace groups in it; longer rules could abuse the parser.
const MAX_RULE_BYTES: usize = 1024;
const MAX_RULE_BRACES: usize = 16;

/// The decision of the rules about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IgnoreVerdict {
    /// A rule excludes it.
    Ignored,
    /// A negated rule includes it, even if it is hidden.
    Wanted,
    /// No rule matches it.
    Unmentioned,
}

/// The rules of all directories from the root to the current directory of a walk.
#[derive(Debug, Default)]
pub(crate) struct IgnoreRules {
    levels: Vec<DirectoryRules>,
    /// The number of rule files that could not be applied completely.
    pub(crate) broken: usize,
}

/// The ignore rules that one directory adds: `.ignore`, `.gitignore` and `info/exclude`.
#[derive(Debug)]
struct DirectoryRules {
    /// The length of the directory's path, which is stripped from a path relative to the root.
    prefix: usize,
    ignore: Option<Gitignore>,
    gitignore: Option<Gitignore>,
    exclude: Option<Gitignore>,
    is_repository: bool,
}

impl IgnoreRules {
    /// Returns the number of directories with rules, for [`IgnoreRules::truncate`].
    pub(crate) fn len(&self) -> usize {
        self.levels.len()
    }

    /// Drops the rules of directories that the walk has left.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.levels.truncate(len);
    }

    /// Adds the rules of `dir`; `path_len` is the length of its path from the root.
    ///
    /// `may_have` returns whether a file of this name may exist.
    pub(crate) fn enter(&mut self, dir: &Dir, path_len: usize, may_have: &dyn Fn(&str) -> bool) {
        let prefix = if path_len == 0 { 0 } else { path_len + 1 };
        let git = may_have(".git").then(|| dir.open_dir(OsStr::new(".git")).ok()).flatten();
        let info = git.as_ref().and_then(|git| git.open_dir(OsStr::new("info")).ok());
        let level = DirectoryRules {
            prefix,
            ignore: self.load(dir, ".ignore", may_have),
            gitignore: self.load(dir, ".gitignore", may_have),
            exclude: info.and_then(|info| self.load(&info, "exclude", &|_| true)),
            is_repository: git.is_some(),
        };
        let empty = level.ignore.is_none() && level.gitignore.is_none() && !level.is_repository;
        if !empty {
            self.levels.push(level);
        }
    }

    /// Returns the decision about a path relative to the root.
    pub(crate) fn verdict(&self, path: &[u8], is_dir: bool) -> IgnoreVerdict {
        let first = |of: &dyn Fn(&DirectoryRules) -> Option<&Gitignore>, in_repository: bool| {
            for level in self.levels.iter().rev() {
                let relative = path.get(level.prefix..).unwrap_or(path);
                if let Some(rules) = of(level) {
                    match rules.matched(Path::new(OsStr::from_bytes(relative)), is_dir) {
                        Match::None => {}
                        Match::Ignore(_) => return Some(IgnoreVerdict::Ignored),
                        Match::Whitelist(_) => return Some(IgnoreVerdict::Wanted),
                    }
                }
                if in_repository && level.is_repository {
                    return None;
                }
            }
            None
        };
        first(&|level| level.ignore.as_ref(), false)
            .or_else(|| first(&|level| level.gitignore.as_ref(), true))
            .or_else(|| first(&|level| level.exclude.as_ref(), true))
            .unwrap_or(IgnoreVerdict::Unmentioned)
    }

    fn load(
        &mut self,
        dir: &Dir,
        name: &str,
        may_have: &dyn Fn(&str) -> bool,
    ) -> Option<Gitignore> {
        let opened = may_have(name).then(|| dir.open_file(OsStr::new(name)).ok()).flatten()?;
        let mut bytes = Vec::new();
        let read = opened.file.take(MAX_FILE_BYTES).read_to_end(&mut bytes);
        let mut complete = read.is_ok() && opened.len <= MAX_FILE_BYTES;
        let text = String::from_utf8_lossy(&bytes);
        let mut builder = GitignoreBuilder::new("");
        // In git a bare `!` or `/` matches nothing; in the `ignore` crate it would match everything.
        let empty = |line: &&str| matches!(line.trim_end(), "!" | "/" | "!/");
        for line in text.trim_start_matches('\u{feff}').lines().filter(|line| !empty(line)) {
            let braces = memchr::memchr_iter(b'{', line.as_bytes()).count();
            complete &= line.len() <= MAX_RULE_BYTES
                && braces <= MAX_RULE_BRACES
                && builder.add_line(None, line).is_ok();
        }
        let built = builder.build();
        self.broken += usize::from(!complete || built.is_err());
        built.ok()
    }
}
