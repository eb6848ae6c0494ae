//! The status of runs: one line each in a list, or everything about one.
//!
//! An [`ObservedRun`] is a run with the time and circumstances of looking at it;
//! [`ContentRetention`] says whether its texts are still stored or have expired.

mod json;
mod table;

use std::borrow::Cow;
use std::fmt::Write;

use adjutant_core::{DelegationState, SessionId, Timestamp};

use crate::layout::{columns, cut, fit};
use crate::palette::{Palette, TextStyle};
use crate::progress;
use crate::receipt::{Receipt, Verification};
use crate::results::{answer_command, resume_command};
use crate::run::{Delegation, ESTIMATE_NOTE, ProcessLiveness, RunView};
use crate::sanitize;
use crate::state_words::{
    continuations_text, count_with_noun, is_interrupted, mark_now, state_word,
};
use crate::story::{ChildMerge, StoryNode, name, numbered_name};
use crate::time_text::{elapsed, rfc3339};
use crate::worker_text::{agent_text, calls_text, report_text, resumed_text};

pub use json::{DelegationJson, RunJson, RunningToolJson, StatusJson, detail_json, list_json};
pub use table::{RunUrgency, table, urgency};

/// The maximum number of running delegations that a list shows per run.
const SHOWN_AT_WORK: usize = 8;

/// A run at the moment its status is shown.
#[derive(Clone, Copy, Debug)]
pub struct ObservedRun<'a> {
    /// The run.
    pub view: &'a RunView,
    /// Whether its process is alive.
    pub liveness: ProcessLiveness,
    /// The current time on the run's own clock; ignored for a dead run.
    pub now: Timestamp,
    /// Whether its texts are still stored; without them it cannot be resumed.
    pub content: ContentRetention,
    /// The program name at the start of recommended commands.
    pub program: &'a str,
}

/// The maximum width of a question within a line, in columns.
const QUESTION_COLUMNS: usize = 80;

/// A question that ended a subagent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentQuestion {
    /// The label of the subagent.
    pub label: String,
    /// The question, safe for a terminal and cut to a line.
    pub question: String,
    /// The command that answers it.
    pub command: String,
}

/// Whether the texts of a run are still stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentRetention {
    /// Everything is stored.
    #[default]
    Kept,
    /// Only metadata and cost are.
    Expired,
}

