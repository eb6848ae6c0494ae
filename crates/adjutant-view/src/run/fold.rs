//! How each event changes the view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::budget::{Amount, Reservation, Settlement};
use adjutant_core::contract::Return;
use adjutant_core::tree::{CALLS_PER_TURN, WHOLE_RUN};
use adjutant_core::{
    AgentName, Code, ErrorKind, Event, Found, Grant, Label, ModelSpec, Outcome, Policy, Reason,
    RunId, SessionId, State, Timestamp, ToolCall, ToolOutput,
};

use super::markers::markers_in;
use super::{
    Call, Delegation, LateArrival, OpenApproval, Pause, Retry, RunView, Spend, Texts, Warning,
};
use crate::entry::{Entry, Moment};
use crate::layout::excerpt;
use crate::results::in_words;

/// The most characters of a task, and of a late arrival, that the view keeps.
const TEXT_KEPT: usize = 200;
/// The most characters of a goal that a view without texts keeps: a whole diff may be piped in.
const GOAL_KEPT: usize = 1_000;
/// The most characters of a reason that a view without texts keeps: it may quote a whole answer.
const REASON_KEPT: usize = 1_000;

pub(super) fn apply(view: &mut RunView, entry: Entry<'_>) {
    view.events += 1;
    // A run does not go on because a person put a tick behind one of its errors, or a file back.
    if !matches!(entry.event, Event::ErrorFixed { .. } | Event::Undone { .. }) {
        view.latest = entry.moment();
    }
    match entry.event {
        Event::RunStarted { run, agent, goal, workdir, policy, version, model, terms } => {
            view.terms.clone_from(terms);
            view.goal = view.texts.start_of(goal, GOAL_KEPT);
            view.workdir.clone_from(workdir);
            view.version.clone_from(version);
            view.begin(entry.moment(), *run, agent, policy, model.as_ref());
        }
        Event::Granted(grant) => view.granted(entry.moment(), grant),
        Event::Refused { .. } => view.refused(entry),
        Event::ApprovalAsked { parent, call, hash, expires } => {
            let waiting = if *call == WHOLE_RUN {
                view.root_waits()
            } else {
                view.waiting_in(*parent, *call)
            };
            let hash = hash.clone();
            view.approvals.push(OpenApproval {
                parent: *parent,
                call: *call,
                hash,
                expires: *expires,
                waiting,
            });
        }
        Event::AutoApproved { amount, .. } => view.auto_approved += *amount,
        Event::Approved { hash, .. } => view.answered(hash, true),
        Event::Denied { hash, .. } => view.answered(hash, false),
        Event::Overran { session, amount } => view.overran(*session, *amount),
        Event::RunEnded { outcome } => {
            view.outcome = Some(*outcome);
            view.ended = Some(entry.moment());
            view.command_ends(entry, *outcome);
        }
        Event::ErrorFixed { id } => view.faults.fix(id),
        Event::Resumed { model, deadlines, questions_until, terms, .. } => {
            if terms.is_some() {
                view.terms.clone_from(terms);
            }
            view.resumed(model.as_ref(), deadlines, *questions_until);
        }
        Event::Reopened(reopening) => {
            let model = view.model_now.clone();
            if let Some(&place) = view.by_session.get(&reopening.session) {
                view.delegations[place].switch(model.as_ref());
            }
            view.within(reopening.session, entry);
        }
        Event::Assigned(assignment) => view.assignment = Some(assignment.clone()),
        Event::StoryTaken { story, deadline } => {
            if let Some(root) = view.delegations.first_mut() {
                root.label = story.label();
                root.story = Some(story.id.clone());
                root.wanted = story.plan.iter().map(|task| task.description.clone()).collect();
                root.deadline = *deadline;
            }
            view.story = Some(story.clone());
        }
        Event::AgentDefined { .. }
        | Event::Delegated { .. }
        | Event::DomainAllowed { .. }
        | Event::Undone { .. }
        | Event::DomainDenied { .. } => {}
        Event::Started { session, .. }
        | Event::Reserved { session, .. }
        | Event::Replied { session, .. }
        | Event::AttemptFailed { session, .. }
        | Event::Settled { session, .. }
        | Event::Progressed { session, .. }
        | Event::Paused { session, .. }
        | Event::DomainAsked { session, .. }
        | Event::Messaged { session, .. }
        | Event::Told { session, .. }
        | Event::ToolCalled { session, .. }
        | Event::ToolRefused { session, .. }
        | Event::ToolReturned { session, .. }
        | Event::WritePrepared { session, .. }
        | Event::Judged { session, .. }
        | Event::MarkersRead { session, .. }
        | Event::Checking { session, .. }
        | Event::Checked { session, .. }
        | Event::Merged { session, .. }
        | Event::Marked { session, .. }
        | Event::Printed { session, .. }
        | Event::SpaceKept { session, .. }
        | Event::Crashed { session, .. }
        | Event::Late { session, .. }
        | Event::Ended { session, .. } => view.within(*session, entry),
        Event::SpaceMade { session, space } => {
            for remark in &space.remarks {
                view.remarked.entry(remark.clone()).or_insert(*session);
            }
            view.within(*session, entry);
        }
    }
}

