//! The patches of a run's results: what each writer changed relative to the files it started from.
//!
//! The work itself is in git. Here it is text for a model, with control characters made visible and binary files only
//! named. Start at [`ResultPatch::read_all`].

use std::path::Path;

use adjutant_core::SessionId;
use adjutant_engine::results::{BinaryContent, KeptResults, PatchOptions};
use adjutant_view::{Delegation, sanitize};
use serde_json::{Value, json};

use crate::ServerSetup;
use crate::runs::{RunSnapshot, error_chain};

/// The patch of one result.
#[derive(Debug)]
pub(crate) struct ResultPatch {
    session: SessionId,
    label: String,
    reference: String,
    commit: String,
    text: String,
    /// Whether git printed more than was read.
    is_cut: bool,
}

impl ResultPatch {
    /// Reads the patches of a run, or of the session that was asked about, each up to `max_bytes`.
    ///
    /// Work that was merged into its parent's workspace is part of the parent's patch. Results that were discarded are
    /// left out.
    pub(crate) fn read_all(
        snapshot: &RunSnapshot,
        setup: &ServerSetup,
        max_bytes: usize,
    ) -> Result<Vec<Self>, String> {
        let view = &snapshot.view;
        let is_meant = |it: &Delegation| match snapshot.session {
            Some(session) => it.session == session,
            None => !view.is_part_of_parent(it),
        };
        let has_commit =
            |it: &Delegation| it.kept.as_deref().is_some_and(|(work, _)| work.commit.is_some());
        let writers: Vec<_> =
            view.preorder().into_iter().filter(|it| is_meant(it) && has_commit(it)).collect();
        if writers.is_empty() {
            return Ok(Vec::new());
        }
        let tree = Path::new(view.workdir());
        let work = KeptResults::open(&setup.search, tree, setup.archive.path())
            .map_err(|error| error_chain(&error))?;
        let kept = work.results(snapshot.files.id()).map_err(|error| error_chain(&error))?;
        let mut all = Vec::new();
        for writer in writers {
            let found = kept.iter().find(|it| it.session == Some(writer.session));
            let Some(result) = found else { continue };
            let options = PatchOptions { paths: &[], binary: BinaryContent::Named, max_bytes };
            let (bytes, is_cut) =
                work.patch(result, options).map_err(|error| error_chain(&error))?;
            all.push(Self {
                session: writer.session,
                label: writer.label.to_string(),
                reference: result.reference.clone(),
                commit: result.commit.clone(),
                text: sanitize::block(&String::from_utf8_lossy(&bytes)).into_owned(),
                is_cut,
            });
        }
        Ok(all)
    }

    /// Returns the patch, as far as it was read.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether less than the whole patch fits into `room` bytes.
    pub(crate) fn is_longer_than(&self, room: usize) -> bool {
        self.is_cut || self.text.len() > room
    }

    /// Returns the lines that fit into `room` bytes.
    fn lines_within(&self, room: usize) -> &str {
        if self.text.len() <= room {
            return &self.text;
        }
        let start = &self.text[..self.text.floor_char_boundary(room)];
        start.rfind('\n').map_or("", |end| &start[..=end])
    }

    /// Returns the patch as data, cut to `room` bytes.
    pub(crate) fn json(&self, room: usize) -> Value {
        json!({
            "session_id": self.session, "label": self.label, "ref": self.reference,
            "commit": self.commit, "patch": self.lines_within(room), "cut": self.is_longer_than(room),
        })
    }

    /// Returns the patch as Markdown, cut to `room` bytes.
    pub(crate) fn markdown(&self, room: usize) -> String {
        let shown = self.lines_within(room);
        // Longer than every run of backticks in the patch, so that the patch cannot end the block.
        let longest = shown.split(|it| it != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        let cut = if self.is_longer_than(room) {
            " (cut; the rest is in the linked resource)"
        } else {
            ""
        };
        format!(
            "\n**Patch** of [{}], {}{cut}:\n\n{fence}diff\n{shown}{fence}\n",
            sanitize::label(&self.label),
            sanitize::line(&self.reference),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_cut_after_a_line_and_cannot_end_its_block() {
        let patch = ResultPatch {
            session: "sess_1735460684_d4e5f6".parse().unwrap(),
            label: "fix".into(),
            reference: "refs/adjutant/x".into(),
            commit: "c0ffee".into(),
            text: "+one\n ````\n+three\n".into(),
            is_cut: false,
        };
        let whole = patch.markdown(usize::MAX);
        assert!(whole.ends_with("`````diff\n+one\n ````\n+three\n`````\n"), "{whole}");
        assert_eq!(patch.json(12)["patch"], "+one\n ````\n");
        assert_eq!(patch.json(12)["cut"], true);
        assert_eq!(patch.json(3)["patch"], "");
        assert!(patch.markdown(12).contains("cut; the rest"));
    }
}
