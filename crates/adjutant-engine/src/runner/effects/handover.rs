//! Collecting what an agent with a full context hands over to its next conversation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use adjutant_core::{CollectedHandover, Command, SessionId};
use adjutant_formats::line_diff::unified_diff;
use adjutant_store::RunDir;
use adjutant_tools::{Masker, ToolCaps, Toolbox};
use adjutant_workspace::{MissingParents, PathError, RelPath};

use crate::runner::Runner;
use crate::runner::effects::EffectResult;
use crate::runner::panics::catch_panic;
use crate::workspaces::{ToolSite, WorkDiff};

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
        let originals = self.tree.node(session).map(|node| node.originals().clone());
        let saved = self.context.folder.clone().zip(originals);
        let masker = self.context.brief_builder.masker.clone();
        let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        self.tasks.spawn_blocking(move || {
            let collected = catch_panic(|| {
                let diff = match (&tool_site, saved) {
                    (ToolSite::Shared(toolbox), Some((folder, originals))) => {
                        Some(diff_in_place(toolbox, &folder, &originals, max_bytes, &masker))
                    }
                    _ => tool_site.diff(session, &message, max_bytes, &masker),
                };
                with_diff(handover, diff, &masker)
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

/// Compares the files that an agent changed in place with what they contained before, as it was saved for `undo`.
/// Changes that others made since are included. Files that cannot be read are left out. Blocks.
fn diff_in_place(
    toolbox: &Toolbox,
    saved: &RunDir,
    originals: &BTreeMap<String, Option<String>>,
    max_bytes: usize,
    masker: &Masker,
) -> WorkDiff {
    let root = toolbox.root();
    let now = |path: &str| {
        let target = root.file_target(
            &RelPath::default(),
            &root.relative(path).ok()?,
            MissingParents::Leave,
        );
        let image = match target.and_then(|target| target.read(ToolCaps::default().write_bytes)) {
            Ok(image) => image,
            Err(PathError::NotFound) => None,
            Err(_) => return None,
        };
        Some(image.map(|image| image.bytes))
    };
    let diff_of = |path: &str, hash: Option<&String>| {
        let before = hash.map(|hash| saved.read_before_image(hash)).transpose().ok()?;
        let [before, after] = [before, now(path)?].map(|bytes| bytes.map(String::from_utf8));
        let (before, after) = (before.transpose().ok()?, after.transpose().ok()?);
        Some(unified_diff(path, before.as_deref(), after.as_deref()))
    };
    let mut diff = WorkDiff { files: BTreeSet::new(), patch: String::new(), is_cut: false };
    for (path, hash) in originals {
        if diff.patch.len() > max_bytes {
            diff.is_cut = true;
            break;
        }
        diff.patch.extend(diff_of(path, hash.as_ref()));
    }
    diff.patch = masker.mask(&diff.patch).into_owned();
    diff
}

/// Adds the diff of the work, and masks secrets.
fn with_diff(
    mut handover: CollectedHandover,
    diff: Option<WorkDiff>,
    masker: &Masker,
) -> CollectedHandover {
    // Without a diff the agent still has its note and the files that its tools changed.
    if let Some(diff) = diff {
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
