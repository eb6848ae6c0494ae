//! The question about a whole run, asked before its root agent starts.
//!
//! `RootOpening` collects the first events of the run, and `WholeRunKind` says what the run is for:
//! a slash command, a story or a goal.

use adjutant_core::budget::BudgetAmount;
use adjutant_core::story::StoryAssignment;
use adjutant_core::tree::{WHOLE_RUN, worst_case_of_run};
use adjutant_core::{
    AgentName, Brief, Event, Grant, Label, ModelSpec, Policy, Rights, RunId,
    SlashCommandAssignment, VerifyCommand,
};

use crate::layout::fit;
use crate::sanitize;

/// The maximum width of a command or a story's title, in columns.
const TITLE_COLUMNS: usize = 120;

/// The maximum width of a verify command or a PRD's path, in columns.
const LINE_COLUMNS: usize = 200;

/// The opening events of a run, collected for the question.
#[derive(Default)]
pub(super) struct RootOpening<'a> {
    begun: Option<(RunId, &'a AgentName, &'a str, Option<&'a ModelSpec>)>,
    rights: Option<&'a Rights>,
    assignment: Option<&'a SlashCommandAssignment>,
    story: Option<&'a StoryAssignment>,
    is_asked: bool,
    /// The depth of the root.
    base_depth: u64,
}

/// What a run is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WholeRunKind {
    /// A slash command, as the client sent it.
    Command(String),
    /// A story.
    Story(Box<StoryAssignment>),
    /// Any other goal.
    Goal,
}

impl<'a> RootOpening<'a> {
    /// Collects an event.
    pub(super) fn take(&mut self, event: &'a Event) {
        if let Event::RunStarted { run, agent, goal, model, base_depth, .. } = event {
            self.begun = Some((*run, agent, goal, model.as_ref()));
            self.base_depth = *base_depth;
        } else if let Event::AgentDefined { agent, rights, .. } = event {
            let is_lead = self.begun.is_some_and(|(_, lead, ..)| lead == agent);
            self.rights = self.rights.or(is_lead.then_some(rights));
        } else if let Event::Assigned(assignment) = event {
            self.assignment = Some(assignment);
        } else if let Event::StoryTaken { story, .. } = event {
            self.story = Some(story);
        } else if let Event::ApprovalAsked { call: WHOLE_RUN, .. } = event {
            self.is_asked = true;
        }
    }

    /// Returns the root as a grant, and what the run is about, if the question is about the whole run.
    pub(super) fn asked_root(&self, policy: &Policy) -> Option<(Grant, WholeRunKind)> {
        let (run, agent, goal, model) = self.begun.filter(|_| self.is_asked)?;
        let whole = match (self.assignment, self.story) {
            (Some(assignment), _) => WholeRunKind::Command(sent_command(assignment)),
            (None, Some(story)) => WholeRunKind::Story(Box::new(story.clone())),
            (None, None) => WholeRunKind::Goal,
        };
        let timeout_s = match self.assignment {
            Some(assignment) => policy.longest(assignment.operation),
            None => policy.total_s.filter(|_| self.story.is_some()),
        };
        let label = match &whole {
            WholeRunKind::Story(story) => story.label(),
            WholeRunKind::Command(_) | WholeRunKind::Goal => {
                let short: String = agent.as_str().chars().take(Label::MAX_CHARS).collect();
                Label::new(&short).unwrap_or_else(|_| Label::unnamed())
            }
        };
        let mut brief = Brief::new(label, agent.clone(), &whole.text(goal));
        brief.model = model.cloned();
        let rights = Rights::of(policy);
        let session = run.root_session();
        let grant = Grant {
            session,
            parent: session,
            call: WHOLE_RUN,
            index: 0,
            places: policy.concurrency,
            brief,
            depth: self.base_depth,
            path: vec![agent.to_string()],
            rights: self.rights.map_or_else(|| rights.clone(), |own| rights.intersection(own)),
            timeout_s,
            clamped: false,
            preface: None,
            task: None,
            opening_bytes: 0,
            awaiting_approval: true,
        };
        Some((grant, whole))
    }
}

/// Returns the command as it was sent. Old journals do not have it; then it is reconstructed.
fn sent_command(assignment: &SlashCommandAssignment) -> String {
    assignment.sent.clone().unwrap_or_else(|| {
        let tasks: Vec<String> = assignment.tasks.iter().map(|task| format!(" {task}")).collect();
        format!("/{}{}", assignment.command, tasks.concat())
    })
}

impl WholeRunKind {
    /// Returns the heading of the question.
    pub(super) fn title(&self) -> String {
        match self {
            Self::Command(sent) => format!("Run {}", fit(sent, TITLE_COLUMNS)),
            Self::Story(story) => {
                format!(
                    "Work on the story {}",
                    fit(&format!("{} {}", story.id, story.title), TITLE_COLUMNS)
                )
            }
            Self::Goal => "Let an agent work towards a goal".to_owned(),
        }
    }

    /// Returns the kind as used in JSON.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Story(_) => "story",
            Self::Goal => "goal",
        }
    }

    /// Returns what the root agent is asked to do.
    fn text(&self, goal: &str) -> String {
        match self {
            Self::Command(sent) => sent.clone(),
            Self::Story(story) => {
                let plan = story.plan.iter().map(|task| format!("\nplanned: {}", task.description));
                format!("{}{}", story.title, plan.collect::<String>())
            }
            Self::Goal => goal.to_owned(),
        }
    }

    /// Returns the rows that only a question about a whole run has.
    pub(super) fn rows(&self, policy: &Policy, base_depth: u64) -> Vec<Vec<String>> {
        let row = |title: &str, words: String| vec![title.to_owned(), words];
        let mut rows = Vec::new();
        if let Self::Story(story) = self {
            let prd = story.prd.iter().map(|prd| row("PRD", fit(prd, LINE_COLUMNS)));
            rows.extend(prd);
            let planned = story.plan.iter().filter_map(|task| task.verify.as_ref());
            for command in story.verify.iter().chain(planned) {
                rows.push(row("Verify", verify_words(command)));
            }
        }
        let below = match (policy.enabled, policy.max_depth.saturating_sub(base_depth)) {
            (false, _) | (_, 0) => "none".to_owned(),
            (true, depth) => {
                let levels =
                    if depth == 1 { "1 level".to_owned() } else { format!("{depth} levels") };
                format!(
                    "up to {levels} deep; approving the run does not approve them: each is asked about unless it fits \
                     approve_below_usd"
                )
            }
        };
        rows.push(row("Subagents", below));
        rows
    }
}

/// Says that work must pass a verify command, and which files it does not take from the work.
pub(super) fn verify_words(verify: &VerifyCommand) -> String {
    // Never cut: a person approves all of it.
    let lines: Vec<String> = verify.command.lines().map(sanitize::collapsed).collect();
    let mut words = format!("passes only if `{}` succeeds", lines.join("⏎"));
    if !verify.keep.is_empty() {
        words += &format!(", with {} from the base", fit(&verify.keep.join(", "), LINE_COLUMNS));
    }
    words
}

/// Returns the most that a whole run can consume, and its time limit in seconds if there is one.
pub(super) fn worst(policy: &Policy, root: &Grant) -> (BudgetAmount, Option<u64>) {
    let worst = root.brief.model.as_ref().map(|model| worst_case_of_run(policy, model));
    let (tokens, usd) = worst.unwrap_or((u64::MAX, None));
    (BudgetAmount { tokens, usd: usd.unwrap_or_default() }, root.timeout_s)
}
