//! Reports on stories: which pass, how to continue the others, what to merge, and the cost.
//!
//! One run works on one story; the tasks that its agents delegate are the story's children. A
//! [`StoryReport`], with one [`ChildReport`] for each child, is made from the view of such a run;
//! [`render`] shows it as text, [`json`] as JSON. The engine decides whether a story passes; this module
//! only reports it.
//!
//! [`StoriesJson`] is the report of all stories of one command.

mod node;
mod root_work;
mod text;

use adjutant_core::refusal::raising_flags;
use adjutant_core::workspace::ChangedFile;
use adjutant_core::{DelegationState, ErrorCode, Outcome, RunId, SessionId};
use serde::{Serialize, Serializer};

use crate::layout::excerpt;
use crate::receipt::{Receipt, Verification};
use crate::run::{Delegation, ProcessLiveness, RunView, Spend};
use crate::sanitize;
use crate::state_words::state_key;
use crate::wire::{ReasonJson, SpendJson, VERSION, seconds};

pub use node::{ChildMerge, StoryNode};
pub(crate) use node::{files, kept_work, merge, name, numbered_name};
pub use text::render;

/// The maximum length of a summary.
const SUMMARY_CHARS: usize = 500;

/// The outcome of one story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoryReport {
    /// The story's id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The run that worked on it.
    pub run: Option<RunId>,
    /// How the story ended; absent if it has not.
    pub outcome: Option<Outcome>,
    /// Whether it passes.
    pub passes: bool,
    /// Whether the verify command passed; absent if it was not run.
    pub verified: Option<bool>,
    /// Whether its work was verified: `passed`, `failed` or `none`.
    pub verification: Verification,
    /// What the engine saw of the work of its own agent.
    #[serde(serialize_with = "receipt")]
    pub receipt: Receipt,
    /// The verify command; absent if there is none.
    pub verify: Option<String>,
    /// Whether it names a verify command that no person allowed; only in runs of an earlier version.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unallowed: bool,
    /// What its agent said about it, or why it ended this way.
    pub summary: String,
    /// Why it ended this way, unless it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// The branch with its work; absent if none was made.
    pub branch: Option<String>,
    /// The git reference that keeps its work; absent if nothing was changed.
    pub reference: Option<String>,
    /// The commit of its work.
    pub commit: Option<String>,
    /// Why its work could not be committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The changed files, including the work of its children.
    pub files: Vec<ChangedFile>,
    /// Files that are not part of its work, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Lines that were added.
    pub added: u64,
    /// Lines that were removed.
    pub removed: u64,
    /// All delegations, parents before children.
    pub children: Vec<ChildReport>,
    /// Markers that were not run, each with the reason.
    pub unread_markers: Vec<String>,
    /// Further remarks, one sentence each.
    pub remarks: Vec<String>,
    /// Whether an earlier command did the work and this one only recorded it; nothing was spent now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
    /// Tokens and cost of the story's own agent.
    #[serde(serialize_with = "serialize_spend")]
    pub own: Spend,
    /// Tokens and cost of the story and everything below it.
    #[serde(serialize_with = "serialize_spend")]
    pub inclusive: Spend,
    /// Seconds it took.
    pub elapsed_s: f64,
    /// The command that resumes it, if it does not pass and can be resumed; with a larger budget if that was
    /// used up.
    pub resume: Option<String>,
    /// The command that starts it again with wider limits, if its limits are used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<String>,
    /// The command that merges its work, if it passes and has work that is not merged yet.
    pub merge: Option<String>,
    /// The command that removes its work from the files again, if it was merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
}

/// The outcome of one task that an agent of the story's run delegated, at any depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChildReport {
    /// Its id in the story; absent if it was refused.
    pub id: Option<String>,
    /// The label.
    pub label: String,
    /// Its session.
    pub session_id: SessionId,
    /// The depth below the story.
    pub depth: u64,
    /// Its state.
    pub state: &'static str,
    /// How the story ended; absent if it has not.
    pub outcome: Option<Outcome>,
    /// Why it ended this way, unless it completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// Its work; absent if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<StoryNode>,
    /// What each side did, for each conflicting file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Tokens and cost of its own agent.
    #[serde(serialize_with = "serialize_spend")]
    pub own: Spend,
    /// Tokens and cost of it and everything below it.
    #[serde(serialize_with = "serialize_spend")]
    pub inclusive: Spend,
}

/// The report of all stories as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoriesJson {
    /// The version of the format.
    pub v: u32,
    /// How many pass.
    pub passed: usize,
    /// How many there are.
    pub total: usize,
    /// One entry per story, in the order they were worked on.
    pub stories: Vec<StoryReport>,
    /// Tokens and cost of the stories, without those of an earlier command.
    #[serde(flatten)]
    pub spent: SpendJson,
    /// Seconds that they took in sum, without those of an earlier command.
    pub elapsed_s: f64,
}

/// Returns the report as JSON.
#[must_use]
pub fn json(reports: &[StoryReport]) -> StoriesJson {
    StoriesJson {
        v: VERSION,
        passed: reports.iter().filter(|report| report.passes).count(),
        total: reports.len(),
        stories: reports.to_vec(),
        spent: (&total(reports)).into(),
        // Adding 0.0 turns the -0.0 of an empty sum into 0.0.
        elapsed_s: worked_on_now(reports).map(|report| report.elapsed_s).sum::<f64>() + 0.0,
    }
}

/// Returns the stories that this command worked on.
fn worked_on_now(reports: &[StoryReport]) -> impl Iterator<Item = &StoryReport> {
    reports.iter().filter(|report| !report.earlier)
}

