//! Folds events into the registry's state, without judging them.
//!
//! Old entries are dropped here, so that the state and its checkpoints do not grow with history.

use crate::ids::RunId;
use crate::money::Usd;

use super::event::RegistryEvent as Event;
use super::state::{
    CallKey, CallRecord, HolderId, HolderRecord, LiveRun, MergeRecord, QuestionPointer, Registry,
    StoryEnd, StoryKey, StoryRun, StoryRunState,
};

/// How many days of allowances are kept, so that setting the clock back does not renew an
/// allowance.
const KEPT_DAYS: u64 = 31;

/// How long a call without a process is kept, in milliseconds; longer than any run may take.
const KEPT_CALL_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// How many calls without a process are kept. An ended run answers equal calls for ten minutes, and
/// no client starts that many runs in that time.
const KEPT_CALLS: usize = 500;

/// How many runs on stories are kept; the outcomes of older ones are in their PRDs.
const KEPT_STORY_RUNS: usize = 500;

/// How many imported PRDs are kept; the runs of an older one would be imported again.
const KEPT_PRDS: usize = 500;

/// How many merges are kept; git knows about older ones.
const KEPT_MERGES: usize = 500;

impl Registry {
    /// Folds an event that was recorded at `wall_ms` (Unix milliseconds).
    pub fn evolve(&mut self, wall_ms: u64, event: &Event) {
        match event {
            Event::Checkpoint { state } => self.clone_from(state),
            Event::HolderJoined { holder, pid } => {
                self.holders.insert(holder.clone(), HolderRecord { pid: *pid });
            }
            Event::HolderGone { holder } => self.release_holder(holder, wall_ms),
            Event::Imported { consents, days, calls } => {
                self.consents.extend(consents.iter().cloned());
                for it in days {
                    self.allowance.entry(it.day).or_default().spent += it.spent;
                }
                self.calls.extend(calls.iter().map(|it| {
                    let since_ms = it.since_ms;
                    (it.call.clone(), CallRecord { run: it.run, holder: None, since_ms })
                }));
            }
            Event::RunAdmitted { holder, run, tree, call } => {
                if let Some(call) = call {
                    self.note_call(call, *run, holder, wall_ms);
                }
                let (holder, tree, call) = (holder.clone(), tree.clone(), call.clone());
                self.live_runs.insert(*run, LiveRun { holder, tree, call });
            }
            Event::RunEnded { run } => self.end(*run, wall_ms),
            Event::AllowanceReserved { holder, run, day, amount } => {
                self.allowance.retain(|it, _| it.saturating_add(KEPT_DAYS) >= *day);
                let of_day = self.allowance.entry(*day).or_default();
                of_day.reserved.insert(*run, (holder.clone(), *amount));
            }
            Event::AllowanceSettled { run, spent } => self.settle(*run, *spent),
            Event::CallBegun { holder, call, run } => {
                self.note_call(call, *run, holder, wall_ms);
                self.forget_calls(wall_ms);
            }
            Event::CallAbandoned { call, run } => self.release_call(call, *run, wall_ms),
            Event::WaitBegun { holder, run } => {
                *self.waits.entry(*run).or_default().entry(holder.clone()).or_default() += 1;
            }
            Event::WaitEnded { holder, run } => self.end_wait(holder, *run),
            Event::CancellingStarted { holder, run } => {
                self.cancelling.insert(*run, holder.clone());
            }
            Event::CancellingStopped { run } => _ = self.cancelling.remove(run),
            Event::StoryClaimed { holder, story } => {
                let of_prd = self.story_claims.entry(story.prd.clone()).or_default();
                of_prd.insert(story.id.clone(), holder.clone());
            }
            Event::StoryReleased { holder, story } => self.release_story(holder, story),
            Event::StoryBegun { holder, story, run, asked, .. } => {
                self.begin_story_run(holder, story, *run, asked);
            }
            Event::StoryEnded { run, end, spent, commit, last_child } => {
                let Some(it) = self.story_runs.iter_mut().find(|it| it.run == *run) else { return };
                if let StoryRunState::Running(holder) = &it.state {
                    let by_prd = self.story_spending.entry(holder.clone()).or_default();
                    let sum = by_prd.entry(it.story.prd.clone()).or_default();
                    *sum = sum.plus(*spent);
                }
                it.state = StoryRunState::Ended(*end);
                if let (StoryEnd::Passed, Some(commit)) = (end, commit) {
                    it.passed_with.retain(|known| known != commit);
                    it.passed_with.push(commit.clone());
                }
                it.last_child = it.last_child.max(*last_child);
            }
            Event::StoryRunsImported { prd, runs } => self.import_story_runs(prd, runs),
            Event::ConsentGiven { digest } => _ = self.consents.insert(digest.clone()),
            Event::QuestionOpened { id, run, hash, code, client, at_prompt } => {
                let (hash, code, client) = (hash.clone(), code.clone(), client.clone());
                let (run, asked_ms, at_prompt) = (*run, wall_ms, *at_prompt);
                let question = QuestionPointer { run, hash, code, client, asked_ms, at_prompt };
                self.questions.insert(id.clone(), question);
            }
            Event::QuestionClosed { id } => _ = self.questions.remove(id),
            Event::WorkMerged { tree, run, commit } => {
                let (tree, commit) = (tree.clone(), commit.clone());
                self.merges.push(MergeRecord { tree, run: *run, commit });
                let surplus = self.merges.len().saturating_sub(KEPT_MERGES);
                self.merges.drain(..surplus);
            }
            Event::MergeUndone { tree, commit } => {
                self.merges.retain(|it| it.tree != *tree || it.commit != *commit);
            }
            Event::DelegationsSampled { groups } => self.take_samples(groups),
        }
    }

