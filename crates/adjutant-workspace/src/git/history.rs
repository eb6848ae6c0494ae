//! Queries about many commits at once: which exist, which another commit contains, which references keep, and the
//! ranges of commits that a state is missing ([`MissingWork`]).
//!
//! Each query takes one git call or a few, however many commits there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use super::GitError;
use super::diff::{Diff, DiffEntry};
use super::id::{ObjectId, ResultRef};
use super::repository::Repository;

/// The message of commits that merge results into the state that other work starts from.
const MERGE: &str = "Work that this begins with";

impl Repository {
    /// Returns those of the commits that exist in this repository.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn existing_commits(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        self.commits_by_prefix(commits.iter().map(ObjectId::as_str))
    }

    /// Returns the commits of this repository with these ids or prefixes of ids.
    pub(crate) fn commits_by_prefix<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        let names: String = names.map(|name| format!("{name}\n")).collect();
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let call = self.call("cat-file").arg("--batch-check=%(objectname) %(objecttype)");
        let output = call.run_with_input(names.as_bytes())?;
        let text = String::from_utf8_lossy(&output.bytes);
        let found = text.lines().filter_map(|line| line.strip_suffix(" commit"));
        Ok(found.filter_map(ObjectId::parse).collect())
    }

    /// Returns those of the commits whose work HEAD contains: the commit itself, or all its changes.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn merged_in_head(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let Some(head) = self.head()? else { return Ok(BTreeSet::new()) };
        let outside = self.not_ancestors_of(commits, &head)?;
        let mut found: BTreeSet<_> =
            commits.iter().filter(|it| !outside.contains(it)).cloned().collect();
        // A commit without a parent is not one of our results; whether it is merged is unknown.
        let bases = self.bases_of(&outside)?;
        let pairs: Vec<_> =
            outside.iter().filter_map(|it| bases.get(it).map(|base| (it, base))).collect();
        if pairs.is_empty() {
            return Ok(found);
        }
        let is_there = self.merges_without_change(&pairs, &head)?;
        let there = pairs.iter().zip(is_there).filter(|(_, is_there)| *is_there);
        found.extend(there.map(|((commit, _), _)| (*commit).clone()));
        Ok(found)
    }

    /// Returns those of the commits that a local or remote-tracking branch or one of our references still contains.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn kept_commits(&self, commits: &[ObjectId]) -> Result<BTreeSet<ObjectId>, GitError> {
        let ours = format!("--glob={}", ResultRef::PREFIX.trim_end_matches('/'));
        // A broken reference keeps nothing and is not ours to repair.
        let all = ["--ignore-missing", "--branches", "--remotes", &ours];
        let outside = self.not_reachable_from(commits, &all)?;
        Ok(commits.iter().filter(|it| !outside.contains(it)).cloned().collect())
    }

    /// Returns those of the commits that are not ancestors of `of`, in their order.
    fn not_ancestors_of(
        &self,
        commits: &[ObjectId],
        of: &ObjectId,
    ) -> Result<Vec<ObjectId>, GitError> {
        let outside = self.not_reachable_from(commits, &[of.as_str()])?;
        Ok(commits.iter().filter(|it| outside.contains(it)).cloned().collect())
    }

    /// Returns which of the commits are missing in a state, in their order.
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
        let output = call.run_with_input(lines(commits).as_bytes())?;
        Ok(MissingWork::read(&String::from_utf8_lossy(&output.bytes), commits, state))
    }

    /// Creates a merge commit: all of `into`, and the changes of the work since `since`; `tree` is the merged tree.
    pub(crate) fn commit_merge(
        &self,
        into: &ObjectId,
        (work, since): (&ObjectId, &ObjectId),
        tree: &ObjectId,
    ) -> Result<ObjectId, GitError> {
        // Later merges must know which part of the work's history was merged, which the parents do not show. The
        // trailer is written only if the whole range was new: what `into` already contained is not part of this
        // merge and may be missing next time.
        let is_whole =
            has_same_files_and_line_counts(&self.diff(since, work)?, &self.diff(into, tree)?);
        let message =
            if is_whole { format!("{MERGE}\n\nSince: {since}") } else { MERGE.to_owned() };
        self.commit_tree(&[into, work], tree, &message, SystemTime::now())
    }

    /// Returns the first parents of the commits that have one.
    pub(crate) fn bases_of(
        &self,
        commits: &[ObjectId],
    ) -> Result<BTreeMap<ObjectId, ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let call = self.call("rev-list").args(["--no-walk=unsorted", "--parents", "--stdin"]);
        let output = call.run_with_input(lines(commits).as_bytes())?;
        let read = |line: &str| {
            let mut ids = line.split(' ').map(ObjectId::parse);
            Some((ids.next()??, ids.next()??))
        };
        Ok(String::from_utf8_lossy(&output.bytes).lines().filter_map(read).collect())
    }

    /// Returns where each commit's line of first parents leaves the history of `from`.
    pub(crate) fn forks(
        &self,
        commits: &[&ObjectId],
        from: &ObjectId,
    ) -> Result<BTreeMap<ObjectId, ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let call = self.call("rev-list").args(["--parents", "--stdin", "--not", from.as_str()]);
        let output = call.run_with_input(lines(commits.iter().copied()).as_bytes())?;
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

    /// Returns the commits, and their ancestors, that none of the others contains.
    fn not_reachable_from(
        &self,
        commits: &[ObjectId],
        others: &[&str],
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        if commits.is_empty() {
            return Ok(BTreeSet::new());
        }
        let call = self.call("rev-list").args(["--stdin", "--not"]).args(others.iter().copied());
        let output = call.run_with_input(lines(commits).as_bytes())?;
        Ok(output.bytes.split(|byte| *byte == b'\n').filter_map(ObjectId::from_bytes).collect())
    }
}