impl ObservedRun<'_> {
    /// Returns what the run was started for, cut to a short line.
    #[must_use]
    pub fn title(&self) -> String {
        self.title_up_to(60)
    }

    fn title_up_to(&self, columns: usize) -> String {
        fit(&goal_as_typed(self.view), columns)
    }

    /// Returns the goal of the run, or the labels of its tasks if it has none.
    #[must_use]
    pub fn goal_or_labels(&self) -> String {
        let goal = self.title_up_to(TITLE_COLUMNS);
        if !goal.is_empty() {
            return goal;
        }
        let root: Option<SessionId> = self.view.root().map(|root| root.session);
        let is_task = |it: &&Delegation| it.parent.is_some() && it.parent == root;
        let tasks = self.view.delegations().filter(is_task).take(TITLE_LABELS);
        tasks.map(|it| sanitize::label(it.label.as_str())).collect::<Vec<_>>().join(", ")
    }

    /// Returns the mark and the word for the state of the run: `→ running`.
    #[must_use]
    pub fn state_text(&self) -> String {
        format!("{} {}", mark_now(&self.view.state(), self.liveness), self.state())
    }

    /// Returns the style of a state.
    #[must_use]
    pub const fn style_of(&self, state: &DelegationState) -> TextStyle {
        if is_interrupted(state, self.liveness) { TextStyle::Bad } else { TextStyle::of(state) }
    }

    /// Returns what a delegation is doing, with its mark: `→ Read src/lib.rs`.
    #[must_use]
    pub fn activity_line(&self, delegation: &Delegation, columns: usize) -> String {
        let doing = if is_interrupted(&delegation.state, self.liveness) {
            "interrupted".into()
        } else {
            progress::doing_text(self.view, delegation, self.now, columns)
        };
        format!("{} {doing}", mark_now(&delegation.state, self.liveness))
    }

    /// Returns the number and the label of a delegation: `#2 [tests]`, at most `columns` wide.
    #[must_use]
    pub fn name_of(&self, delegation: &Delegation, columns: usize) -> String {
        cut(&numbered_name(self.view, delegation, columns), columns)
    }

    /// Returns the time, the cost and the tokens of a delegation, as far as it has any.
    #[must_use]
    pub fn figures_of(&self, delegation: &Delegation) -> Vec<String> {
        let spent = Some(&delegation.inclusive).filter(|spent| spent.calls > 0);
        let spent = spent.map(|spent| [spent.money(), spent.tokens_short()]);
        let time = self.elapsed_of(delegation).map(elapsed);
        time.into_iter().chain(spent.into_iter().flatten()).collect()
    }

    /// Returns everything about one delegation, below a heading, with its receipt.
    #[must_use]
    pub fn delegation_text(&self, delegation: &Delegation) -> String {
        let mut text = block(self, delegation, Palette::Plain);
        let receipt = Receipt::of(delegation);
        let mut line = |title: &str, value: &str| _ = writeln!(text, "  {title:<9}{value}");
        if receipt.worker.is_some() || receipt.tool_calls + receipt.refused > 0 {
            line("receipt", &receipt.line());
        }
        let verified = receipt.verification_line(Verification::of(delegation));
        verified.into_iter().for_each(|it| line("verified", &it));
        receipt.check_line().into_iter().for_each(|it| line("checks", &it));
        if !delegation.task.is_empty() {
            line("task", &fit(&sanitize::collapsed(&delegation.task), 200));
        }
        text
    }

    fn state(&self) -> &'static str {
        state_word(&self.view.state(), self.liveness)
    }

    /// Returns the command that resumes the run, if it was interrupted and can be resumed.
    #[must_use]
    pub fn resume(&self) -> Option<String> {
        let left_behind = is_interrupted(&self.view.state(), self.liveness);
        let run =
            self.view.run().filter(|_| left_behind && self.content == ContentRetention::Kept)?;
        Some(resume_command(self.view, run, self.program))
    }

    /// Returns the questions that ended its subagents, each with the command that answers it. They can be answered once
    /// the run has ended.
    #[must_use]
    pub fn agent_questions(&self) -> Vec<AgentQuestion> {
        if self.liveness == ProcessLiveness::Alive || self.content == ContentRetention::Expired {
            return Vec::new();
        }
        let question = |it: &Delegation| {
            let question = fit(&sanitize::collapsed(it.open_question()?), QUESTION_COLUMNS);
            let command = answer_command(self.view, it.session, self.program);
            Some(AgentQuestion { label: sanitize::label(it.label.as_str()), question, command })
        };
        self.view.delegations().filter_map(question).collect()
    }

    /// Explains how to continue an interrupted run, or why that is not possible.
    #[must_use]
    pub fn how_to_continue(&self) -> Option<String> {
        if self.content == ContentRetention::Expired {
            return Some(EXPIRED.into());
        }
        self.resume().map(|command| format!("`{command}` continues it"))
    }

    fn activity_text(&self, delegation: &Delegation) -> String {
        if is_interrupted(&delegation.state, self.liveness) {
            return "interrupted".into();
        }
        progress::activity_text(delegation, self.now, progress::WORDS_COLUMNS)
    }

    /// Returns the time until the deadline of a running delegation.
    fn time_left(&self, delegation: &Delegation) -> Option<std::time::Duration> {
        let works =
            delegation.state == DelegationState::Running && self.liveness == ProcessLiveness::Alive;
        delegation.deadline.filter(|_| works).map(|at| at.since(self.now))
    }

    /// Returns the delegations of a run, or one and everything below it.
    fn delegations(&self, of: Option<SessionId>) -> Vec<&Delegation> {
        let one = of.and_then(|session| self.view.delegation(session));
        match one.filter(|one| one.parent.is_some()) {
            Some(one) => self.view.subtree(one),
            None => self.view.preorder().into_iter().skip(1).collect(),
        }
    }

    /// Returns the root if it has an agent. A root that only delegates has nothing to show.
    fn root_agent(&self, of: Option<SessionId>) -> Option<&Delegation> {
        let root = self.view.root().filter(|root| root.model.is_some())?;
        of.is_none_or(|session| session == root.session).then_some(root)
    }

    fn elapsed_of(&self, delegation: &Delegation) -> Option<std::time::Duration> {
        delegation.elapsed_in(self.now, self.view.latest().at, self.liveness)
    }
}

