//! The effects of a run on a story: delegating by markers, merging children, running the verify command.

use adjutant_core::schema::TaskSpec;
use adjutant_core::story::{AnswerMarkers, MarkedTask, VerifyResult};
use adjutant_core::verify::VerifyFacts;
use adjutant_core::write::RUN;
use adjutant_core::{Brief, Command, Label, ModelSpec, SessionId, ToolCall, ToolOutput};
use serde_json::json;

use super::Runner;
use crate::briefs::brief_builder::{BriefBuilder, TaskRequester};
use crate::engine::EngineError;
use crate::runner::effects::{CommandPurpose, CommandResult};
use crate::runner::panics::catch_panic;

impl Runner {
    /// Delegates the tasks of the markers in a reply.
    pub(super) fn hand_down_markers(
        &mut self,
        session: SessionId,
        turn: u32,
        markers: AnswerMarkers,
    ) -> Result<(), EngineError> {
        let Some(caller) = self.tree.node(session).and_then(|node| node.model.clone()) else {
            return Ok(());
        };
        let brief = |task: &MarkedTask| marked_brief(&self.context.brief_builder, task, &caller);
        let briefs: Vec<Brief> = markers.tasks.iter().map(brief).collect();
        let taken = |session| self.tree.node(session).is_some();
        let tasks = self.context.ids.tasks(briefs, taken)?;
        let rejected = markers.rejected;
        self.submit(Command::DelegateMarkers { session, turn, tasks, rejected })
    }

    /// Merges the work of a child into the workspace of its parent.
    pub(super) fn merge(&mut self, session: SessionId, into: SessionId, commit: String) {
        let above = self.tree.node(into).and_then(|node| node.space.clone());
        let (spaces, masker) =
            (self.context.spaces.clone(), self.context.brief_builder.masker.clone());
        self.tasks.spawn_blocking(move || {
            let result = catch_panic(|| match (spaces, above) {
                (Some(spaces), Some(space)) => {
                    spaces.take_in(into, &space, (session, &commit), &masker)
                }
                _ => Err("there is no workspace to merge it into".to_owned()),
            });
            let merged = result.unwrap_or_else(|crash| Err(crash.message));
            Command::TakeMerge { session, merged }.into()
        });
    }

    /// Runs the verify command, which decides whether the work of a delegation is done.
    pub(super) fn check(
        &mut self,
        session: SessionId,
        command: &str,
        keep: Vec<String>,
        timeout_s: u64,
    ) {
        let arguments = json!({ "command": command, "timeout": timeout_s });
        let (id, name) = (String::new(), RUN.to_owned());
        let call = ToolCall { id, name, arguments, malformed: false };
        let owner = self.tree.space_of(session).map_or(session, |(owner, _)| owner);
        let purpose = CommandPurpose::Verify { message: self.message(owner), keep };
        self.begin_command(session, (purpose, call), move |result| {
            let CommandResult { output, from_base } = match result {
                Ok(result) => result,
                Err(crash) => ToolOutput::error(crash.message).into(),
            };
            let check = match (&output.sandbox, output.is_error) {
                // The sandbox level is set only if the command ran.
                (None, _) => VerifyResult::NotRun,
                (Some(_), true) => VerifyResult::Failed,
                (Some(_), false) => VerifyResult::Passed,
            };
            let facts = VerifyFacts { exit: output.exit, from_base };
            Command::TakeCheck { session, check, text: output.content, facts }
        });
    }
}

/// Builds the brief of a marker's task.
fn marked_brief(brief_builder: &BriefBuilder, task: &MarkedTask, caller: &ModelSpec) -> Brief {
    let spec = TaskSpec {
        label: Label::start_of(&task.description),
        prompt: task.description.clone(),
        context: Vec::new(),
        model: None,
        max_output_tokens: None,
        operation: None,
        timeout_s: None,
    };
    // A marker names no context files, so the root is not used.
    let mut brief =
        brief_builder.brief(&spec, caller, TaskRequester::Model, brief_builder.toolbox.root());
    brief.hours = Some(task.hours);
    brief.verify.clone_from(&task.verify);
    brief
}