impl RunView {
    fn begin(
        &mut self,
        moment: Moment,
        run: RunId,
        agent: &AgentName,
        policy: &Policy,
        model: Option<&ModelSpec>,
    ) {
        // A run begins once; a second beginning would orphan everything below the first.
        if self.run.is_some() {
            return;
        }
        self.run = Some(run);
        self.began = Some(moment);
        self.policy = Some(Box::new(policy.clone()));
        let label = Label::new("root").unwrap_or_else(|_| Label::unnamed());
        let mut root = blank(run.root_session(), label, agent.clone(), moment);
        root.state = State::Running;
        root.started = Some(moment);
        root.leg = Some(moment);
        root.task = excerpt(&self.goal, TEXT_KEPT);
        root.path = vec![agent.to_string()];
        root.model = model.map(|model| model.name.clone());
        root.is_priced = model.is_some_and(|model| model.price.is_some());
        self.by_session.insert(root.session, self.delegations.len());
        self.delegations.push(root);
    }

    fn granted(&mut self, moment: Moment, grant: &Grant) {
        let brief = &grant.brief;
        let mut node = blank(grant.session, brief.label.clone(), brief.agent.clone(), moment);
        node.call = grant.call;
        node.index = grant.index;
        node.task = excerpt(&brief.prompt, TEXT_KEPT);
        node.number = grant.task;
        node.path.clone_from(&grant.path);
        node.model = brief.model.as_ref().map(|model: &ModelSpec| model.name.clone());
        node.is_priced = brief.model.as_ref().is_some_and(|model| model.price.is_some());
        node.story.clone_from(&brief.story);
        node.hours = brief.hours;
        node.has_own_space = grant.rights.has_own_space();
        node.timeout_s = grant.timeout_s;
        node.warnings = warnings(grant);
        if grant.awaiting_approval {
            node.state = State::AwaitingApproval;
        }
        self.adopt(grant.parent, node);
    }

    fn refused(&mut self, entry: Entry<'_>) {
        let Event::Refused { session, parent, call, index, label, agent, story, reason } =
            entry.event
        else {
            return;
        };
        let mut node = blank(*session, label.clone(), agent.clone(), entry.moment());
        node.call = *call;
        node.index = *index;
        node.story.clone_from(story);
        node.state = State::Ended(Outcome::Refused);
        node.ended = Some(entry.moment());
        let reason = self.texts.reason(reason);
        node.reason = Some(reason.clone());
        self.adopt(*parent, node);
        self.failed(entry, *session, Outcome::Refused, Some(&reason));
    }

    fn adopt(&mut self, parent: SessionId, mut node: Delegation) {
        // Without a root there is nothing to hang it on; the root takes in what names no parent.
        let above = self.by_session.get(&parent).copied().unwrap_or(0);
        if self.delegations.is_empty() || self.by_session.contains_key(&node.session) {
            return;
        }
        let place = self.delegations.len();
        let above = &mut self.delegations[above];
        node.parent = Some(above.session);
        node.depth = above.depth + 1;
        above.children.push(place);
        *above.call_sizes.entry(node.call).or_default() += 1;
        self.by_session.insert(node.session, place);
        self.delegations.push(node);
    }

    /// The root has not begun after all: a person is asked about the whole run. Returns its place.
    fn root_waits(&mut self) -> Vec<usize> {
        let Some(root) = self.delegations.first_mut() else { return Vec::new() };
        (root.state, root.started, root.leg) = (State::AwaitingApproval, None, None);
        vec![0]
    }

