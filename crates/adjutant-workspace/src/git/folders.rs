//! The folders of a base on the way to changes, as git stores them.
//!
//! One call of git lists them, which a capture begins while it still looks at the work tree.
//!
//! Start at [`Scratch::reading`].

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc;

use super::GitError;
use super::change::Change;
use super::graft::FEW;
use super::id::ObjectId;
use super::import::is_allowed;
use super::repository::bytes_of;
use super::scratch::Scratch;

/// Folders of a base as git stores them, by path; the top one has none.
#[derive(Debug, Default)]
pub(super) struct Folders(pub(super) HashMap<Vec<u8>, (ObjectId, Vec<u8>)>);

impl Folders {
    /// Returns the id of the folder at the top.
    pub(super) fn top(&self) -> Option<&ObjectId> {
        self.0.get([].as_slice()).map(|(id, _)| id)
    }
}

impl Scratch<'_> {
    /// Does `work` and reads the folders of `base` that lie on the way to the changes it finds.
    ///
    /// Git is started before the work, so that it waits for the question and not the other way round.
    pub(super) fn reading<T>(
        &self,
        base: &ObjectId,
        work: impl FnOnce() -> Result<T, GitError>,
        changes: impl FnOnce(&T) -> &[Change],
    ) -> Result<(T, Folders), GitError> {
        let (ask, asked) = mpsc::channel::<BTreeSet<Vec<u8>>>();
        std::thread::scope(|scope| {
            let read = move || self.folders(base, &asked);
            let Ok(answer) = std::thread::Builder::new().spawn_scoped(scope, read) else {
                return self.reading_after(base, work()?, changes);
            };
            // Needed in any case: git has found its way into the repository when the others are asked for.
            let _ = ask.send(BTreeSet::from([Vec::new()]));
            let done = work();
            if let Ok(done) = &done {
                // It fails only where the reader has ended, and that says why.
                let _ = ask.send(above(changes(done)));
            }
            drop(ask);
            let answer = answer.join().unwrap_or_else(|_| Err(unreadable()));
            Ok((done?, answer?))
        })
    }

    /// Reads the folders once the work is done, where no thread can be had.
    pub(super) fn reading_after<T>(
        &self,
        base: &ObjectId,
        done: T,
        changes: impl FnOnce(&T) -> &[Change],
    ) -> Result<(T, Folders), GitError> {
        let (ask, asked) = mpsc::channel();
        // Nobody else has the other end.
        let _ = ask.send(BTreeSet::from([Vec::new()]));
        let _ = ask.send(above(changes(&done)));
        drop(ask);
        let folders = self.folders(base, &asked)?;
        Ok((done, folders))
    }

    fn folders(
        &self,
        base: &ObjectId,
        asked: &mpsc::Receiver<BTreeSet<Vec<u8>>>,
    ) -> Result<Folders, GitError> {
        let mut paths = Vec::new();
        let call = self.call("cat-file").args(["--batch", "--buffer", "-z"]);
        let output = call.stream(&mut |buffer| {
            let Ok(more) = asked.recv() else { return Ok(false) };
            more.iter().for_each(|path| buffer.extend(question(base, path)));
            paths.extend(more);
            Ok(true)
        })?;
        let mut folders = Folders::default();
        let mut rest = output.bytes.as_slice();
        for path in paths {
            let missing = [&question(base, &path)[..], b" missing\n"].concat();
            // The question ends with a NUL, the answer repeats it without.
            let missing: Vec<u8> = missing.into_iter().filter(|byte| *byte != 0).collect();
            if let Some(after) = rest.strip_prefix(missing.as_slice()) {
                rest = after;
                continue;
            }
            let (id, content, after) = answer(rest).ok_or_else(unreadable)?;
            folders.0.insert(path, (id, content.to_vec()));
            rest = after;
        }
        Ok(folders)
    }
}

/// Asks for a folder; a name that ends with a slash stands for nothing else.
fn question(base: &ObjectId, path: &[u8]) -> Vec<u8> {
    match path {
        [] => format!("{base}^{{tree}}\0").into_bytes(),
        path => [base.as_str().as_bytes(), b":", path, b"/\0"].concat(),
    }
}

/// Reads `id tree size`, the content and what follows.
fn answer(bytes: &[u8]) -> Option<(ObjectId, &[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let mut words = std::str::from_utf8(bytes.get(..end)?).ok()?.split(' ');
    let id = ObjectId::parse(words.next()?)?;
    let size: usize =
        words.next().filter(|kind| *kind == "tree").and(words.next())?.parse().ok()?;
    let content = bytes.get(end + 1..)?.get(..size)?;
    let after = bytes.get(end + 1 + size..)?.strip_prefix(b"\n")?;
    Some((id, content, after))
}

/// The folders above some changes but the top one.
pub(super) fn above(changes: &[Change]) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    if changes.len() <= FEW {
        for change in changes.iter().filter(|change| is_allowed(change.path().as_path())) {
            let above = change.path().as_path().ancestors().skip(1);
            all.extend(
                above.map(|folder| bytes_of(folder).to_vec()).filter(|path| !path.is_empty()),
            );
        }
    }
    all
}

fn unreadable() -> GitError {
    GitError::Unreadable { command: "cat-file".to_owned() }
}
