//! Which file of patterns is a person's own, as git would find it.
//!
//! Git itself runs without the configuration of the account, see `run`. So the files that it would read are named
//! one by one and asked for this value alone: a file of patterns can run nothing, wherever it is named.
//!
//! Start at [`Repository::with_persons_excludes`]. Invariant: nothing but the value of `core.excludesFile` is taken
//! from the configuration of a person or of the system.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::GitError;
use super::repository::{Repository, path_of};
use super::run::GitCall;
use super::scratch::ScratchGitDir;
use super::trust::open_plain;
use crate::private;

/// Git takes no larger file for one of patterns.
const PATTERN_BYTES: u64 = 100 * 1024 * 1024;

/// How much of a configuration is looked through before git is asked about it anyway.
const CONFIG_BYTES: u64 = 1024 * 1024;

/// Where the system's configuration is in most places.
const SYSTEM: &str = "/etc/gitconfig";

/// What a configuration says that names a file of patterns, or leads to one that may; in small letters.
const WORDS: [&[u8]; 2] = [b"excludesfile", b"include"];

/// Where a person and a system keep what git is to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GitConfigPaths {
    /// Files of configuration; what a later one says holds.
    configs: Vec<PathBuf>,
    /// The file of patterns where no configuration names one.
    usual: Option<PathBuf>,
    /// What `~` stands for.
    home: Option<PathBuf>,
}

impl GitConfigPaths {
    /// Takes them from the variables that git goes by; `system` is the system's file where none is named.
    fn of(variable: impl Fn(&str) -> Option<OsString>, system: &Path) -> Self {
        let path = |name: &str| variable(name).map(PathBuf::from);
        let absolute = |name: &str| path(name).filter(|path| path.is_absolute());
        let home = absolute("HOME");
        // A folder that is no absolute path says nothing, by the rules for these variables.
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
        Self { configs, usual: xdg.map(|folder| folder.join("ignore")), home }
    }

    /// Chooses the file of patterns by what each configuration says, the repository's own last.
    fn chosen(
        &self,
        said: impl IntoIterator<Item = Option<PathBuf>>,
        top: &Path,
    ) -> Option<PathBuf> {
        match said.into_iter().flatten().last() {
            // Said to be none: the usual one does not count either.
            Some(named) if named.as_os_str().is_empty() => None,
            // Git stands at the top of the work tree when it opens the file.
            Some(named) => Some(top.join(named)),
            None => self.usual.clone(),
        }
    }
}

/// Returns where this git has the system's configuration: beside itself where somebody built it, among the
/// system's own files elsewhere.
fn system_config(program: &Path) -> PathBuf {
    let program = fs::canonicalize(program).unwrap_or_default();
    let prefix =
        program.parent().and_then(Path::parent).filter(|prefix| *prefix != Path::new("/usr"));
    let beside = prefix.map(|prefix| prefix.join("etc/gitconfig"));
    beside.filter(|file| file.is_file()).unwrap_or_else(|| SYSTEM.into())
}

/// Says whether a variable says yes, as git takes it.
fn is_true(value: &OsStr) -> bool {
    let no = ["", "0", "false", "no", "off"];
    !no.iter().any(|word| value.eq_ignore_ascii_case(word))
}

impl Repository {
    /// Also leaves out what the person and the system tell git to ignore: by `core.excludesFile` in the
    /// configurations that the environment leads to or in the repository's own, or in the file that git uses
    /// where none is named.
    ///
    /// # Errors
    ///
    /// Why git could not read a configuration that may name the file: it would not work with it either, and
    /// what must stay out is not known.
    pub fn with_persons_excludes(self) -> Result<Self, GitError> {
        let places =
            GitConfigPaths::of(|name| std::env::var_os(name), &system_config(self.git().program()));
        let file = self.find_excludes(&places)?;
        Ok(match file {
            Some(file) => self.with_excludes(file),
            None => self,
        })
    }