    /// Frees everything a process held; amounts that it reserved stay spent.
    fn release_holder(&mut self, holder: &HolderId, wall_ms: u64) {
        self.holders.remove(holder);
        let runs = self.live_runs.iter().filter(|(_, live)| live.holder == *holder);
        for run in runs.map(|(run, _)| *run).collect::<Vec<_>>() {
            self.end(run, wall_ms);
        }
        for call in self.calls.values_mut().filter(|call| call.holder.as_ref() == Some(holder)) {
            (call.holder, call.since_ms) = (None, wall_ms);
        }
        for day in self.allowance.values_mut() {
            let lost = day.reserved.values().filter(|(by, _)| by == holder);
            day.spent += lost.map(|(_, amount)| *amount).sum();
            day.reserved.retain(|_, (by, _)| by != holder);
        }
        self.waits.retain(|_, waits| {
            waits.remove(holder);
            !waits.is_empty()
        });
        self.cancelling.retain(|_, by| by != holder);
        self.story_claims.retain(|_, stories| {
            stories.retain(|_, by| by != holder);
            !stories.is_empty()
        });
        self.story_spending.remove(holder);
        self.interrupt_story_runs(holder, |_| true);
    }

    /// Marks the running story runs of a process as resumable, because it did not record how they
    /// ended.
    fn interrupt_story_runs(&mut self, holder: &HolderId, concerns: impl Fn(&StoryRun) -> bool) {
        for it in self.story_runs.iter_mut().filter(|it| concerns(it)) {
            if matches!(&it.state, StoryRunState::Running(by) if by == holder) {
                it.state = StoryRunState::Ended(StoryEnd::Resumable);
            }
        }
    }

    fn end(&mut self, run: RunId, wall_ms: u64) {
        let Some(live) = self.live_runs.remove(&run) else { return };
        if let Some(call) = &live.call {
            self.release_call(call, run, wall_ms);
        }
        self.cancelling.remove(&run);
        // No process waits for answers to this run's questions any more.
        self.questions.retain(|_, question| question.run != run);
    }

    fn settle(&mut self, run: RunId, spent: Usd) {
        for day in self.allowance.values_mut() {
            if day.reserved.remove(&run).is_some() {
                day.spent += spent;
            }
        }
    }

