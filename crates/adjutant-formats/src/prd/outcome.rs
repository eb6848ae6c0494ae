//! The outcome of a story and its representation in the PRD.

use serde_json::{Map, Value, json};

use crate::document::DocumentNode;
use crate::money::Usd;
use crate::outcome::Outcome;
use crate::time::rfc3339;

/// The member of a story's entry that records its outcome.
pub(super) const RECORD: &str = "adjutant";

/// The members of that record.
const RECORDED: [&str; 12] = [
    "run",
    "status",
    "summary",
    "branch",
    "reference",
    "commit",
    "cost_usd",
    "estimated",
    "tokens_in",
    "tokens_out",
    "finished",
    "children",
];

/// Returns whether the user has something else where the outcome would be recorded.
pub(super) fn is_taken(text: &str, entry: &DocumentNode) -> bool {
    let Some(there) = entry.member(text, RECORD).filter(|there| !there.is_null(text)) else {
        return false;
    };
    let is_empty = there.is_object() && there.members().is_empty();
    let is_ours = ["run", "status"].iter().all(|key| there.string(text, key).is_some());
    !is_empty && !is_ours
}

/// The member of a child's entry that names its parent.
pub(super) const CONTEXT: &str = "delegationContext";

/// The outcome of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrdOutcome {
    /// Whether it passes, as determined by the engine, not by a model.
    pub passes: bool,
    /// The id of the run.
    pub run: String,
    /// How it ended.
    pub status: Outcome,
    /// A summary of the work.
    pub summary: String,
    /// The branch with its work, if any.
    pub branch: Option<String>,
    /// The git reference that keeps its work, if any.
    pub reference: Option<String>,
    /// The commit of its work if it passes and changed something. Dependent stories start from it.
    pub commit: Option<String>,
    /// The cost, children included.
    pub cost: Usd,
    /// Whether part of the cost is estimated, because a provider did not report its usage.
    pub estimated: bool,
    /// Input tokens, children included.
    pub tokens_in: u64,
    /// Output tokens, children included.
    pub tokens_out: u64,
    /// The end time in Unix milliseconds.
    pub finished_ms: u64,
    /// All its descendants, in any order.
    pub children: Vec<PrdChildOutcome>,
}

/// The outcome of a descendant of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrdChildOutcome {
    /// Its id, such as `US-007-DEL-001`.
    pub id: String,
    /// The id of its parent.
    pub parent: String,
    /// Its title.
    pub title: String,
    /// Its task.
    pub description: String,
    /// The estimate in hours.
    pub hours: u32,
    /// Its depth; a story of the PRD has depth 0.
    pub depth: u64,
    /// Whether it was allowed to delegate.
    pub can_delegate: bool,
    /// The maximum number of its own children.
    pub max_delegations: u64,
    /// Whether it passes.
    pub passes: bool,
    /// How it ended.
    pub status: Outcome,
    /// A summary of the work.
    pub summary: String,
    /// The paths of the changed files.
    pub files_changed: Vec<String>,
    /// The cost, its own children included.
    pub cost: Usd,
    /// Whether part of the cost is estimated, because a provider did not report its usage.
    pub estimated: bool,
    /// Input tokens, its own children included.
    pub tokens_in: u64,
    /// Output tokens, its own children included.
    pub tokens_out: u64,
}

impl PrdOutcome {
    /// Returns the new value of [`RECORD`]; members that the user added to the `known` value stay.
    pub(super) fn record(&self, known: Option<Value>) -> Value {
        let mut record = Map::new();
        record.insert("run".into(), json!(self.run));
        record.insert("status".into(), json!(self.status.word()));
        record.insert("summary".into(), json!(self.summary));
        record.extend(self.branch.iter().map(|branch| ("branch".into(), json!(branch))));
        record.extend(self.reference.iter().map(|it| ("reference".into(), json!(it))));
        record.extend(self.commit.iter().map(|it| ("commit".into(), json!(it))));
        record.insert("cost_usd".into(), json!(self.cost));
        record.extend(self.estimated.then(|| ("estimated".into(), json!(true))));
        record.insert("tokens_in".into(), json!(self.tokens_in));
        record.insert("tokens_out".into(), json!(self.tokens_out));
        record.insert("finished".into(), json!(rfc3339(self.finished_ms)));
        let children: Vec<Value> = self.children.iter().map(PrdChildOutcome::record).collect();
        record.insert("children".into(), json!(children));
        if let Some(Value::Object(known)) = known {
            let is_theirs = |(key, _): &(String, Value)| !RECORDED.contains(&key.as_str());
            record.extend(known.into_iter().filter(is_theirs));
        }
        Value::Object(record)
    }
}

impl PrdChildOutcome {
    fn record(&self) -> Value {
        let mut record = Map::new();
        record.insert("id".into(), json!(self.id));
        record.insert("status".into(), json!(self.status.word()));
        record.insert("summary".into(), json!(self.summary));
        record.insert("files_changed".into(), json!(self.files_changed));
        record.insert("cost_usd".into(), json!(self.cost));
        record.extend(self.estimated.then(|| ("estimated".into(), json!(true))));
        record.insert("tokens_in".into(), json!(self.tokens_in));
        record.insert("tokens_out".into(), json!(self.tokens_out));
        Value::Object(record)
    }

    /// Returns the fields of its entry that are updated.
    pub(super) fn fields(&self) -> [(&'static str, Value); 4] {
        [
            ("title", json!(self.title)),
            ("description", json!(self.description)),
            ("estimatedHours", json!(self.hours)),
            ("passes", json!(self.passes)),
        ]
    }

    /// Returns the members of its [`CONTEXT`].
    pub(super) fn context(&self) -> [(&'static str, Value); 4] {
        [
            ("parent_story_id", json!(self.parent)),
            ("depth", json!(self.depth)),
            ("can_delegate", json!(self.can_delegate)),
            ("max_delegations", json!(self.max_delegations)),
        ]
    }

    /// Returns its complete entry.
    pub(super) fn entry(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("id".into(), json!(self.id));
        let named = |(key, value): (&str, Value)| (key.to_owned(), value);
        entry.extend(self.fields().map(named));
        entry.insert("dependencies".into(), json!([]));
        entry.insert(CONTEXT.into(), self.context().map(named).into_iter().collect());
        Value::Object(entry)
    }
}