    fn find_excludes(&self, places: &GitConfigPaths) -> Result<Option<PathBuf>, GitError> {
        let mut said = Vec::new();
        for config in places.configs.iter().filter(|config| may_set_excludes(config)) {
            // A name without a folder is meant from where the person stands; git is run elsewhere.
            let config = std::path::absolute(config).map_err(GitError::io("finding patterns"))?;
            let call = self.call("config").arg("--file").arg(config).arg("--includes");
            said.push(excludes_file(call, places)?);
        }
        let own = [self.common_dir().join("config"), self.git_dir().join("config.worktree")];
        if own.iter().any(|config| may_set_excludes(config)) {
            said.push(excludes_file(self.call("config"), places)?);
        }
        Ok(places.chosen(said, self.work_tree()))
    }

    /// Gives a call the person's patterns: a copy, so that git never opens what may be a pipe by then.
    pub(super) fn excluding_own<'c>(
        &self,
        scratch: &ScratchGitDir<'_>,
        call: GitCall<'c>,
    ) -> Result<GitCall<'c>, GitError> {
        // What cannot be read counts for nothing, as with git.
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

/// Asks for the value, with `~` replaced.
fn excludes_file(call: GitCall<'_>, places: &GitConfigPaths) -> Result<Option<PathBuf>, GitError> {
    let call = match &places.home {
        Some(home) => call.env("HOME", home),
        None => call,
    };
    let call = call.args(["-z", "--type=path", "--get", "core.excludesFile"]);
    let output = call.accept(&[0, 1]).run()?;
    Ok(output.bytes.strip_suffix(b"\0").filter(|_| output.code == 0).map(path_of))
}

/// Says whether it is worth asking git about a configuration; most name no file of patterns.
fn may_set_excludes(config: &Path) -> bool {
    let mut text = Vec::new();
    let Ok(file) = open_plain(config) else { return false };
    if file.take(CONFIG_BYTES).read_to_end(&mut text).is_err() {
        return false;
    }
    text.make_ascii_lowercase();
    let has = |word: &[u8]| text.windows(word.len()).any(|some| some == word);
    text.len() as u64 == CONFIG_BYTES || WORDS.into_iter().any(has)
}

/// Reads a file of patterns; as git does, only as much as it says to hold.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_plain(path)?;
    let length = file.metadata()?.len();
    let mut text = Vec::new();
    if length <= PATTERN_BYTES {
        file.take(length).read_to_end(&mut text)?;
    }
    Ok(text)
}

/// Says whether a file of patterns has any: what git puts there explains itself and has none.
pub(super) fn has_patterns(text: &[u8]) -> bool {
    let is_comment_or_empty = |line: &[u8]| line.is_empty() || line.starts_with(b"#");
    !text.split(|byte| *byte == b'\n').all(is_comment_or_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> GitConfigPaths {
        let found = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        GitConfigPaths::of(found, Path::new(SYSTEM))
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
        for (variables, configs, usual) in rows {
            let found = places(variables);
            let configs: Vec<PathBuf> = configs.iter().map(PathBuf::from).collect();
            assert_eq!(found.configs, configs, "{variables:?}");
            assert_eq!(found.usual, usual.map(PathBuf::from), "{variables:?}");
        }
    }

    #[test]
    fn the_last_one_that_says_anything_holds() {
        let usual = Some("/h/.config/git/ignore");
        let rows: [(&[Option<&str>], Option<&str>); 7] = [
            (&[], usual),
            (&[None, None], usual),
            (&[Some("/a"), None], Some("/a")),
            (&[Some("/a"), Some("/b"), None], Some("/b")),
            (&[Some("/a"), Some("")], None),
            (&[Some(""), Some("/b")], Some("/b")),
            (&[Some("some/file")], Some("/top/some/file")),
        ];
        for (said, chosen) in rows {
            let found = places(&[("HOME", "/h")])
                .chosen(said.iter().map(|it| it.map(PathBuf::from)), Path::new("/top"));
            assert_eq!(found, chosen.map(PathBuf::from), "{said:?}");
        }
    }

    #[test]
    fn only_a_configuration_that_may_name_the_file_is_asked_about() {
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