    fn note_call(&mut self, call: &CallKey, run: RunId, holder: &HolderId, wall_ms: u64) {
        let record = CallRecord { run, holder: Some(holder.clone()), since_ms: wall_ms };
        self.calls.insert(call.clone(), record);
    }

    fn release_call(&mut self, call: &CallKey, run: RunId, wall_ms: u64) {
        if let Some(record) = self.calls.get_mut(call).filter(|record| record.run == run) {
            (record.holder, record.since_ms) = (None, wall_ms);
        }
    }

    /// Drops calls whose runs no longer answer equal calls, oldest first.
    fn forget_calls(&mut self, wall_ms: u64) {
        self.calls.retain(|_, call| {
            call.holder.is_some() || call.since_ms.saturating_add(KEPT_CALL_MS) >= wall_ms
        });
        while let Some(call) = self.surplus_call() {
            self.calls.remove(&call);
        }
    }

    /// Returns the oldest call without a process, if there are more than [`KEPT_CALLS`].
    fn surplus_call(&self) -> Option<CallKey> {
        let free = || self.calls.iter().filter(|(_, call)| call.holder.is_none());
        if free().count() <= KEPT_CALLS {
            return None;
        }
        free().min_by_key(|(key, call)| (call.since_ms, *key)).map(|(key, _)| key.clone())
    }

    fn end_wait(&mut self, holder: &HolderId, run: RunId) {
        let Some(waits) = self.waits.get_mut(&run) else { return };
        if let Some(count) = waits.get_mut(holder) {
            *count = count.saturating_sub(1);
        }
        waits.retain(|_, count| *count > 0);
        if waits.is_empty() {
            self.waits.remove(&run);
        }
    }

    fn release_story(&mut self, holder: &HolderId, story: &StoryKey) {
        self.interrupt_story_runs(holder, |it| it.story == *story);
        let Some(of_prd) = self.story_claims.get_mut(&story.prd) else { return };
        of_prd.remove(&story.id);
        if of_prd.is_empty() {
            self.story_claims.remove(&story.prd);
        }
    }

    fn begin_story_run(&mut self, holder: &HolderId, story: &StoryKey, run: RunId, asked: &str) {
        let state = StoryRunState::Running(holder.clone());
        // A resumed run keeps its position in the list.
        if let Some(it) = self.story_runs.iter_mut().find(|it| it.run == run) {
            (it.state, it.asked) = (state, asked.to_owned());
            return;
        }
        let (story, asked) = (story.clone(), asked.to_owned());
        let (passed_with, last_child) = (Vec::new(), 0);
        self.story_runs.push(StoryRun { story, run, asked, state, passed_with, last_child });
        self.forget_story_runs();
    }

    /// Inserts imported runs before the known ones.
    fn import_story_runs(&mut self, prd: &str, runs: &[StoryRun]) {
        let is_new = |it: &&StoryRun| self.story_runs.iter().all(|known| known.run != it.run);
        let new: Vec<StoryRun> = runs.iter().filter(is_new).cloned().collect();
        self.story_runs.splice(..0, new);
        self.forget_story_runs();
        self.imported_prds.push(prd.to_owned());
        let surplus = self.imported_prds.len().saturating_sub(KEPT_PRDS);
        self.imported_prds.drain(..surplus);
    }

    /// Drops surplus ended runs on stories, oldest first.
    fn forget_story_runs(&mut self) {
        let mut surplus = self.story_runs.len().saturating_sub(KEPT_STORY_RUNS);
        self.story_runs.retain(|it| {
            let is_dropped = surplus > 0 && matches!(it.state, StoryRunState::Ended(_));
            surplus -= usize::from(is_dropped);
            !is_dropped
        });
    }

    /// Returns an event with the whole state, for a compacted file to begin with.
    #[must_use]
    pub fn checkpoint(&self) -> Event {
        Event::Checkpoint { state: Box::new(self.clone()) }
    }
}
