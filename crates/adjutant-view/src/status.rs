//! Where runs stand: a line each for a list, everything for one.

use std::fmt::Write;

use adjutant_core::{RunId, SessionId, Timestamp};
use serde::Serialize;

use crate::layout::{bracketed, columns, fit};
use crate::names::{counted, is_interrupted, mark_now, state_key, state_word};
use crate::palette::{Palette, Style};
use crate::progress;
use crate::run::{Activity, Delegation, Liveness, Outcomes, RunView, Warning};
use crate::sanitize;
use crate::when::{elapsed, rfc3339};
use crate::wire::{ReasonJson, SpendJson, VERSION, seconds};

/// A run, whether anyone works on it, and the instant it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The run.
    pub view: &'a RunView,
    /// Whether its writer is there.
    pub liveness: Liveness,
    /// Now, in the run's own time; of no account for a dead run.
    pub now: Timestamp,
}

impl Look<'_> {
    fn state(&self) -> &'static str {
        state_word(&self.view.state(), self.liveness)
    }

    fn doing(&self, delegation: &Delegation) -> String {
        if is_interrupted(&delegation.state, self.liveness) {
            return "interrupted".into();
        }
        progress::doing(delegation, self.now)
    }

    /// Says how long a delegation at work may still take, where it has a deadline.
    fn left(&self, delegation: &Delegation) -> String {
        let works = delegation.state.is_live() && self.liveness == Liveness::Alive;
        let deadline = delegation.deadline.filter(|_| works);
        deadline.map_or_else(String::new, |at| format!(", {} left", elapsed(at.since(self.now))))
    }

    fn elapsed_of(&self, delegation: &Delegation) -> Option<std::time::Duration> {
        delegation.elapsed_in(self.now, self.view.latest().at, self.liveness)
    }
}

/// Lists runs, a line each.
#[must_use]
pub fn list(runs: &[Look<'_>]) -> String {
    if runs.is_empty() {
        return "no runs\n".into();
    }
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|look| {
            let view = look.view;
            let all = Outcomes::of(view.delegations());
            vec![
                view.run().map_or_else(|| "?".into(), |run| run.to_string()),
                format!("{} {}", mark_now(&view.state(), look.liveness), look.state()),
                format!("{}: {}", counted(all.total(), "subagent"), words(&all, look.liveness)),
                view.total().tokens_short(),
                view.total().money(),
                elapsed(view.elapsed(look.now, look.liveness)),
                fit(view.goal(), 60),
            ]
        })
        .collect();
    columns(&rows, &[4, 5])
}

/// In a dead run nothing runs or waits any more.
fn words(all: &Outcomes, liveness: Liveness) -> String {
    if liveness == Liveness::Alive || all.live() == 0 {
        return all.words();
    }
    let ended = Outcomes { running: 0, waiting: 0, ..*all };
    let interrupted = format!("{} interrupted", all.live());
    if ended.total() == 0 { interrupted } else { format!("{interrupted}, {}", ended.words()) }
}

/// Says everything about one run.
#[must_use]
pub fn detail(look: &Look<'_>, palette: Palette) -> String {
    let view = look.view;
    let mut text = head(look, palette);
    for delegation in view.preorder().into_iter().skip(1) {
        text.push('\n');
        text.push_str(&block(look, delegation, palette));
    }
    for open in view.approvals() {
        let hash = fit(&open.hash, 12);
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, "\ncall {} waits for approval ({hash})\n", open.call);
    }
    let sum = progress::total(view, look.now, look.liveness);
    let _ = write!(text, "\n{sum}\n");
    text
}

