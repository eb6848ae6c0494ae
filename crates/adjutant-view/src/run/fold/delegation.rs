//! How an event changes the delegation it is about.
//!
//! Start at [`Delegation::take`]; [`blank`] creates an empty delegation.

use std::sync::Arc;
use std::time::Duration;

use adjutant_core::tool_call::calls_as_run;
use adjutant_core::tree::CALLS_PER_TURN;
use adjutant_core::workspace::commit_failed;
use adjutant_core::write::RUN;
use adjutant_core::{
    AgentName, ContextFileStatus, DelegationState, ErrorCode, Event, Grant, Label, ModelSpec,
    Outcome, SessionId, ToolOutput, WorkerAction,
};
use adjutant_formats::contract::{Return, ReturnFinding, ReturnStatus, is_about_claim};

use super::{REASON_KEPT, TEXT_KEPT};
use crate::layout::excerpt;
use crate::receipt::LastCommand;
use crate::results::return_as_text;
use crate::run::{
    Delegation, DelegationWarning, LateArrival, PendingRetry, ProviderPause, Spend, TextRetention,
    ToolCallSummary,
};
use crate::timed_event::{EventTime, TimedEvent};

impl Delegation {
    /// Switches to another model. Costs so far stay with the previous one.
    pub(super) fn switch(&mut self, model: Option<&ModelSpec>) {
        let Some(model) =
            model.filter(|model| self.model.as_ref().is_some_and(|it| *it != model.name))
        else {
            return;
        };
        match &mut self.worker {
            Some(worker) => worker.add_model(model.name.clone(), model.price.is_some()),
            None => self.earlier_models = self.by_model(),
        }
        self.model = Some(model.name.clone());
        self.is_priced = model.price.is_some();
    }

    pub(super) fn take(&mut self, entry: TimedEvent<'_>, texts: TextRetention) {
        match entry.event {
            Event::Started { deadline, .. } => {
                self.state = DelegationState::Running;
                self.started = self.started.or(Some(entry.moment()));
                self.leg = Some(entry.moment());
                self.ended = None;
                self.deadline = *deadline;
                self.waits_since(entry);
            }
            Event::Reserved { reservation, .. } => {
                self.stop_worker();
                self.open = Some(*reservation);
                self.turns = reservation.turn;
                self.retry = None;
                self.waits_since(entry);
            }
            Event::Replied { text, tool_calls, translations, .. } => {
                self.last_error = None;
                let calls = calls_as_run(tool_calls, translations).take(CALLS_PER_TURN);
                self.asked = calls.map(|call| ToolCallSummary::of(&call)).collect();
                self.fold_replied(entry, text, texts);
            }
            Event::AttemptFailed { error, attempt, retry_at, .. } => {
                self.last_error = Some(error.kind);
                self.retry =
                    retry_at.map(|at| PendingRetry { attempt: *attempt, at, kind: error.kind });
                self.waits_since(entry);
            }
            Event::Progressed { bytes, .. } => {
                self.bytes = self.bytes.saturating_add(*bytes);
                self.heard = entry.at;
                self.pause = None;
            }
            Event::Paused { provider, until, .. } => {
                self.pause = Some(ProviderPause { provider: provider.clone(), until: *until });
            }
            Event::DomainAsked { call, host, .. } => self.hosts.push((*call, host.clone())),
            Event::ToolRefused { call, .. } => {
                self.hosts.retain(|(waits, _)| waits != call);
                self.refused_calls += 1;
            }
            Event::ToolCalled { call, .. } => {
                self.hosts.retain(|(waits, _)| waits != call);
                self.tool_calls += 1;
                self.under_way.push(*call);
            }
            Event::ToolReturned { call, output, .. } => {
                self.fold_tool_result(entry, *call, output, texts)
            }
            Event::WritePrepared { call, intent, .. } => {
                let paths = intent.changes().map(|change| Arc::from(change.path.as_str()));
                self.preparing.insert(*call, paths.collect());
            }
            Event::Judged { returned, errors, warnings, .. } => {
                if let Some(returned) = returned {
                    self.handed_back(returned, texts);
                }
                self.note_false_claims(errors.iter().chain(warnings));
            }
            Event::Printed { text, .. } => {
                let last = text.lines().rev().find(|line| !line.trim().is_empty());
                self.printed = last.map(|line| excerpt(line, TEXT_KEPT));
            }
            Event::SpaceMade { space, .. } => {
                self.space = Some(Box::new(space.clone()));
                self.printed = None;
            }
            Event::SpaceKept { kept, problem, .. } => {
                self.kept = Some(Box::new((kept.clone(), problem.clone())));
                self.is_keeping = false;
                self.lower(problem.is_some() || !kept.left.is_empty());
                self.reason.take_if(|reason| reason.code == ErrorCode::GitCommitFailed);
                if let (None, Some(problem)) = (&self.reason, problem) {
                    self.reason = Some(texts.reason(&commit_failed(problem)));
                }
            }
            Event::Merged { merged, problem, .. } => {
                self.merged = Some(Box::new((merged.clone(), problem.clone())));
            }
            Event::Checked { passed, facts, .. } => {
                self.from_base.clone_from(&facts.from_base);
                let failures = self.checked.map_or(0, |(_, failures)| failures);
                self.checked = Some((*passed, failures + u32::from(!passed)));
                self.waits_since(entry);
            }
            Event::MarkersRead { rejected, refused, .. } => {
                self.markers_read(rejected, refused.as_ref(), texts);
            }
            Event::Marked { mark, problem, .. } => {
                self.marked = Some((mark.clone(), problem.clone()));
            }
            Event::ResultMerged { commit, merge, .. } => {
                self.merged_after_run = Some((commit.clone(), *merge));
            }
            Event::Crashed { message, .. } => {
                self.crash = Some(texts.start_of(message, REASON_KEPT))
            }
            Event::Late { what, text, .. } => {
                self.late.push(LateArrival { what: what.clone(), text: excerpt(text, TEXT_KEPT) })
            }
            Event::Ended { outcome, reason, .. } => {
                self.state = DelegationState::Ended(*outcome);
                self.is_keeping = self.space.is_some();
                self.ended = Some(entry.moment());
                self.reason = reason.as_ref().map(|reason| texts.reason(reason));
                self.retry = None;
                self.pause = None;
                self.hosts = Vec::new();
                self.under_way = Vec::new();
                self.asked = Vec::new();
                self.stop_worker();
            }
            Event::WorkerActed { action, .. } => {
                self.fold_worker_words(action, texts);
                self.fold_worker_event(entry);
            }
            Event::WorkerCallReserved { .. }
            | Event::WorkerCallRefused { .. }
            | Event::WorkerCallSettled { .. }
            | Event::WorkerSessionOpened { .. }
            | Event::WorkerReported { .. } => self.fold_worker_event(entry),
            Event::Continued { .. } => {
                self.continuations += 1;
                self.waits_since(entry);
            }
            Event::Reopened(_) => {
                self.state = if self.parent.is_none() {
                    DelegationState::Running
                } else {
                    DelegationState::Queued
                };
                // The time between its end and its resume does not count.
                self.worked += self.ended.map_or(Duration::ZERO, |ended| self.leg_until(ended.at));
                self.leg = self.parent.is_none().then(|| entry.moment());
                self.ended = None;
                self.reason = None;
                self.returned = None;
                self.merged = None;
                self.checked = None;
                self.reopened = true;
                self.is_unkept = false;
                self.waits_since(entry);
            }
            Event::RunStarted { .. }
            | Event::Resumed { .. }
            | Event::AgentDefined { .. }
            | Event::Assigned(_)
            | Event::StoryTaken { .. }
            | Event::Checking { .. }
            | Event::Delegated { .. }
            | Event::Granted(_)
            | Event::Refused { .. }
            | Event::ApprovalAsked { .. }
            | Event::AutoApproved { .. }
            | Event::Approved { .. }
            | Event::Denied { .. }
            | Event::Settled { .. }
            | Event::Overran { .. }
            | Event::Messaged { .. }
            | Event::Told { .. }
            | Event::NoteSkipped { .. }
            | Event::DomainAllowed { .. }
            | Event::DomainDenied { .. }
            | Event::RunEnded { .. }
            | Event::Undone { .. }
            | Event::ErrorFixed { .. } => {}
        }
    }

