//! `delegate_merge`: shows what merging a run's results would do, and merges them once a person approved it.
//!
//! The program's own `merge` command does the work in its own process, so that its rules apply here too. A person
//! approves the commits that the preview shows: the command refuses if the results have changed since. Start at
//! [`ResultMerger::merge`].

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjutant_core::{RunId, SessionId};
use adjutant_engine::{MergeQuestion, question_id};
use adjutant_view::receipt::Verification;
use adjutant_view::{RunView, sanitize};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ElicitRequestParams, InputRequiredResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use crate::answer::MergeStep;
use crate::approval::rounds::AskedQuestion;
use crate::approval::{MergeApproval, PersonAnswer, QuestionRelay, SentQuestion, ask};
use crate::client_call::ClientCall;
use crate::runs::{VisibleRuns, error_chain};
use crate::tools::MergeToolArgs;
use crate::{ServerSetup, TOKEN_VARIABLE, answer};

/// Merges results for clients.
#[derive(Clone)]
pub(crate) struct ResultMerger {
    pub(crate) setup: Arc<ServerSetup>,
    pub(crate) runs: VisibleRuns,
    pub(crate) approvals: QuestionRelay,
    /// When questions were put into the inbox by this server, in milliseconds since 1970, by hash.
    // A std mutex: held for single map operations, never across an await.
    pub(crate) left_in_inbox: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// The results that a call is about, and what merging them would do.
struct MergeToolPreview {
    run: RunId,
    question: MergeQuestion,
    /// What `merge --dry-run --json` printed, with the verification of each result.
    data: Value,
}

/// What a person said about a merge.
enum MergeVerdict {
    Approved,
    Refused,
    /// The client cancelled its call, or is gone.
    Abandoned,
    /// The client did not ask, or a person did not answer.
    Unanswered,
    /// The call is answered with the question; the client repeats the call with the answer.
    // Boxed, because this variant is rare and larger than the others.
    AnswerWith(Box<InputRequiredResult>),
}

impl ResultMerger {
    /// Returns a preview, or merges if the call asks for that and a person has approved it.
    pub(crate) async fn merge(
        &self,
        args: MergeToolArgs,
        call: &mut ClientCall<'_>,
        bytes: usize,
    ) -> Result<CallToolResponse, String> {
        let preview = self.preview(&args.run).await?;
        let name = preview.question.name.clone();
        let hash = preview.question.hash();
        if !args.apply {
            let next = format!(
                "Nothing was changed. delegate_merge with {{\"run\":\"{name}\",\"apply\":true}} merges it after a \
                 person's approval."
            );
            let next = preview.can_merge().then_some(next);
            return Ok(answer::of_merge(preview.data, next, MergeStep::Preview, bytes).into());
        }
        if !preview.can_merge() {
            self.forget_question(&hash);
            let next = match preview.is_merged() {
                true => "The results are in the files already; this call changed nothing.",
                false => "Nothing was changed: there is nothing to merge, or it cannot be merged.",
            };
            let next = Some(next.to_owned());
            return Ok(answer::of_merge(preview.data, next, MergeStep::Apply, bytes).into());
        }
        match self.setup.merge_approval {
            MergeApproval::Unasked => {}
            MergeApproval::Denied => return Err(DENIED.into()),
            MergeApproval::Asked if self.was_closed(hash.clone()).await? => {
                return Err(CLOSED.into());
            }
            MergeApproval::Asked => match self.ask(&preview, call).await? {
                MergeVerdict::Approved => {}
                MergeVerdict::Abandoned => return Err("Not merged: the call was cancelled.".into()),
                MergeVerdict::Refused => {
                    self.close_question(&hash);
                    return Err(REFUSED.into());
                }
                MergeVerdict::Unanswered => {
                    return self.leave_in_inbox(preview, call, bytes).await.map(Into::into);
                }
                MergeVerdict::AnswerWith(question) => return Ok((*question).into()),
            },
        }
        let mut flags = vec!["--only-commits".to_owned(), preview.question.commits.join(",")];
        flags.push(name.clone());
        let done = self.run_merge(&flags).await?;
        self.close_question(&hash);
        let data = self.with_verification(preview.run, done).await?;
        Ok(answer::of_merge(data, None, MergeStep::Apply, bytes).into())
    }

