//! Computes from a journal how to undo the file changes of a run.
//!
//! Nothing here touches a file: the caller passes the current content hash. A file is restored only
//! if its current content is what the recorded changes left.
//!
//! [`RecordedChanges`] are all changes of a run, `RecordedChange` is one; [`UndoAction`] is what to
//! do with one file. [`WorkLocation`] says where the work of a delegation with its own workspace
//! is: in the workspace, in a commit, or nowhere because it changed nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::Event;
use crate::ids::SessionId;
use crate::write::ContentChange;

/// The file changes of a run, read from its journal.
#[derive(Clone, Debug, Default)]
pub struct RecordedChanges {
    changes: Vec<RecordedChange>,
    parents: BTreeMap<SessionId, SessionId>,
    spaces: BTreeMap<SessionId, WorkLocation>,
}

/// Where the work of a delegation with an own workspace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkLocation {
    /// Still in its workspace; it has not been committed.
    Workspace,
    /// In the commit that this git ref points to.
    Kept(String),
    /// Nowhere: it changed nothing.
    Nowhere,
}

/// A change of one file that the journal records, and what is known about the call that made it.
#[derive(Clone, Debug)]
struct RecordedChange {
    /// The session and call that made it; absent for an undo by a person.
    by: Option<(SessionId, u32)>,
    change: ContentChange,
    answered: bool,
    /// Whether the call failed, so that the change may not have been made.
    is_doubtful: bool,
}

/// What to do to undo the changes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoAction {
    /// Make this change.
    Restore(ContentChange),
    /// Nothing: the file already has its original content.
    AlreadyUndone,
    /// Nothing can be done: the file has been changed by someone else since.
    ChangedSince,
}

impl RecordedChanges {
    /// Folds in an event of the journal.
    pub fn fold(&mut self, event: &Event) {
        if let Event::Granted(grant) = event {
            self.parents.insert(grant.session, grant.parent);
        }
        if let Event::SpaceMade { session, .. } = event {
            self.spaces.insert(*session, WorkLocation::Workspace);
        }
        if let Event::SpaceKept { session, kept, problem } = event {
            let elsewhere = match (&kept.reference, problem) {
                (Some(reference), _) => WorkLocation::Kept(reference.clone()),
                (None, Some(_)) => WorkLocation::Workspace,
                (None, None) => WorkLocation::Nowhere,
            };
            self.spaces.insert(*session, elsewhere);
        }
        if let Event::WritePrepared { session, call, intent } = event {
            // Paths in a workspace are not files of the user's tree.
            if !self.is_in_workspace(*session) {
                for change in intent.changes() {
                    self.add(Some((*session, *call)), change);
                }
            }
        }
        if let Event::Undone { change } = event {
            self.add(None, change);
        }
        if let Event::ToolReturned { session, call, output } = event {
            self.answer((*session, *call), output.is_error);
        }
        if let Event::Reopened(reopening) = event {
            for (call, output) in &reopening.looked {
                self.answer((reopening.session, *call), output.is_error);
            }
        }
    }

    fn add(&mut self, by: Option<(SessionId, u32)>, change: &ContentChange) {
        let recorded =
            RecordedChange { by, change: change.clone(), answered: false, is_doubtful: false };
        self.changes.push(recorded);
    }

    /// Call numbers restart with each turn, so a result belongs to the latest changes that have none. Those of one
    /// call stand together.
    fn answer(&mut self, by: (SessionId, u32), is_error: bool) {
        let is_open = |it: &&mut RecordedChange| it.by == Some(by) && !it.answered;
        let latest =
            self.changes.iter_mut().rev().skip_while(|it| !is_open(it)).take_while(is_open);
        for recorded in latest {
            recorded.answered = true;
            recorded.is_doubtful = is_error;
        }
    }

    /// Returns the changed files: of the whole run, or of a session and its descendants.
    #[must_use]
    pub fn paths(&self, session: Option<SessionId>) -> BTreeSet<&str> {
        let by = |it: &&RecordedChange| it.by.is_some_and(|(of, _)| self.is_within(of, session));
        self.changes.iter().filter(by).map(|it| it.change.path.as_str()).collect()
    }