    /// Stores an accepted return. People read it as text, not as the JSON it came in.
    fn handed_back(&mut self, returned: &Return, texts: TextRetention) {
        if returned.status != ReturnStatus::Completed {
            self.returned_errors = returned.errors.iter().map(|it| texts.error(it)).collect();
        }
        if texts == TextRetention::Kept {
            self.last_text = return_as_text(returned);
            self.returned = Some(Box::new(returned.clone()));
        }
    }

    /// Stores what a return claims and the engine did not see, each difference once.
    fn note_false_claims<'f>(&mut self, findings: impl Iterator<Item = &'f ReturnFinding>) {
        for finding in findings.filter(|it| is_about_claim(&it.field)) {
            let text = format!("{}: {}", finding.field, finding.message);
            let warning = DelegationWarning::FalseClaim(excerpt(&text, TEXT_KEPT));
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    fn fold_worker_event(&mut self, entry: TimedEvent<'_>) {
        let Some(worker) = &mut self.worker else { return };
        let counts = worker.take(entry.event);
        self.tool_calls += counts.begun;
        self.failed_calls += counts.failed;
        self.refused_calls += counts.refused;
        self.waits_since(entry);
    }

    /// Stores what a worker says now; its answer to the prompt replaces it.
    fn fold_worker_words(&mut self, action: &WorkerAction, texts: TextRetention) {
        let (Some(worker), WorkerAction::Said { text }) = (&self.worker, action) else { return };
        if texts == TextRetention::Dropped || (!worker.is_saying() && text.trim().is_empty()) {
            return;
        }
        if !worker.is_saying() {
            self.last_text.clear();
        }
        self.last_text.push_str(text);
    }

    fn stop_worker(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.stop();
        }
    }

    fn waits_since(&mut self, entry: TimedEvent<'_>) {
        self.pause = None;
        self.since = entry.at;
        self.heard = entry.at;
        self.bytes = 0;
        self.text_end.clear();
    }

    fn fold_replied(&mut self, entry: TimedEvent<'_>, text: &str, texts: TextRetention) {
        if texts == TextRetention::Kept && !text.trim().is_empty() {
            text.clone_into(&mut self.last_text);
        }
        self.under_way.clear();
        self.waits_since(entry);
    }

    /// Work that could not be committed is not a success; the run's outcome treats it the same way.
    fn lower(&mut self, is_unkept: bool) {
        let (from, to) = if is_unkept {
            (Outcome::Completed, Outcome::Partial)
        } else {
            (Outcome::Partial, Outcome::Completed)
        };
        if is_unkept != self.is_unkept && self.state == DelegationState::Ended(from) {
            self.state = DelegationState::Ended(to);
            self.is_unkept = is_unkept;
        }
    }

    fn fold_tool_result(
        &mut self,
        entry: TimedEvent<'_>,
        call: u32,
        output: &ToolOutput,
        texts: TextRetention,
    ) {
        if self.under_way.contains(&call) {
            self.failed_calls += u32::from(output.is_error);
        }
        self.under_way.retain(|&other| other != call);
        self.printed = None;
        // The level of the sandbox is set only if the command ran.
        let ran = self.requested_call(call).filter(|it| it.tool == RUN && output.sandbox.is_some());
        if let Some(ran) = ran {
            let (command, exit) = (ran.arguments.clone(), output.exit);
            self.last_command = Some(LastCommand { command, exit, failed: output.is_error });
        }
        if output.sandbox.is_some() {
            self.sandbox.clone_from(&output.sandbox);
        }
        if let Some(note) = &output.note {
            self.note_count += 1;
            if texts == TextRetention::Dropped {
                self.notes.clear();
            }
            self.notes.push(texts.start_of(note, TEXT_KEPT));
        }
        for path in &output.touched {
            if texts == TextRetention::Kept && !self.files_seen.contains(path.as_str()) {
                let path: Arc<str> = path.as_str().into();
                self.files_seen.insert(Arc::clone(&path));
                self.files.push(path);
            }
        }
        let is_changed =
            |path: &Arc<str>| !output.is_error || output.touched.iter().any(|it| **it == **path);
        let changed = self.preparing.remove(&call).unwrap_or_default();
        self.changed.extend(changed.into_iter().filter(is_changed));
        self.waits_since(entry);
    }
}

