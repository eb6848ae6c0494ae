//! Many commits asked about at once: which are there, which another one has, which references keep.
//!
//! Each question is one call of git, or a few, however many commits there are.

use std::collections::{BTreeMap, BTreeSet};

use super::GitError;
use super::capture::MESSAGE;
use super::id::{ObjectId, ResultRef};
use super::repository::Repository;

impl Repository {
    /// Returns those of the commits that this repository has.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn present(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        self.named(commits.iter().map(ObjectId::as_str))
    }

    /// Returns the commits that this repository has by these ids or beginnings of ids.
    pub(crate) fn named<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        let names: String = names.map(|name| format!("{name}\n")).collect();
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let call = self.call("cat-file").arg("--batch-check=%(objectname) %(objecttype)");
        let output = call.feed(names.as_bytes())?;
        let text = String::from_utf8_lossy(&output.bytes);
        let found = text.lines().filter_map(|line| line.strip_suffix(" commit"));
        Ok(found.filter_map(ObjectId::parse).collect())
    }

    /// Returns those of the commits whose work HEAD has: the commit itself, or all its changes.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn in_head(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let Some(head) = self.head()? else { return Ok(BTreeSet::new()) };
        let outside = self.outside(commits, &head)?;
        let mut found: BTreeSet<_> =
            commits.iter().filter(|it| !outside.contains(it)).cloned().collect();
        // A commit without a base is no result of ours; whether it is merged is not known.
        let bases = self.bases_of(&outside)?;
        let pairs: Vec<_> =
            outside.iter().filter_map(|it| bases.get(it).map(|base| (it, base))).collect();
        if pairs.is_empty() {
            return Ok(found);
        }
        let tree = self.tree_of(&head)?;
        let merged = self.merged_trees(&pairs, &head)?;
        let is_there = |with: &Option<ObjectId>| with.as_ref() == Some(&tree);
        let there = pairs.iter().zip(&merged).filter(|(_, with)| is_there(with));
        found.extend(there.map(|((commit, _), _)| (*commit).clone()));
        Ok(found)
    }

    /// Returns those of the commits that a branch, here or as it was last fetched, or a reference of ours
    /// still keeps.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn kept(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let ours = format!("--glob={}", ResultRef::PREFIX.trim_end_matches('/'));
        let outside = self.not_in(commits, &["--branches", "--remotes", &ours])?;
        Ok(commits.iter().filter(|it| !outside.contains(it)).cloned().collect())
    }

    /// Returns those of the commits that are neither another one nor among those before it, in their order.
    fn outside(&self, commits: &[ObjectId], of: &ObjectId) -> Result<Vec<ObjectId>, GitError> {
        let outside = self.not_in(commits, &[of.as_str()])?;
        Ok(commits.iter().filter(|it| outside.contains(it)).cloned().collect())
    }

    /// Says what a state lacks of some commits, in their order.
    pub(crate) fn ahead(&self, commits: &[ObjectId], state: &ObjectId) -> Result<Ahead, GitError> {
        if commits.is_empty() {
            return Ok(Ahead::default());
        }
        let call = self.call("rev-list").args(["--topo-order", "--no-commit-header", "--stdin"]);
        let call = call.args(["--format=%H %P%x09%s", "--not", state.as_str()]);
        let output = call.feed(lines(commits).as_bytes())?;
        Ok(Ahead::read(&String::from_utf8_lossy(&output.bytes), commits, state))
    }

    /// Returns the first parents of commits that have one.
    pub(crate) fn bases_of(
        &self,
        commits: &[ObjectId],
    ) -> Result<BTreeMap<ObjectId, ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let call = self.call("rev-list").args(["--no-walk=unsorted", "--parents", "--stdin"]);
        let output = call.feed(lines(commits).as_bytes())?;
        let read = |line: &str| {
            let mut ids = line.split(' ').map(ObjectId::parse);
            Some((ids.next()??, ids.next()??))
        };
        Ok(String::from_utf8_lossy(&output.bytes).lines().filter_map(read).collect())
    }

    /// Returns where commits left the history of another one, going back by first parents.
    pub(crate) fn forks(
        &self,
        commits: &[&ObjectId],
        from: &ObjectId,
    ) -> Result<BTreeMap<ObjectId, ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let call = self.call("rev-list").args(["--parents", "--stdin", "--not", from.as_str()]);
        let output = call.feed(lines(commits.iter().copied()).as_bytes())?;
        let read = |line: &str| {
            let mut ids = line.split(' ').map(ObjectId::parse);
            Some((ids.next()??, ids.next().flatten()))
        };
        let beyond: BTreeMap<ObjectId, Option<ObjectId>> =
            String::from_utf8_lossy(&output.bytes).lines().filter_map(read).collect();
        let fork = |commit: &ObjectId| {
            let mut at = commit;
            while let Some(parent) = beyond.get(at) {
                at = parent.as_ref()?;
            }
            Some((commit.clone(), at.clone()))
        };
        Ok(commits.iter().filter_map(|commit| fork(commit)).collect())
    }

    /// Returns those of the commits that none of the others reaches, and what lies between.
    fn not_in(
        &self,
        commits: &[ObjectId],
        others: &[&str],
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let call = self.call("rev-list").args(["--stdin", "--not"]).args(others.iter().copied());
        let output = call.feed(lines(commits).as_bytes())?;
        Ok(output.bytes.split(|byte| *byte == b'\n').filter_map(ObjectId::from_bytes).collect())
    }
}

/// What a state lacks of some commits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// The first of those that stand on the state and come before no other of the commits; it has all before it.
    pub(crate) upon: Option<ObjectId>,
    /// The others that come before none, each with the nearest commit that is had by then, or with the state of
    /// the tree that it began from where that is nearer.
    pub(crate) latest: Vec<Work>,
    /// All that neither the state nor the first one has, each with what it was made upon.
    pub(crate) each: Vec<Work>,
}