    /// Returns the places of the delegations of a call that wait for a person.
    fn waiting_in(&self, parent: SessionId, call: u32) -> Vec<usize> {
        let Some(parent) = self.delegation(parent) else { return Vec::new() };
        let latest = parent.children.iter().rev().copied();
        latest
            .take_while(|&child| self.delegations[child].call == call)
            .filter(|&child| self.delegations[child].state == State::AwaitingApproval)
            .collect()
    }

    fn answered(&mut self, hash: &str, yes: bool) {
        let Some(open) = self.approvals.iter().position(|open| open.hash == hash) else { return };
        let open = self.approvals.remove(open);
        for place in open.waiting {
            let child = &mut self.delegations[place];
            if yes && child.state == State::AwaitingApproval {
                child.state = State::Queued;
            }
        }
    }

    fn resumed(
        &mut self,
        model: Option<&ModelSpec>,
        deadlines: &BTreeMap<SessionId, Timestamp>,
        questions_until: Timestamp,
    ) {
        self.outcome = None;
        self.ended = None;
        self.model_now = model.cloned();
        for node in self.delegations.iter_mut().filter(|node| node.state.is_live()) {
            node.switch(model);
            node.deadline = deadlines.get(&node.session).copied().or(node.deadline);
        }
        for open in &mut self.approvals {
            open.expires = questions_until;
        }
        if let Some(root) = self.delegations.first_mut().filter(|root| root.model.is_none()) {
            root.state = State::Running;
            root.ended = None;
        }
    }

    fn overran(&mut self, session: SessionId, amount: Amount) {
        self.spend(session, |spend, _| spend.overrun = spend.overrun.plus(amount));
    }

    /// Counts the calls that were under way when the run died: what nobody reported counts in full.
    pub fn close_open_calls(&mut self) {
        let open: Vec<(SessionId, Reservation)> = self
            .delegations
            .iter_mut()
            .filter_map(|node| Some((node.session, node.open.take()?)))
            .collect();
        for (session, reservation) in open {
            self.settle(session, &Settlement::estimated(&reservation));
        }
    }

    fn settle(&mut self, session: SessionId, settlement: &Settlement) {
        self.spend(session, |spend, is_priced| spend.settle(settlement, is_priced));
    }

    /// Changes what a delegation, all above it and the run have spent.
    fn spend(&mut self, session: SessionId, change: impl Fn(&mut Spend, bool)) {
        // What nobody owns is still paid for: it counts at the root.
        let place = self.by_session.get(&session).copied().unwrap_or(0);
        let Some(node) = self.delegations.get_mut(place) else {
            change(&mut self.total, true);
            return;
        };
        // A price that is not known leaves no cost; the root's model is not recorded, its cost is.
        let is_priced = node.is_priced;
        change(&mut node.own, is_priced);
        change(&mut self.total, is_priced);
        let mut scope = Some(place);
        while let Some(place) = scope {
            let node = &mut self.delegations[place];
            change(&mut node.inclusive, is_priced);
            scope = node.parent.and_then(|parent| self.by_session.get(&parent).copied());
        }
    }

    /// Folds in an event in the life of a delegation.
    fn within(&mut self, session: SessionId, entry: Entry<'_>) {
        if let Event::Replied { settlement, .. }
        | Event::AttemptFailed { settlement, .. }
        | Event::Settled { settlement, .. } = entry.event
        {
            self.settle(session, settlement);
            if let Some(&place) = self.by_session.get(&session) {
                self.delegations[place].open = None;
            }
        }
        let Some(&place) = self.by_session.get(&session) else { return };
        if let (Event::Replied { text, .. }, true) = (entry.event, self.story.is_some()) {
            self.delegations[place].wanted = markers_in(text);
        }
        self.delegations[place].take(entry, self.texts);
        if let Event::Ended { outcome, reason, .. } = entry.event {
            let mut reason = reason.as_ref().map(|reason| self.texts.reason(reason));
            let refused_key = self.delegations[place].last_error == Some(ErrorKind::Authentication);
            if let Some(reason) = reason.as_mut().filter(|it| it.code == Code::ProviderError) {
                // Nothing gets better by itself: a person has to give another key.
                reason.recoverable &= !refused_key;
            }
            self.failed(entry, session, *outcome, reason.as_ref());
        }
    }