    async fn preview(&self, name: &str) -> Result<MergeToolPreview, String> {
        let name = name.to_owned();
        let (files, session) = self.runs.blocking(move |runs| runs.find(&name)).await?;
        let run = files.id();
        let name = session.map_or_else(|| run.to_string(), |session| session.to_string());
        let data = self.run_merge(&["--dry-run".into(), name.clone()]).await?;
        let data = self.with_verification(run, data).await?;
        let results = data["results"].as_array().into_iter().flatten();
        let commits = results.filter_map(|it| it["commit"].as_str()).map(str::to_owned).collect();
        Ok(MergeToolPreview { run, question: MergeQuestion { name, commits }, data })
    }

    /// Runs the program's `merge` command and returns what it prints.
    async fn run_merge(&self, arguments: &[String]) -> Result<Value, String> {
        let mut command = Command::new(&self.setup.program);
        command.args(["merge", "--json", "--home"]).arg(self.setup.archive.path());
        // The merge completes even if the client no longer waits: files must not stay half merged.
        command.args(arguments).current_dir(&self.setup.root).env_remove(TOKEN_VARIABLE);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = tokio::spawn(async move { command.output().await });
        let output = running.await.map_err(|error| error_chain(&error))?;
        let output = output.map_err(|error| format!("cannot start the merge: {error}"))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&output.stderr);
            said.trim().trim_start_matches("adjutant: ").to_owned()
        })
    }

    /// Adds to each result whether its work was verified.
    async fn with_verification(&self, run: RunId, mut data: Value) -> Result<Value, String> {
        let read = move |runs: &VisibleRuns| Ok(runs.read(&run.to_string())?.view);
        let view: RunView = self.runs.blocking(read).await?;
        for result in data["results"].as_array_mut().into_iter().flatten() {
            let session = result["session"].as_str().and_then(|it| it.parse::<SessionId>().ok());
            let made_by = session.and_then(|session| view.delegation(session));
            result["verification"] = json!(made_by.map(Verification::of));
        }
        Ok(data)
    }

    /// Asks the person through the client, if it can show a form.
    async fn ask(
        &self,
        preview: &MergeToolPreview,
        call: &mut ClientCall<'_>,
    ) -> Result<MergeVerdict, String> {
        if !self.approvals.can_ask(call.context) {
            return Ok(MergeVerdict::Unanswered);
        }
        let form = ask::merge_form(&preview.question_text(&self.setup.root.display().to_string()));
        let has_rounds =
            call.context.protocol_version().is_some_and(|it| it >= ProtocolVersion::V_2026_07_28);
        if !has_rounds {
            return Ok(self.ask_now(form, call).await);
        }
        let hash = preview.question.hash();
        if let Some(answered) = call.round.answered.as_ref().filter(|it| it.hash == hash) {
            // The question can be answered in a terminal too; it is answered once.
            if !self.setup.archive.registry().has_question(&question_id(&hash)) {
                return Ok(MergeVerdict::Refused);
            }
            return Ok(self.verdict(answered.verdict.clone(), answered.after));
        }
        let left_ms = self.open_question(preview, call.context).await?;
        let asked = AskedQuestion { run: &preview.question.name, hash: &hash, left_ms, form };
        let question = self.approvals.seal(asked, &call.round)?;
        Ok(MergeVerdict::AnswerWith(Box::new(question)))
    }

    /// Sends the form while the call waits.
    async fn ask_now(&self, form: ElicitRequestParams, call: &mut ClientCall<'_>) -> MergeVerdict {
        let Ok(sent) = SentQuestion::send(&call.context.peer, form).await else {
            return MergeVerdict::Unanswered;
        };
        let asked = Instant::now();
        let (answered, withdrawal) = sent.split();
        tokio::select! {
            said = answered => match said {
                Ok(said) => self.verdict(ask::merge_answer(&said), asked.elapsed()),
                Err(_) => MergeVerdict::Unanswered,
            },
            () = sleep_until(call.until) => {
                withdrawal.send("the call has to be answered now").await;
                MergeVerdict::Unanswered
            }
            _ = call.wait_until_abandoned() => MergeVerdict::Abandoned,
        }
    }

    fn verdict(&self, said: Option<PersonAnswer>, after: Duration) -> MergeVerdict {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        match said {
            _ if !self.setup.policy.can_be_a_person_s_answer(after_ms) => MergeVerdict::Unanswered,
            None => MergeVerdict::Unanswered,
            Some(Ok(())) => MergeVerdict::Approved,
            Some(Err(_)) => MergeVerdict::Refused,
        }
    }

    /// Puts the question into the inbox of `approvals`, unless it is there. Returns for how many milliseconds it is open.
    async fn open_question(
        &self,
        preview: &MergeToolPreview,
        context: &RequestContext<RoleServer>,
    ) -> Result<u64, String> {
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let (run, hash) = (preview.run, preview.question.hash());
        let open = move |runs: &VisibleRuns| {
            let registry = runs.archive().registry();
            let now = adjutant_engine::wall_now();
            let known = registry.open_questions().map_err(|error| error_chain(&error))?;
            let left = known.iter().filter(|(_, it)| it.hash == hash);
            let left = left.map(|(_, it)| MergeQuestion::left_ms(it.asked_ms, now)).max();
            // A question that is open keeps its code, which the person may be about to type.
            if let Some(left) = left.filter(|left| *left > 0) {
                return Ok(left);
            }
            registry.open_question(run, &hash, &client).map_err(|error| error_chain(&error))?;
            Ok(MergeQuestion::left_ms(now, now))
        };
        self.runs.blocking(open).await
    }

    /// Returns whether this server left the question in the inbox and a person closed it since. Tells it once: the next
    /// call asks again.
    async fn was_closed(&self, hash: String) -> Result<bool, String> {
        let Some(asked_ms) = self.questions().get(&hash).copied() else { return Ok(false) };
        let id = question_id(&hash);
        let is_open =
            self.runs.blocking(move |runs| Ok(runs.archive().registry().has_question(&id))).await?;
        if is_open {
            return Ok(false);
        }
        self.forget_question(&hash);
        Ok(MergeQuestion::left_ms(asked_ms, adjutant_engine::wall_now()) > 0)
    }

    /// Removes an answered question from the inbox.
    fn close_question(&self, hash: &str) {
        self.setup.archive.registry().close_question(&question_id(hash));
        self.forget_question(hash);
    }

    fn forget_question(&self, hash: &str) {
        self.questions().remove(hash);
    }

    fn questions(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.left_in_inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the question in the inbox of `approvals`, and returns where it waits.
    async fn leave_in_inbox(
        &self,
        mut preview: MergeToolPreview,
        call: &mut ClientCall<'_>,
        bytes: usize,
    ) -> Result<CallToolResult, String> {
        let left_ms = self.open_question(&preview, call.context).await?;
        let hash = preview.question.hash();
        let id = question_id(&hash);
        let asked_ms = adjutant_engine::wall_now();
        self.questions().entry(hash).or_insert(asked_ms);
        let (program, minutes) = (&self.setup.program_name, left_ms.div_ceil(60_000));
        let next = format!(
            "Nothing was changed. The merge waits for a person's approval. Ask them to approve it in their own \
             terminal within {minutes} min: `{program} approvals` shows the question and a code, and `{program} approve \
             {id} CODE` merges it. Then call delegate_merge with {{\"run\":\"{}\",\"apply\":true}} again for the outcome.",
            preview.question.name
        );
        preview.data["approval"] = json!({
            "id": id, "expires_s": left_ms / 1000, "command": format!("{program} approve {id} CODE"),
        });
        Ok(answer::of_merge(preview.data, Some(next), MergeStep::Preview, bytes))
    }
}

const DENIED: &str = "Not approved: the person who set this server up lets nothing be merged through clients. They \
    can merge in their own terminal with `adjutant merge`.";

const REFUSED: &str =
    "Not merged: the person said no. Do not ask again unless the person wants it.";

const CLOSED: &str = "Not merged: the person refused it in their terminal, or undid the merge. Do not ask again unless the \
    person wants it.";

impl MergeToolPreview {
    /// Returns whether every result is in the files already.
    fn is_merged(&self) -> bool {
        let results = self.data["results"].as_array();
        results.is_some_and(|all| !all.is_empty() && all.iter().all(|it| it["fate"] == "already"))
    }

    fn can_merge(&self) -> bool {
        let mut results = self.data["results"].as_array().into_iter().flatten();
        results.any(|it| it["fate"] == "would_merge")
    }

    fn question_text(&self, root: &str) -> String {
        format!(
            "A client asks Adjutant to merge results of {} into your files in {}.\n\n{}",
            self.question.name,
            sanitize::line(root),
            answer::merge_text(&self.data)
        )
    }
}