    /// Returns how to restore `path`, whose current content has the hash `now`.
    #[must_use]
    pub fn remedy(&self, path: &str, session: Option<SessionId>, now: Option<&str>) -> UndoAction {
        let mut target = now;
        let mut explained = false;
        let counts = |it: &&RecordedChange| {
            it.change.path == path && it.by.is_none_or(|(of, _)| self.is_within(of, session))
        };
        for recorded in self.changes.iter().rev().filter(counts) {
            let (before, after) =
                (recorded.change.before.as_deref(), recorded.change.after.as_deref());
            if after == target {
                (target, explained) = (before, true);
            } else if before == target {
                // The change was never made, or was already undone.
                explained = true;
            } else if !recorded.is_doubtful {
                return UndoAction::ChangedSince;
            }
        }
        if !explained {
            return UndoAction::ChangedSince;
        }
        if target == now {
            return UndoAction::AlreadyUndone;
        }
        let owned = |hash: Option<&str>| hash.map(str::to_owned);
        UndoAction::Restore(ContentChange {
            path: path.to_owned(),
            before: owned(now),
            after: owned(target),
        })
    }

    /// Returns the sessions whose work is in workspaces or commits instead of the user's tree, with
    /// its location; limited to `session` and its descendants, if given.
    pub fn work_outside_tree(
        &self,
        session: Option<SessionId>,
    ) -> impl Iterator<Item = (SessionId, &WorkLocation)> {
        let meant = self.spaces.iter().filter(move |(of, _)| self.is_within(**of, session));
        meant.map(|(of, elsewhere)| (*of, elsewhere))
    }

    /// Says whether the session or one of its ancestors has a workspace.
    fn is_in_workspace(&self, of: SessionId) -> bool {
        self.spaces.keys().any(|owner| self.is_within(of, Some(*owner)))
    }