    /// Work that was taken up again by itself, below a command that had ended, says how that command
    /// ends now: nobody asks its agent again.
    fn command_ends(&mut self, entry: Entry<'_>, outcome: Outcome) {
        let Some(root) = self.delegations.first_mut().filter(|_| self.assignment.is_some()) else {
            return;
        };
        if root.state == State::Ended(outcome) {
            return;
        }
        let session = root.session;
        root.state = State::Ended(outcome);
        root.reason = None;
        self.failed(entry, session, outcome, None);
    }

    /// Remembers an end that is an error; one that is none settles what went wrong before.
    fn failed(
        &mut self,
        entry: Entry<'_>,
        session: SessionId,
        outcome: Outcome,
        reason: Option<&Reason>,
    ) {
        let Some(run) = self.run else { return };
        self.faults.take(run, session, entry.moment(), outcome, reason);
    }
}

impl Texts {
    /// Returns a text, or no more of it than a view without texts shows.
    pub(super) fn start_of(self, text: &str, max: usize) -> String {
        match self {
            Self::Kept => text.to_owned(),
            Self::Dropped => excerpt(text, max),
        }
    }

    fn reason(self, reason: &Reason) -> Reason {
        Reason { message: self.start_of(&reason.message, REASON_KEPT), ..reason.clone() }
    }
}

impl Delegation {
    /// Goes on with another model; what was paid so far was paid to the one before.
    fn switch(&mut self, model: Option<&ModelSpec>) {
        let Some(model) =
            model.filter(|model| self.model.as_ref().is_some_and(|it| *it != model.name))
        else {
            return;
        };
        self.earlier_models = self.by_model();
        self.model = Some(model.name.clone());
        self.is_priced = model.price.is_some();
    }

