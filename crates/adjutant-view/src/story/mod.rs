//! What became of stories: what passed, what is partial and how to go on, what to merge, what it cost.
//!
//! One run works on one story. A [`StoryReport`] is made from the view of such a run and holds all
//! that is said of it, for people by [`render`], for programs by [`json`]. Whether a story passes was
//! decided by the engine; here it is only told.

mod node;
mod root_work;
mod text;

use adjutant_core::refusal::raising_flags;
use adjutant_core::space::ChangedFile;
use adjutant_core::{Code, Outcome, RunId, SessionId, State};
use serde::{Serialize, Serializer};

use crate::layout::excerpt;
use crate::run::{Delegation, Liveness, RunView, Spend};
use crate::sanitize;
use crate::state_words::state_key;
use crate::wire::{ReasonJson, SpendJson, VERSION, seconds};

pub use node::{ChildMerge, StoryNode};
pub(crate) use node::{files, kept, merge, name, numbered_name, verified_word};
pub use text::render;

/// The most characters of a summary.
const SUMMARY_CHARS: usize = 500;

/// What became of one story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoryReport {
    /// The story.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The run that worked on it.
    pub run: Option<RunId>,
    /// How it ended; absent where it has not.
    pub outcome: Option<Outcome>,
    /// Whether it passes.
    pub passes: bool,
    /// Whether the command that decides succeeded; absent where none was run.
    pub verified: Option<bool>,
    /// That command; absent where there is none.
    pub verify: Option<String>,
    /// Whether it names a verify command that no person allowed; only of a run of an earlier version.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unallowed: bool,
    /// What its agent said of it, or why it ended as it did.
    pub summary: String,
    /// Why it ended as it did, unless all of it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// The branch its work is on; absent where none was made.
    pub branch: Option<String>,
    /// What keeps its work; absent where nothing was changed.
    pub reference: Option<String>,
    /// The commit of its work.
    pub commit: Option<String>,
    /// Why its work could not be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The files that differ, the work of its children included.
    pub files: Vec<ChangedFile>,
    /// What is no part of its work, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Lines that were added.
    pub added: u64,
    /// Lines that were removed.
    pub removed: u64,
    /// All that was handed down, parents before children.
    pub children: Vec<ChildReport>,
    /// Markers that were not run, each with the reason.
    pub unread_markers: Vec<String>,
    /// What else is to be known of it, a sentence each.
    pub remarks: Vec<String>,
    /// Whether an earlier command did it and this one only wrote that down: nothing was spent on it now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub earlier: bool,
    /// What the story's own agent spent.
    #[serde(serialize_with = "spent")]
    pub own: Spend,
    /// What the story and all below it spent.
    #[serde(serialize_with = "spent")]
    pub inclusive: Spend,
    /// Seconds it took.
    pub elapsed_s: f64,
    /// The command that goes on with it, where it does not pass and can go on; with a larger budget
    /// where that was used up.
    pub resume: Option<String>,
    /// The command that begins it anew under wider limits, where those it had are used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<String>,
    /// The command that merges its work, where it passes and there is any that is not merged yet.
    pub merge: Option<String>,
    /// The command that takes its work out of the files again, where it was merged into them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
}

/// What became of a task that was handed down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChildReport {
    /// Its id in the story; absent where it was refused.
    pub id: Option<String>,
    /// What it is called.
    pub label: String,
    /// Its session.
    pub session_id: SessionId,
    /// Edges from the story.
    pub depth: u64,
    /// Where it stands.
    pub state: &'static str,
    /// How it ended; absent where it has not.
    pub outcome: Option<Outcome>,
    /// Why it ended as it did, unless all of it was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// Its work; absent where it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<StoryNode>,
    /// What each side did, for each file in conflict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// What its own agent spent.
    #[serde(serialize_with = "spent")]
    pub own: Spend,
    /// What it and all below it spent.
    #[serde(serialize_with = "spent")]
    pub inclusive: Spend,
}

/// The report of all stories for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoriesJson {
    /// The version of the format.
    pub v: u32,
    /// How many pass.
    pub passed: usize,
    /// How many there are.
    pub total: usize,
    /// One entry for each story, in the order they were worked on.
    pub stories: Vec<StoryReport>,
    /// What they came to, without those that an earlier command did.
    #[serde(flatten)]
    pub spent: SpendJson,
    /// Seconds they took, one after the other, counted alike.
    pub elapsed_s: f64,
}

