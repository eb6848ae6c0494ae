//! Many commits asked about at once: which are there, which another one has, which references keep.
//!
//! Each question is one call of git, or a few, however many commits there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use super::GitError;
use super::diff::{Diff, DiffEntry};
use super::id::{ObjectId, ResultRef};
use super::repository::Repository;

/// What a merge of work with what other work begins from says.
const MERGE: &str = "Work that this begins with";

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

    /// Says whether HEAD and a commit have a commit in common, or HEAD has none yet.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn shares_history(&self, commit: &ObjectId) -> Result<bool, GitError> {
        let Some(head) = self.head()? else { return Ok(true) };
        let call = self.call("merge-base").args([head.as_str(), commit.as_str()]);
        Ok(call.accept(&[0, 1]).run()?.code == 0)
    }

    /// Returns those of the commits that a branch, here or as it was last fetched, or a reference of ours
    /// still keeps.
    ///
    /// # Errors
    ///
    /// Why git could not be asked.
    pub fn kept(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let ours = format!("--glob={}", ResultRef::PREFIX.trim_end_matches('/'));
        // A reference that leads to nothing keeps nothing, and is not ours to mend.
        let all = ["--ignore-missing", "--branches", "--remotes", &ours];
        let outside = self.not_in(commits, &all)?;
        Ok(commits.iter().filter(|it| !outside.contains(it)).cloned().collect())
    }

    /// Returns those of the commits that are neither another one nor among those before it, in their order.
    fn outside(&self, commits: &[ObjectId], of: &ObjectId) -> Result<Vec<ObjectId>, GitError> {
        let outside = self.not_in(commits, &[of.as_str()])?;
        Ok(commits.iter().filter(|it| outside.contains(it)).cloned().collect())
    }

    /// Says what a state lacks of some commits, in their order.
    pub(crate) fn missing_work(
        &self,
        commits: &[ObjectId],
        state: &ObjectId,
    ) -> Result<MissingWork, GitError> {
        if commits.is_empty() {
            return Ok(MissingWork::default());
        }
        let call = self.call("rev-list").config("trailer.separators=:").arg("--no-commit-header");
        let call = call
            .arg("--format=%H %P%x09%s%x09%(trailers:key=Since,valueonly,unfold,separator=%x2C)");
        let call = call.args(["--stdin", "--not", state.as_str()]);
        let output = call.feed(lines(commits).as_bytes())?;
        Ok(MissingWork::read(&String::from_utf8_lossy(&output.bytes), commits, state))
    }

    /// Makes the commit that has, besides all of `into`, what a work did; `tree` is the two merged.
    pub(crate) fn commit_merge(
        &self,
        into: &ObjectId,
        (work, since): (&ObjectId, &ObjectId),
        tree: &ObjectId,
    ) -> Result<ObjectId, GitError> {
        // The history does not say how much of what the work stands on was merged, and later work has to know. What
        // was there before, by whatever way, is no part of the merge and may be gone the next time.
        let is_whole = is_of_one_size(&self.diff(since, work)?, &self.diff(into, tree)?);
        let message =
            if is_whole { format!("{MERGE}\n\nSince: {since}") } else { MERGE.to_owned() };
        self.commit_tree(&[into, work], tree, &message, SystemTime::now())
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
pub(crate) struct MissingWork {
    /// The first of those that come before no other of the commits and were made upon the state, with nothing in
    /// between but others of the commits.
    pub(crate) upon: Option<ObjectId>,
    /// The fewest commits that have all the others, each with what it is counted from; `each` where it is not
    /// sure that this is exactly what the others did.
    pub(crate) latest: Vec<CommitRange>,
    /// All that neither the state nor the first one has, each with what it was made upon.
    pub(crate) each: Vec<CommitRange>,
}

/// A commit, and the one that what was done is counted from; a commit without any before it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitRange {
    pub(crate) commit: ObjectId,
    pub(crate) since: Option<ObjectId>,
}

/// A commit that a state lacks.
struct MissingCommit {
    parents: Vec<ObjectId>,
    /// Of a merge that work began with: what the merged work is counted from.
    since: Option<ObjectId>,
}

/// What a state lacks, by commit; taken out once it is had.
struct MissingHistory {
    lacking: BTreeMap<ObjectId, MissingCommit>,
    asked: BTreeSet<ObjectId>,
}

/// What lies between a commit and what it is counted from: the work of these commits and nothing else.
struct CommitSpan {
    since: Option<ObjectId>,
    works: BTreeSet<ObjectId>,
}

