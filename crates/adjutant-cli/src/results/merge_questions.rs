//! Questions of MCP clients whether results may be merged, and the answer of a person.
//!
//! Approving a question merges exactly the commits it names, here and now. Start at [`PendingMerge::all`].

use adjutant_core::registry::QuestionPointer;
use adjutant_engine::{Archive, MergeQuestion, RegistryError, wall_now};
use adjutant_view::sanitize;
use serde_json::{Value, json};

use super::merge::{line, preview, run_merge};
use super::{MergedChildren, ResultSelection};
use crate::args::{MergeMode, MergeResultsArgs};
use crate::exit::{Exit, Failure};
use crate::hints::program;

/// A merge that waits for a person.
pub(crate) struct PendingMerge {
    pub(crate) id: String,
    pub(crate) waiting: QuestionPointer,
    pub(crate) left_ms: u64,
    question: MergeQuestion,
}

impl PendingMerge {
    /// Returns the merges that wait, oldest first, and removes expired ones from the registry.
    pub(crate) fn all(archive: &Archive) -> Result<Vec<Self>, Failure> {
        let registry = archive.registry();
        let known = registry.open_questions();
        let known = known.map_err(|error| {
            Failure::from_error(Exit::Failed, &RegistryError::Unavailable(error))
        })?;
        let mut all = Vec::new();
        for (id, waiting) in known {
            let Some(question) = MergeQuestion::parse(&waiting.hash) else { continue };
            match MergeQuestion::left_ms(waiting.asked_ms, wall_now()) {
                0 => registry.close_question(&id),
                left_ms => all.push(Self { id, waiting, left_ms, question }),
            }
        }
        Ok(all)
    }

    /// Returns the question as data.
    pub(crate) fn json(&self, archive: &Archive) -> Value {
        let tree = self.select(archive).map(|it| it.work.tree().to_string_lossy().into_owned());
        json!({
            "id": self.id, "run": self.waiting.run, "of": self.question.name,
            "client": self.waiting.client, "root": tree.ok(), "commits": self.question.commits,
            "age_s": wall_now().saturating_sub(self.waiting.asked_ms) / 1000,
            "expires_s": self.left_ms / 1000,
        })
    }

    /// Describes the question: what would be merged, and how to answer.
    pub(crate) fn text(&self, archive: &Archive, shows_code: bool) -> String {
        let (id, name, program) = (&self.id, &self.question.name, program());
        let client = sanitize::line(&self.waiting.client).into_owned();
        let client = if client.is_empty() { "a client".into() } else { client };
        let code = if shows_code {
            format!("Merge it    {program} approve {id} {}\n", self.waiting.code)
        } else {
            format!(
                "Merge it    {program} approve {id} CODE   (run `{program} approvals` in a terminal to see the code)\n"
            )
        };
        let previewed = self.previewed(archive).unwrap_or_else(|failure| format!("{failure}\n"));
        format!(
            "{id}  {client} asks to merge results of {name} into your files; expires in {} min\n\n{previewed}\n\
             Look at it  {program} diff {name}\n{code}Refuse it   {program} approve --deny {id}\n",
            self.left_ms.div_ceil(60_000),
        )
    }

    /// Merges the results, as `adjutant merge` does, and closes the question.
    pub(crate) fn approve(&self, archive: &Archive, as_json: bool) -> Result<Exit, Failure> {
        let args = MergeResultsArgs {
            run: Some(self.question.name.clone()),
            how: MergeMode::Apply,
            dry_run: false,
            undo: false,
            resolve: false,
            go_on: false,
            abort: false,
            only_commits: self.question.commits.clone(),
        };
        let merged = run_merge(archive, &args, as_json);
        archive.registry().close_question(&self.id);
        merged
    }

    fn select(&self, archive: &Archive) -> Result<ResultSelection, Failure> {
        ResultSelection::find(archive, Some(&self.question.name), MergedChildren::Exclude)
    }

    fn previewed(&self, archive: &Archive) -> Result<String, Failure> {
        let chosen = self.select(archive)?;
        let previews = preview(archive, &chosen)?;
        let lines = chosen.picked.iter().zip(previews);
        Ok(lines.map(|(picked, fate)| line(picked, &fate, true)).collect())
    }
}
