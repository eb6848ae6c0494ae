//! The questions that wait for a person: calls, hosts and merges.
//!
//! Questions of runs come from their views, those about merges from the registry. Only questions that the registry has
//! can be answered with `adjutant approve`; the others are asked at the prompt of their own process.

use adjutant_core::RunId;
use adjutant_core::registry::QuestionPointer;
use adjutant_core::tree::WHOLE_RUN;
use adjutant_engine::MergeQuestion;
use adjutant_view::time_text::elapsed;
use adjutant_view::{ProcessLiveness, layout};

use crate::run_list::ListedRun;
use crate::state::WatchState;

/// A question that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// The run that asks.
    pub run: RunId,
    /// What identifies the question within its run.
    pub hash: String,
    /// What is asked.
    pub text: String,
    /// The id for `adjutant approve`; `None` for a question at the prompt of its own process.
    pub id: Option<String>,
}

/// How many of the tasks of a call are named.
const NAMED_LABELS: usize = 3;
/// The maximum width of each label, in columns.
const LABEL_COLUMNS: usize = 20;
/// The maximum width of a host or a name in a question, in columns.
const NAME_COLUMNS: usize = 60;

impl WatchState {
    /// Returns all open questions, in the order of the runs.
    pub(crate) fn inbox(&self) -> Vec<InboxRow> {
        let alive = self.runs.iter().filter(|run| run.liveness == ProcessLiveness::Alive);
        let mut rows: Vec<InboxRow> = alive.flat_map(|run| self.questions_of(run)).collect();
        rows.extend(self.questions.iter().filter_map(|(id, asked)| {
            let merge = MergeQuestion::parse(&asked.hash)?;
            let name = layout::fit(&merge.name, NAME_COLUMNS);
            let text = format!("{} asks to merge {name}", client_name(asked));
            Some(InboxRow { run: asked.run, hash: asked.hash.clone(), text, id: Some(id.clone()) })
        }));
        rows
    }

    /// Returns the open questions of one run.
    pub(crate) fn questions_of(&self, run: &ListedRun) -> Vec<InboxRow> {
        let calls = run.view.approvals().iter().map(|open| {
            let known = |(_, asked): &&(String, QuestionPointer)| {
                asked.run == run.id && asked.hash == open.hash
            };
            let known = self.questions.iter().find(known);
            let what = if open.call == WHOLE_RUN {
                "the whole run".to_owned()
            } else {
                let labels = run
                    .view
                    .waiting_for(open)
                    .map(|it| layout::bracketed(it.label.as_str(), LABEL_COLUMNS));
                let mut what: Vec<String> = labels.take(NAMED_LABELS).collect();
                what.push(format!("call {}", open.call));
                what.join(" ")
            };
            let of_client = known.filter(|(_, asked)| !asked.at_prompt);
            let who = of_client.map_or_else(
                || "asks at its own prompt".to_owned(),
                |(_, asked)| format!("{} asks", client_name(asked)),
            );
            let left = elapsed(open.expires.since(run.now));
            let text = format!("{who}: {what} of {}, expires in {left}", run.id);
            InboxRow {
                run: run.id,
                hash: open.hash.clone(),
                text,
                id: known.map(|(id, _)| id.clone()),
            }
        });
        let agents = run.view.preorder().into_iter();
        let asked = agents
            .flat_map(|agent| agent.hosts.iter().map(move |(call, host)| (agent, call, host)));
        let hosts = asked.map(|(agent, call, host)| {
            let shown = layout::fit(host, NAME_COLUMNS);
            let text = format!("asks at its own prompt: may {} reach {shown}?", run.id);
            let hash = format!("{} {call} {host}", agent.session);
            InboxRow { run: run.id, hash, text, id: None }
        });
        calls.chain(hosts).collect()
    }
}

fn client_name(asked: &QuestionPointer) -> String {
    if asked.client.is_empty() { "a client".into() } else { layout::fit(&asked.client, 30) }
}