impl MissingWork {
    /// Reads lines of a commit, its parents and, after a tab each, what it is and since when: of all that the
    /// state lacks.
    fn read(text: &str, commits: &[ObjectId], state: &ObjectId) -> Self {
        let mut between = MissingHistory::read(text, commits);
        let parents = between.lacking.values().flat_map(|it| &it.parents);
        let earlier: BTreeSet<ObjectId> = parents.cloned().collect();
        let mut open = between.asked.clone();
        let open: Vec<&ObjectId> = commits.iter().filter(|it| open.remove(it)).collect();
        let last = || open.iter().copied().filter(|it| !earlier.contains(it));
        let spans = last().map(|it| (it, between.span(it)));
        let upon = spans.into_iter().find(|(_, span)| span.since.as_ref() == Some(state));
        let has = |it: &ObjectId| upon.as_ref().is_some_and(|(_, span)| span.works.contains(it));
        let each = open.iter().filter(|it| !has(it)).filter_map(|it| between.work(it));
        let each: Vec<CommitRange> = each.collect();
        let upon = upon.map(|(upon, _)| upon.clone());
        if let Some(upon) = &upon {
            between.take(upon);
        }
        let latest = between.latest(last(), &each).unwrap_or_else(|| each.clone());
        Self { upon, latest, each }
    }
}

impl MissingHistory {
    fn read(text: &str, commits: &[ObjectId]) -> Self {
        let read = |line: &str| {
            let (ids, what) = line.split_once('\t').unwrap_or((line, ""));
            let mut ids = ids.split(' ').filter_map(ObjectId::parse);
            let (id, parents) = (ids.next()?, ids.collect::<Vec<_>>());
            let since = what.strip_prefix(MERGE).and_then(|what| what.strip_prefix('\t'));
            let since = since.filter(|_| parents.len() == 2).and_then(ObjectId::parse);
            Some((id, MissingCommit { parents, since }))
        };
        let lacking: BTreeMap<_, _> = text.lines().filter_map(read).collect();
        let asked = commits.iter().filter(|it| lacking.contains_key(it)).cloned().collect();
        Self { lacking, asked }
    }

    /// Returns what a commit that is lacking was made upon.
    fn work(&self, commit: &ObjectId) -> Option<CommitRange> {
        let since = self.lacking.get(commit)?.parents.first().cloned();
        Some(CommitRange { commit: commit.clone(), since })
    }

    /// Takes out the last of some works; none where they do not have all of them.
    fn latest<'c>(
        &mut self,
        last: impl Iterator<Item = &'c ObjectId>,
        all: &[CommitRange],
    ) -> Option<Vec<CommitRange>> {
        let (mut latest, mut works) = (Vec::new(), BTreeSet::new());
        for commit in last {
            if self.lacking.contains_key(commit) {
                let span = self.span(commit);
                works.extend(span.works);
                latest.push(CommitRange { commit: commit.clone(), since: span.since });
                self.take(commit);
            }
        }
        all.iter().all(|it| works.contains(&it.commit)).then_some(latest)
    }

    /// Follows a commit to what it was made upon, down to the first that is more than the work of commits which
    /// are asked for and lacking.
    ///
    /// More is what nobody asks for, what a person dropped, and what is had: taken in twice, it would come back
    /// where somebody removed it since.
    fn span(&self, commit: &ObjectId) -> CommitSpan {
        let (mut works, mut at) = (BTreeSet::new(), Some(commit));
        while let Some(id) = at {
            at = match self.lacking.get(id) {
                Some(MissingCommit { parents, since: Some(since) }) => match parents.get(1) {
                    Some(work) if self.add_merged(work, since, &mut works) => parents.first(),
                    Some(_) | None => break,
                },
                Some(MissingCommit { parents, since: None }) if self.asked.contains(id) => {
                    works.insert(id.clone());
                    parents.first()
                }
                Some(_) | None => break,
            };
        }
        CommitSpan { since: at.cloned(), works }
    }

    /// Adds what was merged, unless it is more than the work of commits which are asked for and lacking.
    fn add_merged(
        &self,
        work: &ObjectId,
        since: &ObjectId,
        works: &mut BTreeSet<ObjectId>,
    ) -> bool {
        let (mut more, mut open) = (BTreeSet::new(), vec![(work, since)]);
        while let Some((mut at, since)) = open.pop() {
            while at != since {
                let Some(MissingCommit { parents, since: merged }) = self.lacking.get(at) else {
                    return false;
                };
                let is_new = more.insert(at) && !works.contains(at);
                match (merged, parents.get(1)) {
                    (Some(merged), Some(work)) if is_new => open.push((work, merged)),
                    (None, _) if is_new && self.asked.contains(at) => {}
                    (Some(_) | None, _) => return false,
                }
                let Some(parent) = parents.first() else { return false };
                at = parent;
            }
        }
        works.extend(more.into_iter().filter(|it| self.asked.contains(*it)).cloned());
        true
    }

    /// Takes out a commit and all before it.
    fn take(&mut self, commit: &ObjectId) {
        let mut open = vec![commit.clone()];
        while let Some(id) = open.pop() {
            open.extend(self.lacking.remove(&id).into_iter().flat_map(|it| it.parents));
        }
    }
}