/// The maximum width of a title, in columns.
const TITLE_COLUMNS: usize = 120;
/// The maximum number of labels in a title.
const TITLE_LABELS: usize = 20;

/// Explains what it means that the sandbox is off.
const SANDBOX_OFF: &str = "off: commands run as you, with all your rights";

/// The message for a run whose texts were pruned.
const EXPIRED: &str = "not resumable (expired)";

/// Lists runs, one line each; below a live run its activity, below a dead one how to continue.
#[must_use]
pub fn list(runs: &[ObservedRun<'_>]) -> String {
    if runs.is_empty() {
        return "no runs\n".into();
    }
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|look| {
            let view = look.view;
            let all = view.outcomes();
            vec![
                view.run().map_or_else(|| "?".into(), |run| run.to_string()),
                look.state_text(),
                format!(
                    "{}: {}",
                    count_with_noun(all.total(), "subagent"),
                    all.words_in(look.liveness)
                ),
                view.total().tokens_short(),
                view.total().money(),
                progress::time(view, look.now, look.liveness),
                look.title(),
            ]
        })
        .collect();
    let mut text = String::new();
    for (line, look) in columns(&rows, &[4, 5]).lines().zip(runs) {
        text.push_str(line);
        text.push('\n');
        if look.view.sandbox() == Some("off") {
            let _ = writeln!(text, "  sandbox {SANDBOX_OFF}");
        }
        text.push_str(&live_activity(look));
        if is_interrupted(&look.view.state(), look.liveness) {
            text.extend(look.how_to_continue().map(|way| format!("  {way}\n")));
        }
    }
    if runs.iter().any(|look| look.view.total().is_estimated()) {
        let _ = writeln!(text, "{ESTIMATE_NOTE}");
    }
    text
}

/// Returns the goal as a person knows it: the name of a story, or the first line of a command as it was
/// typed.
fn goal_as_typed(view: &RunView) -> Cow<'_, str> {
    if let Some(story) = view.story() {
        return format!("{} {}", story.id, story.title).into();
    }
    let goal = view.goal();
    let line = goal.lines().next().unwrap_or_default();
    if view.assignment().is_some() { line.into() } else { goal.into() }
}

/// Returns what the delegations of a live run are doing, one line each.
fn live_activity(look: &ObservedRun<'_>) -> String {
    if look.liveness == ProcessLiveness::Dead {
        return String::new();
    }
    let nodes = look.root_agent(None).into_iter().chain(look.delegations(None));
    let live: Vec<&Delegation> = nodes.filter(|node| node.state.is_live()).collect();
    let mut text = String::new();
    for node in live.iter().take(SHOWN_AT_WORK) {
        let label = name(look.view, node, 34);
        let left = look.time_left(node).map(|left| format!(" · {} left", elapsed(left)));
        let spent = if node.own.calls > 0 {
            format!(" · {} · {}", node.own.tokens_short(), node.own.money())
        } else {
            String::new()
        };
        let doing = look.activity_text(node);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "  {label} {doing}{spent}{}", left.unwrap_or_default());
    }
    if live.len() > SHOWN_AT_WORK {
        let _ = writeln!(text, "  … {} more", live.len() - SHOWN_AT_WORK);
    }
    text
}

/// Returns everything about one run, or about one delegation and everything below it.
#[must_use]
pub fn detail(look: &ObservedRun<'_>, of: Option<SessionId>, palette: Palette) -> String {
    let view = look.view;
    let mut text = head(look, palette);
    for delegation in look.root_agent(of).into_iter().chain(look.delegations(of)) {
        text.push('\n');
        text.push_str(&block(look, delegation, palette));
    }
    for open in view.approvals() {
        let hash = fit(&open.hash, 12);
        let _ = write!(
            text,
            "\ncall {} waits for approval ({hash}); `{} approvals` shows it\n",
            open.call, look.program
        );
    }
    let sum = progress::total(view, look.now, look.liveness);
    let _ = write!(text, "\n{sum}\n");
    text
}

