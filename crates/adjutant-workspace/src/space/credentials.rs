//! Finding credentials inside granted directories, so that they can be hidden from programs.
//!
//! A file is a credential by its name, if that name means credentials in any directory. Files called `*.pem`,
//! `*.key`, `*.crt` or similar are read: most hold certificates, which programs need, and only those with a private
//! key are hidden. Small files without an extension are read if they begin like PEM. Names that count only at the
//! top of a grant are handled by the sandbox itself.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::sandbox::{CREDENTIALS, is_credential_only_as_file};

/// Levels of a grant that are searched. Deep enough for homes below a granted directory, not for the sources of a
/// toolchain.
const LEVELS: usize = 4;

/// The most directories of one grant that are searched, upper levels first.
const FOLDERS: usize = 5_000;

/// Extensions, in any case, of files that may hold a private key.
const KEY_EXTENSIONS: [&str; 6] = ["cer", "crt", "key", "p8", "pem", "ppk"];

/// The largest file without an extension that is read.
const PLAIN_BYTES: u64 = 64 << 10;

/// The beginning of PEM files.
const PEM_BEGIN: &[u8] = b"-----BEGIN";

/// Text that marks a private key, in PEM and in PuTTY's format.
const KEY_MARKERS: [&[u8]; 2] = [b"PRIVATE KEY-----", b"PuTTY-User-Key-File-"];

/// The most bytes of a file that are searched for a private key.
const PEM_BYTES: u64 = 256 << 10;

/// The credentials found below each grant, cached.
#[derive(Debug, Default)]
pub(super) struct CredentialScan(Mutex<BTreeMap<PathBuf, Vec<PathBuf>>>);

impl CredentialScan {
    /// Returns the paths to hide below these grants.
    pub(super) fn credentials_below(&self, grants: &[PathBuf]) -> Vec<PathBuf> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for grant in grants {
            all.extend_from_slice(
                known.entry(grant.clone()).or_insert_with(|| find_credentials(grant)),
            );
        }
        all
    }
}

/// Searches the upper levels of a grant. Programs cannot list what this process cannot.
fn find_credentials(grant: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(grant.to_owned(), 0)]);
    let mut looked = 0;
    while let Some((folder, level)) = waiting.pop_front().filter(|_| looked < FOLDERS) {
        looked += 1;
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_named = CREDENTIALS.iter().any(|name| path.ends_with(name))
                && !(is_directory && is_credential_only_as_file(&path));
            if is_named || (!is_directory && holds_private_key(&path)) {
                found.push(path);
            } else if level < LEVELS && is_directory {
                waiting.push_back((path, level + 1));
            }
        }
    }
    found
}

/// Says whether a file of a tree, or a directory it lies in, is a credential.
pub(super) fn is_credential(top: &Path, file: &Path) -> bool {
    is_credential_name(file) || holds_private_key(&top.join(file))
}

/// Says whether the name of a file, or of a directory it lies in, means credentials.
pub(super) fn is_credential_name(file: &Path) -> bool {
    let named = |path: &Path| CREDENTIALS.iter().any(|name| path.ends_with(name));
    named(file) || file.ancestors().skip(1).any(|at| named(at) && !is_credential_only_as_file(at))
}

/// Says whether the name of a file suggests that it holds a private key.
pub(super) fn may_hold_private_key(file: &Path) -> bool {
    let is_named = |end: &OsStr| KEY_EXTENSIONS.iter().any(|it| end.eq_ignore_ascii_case(it));
    file.extension().is_none_or(is_named)
}

/// Says whether the text of a file contains a private key near its beginning.
pub(super) fn contains_private_key(text: &[u8]) -> bool {
    let head = &text[..text.len().min(usize::try_from(PEM_BYTES).unwrap_or(usize::MAX))];
    let has = |marker: &[u8]| head.windows(marker.len()).any(|part| part == marker);
    KEY_MARKERS.into_iter().any(has)
}

/// Says whether a file contains a private key. Only files whose name or beginning suggests one are read.
fn holds_private_key(path: &Path) -> bool {
    if !may_hold_private_key(path) {
        return false;
    }
    let extension = path.extension();
    let most = if extension.is_some() { u64::MAX } else { PLAIN_BYTES };
    if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= most) {
        return false;
    }
    // NONBLOCK: a pipe may have replaced the file meanwhile.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(CWD, path, flags, Mode::empty()) else { return false };
    let (mut file, mut head) = (fs::File::from(file), Vec::new());
    if extension.is_none() {
        let begun = file.by_ref().take(PEM_BEGIN.len() as u64).read_to_end(&mut head);
        if begun.is_err() || head != PEM_BEGIN {
            return false;
        }
    }
    let read = file.take(PEM_BYTES).read_to_end(&mut head);
    read.is_ok() && contains_private_key(&head)
}
/// Words in a settings file whose line may contain a password or token, in lower case.
const SECRET_WORDS: [&str; 6] = ["token", "password", "passwd", "secret", "_auth", "credential"];