pub(crate) fn warnings(grant: &Grant) -> Vec<DelegationWarning> {
    let context = grant.brief.context.iter().filter_map(|file| match file.found {
        ContextFileStatus::Missing => Some(DelegationWarning::MissingContext(file.path.clone())),
        ContextFileStatus::Lossy => Some(DelegationWarning::LossyContext(file.path.clone())),
        ContextFileStatus::Loaded | ContextFileStatus::Unusable(_) => None,
    });
    let clamped = grant.clamped.then_some(DelegationWarning::Clamped(grant.timeout_s));
    context.chain(clamped).collect()
}

pub(super) fn blank(
    session: SessionId,
    label: Label,
    agent: AgentName,
    moment: EventTime,
) -> Delegation {
    Delegation {
        session,
        parent: None,
        depth: 0,
        story: None,
        label,
        agent,
        model: None,
        worker: None,
        call: 0,
        index: 0,
        task: String::new(),
        state: DelegationState::Queued,
        admitted: moment,
        started: None,
        leg: None,
        worked: Duration::ZERO,
        ended: None,
        timeout_s: None,
        deadline: None,
        own: Spend::default(),
        inclusive: Spend::default(),
        turns: 0,
        tool_calls: 0,
        continuations: 0,
        failed_calls: 0,
        refused_calls: 0,
        last_command: None,
        verify: None,
        from_base: Vec::new(),
        notes: Vec::new(),
        note_count: 0,
        last_text: String::new(),
        files: Vec::new(),
        reason: None,
        number: None,
        returned: None,
        returned_errors: Vec::new(),
        marked: None,
        space: None,
        printed: None,
        sandbox: None,
        kept: None,
        merged_after_run: None,
        hours: None,
        merged: None,
        checked: None,
        unread_markers: Vec::new(),
        is_unkept: false,
        is_keeping: false,
        wanted: Vec::new(),
        has_own_space: false,
        changed: std::collections::BTreeSet::new(),
        warnings: Vec::new(),
        late: Vec::new(),
        earlier_models: Vec::new(),
        reopened: false,
        crash: None,
        retry: None,
        last_error: None,
        pause: None,
        hosts: Vec::new(),
        open: None,
        is_priced: true,
        children: Vec::new(),
        call_sizes: std::collections::BTreeMap::new(),
        files_seen: std::collections::BTreeSet::new(),
        preparing: std::collections::BTreeMap::new(),
        asked: Vec::new(),
        under_way: Vec::new(),
        since: moment.at,
        heard: moment.at,
        bytes: 0,
        text_end: String::new(),
    }
}