/// Returns the spending on the stories that this command worked on.
fn total(reports: &[StoryReport]) -> Spend {
    worked_on_now(reports).fold(Spend::default(), |sum, report| sum.plus(&report.inclusive))
}

fn serialize_spend<S: Serializer>(spend: &Spend, serializer: S) -> Result<S::Ok, S::Error> {
    SpendJson::from(spend).serialize(serializer)
}

fn receipt<S: Serializer>(receipt: &Receipt, serializer: S) -> Result<S::Ok, S::Error> {
    receipt.json().serialize(serializer)
}

impl StoryReport {
    /// Reports on the story of a run that is no longer executed. Returns `None` for a run without a story.
    #[must_use]
    pub fn of(view: &RunView) -> Option<Self> {
        let (story, root) = (view.story()?, view.root()?);
        let (work, problem) = root.kept.as_deref().cloned().unwrap_or_default();
        let outcome = end_outcome(root).map(|own| view.outcome().unwrap_or(own));
        let is_completed = outcome == Some(Outcome::Completed);
        let passes = is_completed && end_outcome(root) == outcome;
        let verified = root.checked.map(|(passed, _)| passed);
        // If there is a verify command, it alone decides.
        let is_decided = !story.unallowed && (story.verify.is_none() || verified == Some(true));
        let passes = passes && is_decided && problem.is_none();
        let (added, removed) = work.lines();
        let run = view.run();
        let merge = run.filter(|_| passes && work.commit.is_some());
        Some(Self {
            id: story.id.clone(),
            title: story.title.clone(),
            run,
            outcome,
            passes,
            unallowed: story.unallowed,
            verified,
            verification: Verification::of(root),
            receipt: Receipt::of(root),
            verify: story.verify.as_ref().map(|it| it.command.clone()),
            summary: summary(root),
            reason: root.reason.as_ref().filter(|_| !passes).map(Into::into),
            branch: None,
            reference: work.reference,
            commit: work.commit,
            problem,
            files: work.files,
            left_out: [work.left, work.skipped].concat(),
            added,
            removed,
            children: view.preorder().into_iter().skip(1).map(|node| child(view, node)).collect(),
            unread_markers: unread_markers(view),
            remarks: root.space.as_ref().map(|space| space.remarks.clone()).unwrap_or_default(),
            earlier: false,
            own: root.own,
            inclusive: root.inclusive,
            elapsed_s: seconds(view.elapsed(view.latest().at, ProcessLiveness::Dead)),
            // The work is complete but may not be verified: there is nothing to resume.
            resume: run
                .filter(|_| !(passes || story.unallowed && is_completed))
                .and_then(|run| resume(run, root)),
            again: story.prd.as_ref().filter(|_| !passes && has_used_up_limits(root)).map(|prd| {
                let (prd, id) = (sanitize::shell_word(prd), sanitize::shell_word(&story.id));
                format!("adjutant story {prd} --story {id} --again")
            }),
            merge: merge.map(|run| format!("adjutant merge {run}")),
            undo: None,
        })
    }
}

/// Returns how a node ended, if it has.
const fn end_outcome(node: &Delegation) -> Option<Outcome> {
    match node.state {
        DelegationState::Ended(outcome) => Some(outcome),
        DelegationState::AwaitingApproval | DelegationState::Queued | DelegationState::Running => {
            None
        }
    }
}

fn summary(root: &Delegation) -> String {
    let said = root.returned.as_ref().map(|it| it.summary.trim()).filter(|it| !it.is_empty());
    let why = root.reason.as_ref().map(|reason| reason.message.as_str());
    let said = said.or(why).unwrap_or_else(|| root.last_text.trim());
    excerpt(said, SUMMARY_CHARS)
}

fn resume(run: RunId, root: &Delegation) -> Option<String> {
    if has_used_up_limits(root) {
        let flags = root.reason.as_ref().and_then(|it| raising_flags(&it.recommendation));
        return flags.map(|flags| format!("adjutant resume {run} {flags}"));
    }
    let can = root.reason.as_ref().is_none_or(|reason| reason.recoverable);
    let say = if end_outcome(root) == Some(Outcome::Blocked) { " --say" } else { "" };
    can.then(|| format!("adjutant resume {run}{say}"))
}

/// Returns whether a story has used up its limits, so that resuming its run would end at once unless a person
/// raises them. A full context is started afresh, unless not even the opening fits.
fn has_used_up_limits(root: &Delegation) -> bool {
    let code = root.reason.as_ref().map(|reason| reason.code);
    let code = end_outcome(root).and(code);
    code == Some(ErrorCode::BudgetExceeded)
        || (code == Some(ErrorCode::ContextExhausted) && root.turns <= 1)
}

fn unread_markers(view: &RunView) -> Vec<String> {
    let nodes = view.preorder().into_iter();
    nodes.flat_map(|node| node.unread_markers.iter().cloned()).collect()
}

fn child(view: &RunView, node: &Delegation) -> ChildReport {
    let clashes = node.merged.iter().flat_map(|it| &it.0.conflicts);
    ChildReport {
        id: node.story.clone(),
        label: node.label.to_string(),
        session_id: node.session,
        depth: node.depth - view.root().map_or(0, |root| root.depth),
        state: state_key(&node.state, ProcessLiveness::Dead),
        outcome: end_outcome(node),
        reason: node.reason.as_ref().map(Into::into),
        work: StoryNode::of(view, node),
        conflicts: clashes.map(|clash| format!("{}: {}", clash.path, clash.what)).collect(),
        own: node.own,
        inclusive: node.inclusive,
    }
}