    fn is_within(&self, of: SessionId, session: Option<SessionId>) -> bool {
        let Some(session) = session else { return true };
        // Only a damaged journal has a cycle; do not loop forever on it.
        let mut seen = BTreeSet::new();
        let mut at = of;
        while at != session {
            match self.parents.get(&at) {
                Some(above) if seen.insert(at) => at = *above,
                Some(_) | None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ToolOutput;
    use crate::workspace::{KeptWork, OwnWorkspace, WorkspaceKind};

    const ONE: &str = "sess_1735460684_aaaaaa";
    const TWO: &str = "sess_1735460684_bbbbbb";

    fn change(before: &str, after: &str) -> ContentChange {
        let hash = |text: &str| (text != "-").then(|| text.to_owned());
        ContentChange { path: "f".into(), before: hash(before), after: hash(after) }
    }

    /// Parses `1:a>b` as a change by the first session, `2:` by the second, `u:` as an undo; `!`
    /// says that the call failed.
    fn changes(text: &str) -> RecordedChanges {
        let mut changes = RecordedChanges::default();
        for step in text.split_whitespace() {
            let (by, rest) = step.split_once(':').unwrap();
            let (rest, failed) = (rest.trim_end_matches('!'), rest.ends_with('!'));
            let (before, after) = rest.split_once('>').unwrap();
            let change = change(before, after);
            if by == "u" {
                changes.fold(&Event::Undone { change });
                continue;
            }
            let session = if by == "1" { ONE } else { TWO }.parse().unwrap();
            changes.fold(&Event::WritePrepared { session, call: 0, intent: change.into() });
            let output = ToolOutput { is_error: failed, ..ToolOutput::default() };
            changes.fold(&Event::ToolReturned { session, call: 0, output });
        }
        changes
    }

    #[test]
    fn undo_depends_on_the_current_content() {
        for (steps, session, now, expected) in [
            ("1:a>b", None, "b", "a"),
            ("1:a>b", None, "a", "nothing"),
            ("1:a>b", None, "x", "differs"),
            ("1:a>b", None, "-", "differs"),
            ("1:->b", None, "b", "-"),
            ("1:->b", None, "-", "nothing"),
            ("1:a>b 1:b>c", None, "c", "a"),
            ("1:a>b 1:b>c", None, "b", "a"),
            ("1:a>b 1:b>a", None, "a", "nothing"),
            // Another writer changed the file in between; that work must not be lost.
            ("1:a>b 1:x>c", None, "c", "differs"),
            // Two delegations: only the later one can be undone alone.
            ("1:a>b 2:b>c", Some(ONE), "c", "differs"),
            ("1:a>b 2:b>c", Some(TWO), "c", "b"),
            ("1:a>b 2:b>c", None, "c", "a"),
            // A write that was not made, as its error or the later changes show.
            ("1:a>b! 1:x>c", None, "c", "x"),
            ("1:a>b! 1:a>c", None, "c", "a"),
            ("1:a>b!", None, "x", "differs"),
            ("1:a>b!", None, "b", "a"),
            // Undone once, or only recorded as undone.
            ("1:a>b u:b>a", None, "a", "nothing"),
            ("1:a>b u:b>a", None, "b", "a"),
            ("1:a>b u:b>a 1:a>c", None, "c", "a"),
        ] {
            let now = (now != "-").then_some(now);
            let session = session.map(|text| text.parse().unwrap());
            let found = match changes(steps).remedy("f", session, now) {
                UndoAction::Restore(change) => change.after.unwrap_or_else(|| "-".into()),
                UndoAction::AlreadyUndone => "nothing".into(),
                UndoAction::ChangedSince => "differs".into(),
            };
            assert_eq!(found, expected, "{steps}, now {now:?}");
        }
    }

    #[test]
    fn paths_of_a_session_are_only_those_it_changed() {
        let all = changes("1:a>b 2:b>c");
        assert_eq!(all.paths(None).len(), 1);
        assert_eq!(all.paths(Some(ONE.parse().unwrap())).len(), 1);
        assert_eq!(all.paths(Some("sess_1735460684_cccccc".parse().unwrap())).len(), 0);
    }

    fn space() -> OwnWorkspace {
        let (path, base) = ("/s".to_owned(), "b".to_owned());
        OwnWorkspace { kind: WorkspaceKind::Overlay, path, base, layers: vec![], remarks: vec![] }
    }

    #[test]
    fn a_write_in_a_workspace_is_no_change_of_the_user_s_tree() {
        let (one, two): (SessionId, SessionId) = (ONE.parse().unwrap(), TWO.parse().unwrap());
        let mut all = RecordedChanges::default();
        all.fold(&Event::SpaceMade { session: one, space: space(), project: None });
        for session in [one, two] {
            all.fold(&Event::WritePrepared { session, call: 0, intent: change("a", "b").into() });
        }
        assert_eq!(all.paths(Some(one)).len(), 0);
        assert_eq!(all.paths(Some(two)).len(), 1);
        // Not even if the user's tree has the same content by chance.
        assert_eq!(all.remedy("f", Some(one), Some("b")), UndoAction::ChangedSince);
        assert_eq!(
            all.work_outside_tree(None).collect::<Vec<_>>(),
            [(one, &WorkLocation::Workspace)]
        );
        assert_eq!(all.work_outside_tree(Some(two)).count(), 0);
    }

    #[test]
    fn the_location_of_work_follows_from_its_commit() {
        let session = ONE.parse().unwrap();
        let reference = |name: &str| KeptWork {
            commit: Some("c".into()),
            reference: Some(name.into()),
            ..KeptWork::default()
        };
        let full = || Some("the disk is full".to_owned());
        for (kept, problem, expected) in [
            (reference("refs/1"), None, WorkLocation::Kept("refs/1".into())),
            (KeptWork::default(), None, WorkLocation::Nowhere),
            (KeptWork::default(), full(), WorkLocation::Workspace),
        ] {
            let mut all = RecordedChanges::default();
            all.fold(&Event::SpaceMade { session, space: space(), project: None });
            all.fold(&Event::SpaceKept { session, kept, problem });
            assert_eq!(all.work_outside_tree(None).next(), Some((session, &expected)));
        }
    }
}
