//! What the agent at the root is given beside its goal: nothing, a slash command, or a story of a PRD.
//!
//! Only this module knows that there are stories. What begins a run asks [`RootWork`] whether the agent
//! works itself, what it is told in addition and which command gives it the work.

use std::collections::BTreeSet;
use std::sync::Arc;

use adjutant_core::story::StoryWork;
use adjutant_core::{Assignment, Command, Policy};

use super::Engine;

/// The work of the agent at the root.
#[derive(Clone, Debug, Default)]
pub(super) enum RootWork {
    /// Its goal, and nothing else.
    #[default]
    Goal,
    /// A slash command.
    SlashCommand(Box<Assignment>),
    /// A story of a PRD.
    Story(Box<StoryWork>),
}

impl RootWork {
    /// Says whether the agent does the work itself; otherwise it reads and leads others.
    pub(super) const fn is_done_by_root(&self) -> bool {
        match self {
            Self::Goal | Self::SlashCommand(_) => false,
            Self::Story(_) => true,
        }
    }

    /// Says whether the commands of agents find the limits of the run in their environment.
    pub(super) const fn has_limits_in_environment(&self) -> bool {
        match self {
            Self::Goal | Self::SlashCommand(_) => false,
            Self::Story(_) => true,
        }
    }

    /// Returns what is added to the agent's goal.
    pub(super) fn instructions(&self, policy: &Policy, depth: u64) -> Option<String> {
        match self {
            Self::Goal | Self::SlashCommand(_) => None,
            Self::Story(_) => policy.marker_instructions(depth),
        }
    }

    /// Returns what a slash command asks for, where the work is one.
    pub(super) fn assignment(&self) -> Option<&Assignment> {
        match self {
            Self::SlashCommand(assignment) => Some(assignment),
            Self::Goal | Self::Story(_) => None,
        }
    }

    /// Returns the command that gives the agent its work, or that asks a person about it first.
    pub(super) fn opening(&self, asks_first: bool) -> Option<Command> {
        let (assignment, story) = match self.clone() {
            Self::Goal => (None, None),
            Self::SlashCommand(assignment) => (Some(assignment), None),
            Self::Story(story) => (None, Some(story)),
        };
        if asks_first {
            return Some(Command::AskToBegin { assignment, story });
        }
        assignment.map(Command::Assign).or_else(|| story.map(Command::TakeStory))
    }
}

impl Engine {
    /// Says what a slash command asks of the run. Its kind of work and the seconds it gives count for
    /// tasks whose agent's definition does not say otherwise; the agent at the root has the most time
    /// that such work may take.
    #[must_use]
    pub fn with_assignment(mut self, assignment: Assignment) -> Self {
        self.brief_builder.take_assignment(&assignment);
        self.root_work = RootWork::SlashCommand(Box::new(assignment));
        self
    }

    /// Lets the run work on a story: the agent at the root does the work, in a workspace of its own.
    #[must_use]
    pub fn with_story(mut self, story: StoryWork) -> Self {
        self.root_work = RootWork::Story(Box::new(story));
        self
    }

    /// Makes the names of stories known that are worked on by themselves: none is handed down.
    #[must_use]
    pub fn with_stories(mut self, stories: BTreeSet<String>) -> Self {
        self.brief_builder.separate_work = Arc::new(stories);
        self
    }

    /// Has a person asked about the whole run before the agent at its root begins, unless the policy lets
    /// it; `sent` is the command that nobody has typed.
    #[must_use]
    pub fn with_approval_first(mut self, sent: Option<&str>) -> Self {
        self.asks_first = true;
        if let RootWork::SlashCommand(assignment) = &mut self.root_work {
            assignment.sent = sent.map(str::to_owned);
        }
        self
    }
}