fn head(look: &ObservedRun<'_>, palette: Palette) -> String {
    let view = look.view;
    let name = view.run().map_or_else(|| "run".into(), |run| run.to_string());
    let state = look.state_text();
    let style = look.style_of(&view.state());
    let mut rows = Vec::new();
    let mut row = |title: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![title.to_owned(), value]);
        }
    };
    // The goal of a story is its prompt, which `transcript` shows.
    let title = if view.story().is_some() { "story" } else { "goal" };
    row(title, fit(&goal_as_typed(view), 120));
    row("in", fit(view.workdir(), 120));
    row("preset", view.policy().map(|policy| policy.preset.to_string()).unwrap_or_default());
    let sandbox = view.sandbox().map(|word| if word == "off" { SANDBOX_OFF } else { word });
    row("sandbox", sandbox.unwrap_or_default().to_owned());
    row("began", view.started_at().map(|moment| rfc3339(moment.wall_ms)).unwrap_or_default());
    row("ended", view.ended_at().map(|moment| rfc3339(moment.wall_ms)).unwrap_or_default());
    row("next", look.how_to_continue().unwrap_or_default());
    format!("{name} {}\n{}", palette.paint(style, &state), columns(&rows, &[]))
}

fn block(look: &ObservedRun<'_>, delegation: &Delegation, palette: Palette) -> String {
    let style = look.style_of(&delegation.state);
    let state = format!(
        "{} {}",
        mark_now(&delegation.state, look.liveness),
        look.activity_text(delegation)
    );
    let label = numbered_name(look.view, delegation, 34);
    let mut text = format!("{label} {}\n", palette.paint(style, &state));
    let mut line = |title: &str, value: &str| {
        let _ = writeln!(text, "  {title:<9}{value}");
    };
    line("session", &delegation.session.to_string());
    let model = delegation.model.as_deref().unwrap_or("no model");
    let (agent, model) = (agent_text(delegation), fit(model, 60));
    line("agent", &format!("{agent}, {model}, depth {}", delegation.depth));
    let worker = delegation.worker.as_deref();
    if delegation.own.calls > 0 || worker.is_some_and(|it| it.refused_calls > 0) {
        let turns = count_with_noun(delegation.turns as usize, "turn");
        let tools = count_with_noun(delegation.tool_calls as usize, "tool call");
        line(
            "spent",
            &format!(
                "{} · {} · {turns}, {}{tools}{}",
                delegation.own.tokens_full(),
                delegation.own.money(),
                worker.map(|it| format!("{}, ", calls_text(it))).unwrap_or_default(),
                continuations_text(delegation).map(|text| format!(", {text}")).unwrap_or_default()
            ),
        );
    }
    if let Some(worker) = worker {
        if let Some(report) = worker.differing_report() {
            line("report", &report_text(&worker.name, report));
        }
        if let Some(how) = resumed_text(worker.session_start) {
            line("resumed", how);
        }
    }
    if let Some(story) = StoryNode::of(look.view, delegation) {
        story_lines(delegation, &story, &mut line);
    }
    if let Some(time) = look.elapsed_of(delegation) {
        let left = look.time_left(delegation).map(|left| format!(", {} left", elapsed(left)));
        line("time", &format!("{}{}", elapsed(time), left.unwrap_or_default()));
    }
    if let Some(sandbox) = look.view.sandbox_of(delegation) {
        line("sandbox", &fit(sandbox, 80));
    }
    if let Some(note) = delegation.notes.last() {
        line("notes", &format!("{}, latest: {}", delegation.note_count, fit(note, 80)));
    }
    if let Some(reason) = &delegation.reason {
        line("why", &fit(&sanitize::collapsed(&reason.message), 160));
        line("next", &fit(&reason.recommendation, 160));
    }
    for warning in &delegation.warnings {
        line("warning", &fit(&warning.to_string(), 160));
    }
    for late in &delegation.late {
        line("late", &fit(&late.what, 80));
    }
    text
}

/// Adds the inclusive cost of a story's node and the state of its work.
fn story_lines(delegation: &Delegation, story: &StoryNode, line: &mut impl FnMut(&str, &str)) {
    if delegation.own != delegation.inclusive {
        let all = &delegation.inclusive;
        line("total", &format!("{} · {}, with subagents", all.tokens_full(), all.money()));
    }
    let words = story.words();
    if !words.is_empty() {
        line("work", &words.join(" · "));
    }
    for path in &story.conflicts {
        line("conflict", &fit(path, 120));
    }
    let is_above = story.merge == Some(ChildMerge::Merged);
    if let Some(reference) = story.reference.as_deref().filter(|_| !is_above) {
        line("kept in", &fit(reference, 120));
    }
    for marker in &delegation.unread_markers {
        line("not run", &fit(marker, 160));
    }
}