/// Returns the report for programs.
#[must_use]
pub fn json(reports: &[StoryReport]) -> StoriesJson {
    StoriesJson {
        v: VERSION,
        passed: reports.iter().filter(|report| report.passes).count(),
        total: reports.len(),
        stories: reports.to_vec(),
        spent: (&total(reports)).into(),
        // The sum of nothing is minus zero, which nobody wants to read.
        elapsed_s: now(reports).map(|report| report.elapsed_s).sum::<f64>() + 0.0,
    }
}

/// Returns the stories that were worked on now.
fn now(reports: &[StoryReport]) -> impl Iterator<Item = &StoryReport> {
    reports.iter().filter(|report| !report.earlier)
}

/// Returns what all stories came to that were worked on now.
fn total(reports: &[StoryReport]) -> Spend {
    now(reports).fold(Spend::default(), |sum, report| sum.plus(&report.inclusive))
}

fn spent<S: Serializer>(spend: &Spend, serializer: S) -> Result<S::Ok, S::Error> {
    SpendJson::from(spend).serialize(serializer)
}

impl StoryReport {
    /// Reports on the story of a run that nobody works on any more; nothing for a run without one.
    #[must_use]
    pub fn of(view: &RunView) -> Option<Self> {
        let (story, root) = (view.story()?, view.root()?);
        let (work, problem) = root.kept.as_deref().cloned().unwrap_or_default();
        let outcome = ended(root).map(|own| view.outcome().unwrap_or(own));
        let is_completed = outcome == Some(Outcome::Completed);
        let passes = is_completed && ended(root) == outcome;
        let verified = root.checked.map(|(passed, _)| passed);
        // Where a command decides, nothing else does.
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
            verify: story.verify.clone(),
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
            elapsed_s: seconds(view.elapsed(view.latest().at, Liveness::Dead)),
            // All was done of what nobody may check: there is nothing to go on with.
            resume: run
                .filter(|_| !(passes || story.unallowed && is_completed))
                .and_then(|run| resume(run, root)),
            again: story.prd.as_ref().filter(|_| !passes && is_spent(root)).map(|prd| {
                let (prd, id) = (sanitize::shell_word(prd), sanitize::shell_word(&story.id));
                format!("adjutant story {prd} --story {id} --again")
            }),
            merge: merge.map(|run| format!("adjutant merge {run}")),
            undo: None,
        })
    }
}

/// Returns how a node ended, once it did.
const fn ended(node: &Delegation) -> Option<Outcome> {
    match node.state {
        State::Ended(outcome) => Some(outcome),
        State::AwaitingApproval | State::Queued | State::Running => None,
    }
}

fn summary(root: &Delegation) -> String {
    let said = root.returned.as_ref().map(|it| it.summary.trim()).filter(|it| !it.is_empty());
    let why = root.reason.as_ref().map(|reason| reason.message.as_str());
    let said = said.or(why).unwrap_or_else(|| root.last_text.trim());
    excerpt(said, SUMMARY_CHARS)
}

fn resume(run: RunId, root: &Delegation) -> Option<String> {
    if is_spent(root) {
        let flags = root.reason.as_ref().and_then(|it| raising_flags(&it.recommendation));
        return flags.map(|flags| format!("adjutant resume {run} {flags}"));
    }
    let can = root.reason.as_ref().is_none_or(|reason| reason.recoverable);
    let say = if ended(root) == Some(Outcome::Blocked) { " --say \"ANSWER\"" } else { "" };
    can.then(|| format!("adjutant resume {run}{say}"))
}

/// Says whether a story had all that its limits give: they are those of its run, so going on with that
/// run would end at once unless a person raises them. A full context is begun afresh, unless not even the beginning fits it.
fn is_spent(root: &Delegation) -> bool {
    let code = root.reason.as_ref().map(|reason| reason.code);
    let code = ended(root).and(code);
    code == Some(Code::BudgetExceeded) || (code == Some(Code::ContextExhausted) && root.turns <= 1)
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
        state: state_key(&node.state, Liveness::Dead),
        outcome: ended(node),
        reason: node.reason.as_ref().map(Into::into),
        work: StoryNode::of(view, node),
        conflicts: clashes.map(|clash| format!("{}: {}", clash.path, clash.what)).collect(),
        own: node.own,
        inclusive: node.inclusive,
    }
}
