//! Finding the user's own file of ignore patterns, as git would.
//!
//! Git runs without the user's configuration, see `run`. So the configuration files that it would read are passed
//! one by one and queried for this value alone: a file of ignore patterns cannot run a program.
//!
//! Start at [`Repository::with_user_excludes`]. Invariant: only `core.excludesFile` is taken from the user's or
//! the system's configuration.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::GitError;
use super::repository::{Repository, path_of};
use super::run::GitCall;
use super::scratch::ScratchGitDir;
use super::trust::open_regular_file;
use crate::private;

/// The largest file of patterns that git reads.
const PATTERN_BYTES: u64 = 100 * 1024 * 1024;

/// The most bytes of a configuration file that are searched; longer files are passed to git in any case.
const CONFIG_BYTES: u64 = 1024 * 1024;

/// The system's configuration file on most machines.
const SYSTEM: &str = "/etc/gitconfig";

/// Words, in lower case, in configuration files that may set a file of patterns.
const WORDS: [&[u8]; 2] = [b"excludesfile", b"include"];

/// Where git looks for the user's ignore patterns: the configuration files, the default file, and the home directory
/// for `~`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ExcludesSources {
    /// Configuration files; later ones take precedence.
    configs: Vec<PathBuf>,
    /// The file of patterns if no configuration sets one.
    default_file: Option<PathBuf>,
    /// The home directory, for `~`.
    home: Option<PathBuf>,
}

impl ExcludesSources {
    /// Finds them from the environment variables that git uses; `system` is the default for the system's file.
    fn of(variable: impl Fn(&str) -> Option<OsString>, system: &Path) -> Self {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        // By the XDG rules, a relative path is ignored.
        let below_home = || home.as_ref().map(|home| home.join(".config"));
        let xdg = absolute("XDG_CONFIG_HOME").or_else(below_home).map(|folder| folder.join("git"));
        let mut configs = Vec::new();
        if !variable("GIT_CONFIG_NOSYSTEM").is_some_and(|value| is_true(&value)) {
            configs.push(path("GIT_CONFIG_SYSTEM").unwrap_or_else(|| system.to_owned()));
        }
        match path("GIT_CONFIG_GLOBAL") {
            Some(global) => configs.push(global),
            None => {
                configs.extend(xdg.as_ref().map(|folder| folder.join("config")));
                configs.extend(home.as_ref().map(|home| home.join(".gitconfig")));
            }
        }
        Self { configs, default_file: xdg.map(|folder| folder.join("ignore")), home }
    }

    /// Chooses the file of patterns from the values in each configuration, the repository's own last.
    fn choose(
        &self,
        said: impl IntoIterator<Item = Option<PathBuf>>,
        top: &Path,
    ) -> Option<PathBuf> {
        match said.into_iter().flatten().last() {
            // An empty value disables the default file, too.
            Some(named) if named.as_os_str().is_empty() => None,
            // Git resolves it relative to the top of the work tree.
            Some(named) => Some(top.join(named)),
            None => self.default_file.clone(),
        }
    }
}

/// Returns the system's configuration file of this git: below its own prefix if it was built from source, otherwise
/// the default.
fn system_config(program: &Path) -> PathBuf {
    let program = fs::canonicalize(program).unwrap_or_default();
    let prefix =
        program.parent().and_then(Path::parent).filter(|prefix| *prefix != Path::new("/usr"));
    let beside = prefix.map(|prefix| prefix.join("etc/gitconfig"));
    beside.filter(|file| file.is_file()).unwrap_or_else(|| SYSTEM.into())
}

/// Says whether git reads the value of a variable as true.
fn is_true(value: &OsStr) -> bool {
    let no = ["", "0", "false", "no", "off"];
    !no.iter().any(|word| value.eq_ignore_ascii_case(word))
}

impl Repository {
    /// Also ignores what the user and the system tell git to ignore: the file in `core.excludesFile` of the
    /// configurations that the environment or the repository names, or git's default file.
    ///
    /// # Errors
    ///
    /// When git cannot read a configuration that may set the file: then it is unknown what must be left out.
    pub fn with_user_excludes(self) -> Result<Self, GitError> {
        let sources = ExcludesSources::of(
            |name| std::env::var_os(name),
            &system_config(self.git().program()),
        );
        let file = self.find_excludes(&sources)?;
        Ok(match file {
            Some(file) => self.with_excludes(file),
            None => self,
        })
    }

    fn find_excludes(&self, sources: &ExcludesSources) -> Result<Option<PathBuf>, GitError> {
        let mut said = Vec::new();
        for config in sources.configs.iter().filter(|config| may_set_excludes(config)) {
            // A relative path is relative to the current directory; git runs elsewhere.
            let config =
                std::path::absolute(config).map_err(GitError::io("finding ignore patterns"))?;
            let call = self.call("config").arg("--file").arg(config).arg("--includes");
            said.push(excludes_file(call, sources)?);
        }
        let own = [self.common_dir().join("config"), self.git_dir().join("config.worktree")];
        if own.iter().any(|config| may_set_excludes(config)) {
            said.push(excludes_file(self.call("config"), sources)?);
        }
        Ok(sources.choose(said, self.work_tree()))
    }