fn head(look: &Look<'_>, palette: Palette) -> String {
    let view = look.view;
    let name = view.run().map_or_else(|| "run".into(), |run| run.to_string());
    let state = format!("{} {}", mark_now(&view.state(), look.liveness), look.state());
    let style = if is_interrupted(&view.state(), look.liveness) {
        Style::Bad
    } else {
        Style::of(&view.state())
    };
    let mut rows = Vec::new();
    let mut row = |title: &str, value: String| {
        if !value.is_empty() {
            rows.push(vec![title.to_owned(), value]);
        }
    };
    row("goal", fit(view.goal(), 120));
    row("in", fit(view.workdir(), 120));
    row("preset", view.policy().map(|policy| policy.preset.to_string()).unwrap_or_default());
    row("began", view.began().map(|moment| rfc3339(moment.wall_ms)).unwrap_or_default());
    row("ended", view.ended().map(|moment| rfc3339(moment.wall_ms)).unwrap_or_default());
    format!("{name} {}\n{}", palette.paint(style, &state), columns(&rows, &[]))
}

fn block(look: &Look<'_>, delegation: &Delegation, palette: Palette) -> String {
    let style = if is_interrupted(&delegation.state, look.liveness) {
        Style::Bad
    } else {
        Style::of(&delegation.state)
    };
    let state =
        format!("{} {}", mark_now(&delegation.state, look.liveness), look.doing(delegation));
    let label = bracketed(delegation.label.as_str(), 34);
    let mut text = format!("{label} {}\n", palette.paint(style, &state));
    let mut line = |title: &str, value: &str| {
        let _ = writeln!(text, "  {title:<9}{value}");
    };
    line("session", &delegation.session.to_string());
    let model = delegation.model.as_deref().unwrap_or("no model");
    let (agent, model) = (fit(delegation.agent.as_str(), 32), fit(model, 60));
    line("agent", &format!("{agent}, {model}, depth {}", delegation.depth));
    if delegation.own.calls > 0 {
        let turns = counted(delegation.turns as usize, "turn");
        let tools = counted(delegation.tool_calls as usize, "tool call");
        line(
            "spent",
            &format!(
                "{} · {} · {turns}, {tools}",
                delegation.own.tokens_full(),
                delegation.own.money()
            ),
        );
    }
    if let Some(time) = look.elapsed_of(delegation) {
        line("time", &format!("{}{}", elapsed(time), look.left(delegation)));
    }
    if let Some(note) = delegation.notes.last() {
        line("notes", &format!("{}, latest: {}", delegation.notes.len(), fit(note, 80)));
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

/// The state of runs for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatusJson {
    /// The version of the format.
    pub v: u32,
    /// One entry for each run.
    pub runs: Vec<RunJson>,
}

/// The state of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunJson {
    /// The run.
    pub run: Option<RunId>,
    /// Where it stands; `interrupted` when nobody works on it any more.
    pub state: &'static str,
    /// What it is for.
    pub goal: String,
    /// Where it works.
    pub workdir: String,
    /// The preset its limits began as.
    pub preset: Option<&'static str>,
    /// When it began.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Seconds it has gone on.
    pub elapsed_s: f64,
    /// Its delegations, counted by where they stand.
    pub outcomes: Outcomes,
    /// What it came to.
    #[serde(flatten)]
    pub spent: SpendJson,
    /// Its delegations; only when one run is asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegations: Option<Vec<DelegationJson>>,
}

/// The state of one delegation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelegationJson {
    /// Its id.
    pub session_id: SessionId,
    /// Who asked.
    pub parent: Option<SessionId>,
    /// What it is called.
    pub label: String,
    /// Who works.
    pub agent: String,
    /// The model that runs it.
    pub model: Option<String>,
    /// Edges from the root.
    pub depth: u64,
    /// The parent's call it came with, from 1.
    pub call: u32,
    /// The place in that call, from 0.
    pub index: u32,
    /// Where it stands.
    pub state: &'static str,
    /// What it is doing now, while it runs.
    pub activity: Option<&'static str>,
    /// The tool and the telling part of its arguments, while one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolJson>,
    /// When it began.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Seconds it has worked.
    pub elapsed_s: Option<f64>,
    /// What its own calls came to.
    pub own: SpendJson,
    /// What it and all below it came to.
    pub inclusive: SpendJson,
    /// The turns it has taken or begun.
    pub turns: u32,
    /// The tools that were run for it.
    pub tool_calls: u32,
    /// Its scratchpad.
    pub notes: Vec<String>,
    /// The files its tools touched.
    pub files: Vec<String>,
    /// Why it ended as it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// What it went on in spite of.
    pub warnings: Vec<String>,
}

