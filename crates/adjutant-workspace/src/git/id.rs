//! Object ids and references.
//!
//! Invariant: values of these types are safe on a git command line and as a path below `refs/adjutant/`.

use std::fmt;

use super::GitError;

/// The most bytes of one component of a reference.
const PART_BYTES: usize = 100;

/// The most bytes of one component of a branch name: git creates a file of that name, and a lock file beside it.
const BRANCH_BYTES: usize = 240;

/// The id of an object: 40 or 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(String);

impl ObjectId {
    /// Parses an id; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let fits = matches!(text.len(), 40 | 64) && text.bytes().all(hex);
        fits.then(|| Self(text.to_owned()))
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().and_then(|text| Self::parse(text.trim_ascii()))
    }

    /// Returns the hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reference for the result of one child of a run: `refs/adjutant/<run>/<child>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResultRef {
    run: String,
    child: String,
}

impl ResultRef {
    /// The prefix of all result references.
    pub const PREFIX: &'static str = "refs/adjutant/";

    /// Returns the reference for the result of `child` in `run`.
    ///
    /// # Errors
    ///
    /// [`GitError::BadName`] unless both consist of letters, digits, `-`, `_` and single dots inside.
    pub fn new(run: &str, child: &str) -> Result<Self, GitError> {
        for part in [run, child] {
            if !is_plain(part) {
                return Err(GitError::BadName(part.chars().take(PART_BYTES).collect()));
            }
        }
        Ok(Self { run: run.to_owned(), child: child.to_owned() })
    }

    /// Parses a full reference name; `None` if it is not a result reference.
    #[must_use]
    pub fn parse(full: &str) -> Option<Self> {
        let (run, child) = full.strip_prefix(Self::PREFIX)?.split_once('/')?;
        Self::new(run, child).ok()
    }

    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the child.
    #[must_use]
    pub fn child(&self) -> &str {
        &self.child
    }

    /// Returns the name of the branch made for this result.
    #[must_use]
    pub fn branch(&self) -> String {
        format!("adjutant/{}-{}", self.run, self.child)
    }
}

impl fmt::Display for ResultRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", Self::PREFIX, self.run, self.child)
    }
}

fn is_plain(part: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=PART_BYTES).contains(&part.len())
        && part.bytes().all(allowed)
        && !part.starts_with(['.', '-'])
        && !part.ends_with('.')
        && !part.contains("..")
        && !part.to_ascii_lowercase().ends_with(".lock")
}

/// Says whether git accepts a branch name, and file systems accept the files for it.
#[must_use]
pub fn is_branch_name(name: &str) -> bool {
    let means_something = |letter: char| letter.is_control() || " ~^:?*[\\".contains(letter);
    let is_part = |part: &str| {
        (1..=BRANCH_BYTES).contains(&part.len())
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.to_ascii_lowercase().ends_with(".lock")
    };
    !name.starts_with('-')
        && !name.contains(means_something)
        && !name.contains("..")
        && !name.contains("@{")
        && name != "@"
        && name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_special_meaning_for_git_is_refused() {
        for bad in
            ["", ".", "..", "a/b", "a..b", "-x", ".x", "x.", "x.lock", "a b", "a~1", "é", "@{0}"]
        {
            assert!(ResultRef::new(bad, "c").is_err(), "{bad:?}");
            assert!(ResultRef::new("r", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn branch_names_that_git_accepts_are_accepted() {
        for good in ["adjutant/A", "adjutant/日本", "a.b", "a@b", "a'b", "é", "x/y/z", "#1"] {
            assert!(is_branch_name(good), "{good:?}");
        }
        let long = "x".repeat(BRANCH_BYTES + 1);
        for bad in [
            "", "a/", "/a", "a//b", "a/.b", "a..b", "-x", "a.", "a./b", "x.lock", "x.lock/y",
            "a b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "@", "a@{0}", "a\u{7f}", &long,
        ] {
            assert!(!is_branch_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_reference_name_round_trips() {
        let reference = ResultRef::new("01ab", "s-1.2").unwrap();
        assert_eq!(ResultRef::parse(&reference.to_string()), Some(reference));
        assert_eq!(ResultRef::parse("refs/heads/main"), None);
    }

    #[test]
    fn an_id_is_hexadecimal_and_of_a_known_length() {
        assert!(ObjectId::parse(&"a".repeat(40)).is_some());
        assert!(ObjectId::parse(&"0".repeat(64)).is_some());
        for bad in ["", "abc", "--all"] {
            assert!(ObjectId::parse(bad).is_none(), "{bad}");
        }
        assert!(ObjectId::parse(&"A".repeat(40)).is_none());
    }
}