    fn take(&mut self, entry: Entry<'_>, texts: Texts) {
        match entry.event {
            Event::Started { deadline, .. } => {
                self.state = State::Running;
                self.started = self.started.or(Some(entry.moment()));
                self.leg = Some(entry.moment());
                self.ended = None;
                self.deadline = *deadline;
                self.waits_since(entry);
            }
            Event::Reserved { reservation, .. } => {
                self.open = Some(*reservation);
                self.turns = reservation.turn;
                self.retry = None;
                self.waits_since(entry);
            }
            Event::Replied { text, tool_calls, .. } => {
                self.last_error = None;
                self.replied(entry, text, tool_calls, texts);
            }
            Event::AttemptFailed { error, attempt, retry_at, .. } => {
                self.last_error = Some(error.kind);
                self.retry = retry_at.map(|at| Retry { attempt: *attempt, at, kind: error.kind });
                self.waits_since(entry);
            }
            Event::Progressed { bytes, .. } => {
                self.bytes = self.bytes.saturating_add(*bytes);
                self.heard = entry.at;
                self.pause = None;
            }
            Event::Paused { provider, until, .. } => {
                self.pause = Some(Pause { provider: provider.clone(), until: *until });
            }
            Event::DomainAsked { call, host, .. } => self.hosts.push((*call, host.clone())),
            Event::ToolRefused { call, .. } => self.hosts.retain(|(waits, _)| waits != call),
            Event::ToolCalled { call, .. } => {
                self.hosts.retain(|(waits, _)| waits != call);
                self.tool_calls += 1;
                self.under_way.push(*call);
            }
            Event::ToolReturned { call, output, .. } => self.answered(entry, *call, output, texts),
            Event::WritePrepared { call, change, .. } => {
                self.preparing.insert(*call, Arc::from(change.path.as_str()));
            }
            Event::Judged { returned: Some(returned), .. } => self.handed_back(returned, texts),
            Event::Printed { text, .. } => {
                let last = text.lines().rev().find(|line| !line.trim().is_empty());
                self.printed = last.map(|line| excerpt(line, TEXT_KEPT));
            }
            Event::SpaceMade { space, .. } => self.space = Some(Box::new(space.clone())),
            Event::SpaceKept { kept, problem, .. } => {
                self.kept = Some(Box::new((kept.clone(), problem.clone())));
                self.is_keeping = false;
                self.lower(problem.is_some() || !kept.left.is_empty());
            }
            Event::Merged { merged, problem, .. } => {
                self.merged = Some(Box::new((merged.clone(), problem.clone())));
            }
            Event::Checked { passed, .. } => {
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
            Event::Crashed { message, .. } => {
                self.crash = Some(texts.start_of(message, REASON_KEPT))
            }
            Event::Late { what, text, .. } => {
                self.late.push(LateArrival { what: what.clone(), text: excerpt(text, TEXT_KEPT) })
            }
            Event::Ended { outcome, reason, .. } => {
                self.state = State::Ended(*outcome);
                self.is_keeping = self.space.is_some();
                self.ended = Some(entry.moment());
                self.reason = reason.as_ref().map(|reason| texts.reason(reason));
                self.retry = None;
                self.pause = None;
                self.hosts = Vec::new();
                self.under_way = Vec::new();
                self.asked = Vec::new();
            }
            Event::Reopened(_) => {
                self.state = if self.parent.is_none() { State::Running } else { State::Queued };
                // What it did not work on itself, while others went on, does not count.
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
            | Event::Judged { returned: None, .. }
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
            | Event::DomainAllowed { .. }
            | Event::DomainDenied { .. }
            | Event::RunEnded { .. }
            | Event::Undone { .. }
            | Event::ErrorFixed { .. } => {}
        }
    }

    /// Takes a return that was accepted; people read it in words, not as the JSON it came as.
    fn handed_back(&mut self, returned: &Return, texts: Texts) {
        if texts == Texts::Kept {
            self.last_text = in_words(returned);
            self.returned = Some(Box::new(returned.clone()));
        }
    }

    fn waits_since(&mut self, entry: Entry<'_>) {
        self.pause = None;
        self.since = entry.at;
        self.heard = entry.at;
        self.bytes = 0;
    }

    fn replied(&mut self, entry: Entry<'_>, text: &str, tool_calls: &[ToolCall], texts: Texts) {
        if texts == Texts::Kept && !text.trim().is_empty() {
            text.clone_into(&mut self.last_text);
        }
        self.asked.clear();
        self.asked.extend(tool_calls.iter().take(CALLS_PER_TURN).map(Call::of));
        self.under_way.clear();
        self.waits_since(entry);
    }

    /// Work that nobody can look at is no success, as it is none in how the run ends.
    fn lower(&mut self, is_unkept: bool) {
        let (from, to) = if is_unkept {
            (Outcome::Completed, Outcome::Partial)
        } else {
            (Outcome::Partial, Outcome::Completed)
        };
        if is_unkept != self.is_unkept && self.state == State::Ended(from) {
            self.state = State::Ended(to);
            self.is_unkept = is_unkept;
        }
    }

    fn answered(&mut self, entry: Entry<'_>, call: u32, output: &ToolOutput, texts: Texts) {
        self.under_way.retain(|&other| other != call);
        self.printed = None;
        if output.sandbox.is_some() {
            self.sandbox.clone_from(&output.sandbox);
        }
        if let Some(note) = &output.note {
            self.note_count += 1;
            if texts == Texts::Dropped {
                self.notes.clear();
            }
            self.notes.push(texts.start_of(note, TEXT_KEPT));
        }
        for path in &output.touched {
            if texts == Texts::Kept && !self.files_seen.contains(path.as_str()) {
                let path: Arc<str> = path.as_str().into();
                self.files_seen.insert(Arc::clone(&path));
                self.files.push(path);
            }
        }
        let changed = self.preparing.remove(&call).filter(|_| !output.is_error);
        self.changed.extend(changed);
        self.waits_since(entry);
    }
}

pub(crate) fn warnings(grant: &Grant) -> Vec<Warning> {
    let context = grant.brief.context.iter().filter_map(|file| match file.found {
        Found::Missing => Some(Warning::MissingContext(file.path.clone())),
        Found::Lossy => Some(Warning::LossyContext(file.path.clone())),
        Found::Loaded | Found::Unusable(_) => None,
    });
    let clamped = grant.clamped.then_some(Warning::Clamped(grant.timeout_s));
    context.chain(clamped).collect()
}

fn blank(session: SessionId, label: Label, agent: AgentName, moment: Moment) -> Delegation {
    Delegation {
        session,
        parent: None,
        depth: 0,
        story: None,
        label,
        agent,
        model: None,
        call: 0,
        index: 0,
        task: String::new(),
        state: State::Queued,
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
        notes: Vec::new(),
        note_count: 0,
        last_text: String::new(),
        files: Vec::new(),
        reason: None,
        path: Vec::new(),
        number: None,
        returned: None,
        marked: None,
        space: None,
        printed: None,
        sandbox: None,
        kept: None,
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
    }
}
