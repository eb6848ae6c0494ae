//! The work of the root agent: only its goal, a slash command, or a story of a PRD.
//!
//! The rest of the engine does not distinguish them: it asks [`RootWork`] whether the root agent works itself,
//! which instructions it gets, and which command starts the work.

use std::collections::BTreeSet;
use std::sync::Arc;

use adjutant_core::story::StoryAssignment;
use adjutant_core::{Command, Policy, SlashCommandAssignment};

use super::Engine;

/// What the root agent works on besides its goal: nothing, a slash command or a story.
#[derive(Clone, Debug, Default)]
pub(super) enum RootWork {
    /// Only its goal.
    #[default]
    Goal,
    /// A slash command.
    SlashCommand(Box<SlashCommandAssignment>),
    /// A story of a PRD.
    Story(Box<StoryAssignment>),
}

impl RootWork {
    /// Returns whether the root agent does the work itself; otherwise it reads and delegates.
    pub(super) const fn is_done_by_root(&self) -> bool {
        match self {
            Self::Goal | Self::SlashCommand(_) => false,
            Self::Story(_) => true,
        }
    }

    /// Returns whether the commands of agents get the run's limits as environment variables.
    pub(super) const fn has_limits_in_environment(&self) -> bool {
        match self {
            Self::Goal | Self::SlashCommand(_) => false,
            Self::Story(_) => true,
        }
    }

    /// Returns the text that is appended to the goal.
    pub(super) fn instructions(&self, policy: &Policy, depth: u64) -> Option<String> {
        match self {
            Self::Goal | Self::SlashCommand(_) => None,
            Self::Story(_) => policy.marker_instructions(depth),
        }
    }

    /// Returns the assignment, if the work is a slash command.
    pub(super) fn assignment(&self) -> Option<&SlashCommandAssignment> {
        match self {
            Self::SlashCommand(assignment) => Some(assignment),
            Self::Goal | Self::Story(_) => None,
        }
    }

    /// Returns the command that starts the work, or that asks a person for approval first.
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
    /// Sets the slash command that the run carries out. Its operation and timeout apply to tasks whose agent
    /// definition has none; the root agent gets the longest timeout of that operation.
    #[must_use]
    pub fn with_assignment(mut self, assignment: SlashCommandAssignment) -> Self {
        self.brief_builder.take_assignment(&assignment);
        self.root_work = RootWork::SlashCommand(Box::new(assignment));
        self
    }

    /// Sets the story that the run works on: the root agent does the work in its own workspace.
    #[must_use]
    pub fn with_story(mut self, story: StoryAssignment) -> Self {
        self.root_work = RootWork::Story(Box::new(story));
        self
    }

    /// Sets the names of stories that have runs of their own and therefore cannot be delegated.
    #[must_use]
    pub fn with_stories(mut self, stories: BTreeSet<String>) -> Self {
        self.brief_builder.separate_work = Arc::new(stories);
        self
    }

    /// Asks a person to approve the whole run before the root agent begins, unless the policy approves it.
    /// `sent` is the command line, if a client sent it instead of a person typing it.
    #[must_use]
    pub fn with_approval_first(mut self, sent: Option<&str>) -> Self {
        self.asks_first = true;
        if let RootWork::SlashCommand(assignment) = &mut self.root_work {
            assignment.sent = sent.map(str::to_owned);
        }
        self
    }
}