/// Says whether two differences are as large as each other, file by file.
fn is_of_one_size(one: &Diff, other: &Diff) -> bool {
    let size = |it: &DiffEntry| (it.path.clone(), it.old_mode, it.new_mode, it.lines);
    let sizes = |diff: &Diff| diff.entries.iter().map(size).collect::<Vec<_>>();
    sizes(one) == sizes(other)
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

    /// A line for each word: a commit, then its parents; after a colon what a merge is counted from.
    fn history(words: &str) -> String {
        let line = |word: &str| {
            let (word, since) = word.split_once(':').unwrap_or((word, ""));
            let names: Vec<_> = word.chars().map(|name| id(name).to_string()).collect();
            let since: String = since.chars().map(|name| id(name).to_string()).collect();
            let subject = if since.is_empty() { "x" } else { MERGE };
            format!("{}\t{subject}\t{since}\n", names.join(" "))
        };
        words.split_whitespace().map(line).collect()
    }

    /// Names each with what it is counted from.
    fn shown(works: &[CommitRange]) -> String {
        let first = |id: &ObjectId| id.as_str().chars().take(1).collect::<String>();
        let one =
            |it: &CommitRange| first(&it.commit) + &it.since.as_ref().map_or("-".to_owned(), first);
        works.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_commits_on_one_another_the_last_is_taken_in_since_what_they_stand_on() {
        // The state is 0, and 9 is in it; letters are what a person committed or left uncommitted.
        for (listed, asked, upon, latest, each) in [
            ("", "9", None, "", ""),
            ("10", "1", Some('1'), "", ""),
            ("10", "11", Some('1'), "", ""),
            ("32 21 10", "123", Some('3'), "", ""),
            ("21 10", "21", Some('2'), "", ""),
            ("32 21 19", "123", None, "39", "19 21 32"),
            ("32 21 1a a9", "1932", None, "3a", "1a 32 21"),
            ("19 20 30", "123", Some('2'), "19 30", "19 30"),
            ("43 312:9 10 29", "214", Some('4'), "", ""),
            ("21 31 10", "123", Some('2'), "31", "31"),
            ("21 31 1a a9", "123", None, "2a 31", "1a 21 31"),
            // 3 was made upon a merge of the state b and of 1, which began from a.
            ("43 35 5b1:a b9 1a a9", "134", None, "4b", "1a 35 43"),
            // A person's own commits, which are had no more, go with nobody.
            ("1b ba a0", "1", None, "1b", "1b"),
            ("21 1b b0", "12", None, "2b", "1b 21"),
            ("21 1a a0 3a", "23", None, "21 3a", "21 3a"),
            // 1 is had by 2, so it must not come once more with the merge that 3 stands on.
            ("21 1a a9 35 5b1:a b9", "123", None, "2a 35", "1a 21 35"),
            // That merge had 2 and not 1, or nobody knows what.
            ("35 5b2:1 b9 21 1a a9", "123", None, "1a 21 35", "1a 21 35"),
            ("35 5b2 b9 21 1a a9", "123", None, "1a 21 35", "1a 21 35"),
            // Nobody asks for 1 any more.
            ("35 5b2:a b9 21 1a a9", "23", None, "21 35", "21 35"),
            // 1 lies below what 2 began from: it was merged, and is not any more.
            ("2b bc c1 1a a9", "12", None, "1a 2b", "1a 2b"),
            ("7", "77", None, "7-", "7-"),
        ] {
            let found = MissingWork::read(&history(listed), &ids(asked), &id('0'));
            assert_eq!(found.upon, upon.map(id), "{listed}: {asked}");
            assert_eq!(shown(&found.latest), latest, "{listed}: {asked}");
            assert_eq!(shown(&found.each), each, "{listed}: {asked}");
        }
    }
}