/// Returns a settings file without the lines that may contain a password or token, also in a URL or in the table `env` of
/// cargo; `None` if there are no such lines.
///
/// By lines, because the formats differ. The rest of a value over several lines goes with its first line.
pub(super) fn without_secrets(text: &[u8]) -> Option<Vec<u8>> {
    let mut shown = Vec::new();
    let mut filter = SecretFilter::default();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if !filter.hides(&String::from_utf8_lossy(line)) {
            shown.extend_from_slice(line);
        }
    }
    (shown.len() < text.len()).then_some(shown)
}

/// What [`without_secrets`] knows of the lines before the present one.
#[derive(Default)]
struct SecretFilter {
    is_in_env: bool,
    /// The line before was hidden, and this one may continue its value.
    may_continue: bool,
    /// The quotes that end a hidden string over several lines.
    open_quotes: Option<&'static str>,
}

impl SecretFilter {
    fn hides(&mut self, line: &str) -> bool {
        if let Some(quotes) = self.open_quotes {
            self.open_quotes.take_if(|_| line.contains(quotes));
            return true;
        }
        let header = line.split('#').next().unwrap_or(line).trim_end();
        let name = header.trim_matches(|c: char| "[]\"'".contains(c) || c.is_whitespace());
        let is_env = |name: &str| name == "env" || name.starts_with("env.");
        // Without quotes, so that it is not an element of an array; the table `env` may have them.
        let is_table = header.starts_with('[')
            && header.ends_with(']')
            && (is_env(name) || !header.contains(['"', '\'']));
        if is_table {
            self.is_in_env = is_env(name);
        }
        let key = line.split('=').next().unwrap_or(line);
        let sets_env = line.contains('=') && is_env(key.trim().trim_matches(['"', '\'']));
        // A key, a table or a comment begins a new value; a value goes on with quotes, brackets or white space.
        let continues = self.may_continue
            && !is_table
            && line.starts_with(|c: char| c.is_whitespace() || "\"'[]{},".contains(c));
        let is_hidden =
            continues || sets_env || (self.is_in_env && !is_table) || is_secret_line(line);
        self.may_continue = is_hidden && !line.trim().is_empty();
        let is_open = |quotes: &&str| is_hidden && line.matches(*quotes).count() % 2 == 1;
        self.open_quotes = ["\"\"\"", "'''"].into_iter().find(is_open);
        is_hidden
    }
}

fn is_secret_line(line: &str) -> bool {
    let line = line.to_lowercase();
    // A login before a host: `https://user@host`, `user:password@host`.
    let has_login = |word: &str| {
        let before = word.rsplit_once('@').map(|(before, _)| before);
        before.is_some_and(|before| before.contains(':'))
    };
    line.split(|c: char| c.is_whitespace() || "\"',".contains(c)).any(has_login)
        || SECRET_WORDS.iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_logins_tokens_and_the_environment_are_hidden_with_what_continues_them() {
        let text = "[net]\noffline = true\n[http]\nproxy = \"alice:pw1@proxy:3128\"\ntimeout = 3\n\
            index = \"sparse+https://a/\" # or https://bob:pw2@b/\n\
            [\"env\"] # keys\nOPENAI = \"pw3\"\n\n[registries.mine]\ntoken = [\n  \"pw4\",\n]\nindex = \"x\"\n\
            secret = \"\"\"\npw5\npw6\"\"\"\nuser = \"me@example.org\"\n\
            name = \"me@corp:pw7@host\"\nenv.KEY = \"pw8\"\n";
        let shown = without_secrets(text.as_bytes()).unwrap();
        insta::assert_snapshot!(String::from_utf8(shown).unwrap(), @r#"
        [net]
        offline = true
        [http]
        timeout = 3
        ["env"] # keys
        [registries.mine]
        index = "x"
        user = "me@example.org"
        "#);
        assert_eq!(without_secrets(b"[net]\noffline = true\n"), None);
    }
}