/// The commits that are missing in a state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingWork {
    /// The first of the commits that is an ancestor of no other and is based on the state, with only other
    /// requested commits in between.
    pub(crate) upon: Option<ObjectId>,
    /// The fewest ranges that contain all missing commits; equal to `each` if they could contain anything else.
    pub(crate) latest: Vec<CommitRange>,
    /// All commits that neither the state nor `upon` contains, each with its parent.
    pub(crate) each: Vec<CommitRange>,
}

/// The work from `since`, exclusive, to `commit`; `since` is `None` for a root commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommitRange {
    pub(crate) commit: ObjectId,
    pub(crate) since: Option<ObjectId>,
}

/// A commit that is missing in a state.
struct MissingCommit {
    parents: Vec<ObjectId>,
    /// For a merge commit of [`Repository::commit_merge`]: where the merged range starts.
    since: Option<ObjectId>,
}

/// The commits that another commit does not contain, and which of them build on each other.
struct MissingHistory {
    lacking: BTreeMap<ObjectId, MissingCommit>,
    asked: BTreeSet<ObjectId>,
}

/// A range of history that contains exactly the work of these commits.
struct CommitSpan {
    since: Option<ObjectId>,
    works: BTreeSet<ObjectId>,
}

impl MissingWork {
    /// Parses one line per missing commit: id and parents, then after tabs the subject and the `Since` trailer.
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
        let each = open.iter().filter(|it| !has(it)).filter_map(|it| between.range_of(it));
        let each: Vec<CommitRange> = each.collect();
        let upon = upon.map(|(upon, _)| upon.clone());
        if let Some(upon) = &upon {
            between.remove_with_ancestors(upon);
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

    /// Returns a missing commit with its parent.
    fn range_of(&self, commit: &ObjectId) -> Option<CommitRange> {
        let since = self.lacking.get(commit)?.parents.first().cloned();
        Some(CommitRange { commit: commit.clone(), since })
    }

    /// Removes the newest commits and returns their ranges; `None` if these do not contain all of `all`.
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
                self.remove_with_ancestors(commit);
            }
        }
        all.iter().all(|it| works.contains(&it.commit)).then_some(latest)
    }

    /// Follows first parents from a commit as long as the history consists only of requested, missing commits.
    ///
    /// It stops at commits that were not requested, that a person dropped, or that are already merged: merging them
    /// again would restore what was removed since.
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

    /// Adds the commits of a merged range, unless it contains anything but requested, missing commits.
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

    /// Removes a commit and its ancestors.
    fn remove_with_ancestors(&mut self, commit: &ObjectId) {
        let mut open = vec![commit.clone()];
        while let Some(id) = open.pop() {
            open.extend(self.lacking.remove(&id).into_iter().flat_map(|it| it.parents));
        }
    }
}

/// Says whether two diffs have the same files with the same modes and line counts.
fn has_same_files_and_line_counts(one: &Diff, other: &Diff) -> bool {
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

    /// Returns one line per word: a commit, then its parents; after a colon the start of a merged range.
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

    /// Shows each commit with the start of its range.
    fn shown(works: &[CommitRange]) -> String {
        let first = |id: &ObjectId| id.as_str().chars().take(1).collect::<String>();
        let one =
            |it: &CommitRange| first(&it.commit) + &it.since.as_ref().map_or("-".to_owned(), first);
        works.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn consecutive_commits_are_merged_as_one_range() {
        // The state is 0, and it contains 9; letters are commits or uncommitted states of a person.
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
            // 3 is based on a merge of the state b and of 1, which started from a.
            ("43 35 5b1:a b9 1a a9", "134", None, "4b", "1a 35 43"),
            // Commits of a person that are no longer in the state are not merged.
            ("1b ba a0", "1", None, "1b", "1b"),
            ("21 1b b0", "12", None, "2b", "1b 21"),
            ("21 1a a0 3a", "23", None, "21 3a", "21 3a"),
            // 2 contains 1, so 1 must not be merged again with the merge that 3 is based on.
            ("21 1a a9 35 5b1:a b9", "123", None, "2a 35", "1a 21 35"),
            // That merge contained 2 but not 1, or its range is unknown.
            ("35 5b2:1 b9 21 1a a9", "123", None, "1a 21 35", "1a 21 35"),
            ("35 5b2 b9 21 1a a9", "123", None, "1a 21 35", "1a 21 35"),
            // 1 is not requested any more.
            ("35 5b2:a b9 21 1a a9", "23", None, "21 35", "21 35"),
            // 1 is an ancestor of the start of 2: it was merged, and is not any more.
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
