//! Collecting what an agent with a full context hands over to its next conversation.

use std::sync::Arc;

use adjutant_core::{CollectedHandover, Command, SessionId};
use adjutant_tools::Masker;

use crate::runner::Runner;
use crate::runner::effects::EffectResult;
use crate::runner::panics::catch_panic;
use crate::workspaces::ToolSite;

impl Runner {
    /// Starts collecting the handover of an agent.
    pub(in crate::runner) fn collect_handover(
        &mut self,
        session: SessionId,
        turn: u32,
        has_note: bool,
        max_bytes: u64,
    ) {
        // The next request of the session has nothing in common with the previous one.
        self.context.brief_builder.models.forget(session);
        let conversation = self.conversations.get(&session).map(Arc::clone).unwrap_or_default();
        let last_text = conversation.last_words().unwrap_or_default().to_owned();
        let handover = CollectedHandover {
            brief: conversation.brief(),
            note: has_note.then(|| last_text.clone()),
            scratchpad: conversation.scratchpad().to_vec(),
            last_text,
            files: self.tree.node(session).map(|node| node.changed().clone()).unwrap_or_default(),
            ..CollectedHandover::default()
        };
        let (tool_site, message) = (self.tool_site(session), self.message(session));
        let masker = self.context.brief_builder.masker.clone();
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        self.tasks.spawn_blocking(move || {
            let collected = catch_panic(|| {
                with_diff(handover, &tool_site, session, &message, max_bytes, &masker)
            });
            match collected {
                Ok(handover) => {
                    let handover = Box::new(handover);
                    EffectResult::from(Command::TakeHandover { session, turn, handover })
                }
                Err(crash) => crash.command(session).into(),
            }
        });
    }
}

/// Adds the files and the diff of the workspace, and masks secrets. Blocks.
fn with_diff(
    mut handover: CollectedHandover,
    tool_site: &ToolSite,
    session: SessionId,
    message: &str,
    max_bytes: usize,
    masker: &Masker,
) -> CollectedHandover {
    // Without a diff the agent still has its note and the files that its tools changed.
    if let Some(diff) = tool_site.diff(session, message, max_bytes, masker) {
        handover.files.extend(diff.files);
        (handover.diff, handover.is_diff_cut) = (diff.patch, diff.is_cut);
    }
    let mask = |text: &String| masker.mask(text).into_owned();
    handover.note = handover.note.as_ref().map(mask);
    handover.last_text = mask(&handover.last_text);
    handover.scratchpad = handover.scratchpad.iter().map(mask).collect();
    handover.files = handover.files.iter().map(mask).collect();
    handover
}