    /// Adds the user's patterns to a call, as a copy: the file may have been replaced by a pipe, which would block
    /// git.
    pub(super) fn with_user_patterns<'c>(
        &self,
        scratch: &ScratchGitDir<'_>,
        call: GitCall<'c>,
    ) -> Result<GitCall<'c>, GitError> {
        // Like git, ignores a file that cannot be read.
        let text = self.excludes().and_then(|file| read(file).ok());
        let mut setting = OsString::from("core.excludesFile=");
        match text.filter(|text| has_patterns(text)) {
            Some(text) => {
                let copy = scratch.path("excludes");
                private::write(&copy, text).map_err(GitError::io("copying the exclude file"))?;
                setting.push(copy);
            }
            None => setting.push("/dev/null"),
        }
        Ok(call.config(setting))
    }
}

/// Queries `core.excludesFile`, with `~` expanded.
fn excludes_file(
    call: GitCall<'_>,
    sources: &ExcludesSources,
) -> Result<Option<PathBuf>, GitError> {
    let call = match &sources.home {
        Some(home) => call.env("HOME", home),
        None => call,
    };
    let call = call.args(["-z", "--type=path", "--get", "core.excludesFile"]);
    let output = call.accept(&[0, 1]).run()?;
    Ok(output.bytes.strip_suffix(b"\0").filter(|_| output.code == 0).map(path_of))
}

/// Says whether a configuration file may set a file of patterns; most do not, which saves a git call.
fn may_set_excludes(config: &Path) -> bool {
    let mut text = Vec::new();
    let Ok(file) = open_regular_file(config) else { return false };
    if file.take(CONFIG_BYTES).read_to_end(&mut text).is_err() {
        return false;
    }
    text.make_ascii_lowercase();
    let has = |word: &[u8]| text.windows(word.len()).any(|some| some == word);
    text.len() as u64 == CONFIG_BYTES || WORDS.into_iter().any(has)
}

/// Reads a file of patterns; like git, only up to its size at opening.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular_file(path)?;
    let length = file.metadata()?.len();
    let mut text = Vec::new();
    if length <= PATTERN_BYTES {
        file.take(length).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// Says whether a file contains patterns: the template that git installs has only comments.
pub(super) fn has_patterns(text: &[u8]) -> bool {
    let is_comment_or_empty = |line: &[u8]| line.is_empty() || line.starts_with(b"#");
    !text.split(|byte| *byte == b'\n').all(is_comment_or_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(variables: &[(&str, &str)]) -> ExcludesSources {
        let found = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        ExcludesSources::of(found, Path::new(SYSTEM))
    }

    #[test]
    fn configurations_are_read_where_git_reads_them_and_in_its_order() {
        let home = ("HOME", "/h");
        let no_system = ("GIT_CONFIG_NOSYSTEM", "1");
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], Option<&'a str>);
        let rows: [Row<'_>; 9] = [
            (&[], &[SYSTEM], None),
            (
                &[home],
                &[SYSTEM, "/h/.config/git/config", "/h/.gitconfig"],
                Some("/h/.config/git/ignore"),
            ),
            (
                &[home, no_system, ("XDG_CONFIG_HOME", "/x")],
                &["/x/git/config", "/h/.gitconfig"],
                Some("/x/git/ignore"),
            ),
            (
                &[home, no_system, ("XDG_CONFIG_HOME", "")],
                &["/h/.config/git/config", "/h/.gitconfig"],
                Some("/h/.config/git/ignore"),
            ),
            (&[no_system, ("XDG_CONFIG_HOME", "/x")], &["/x/git/config"], Some("/x/git/ignore")),
            (
                &[home, no_system, ("GIT_CONFIG_GLOBAL", "/g")],
                &["/g"],
                Some("/h/.config/git/ignore"),
            ),
            (&[home, no_system, ("GIT_CONFIG_GLOBAL", "")], &[""], Some("/h/.config/git/ignore")),
            (&[("GIT_CONFIG_SYSTEM", "/s"), ("GIT_CONFIG_NOSYSTEM", "No")], &["/s"], None),
            (&[("GIT_CONFIG_SYSTEM", "/s"), ("GIT_CONFIG_NOSYSTEM", "true")], &[], None),
        ];
        for (variables, configs, default_file) in rows {
            let found = sources(variables);
            let configs: Vec<PathBuf> = configs.iter().map(PathBuf::from).collect();
            assert_eq!(found.configs, configs, "{variables:?}");
            assert_eq!(found.default_file, default_file.map(PathBuf::from), "{variables:?}");
        }
    }

    #[test]
    fn the_last_configuration_that_sets_the_value_wins() {
        let default_file = Some("/h/.config/git/ignore");
        let rows: [(&[Option<&str>], Option<&str>); 7] = [
            (&[], default_file),
            (&[None, None], default_file),
            (&[Some("/a"), None], Some("/a")),
            (&[Some("/a"), Some("/b"), None], Some("/b")),
            (&[Some("/a"), Some("")], None),
            (&[Some(""), Some("/b")], Some("/b")),
            (&[Some("some/file")], Some("/top/some/file")),
        ];
        for (said, chosen) in rows {
            let found = sources(&[("HOME", "/h")])
                .choose(said.iter().map(|it| it.map(PathBuf::from)), Path::new("/top"));
            assert_eq!(found, chosen.map(PathBuf::from), "{said:?}");
        }
    }

    #[test]
    fn only_a_configuration_that_may_set_the_value_is_passed_to_git() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        assert!(!may_set_excludes(&path), "not there");
        assert!(!may_set_excludes(folder.path()), "a folder");
        let rows = [
            ("", false),
            ("[user]\n\tname = U\n", false),
            ("[core]\n\tExcludesFile = x\n", true),
            ("[includeIf \"gitdir:~/\"]\n\tpath = x\n", true),
        ];
        for (text, may) in rows {
            fs::write(&path, text).unwrap();
            assert_eq!(may_set_excludes(&path), may, "{text}");
        }
    }
}