/// A tool under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolJson {
    /// Its name.
    pub name: String,
    /// The telling part of its arguments.
    pub args: String,
}

/// Returns runs for programs, without their delegations.
#[must_use]
pub fn list_json(runs: &[Look<'_>]) -> StatusJson {
    StatusJson { v: VERSION, runs: runs.iter().map(run_json).collect() }
}

/// Returns one run for programs, with its delegations.
#[must_use]
pub fn detail_json(look: &Look<'_>) -> StatusJson {
    let delegations = look.view.preorder().into_iter().skip(1);
    let delegations = delegations.map(|delegation| delegation_json(look, delegation)).collect();
    let run = RunJson { delegations: Some(delegations), ..run_json(look) };
    StatusJson { v: VERSION, runs: vec![run] }
}

fn run_json(look: &Look<'_>) -> RunJson {
    let view = look.view;
    RunJson {
        run: view.run(),
        state: state_key(&view.state(), look.liveness),
        goal: view.goal().to_owned(),
        workdir: view.workdir().to_owned(),
        preset: view.policy().map(|policy| policy.preset.name()),
        started_at: view.began().map(|moment| rfc3339(moment.wall_ms)),
        ended_at: view.ended().map(|moment| rfc3339(moment.wall_ms)),
        elapsed_s: seconds(view.elapsed(look.now, look.liveness)),
        outcomes: Outcomes::of(view.delegations()),
        spent: view.total().into(),
        delegations: None,
    }
}

fn delegation_json(look: &Look<'_>, delegation: &Delegation) -> DelegationJson {
    let works = !is_interrupted(&delegation.state, look.liveness);
    let (activity, tool) = match delegation.activity() {
        Activity::Thinking { .. } => (Some("thinking"), None),
        Activity::Tool { call, .. } => {
            (Some("tool"), Some(ToolJson { name: call.tool.clone(), args: call.arguments.clone() }))
        }
        Activity::Retrying(_) => (Some("retrying"), None),
        Activity::Paused(_) => (Some("waiting"), None),
        Activity::AwaitingDomain(_) => (Some("asking"), None),
        Activity::Delegating => (Some("delegating"), None),
        Activity::AwaitingApproval | Activity::Queued | Activity::Ended(_) => (None, None),
    };
    DelegationJson {
        session_id: delegation.session,
        parent: delegation.parent,
        label: delegation.label.to_string(),
        agent: delegation.agent.to_string(),
        model: delegation.model.clone(),
        depth: delegation.depth,
        call: delegation.call,
        index: delegation.index,
        state: state_key(&delegation.state, look.liveness),
        activity: activity.filter(|_| works),
        tool: tool.filter(|_| works),
        started_at: delegation.started.map(|moment| rfc3339(moment.wall_ms)),
        ended_at: delegation.ended.map(|moment| rfc3339(moment.wall_ms)),
        elapsed_s: look.elapsed_of(delegation).map(seconds),
        own: (&delegation.own).into(),
        inclusive: (&delegation.inclusive).into(),
        turns: delegation.turns,
        tool_calls: delegation.tool_calls,
        notes: delegation.notes.clone(),
        files: delegation.files.iter().map(ToString::to_string).collect(),
        reason: delegation.reason.as_ref().map(Into::into),
        warnings: delegation.warnings.iter().map(Warning::to_string).collect(),
    }
}
