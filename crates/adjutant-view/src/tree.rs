//! The tree of delegations, as text and as nested JSON.
//!
//! [`TreeJson`] is the whole tree, [`TreeNodeJson`] one node with its children.

use adjutant_core::{DelegationState, RunId, SessionId, Timestamp};
use serde::Serialize;

use crate::layout::{width, wrap_lines};
use crate::palette::{Palette, TextStyle};
use crate::progress;
use crate::run::{Delegation, ESTIMATE_NOTE, ProcessLiveness, RunView};
use crate::state_words::{
    continuations_text, ended_word, is_interrupted, mark_now, state_key, state_word,
};
use crate::story::{StoryNode, numbered_name};
use crate::time_text::elapsed;
use crate::wire::{ReasonJson, SpendJson, VERSION, is_zero, seconds};
use crate::worker_text::{WorkerJson, agent_text, calls_text};

const LABEL_COLUMNS: usize = 34;

/// Draws the tree with its states, tokens, cost and times, for a terminal of `wide` columns.
///
/// What does not fit into the line of a node follows below it.
#[must_use]
pub fn render(
    view: &RunView,
    now: Timestamp,
    liveness: ProcessLiveness,
    palette: Palette,
    wide: usize,
) -> String {
    let Some(root) = view.root() else { return "nothing has been delegated\n".into() };
    let mut text = String::new();
    if let Some(run) = view.run() {
        let held = if view.sandbox() == Some("off") { " · sandbox off" } else { "" };
        text.push_str(&format!("{run}{held}\n"));
    }
    // Each item carries the branch lines to its left.
    let mut next = vec![(root, String::new(), String::new())];
    while let Some((node, before, below)) = next.pop() {
        let parts = node_parts(view, node, now, liveness, palette);
        let children: Vec<&Delegation> = view.children(node).collect();
        let trunk = if children.is_empty() { "    " } else { "│   " };
        text.push_str(&node_lines(&parts, &before, &format!("{below}{trunk}"), wide));
        let last = children.len().saturating_sub(1);
        for (place, child) in children.into_iter().enumerate().rev() {
            let (branch, trunk) =
                if place == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            next.push((child, format!("{below}{branch}"), format!("{below}{trunk}")));
        }
    }
    if view.total().is_estimated() {
        text.push_str(&wrap_lines(ESTIMATE_NOTE, wide));
    }
    text
}

/// Returns the lines of a node. The first begins with `before`, the others with `below`.
fn node_lines(parts: &[(String, usize)], before: &str, below: &str, wide: usize) -> String {
    let (mut text, mut taken) = (before.to_owned(), width(before));
    for (place, (part, columns)) in parts.iter().enumerate() {
        if place > 0 && taken + SEPARATOR.len() + columns > wide {
            text.push_str(&format!("\n{below}"));
            taken = width(below);
        } else if place > 0 {
            text.push_str(SEPARATOR);
            taken += width(SEPARATOR);
        }
        text.push_str(part);
        taken += columns;
    }
    text + "\n"
}

/// Separates what is said about a node.
const SEPARATOR: &str = " · ";

/// Returns what is said about a node, each part with its width.
fn node_parts(
    view: &RunView,
    node: &Delegation,
    now: Timestamp,
    liveness: ProcessLiveness,
    palette: Palette,
) -> Vec<(String, usize)> {
    let state = format!("{} {}", mark_now(&node.state, liveness), state_of(node, liveness));
    let style = if is_interrupted(&node.state, liveness) {
        TextStyle::Bad
    } else {
        TextStyle::of(&node.state)
    };
    let mut parts = vec![agent_text(node), format!("depth {}", node.depth)];
    if node.inclusive.calls > 0 {
        parts.push(node.inclusive.tokens_short());
        parts.push(money(node));
    }
    parts.extend(node.worker.iter().map(|worker| calls_text(worker)));
    parts.extend(continuations_text(node));
    parts.extend(StoryNode::of(view, node).iter().flat_map(StoryNode::words));
    parts.extend(node.elapsed_in(now, view.latest().at, liveness).map(elapsed));
    parts.extend(worker_doing(node, now, liveness));
    let name = numbered_name(view, node, LABEL_COLUMNS);
    let first_columns = width(&name) + 1 + width(&state);
    let first = format!("{name} {}", palette.paint(style, &state));
    let measured = parts.into_iter().map(|part| {
        let columns = width(&part);
        (part, columns)
    });
    std::iter::once((first, first_columns)).chain(measured).collect()
}