/// A commit, and the one that what was done is counted from; a commit without any before it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) commit: ObjectId,
    pub(crate) since: Option<ObjectId>,
}

/// A commit that a state lacks.
struct Lacking {
    parents: Vec<ObjectId>,
    /// Whether it is a captured state of the tree.
    is_state: bool,
}

/// What a state lacks, by commit; taken out once it is had.
struct Between(BTreeMap<ObjectId, Lacking>);

impl Ahead {
    /// Reads lines of a commit, its parents and, after a tab, what it is: of all that the state lacks, each after
    /// those that it comes before.
    fn read(text: &str, commits: &[ObjectId], state: &ObjectId) -> Self {
        let (mut between, mut earlier) = (Between(BTreeMap::new()), BTreeSet::new());
        let mut stands = BTreeSet::from([state.clone()]);
        for line in text.lines().rev() {
            let (ids, subject) = line.split_once('\t').unwrap_or((line, ""));
            let mut ids = ids.split(' ').filter_map(ObjectId::parse);
            let Some(id) = ids.next() else { continue };
            let (parents, is_state) = (ids.collect::<Vec<_>>(), subject == MESSAGE.trim_end());
            if parents.iter().any(|parent| stands.contains(parent)) {
                stands.insert(id.clone());
            }
            earlier.extend(parents.iter().cloned());
            between.0.insert(id, Lacking { parents, is_state });
        }
        let latest: BTreeSet<_> = commits.iter().filter(|it| !earlier.contains(it)).collect();
        let upon = commits.iter().find(|it| latest.contains(it) && stands.contains(it)).cloned();
        if let Some(upon) = &upon {
            between.take(upon);
        }
        let each: Vec<_> = commits.iter().filter_map(|it| between.work(it)).collect();
        let mut found = Self { upon, latest: Vec::new(), each };
        for commit in commits.iter().filter(|it| latest.contains(it)) {
            if let Some(since) = between.since(commit) {
                found.latest.push(Work { commit: commit.clone(), since });
                between.take(commit);
            }
        }
        found
    }
}

impl Between {
    /// Returns what a commit that is lacking was made upon.
    fn work(&self, commit: &ObjectId) -> Option<Work> {
        let since = self.0.get(commit)?.parents.first().cloned();
        Some(Work { commit: commit.clone(), since })
    }

    /// Returns what a commit that is lacking is counted from.
    fn since(&self, commit: &ObjectId) -> Option<Option<ObjectId>> {
        let mut at = self.0.get(commit)?;
        loop {
            let Some(parent) = at.parents.first() else { return Some(None) };
            match self.0.get(parent) {
                Some(below) if !below.is_state => at = below,
                Some(_) | None => return Some(Some(parent.clone())),
            }
        }
    }

    /// Takes out a commit and all before it.
    fn take(&mut self, commit: &ObjectId) {
        let mut open = vec![commit.clone()];
        while let Some(id) = open.pop() {
            open.extend(self.0.remove(&id).into_iter().flat_map(|it| it.parents));
        }
    }
}

fn lines<'c>(commits: impl IntoIterator<Item = &'c ObjectId>) -> String {
    commits.into_iter().map(|commit| format!("{commit}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: char) -> ObjectId {
        ObjectId::parse(&name.to_ascii_lowercase().to_string().repeat(40)).unwrap()
    }

    fn ids(names: &str) -> Vec<ObjectId> {
        names.chars().map(id).collect()
    }

    /// A line for each word: a commit, then its parents; a capital one is a captured state.
    fn history(words: &str) -> String {
        let line = |word: &str| {
            let names: Vec<_> = word.chars().map(|name| id(name).to_string()).collect();
            let is_state = word.starts_with(|name: char| name.is_ascii_uppercase());
            format!("{}\t{}\n", names.join(" "), if is_state { MESSAGE.trim_end() } else { "x" })
        };
        words.split_whitespace().map(line).collect()
    }

    /// Names each with what it is counted from.
    fn shown(works: &[Work]) -> String {
        let first = |id: &ObjectId| id.as_str().chars().take(1).collect::<String>();
        let one = |it: &Work| first(&it.commit) + &it.since.as_ref().map_or("-".to_owned(), first);
        works.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_commits_on_one_another_the_last_is_taken_in_since_its_state() {
        // The state is 0, and 9 is in it.
        for (listed, asked, upon, latest, each) in [
            ("", "9", None, "", ""),
            ("10", "1", Some('1'), "", ""),
            ("10", "11", Some('1'), "", ""),
            ("32 21 10", "123", Some('3'), "", ""),
            ("21 10", "21", Some('2'), "", ""),
            ("32 21 19", "123", None, "39", "19 21 32"),
            ("32 21 1A A9", "1932", None, "3a", "1a 32 21"),
            ("19 20 30", "123", Some('2'), "19 30", "19 30"),
            ("412 10 29", "214", Some('4'), "", ""),
            ("21 31 10", "123", Some('2'), "31", "31"),
            ("21 31 1A A9", "123", None, "2a 31", "1a 21 31"),
            // 3 was made upon a merge of the state B and of 1, which began from A.
            ("43 35 5B1 B9 1A A9", "134", None, "4b", "1a 35 43"),
            ("7", "77", None, "7-", "7- 7-"),
        ] {
            let found = Ahead::read(&history(listed), &ids(asked), &id('0'));
            assert_eq!(found.upon, upon.map(id), "{listed}: {asked}");
            assert_eq!(shown(&found.latest), latest, "{listed}: {asked}");
            assert_eq!(shown(&found.each), each, "{listed}: {asked}");
        }
    }
}