/// Returns what the external worker of a node is doing, while it works.
pub(crate) fn worker_doing(
    node: &Delegation,
    now: Timestamp,
    liveness: ProcessLiveness,
) -> Option<String> {
    let is_at_work = node.worker.is_some()
        && node.state == DelegationState::Running
        && liveness == ProcessLiveness::Alive;
    is_at_work.then(|| progress::activity_text(node, now, progress::WORDS_COLUMNS))
}

fn state_of(node: &Delegation, liveness: ProcessLiveness) -> String {
    if let DelegationState::Ended(outcome) = node.state {
        return if node.reason.is_some() {
            crate::progress::end_text(outcome, node)
        } else {
            ended_word(outcome).into()
        };
    }
    state_word(&node.state, liveness).into()
}

/// Returns the inclusive cost, and the own cost if it differs.
fn money(node: &Delegation) -> String {
    let all = node.inclusive.money();
    // A node without calls has no cost of its own.
    let own = node.own.money();
    if node.own.calls == 0 || own == all {
        return all;
    }
    format!("{all} ({own} own)")
}

/// A run's tree as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeJson {
    /// The version of the format.
    pub v: u32,
    /// The run.
    pub run: Option<RunId>,
    /// Whether commands run in a sandbox, `on` or `off`; only set if agents write in workspaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<&'static str>,
    /// The root; absent before the run started.
    pub root: Option<TreeNodeJson>,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeNodeJson {
    /// The session id.
    pub session_id: SessionId,
    /// The label.
    pub label: String,
    /// The name of the agent.
    pub agent: String,
    /// The model that runs it.
    pub model: Option<String>,
    /// The external worker that does its work, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerJson>,
    /// The depth in the tree.
    pub depth: u64,
    /// Its state.
    pub state: &'static str,
    /// Seconds it has worked; absent if it never started.
    pub elapsed_s: Option<f64>,
    /// Tokens and cost of its own model calls.
    pub own: SpendJson,
    /// Tokens and cost of it and everything below it.
    pub inclusive: SpendJson,
    /// How often it went on in a fresh conversation because its context was full; absent if never.
    #[serde(skip_serializing_if = "is_zero")]
    pub continuations: u32,
    /// Its work in a story; only set if the run works on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<StoryNode>,
    /// Why it ended this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// Its children, in input order.
    pub children: Vec<Self>,
}

/// Returns the tree as JSON.
#[must_use]
pub fn json(view: &RunView, now: Timestamp, liveness: ProcessLiveness) -> TreeJson {
    // Built from the last node to the first, so that the children of each node exist already. Recursion could
    // overflow on a deep tree.
    let mut ready: std::collections::BTreeMap<SessionId, TreeNodeJson> =
        std::collections::BTreeMap::new();
    for node in view.preorder().into_iter().rev() {
        let children = view.children(node).filter_map(|child| ready.remove(&child.session));
        let children = children.collect();
        let shape = TreeNodeJson {
            session_id: node.session,
            label: node.label.to_string(),
            agent: node.agent.to_string(),
            model: node.model.clone(),
            worker: WorkerJson::of(node)
                .map(|it| WorkerJson { doing: worker_doing(node, now, liveness), ..it }),
            depth: node.depth,
            state: state_key(&node.state, liveness),
            elapsed_s: node.elapsed_in(now, view.latest().at, liveness).map(seconds),
            own: (&node.own).into(),
            inclusive: (&node.inclusive).into(),
            continuations: node.continuations,
            story: StoryNode::of(view, node),
            reason: node.reason.as_ref().map(Into::into),
            children,
        };
        ready.insert(node.session, shape);
    }
    let root = view.root().and_then(|root| ready.remove(&root.session));
    TreeJson { v: VERSION, run: view.run(), sandbox: view.sandbox(), root }
}
