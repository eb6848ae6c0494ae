//! Asking a person through their client: the form, its answer, and a record of which questions were asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adjutant_core::RunId;
use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientResult, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema, RequestId,
    ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleServer};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{OpenQuestion, RejectedAnswerReason};

/// The width of the question in columns; clients show the text unchanged.
const COLUMNS: usize = 80;

/// The form's only field, and its values: one of the first two, and `refuse`.
const ANSWER: &str = "answer";
const START: &str = "start";
const MERGE: &str = "merge";
const REFUSE: &str = "refuse";

/// A person's answer: yes, or no with a reason.
pub(crate) type PersonAnswer = Result<(), String>;

/// What this server knows about questions. Prevents that a question is asked twice at the same time.
#[derive(Clone, Default)]
pub(crate) struct QuestionTracker {
    // Std mutexes: held for single map operations, never across an await.
    being_asked: Arc<Mutex<BTreeSet<String>>>,
    /// The runs that this process handed to calls.
    runs: Arc<Mutex<BTreeSet<RunId>>>,
    /// Notes on open questions, by run and hash.
    open: Arc<Mutex<BTreeMap<RunId, BTreeMap<String, QuestionNotes>>>>,
}

/// What the server remembers about an open question.
#[derive(Default)]
struct QuestionNotes {
    /// When the client was first shown the question as part of a task.
    shown: Option<Instant>,
    /// Why the client's response did not count. The question then waits in the inbox, and this client is not asked again.
    left_open: Option<RejectedAnswerReason>,
}

impl QuestionTracker {
    /// Records that a client of this server started or waits for the run, so that its questions may be asked here.
    pub(crate) fn add_run(&self, run: RunId) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run);
    }

    /// Returns whether this server may ask the questions of a run. Questions of runs that another client or a
    /// person started are answered there.
    pub(crate) fn may_ask_for(&self, run: RunId) -> bool {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).contains(&run)
    }

    /// Records that the client is shown a question now, unless it was shown before.
    pub(crate) fn show(&self, run: RunId, hash: &str) {
        self.note(run, hash, |question| _ = question.shown.get_or_insert_with(Instant::now));
    }

    /// Returns when the client was first shown a question, or `None` if this server did not show it.
    pub(crate) fn shown_at(&self, run: RunId, hash: &str) -> Option<Instant> {
        self.open().get(&run)?.get(hash)?.shown
    }

    /// Moves a question to the inbox: this client is not asked again.
    pub(crate) fn leave_open(&self, run: RunId, hash: &str, why: RejectedAnswerReason) {
        self.note(run, hash, |question| question.left_open = Some(why));
    }

    /// Fills in why questions of a run were left open, and forgets questions that are no longer open.
    pub(crate) fn mark(&self, run: RunId, open_questions: &mut [OpenQuestion]) {
        let mut open = self.open();
        let Some(known) = open.get_mut(&run) else { return };
        known.retain(|hash, _| open_questions.iter().any(|asking| asking.hash == *hash));
        for asking in open_questions {
            asking.left_open = known.get(&asking.hash).and_then(|it| it.left_open.clone());
        }
        if known.is_empty() {
            open.remove(&run);
        }
    }

    /// Forgets a run's questions once its process has exited, even if no client asks for the run again.
    pub(crate) fn forget_after(&self, run: RunId, mut gone: watch::Receiver<bool>) {
        let tracker = self.clone();
        tokio::spawn(async move {
            let _ = gone.wait_for(|is_gone| *is_gone).await;
            tracker.open().remove(&run);
        });
    }

    fn note(&self, run: RunId, hash: &str, change: impl FnOnce(&mut QuestionNotes)) {
        change(self.open().entry(run).or_default().entry(hash.to_owned()).or_default());
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<RunId, BTreeMap<String, QuestionNotes>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the right to ask a question. Returns `None` if it is already being asked.
    pub(crate) fn claim(&self, hash: &str) -> Option<QuestionClaim> {
        let mut out = self.being_asked.lock().unwrap_or_else(PoisonError::into_inner);
        out.insert(hash.to_owned())
            .then(|| QuestionClaim { tracker: self.clone(), hash: hash.to_owned() })
    }
}

/// The right to ask a question, held until this is dropped.
pub(crate) struct QuestionClaim {
    tracker: QuestionTracker,
    hash: String,
}

impl Drop for QuestionClaim {
    fn drop(&mut self) {
        self.tracker.being_asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.hash);
    }
}

/// Returns whether a client can show a form to its user.
pub(crate) fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    capabilities
        .and_then(|it| it.elicitation.as_ref())
        // A client that names no kind supports forms: the first protocol version had no other kind.
        .is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// Returns the form that the client shows to the person.
pub(crate) fn question_form(asking: &OpenQuestion, root: &str) -> ElicitRequestParams {
    let (what, title) = match asking.is_about_whole_run {
        true => ("begin a run", "Begin this run?"),
        false => ("start subagents", "Start these subagents?"),
    };
    let remedy = asking.details.remedy().map(|it| format!("\n{it}\n")).unwrap_or_default();
    let message = format!(
        "A client asks Adjutant to {what} in {}.\n\n{}{remedy}",
        adjutant_view::sanitize::line(root),
        asking.details.text(COLUMNS)
    );
    form(&message, title, START)
}

/// Returns the form that asks whether results may be merged.
pub(crate) fn merge_form(message: &str) -> ElicitRequestParams {
    form(message, "Merge into your files?", MERGE)
}

/// Returns a form with one field, whose values are `yes` and `refuse`.
fn form(message: &str, title: &'static str, yes: &str) -> ElicitRequestParams {
    let choice = EnumSchema::builder(vec![yes.to_owned(), REFUSE.to_owned()]).untitled();
    let choice = choice.title(title).build();
    let properties = ElicitationSchema::builder().required_enum_schema(ANSWER, choice);
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: adjutant_view::sanitize::block(message.trim_end()).into_owned(),
        requested_schema: properties.build_unchecked(),
    }
}

/// Reads the reply to a form: `None` if it was dismissed, otherwise yes or no.
pub(crate) fn person_answer(result: &ElicitResult) -> Option<PersonAnswer> {
    answer_in(result, START)
}

/// Like [`person_answer`], for the form that asks about a merge.
pub(crate) fn merge_answer(result: &ElicitResult) -> Option<PersonAnswer> {
    answer_in(result, MERGE)
}

fn answer_in(result: &ElicitResult, yes: &str) -> Option<PersonAnswer> {
    if result.action == ElicitationAction::Cancel {
        return None;
    }
    let said = result.content.as_ref().and_then(|content| content.get(ANSWER));
    let is_yes = said.and_then(Value::as_str) == Some(yes);
    if result.action == ElicitationAction::Accept && is_yes {
        return Some(Ok(()));
    }
    Some(Err("the person said no".into()))
}

/// A question that was sent to the client and is not answered yet.
pub(crate) struct SentQuestion {
    handle: RequestHandle<RoleServer>,
    peer: Peer<RoleServer>,
    id: RequestId,
}

impl SentQuestion {
    /// Sends a question to the client.
    pub(crate) async fn send(
        peer: &Peer<RoleServer>,
        form: ElicitRequestParams,
    ) -> Result<Self, ServiceError> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
        let options = PeerRequestOptions::no_options();
        let handle = peer.send_cancellable_request(request, options).await?;
        Ok(Self { id: handle.id.clone(), peer: peer.clone(), handle })
    }

    /// Splits the question into the future of its answer and a handle to withdraw it.
    pub(crate) fn split(
        self,
    ) -> (impl Future<Output = Result<ElicitResult, ServiceError>>, QuestionWithdrawal) {
        let handle = self.handle;
        let answer = async move {
            let ClientResult::ElicitResult(result) = handle.await_response().await? else {
                return Err(ServiceError::UnexpectedResponse);
            };
            Ok(result)
        };
        (answer, QuestionWithdrawal { peer: self.peer, id: self.id })
    }
}

/// Withdraws a question that was sent.
pub(crate) struct QuestionWithdrawal {
    peer: Peer<RoleServer>,
    id: RequestId,
}

impl QuestionWithdrawal {
    /// Tells the client that the question needs no answer any more.
    pub(crate) async fn send(self, reason: &str) {
        let param = CancelledNotificationParam::new(Some(self.id), Some(reason.to_owned()));
        // The reader of the connection notices a client that is gone.
        let _ = self.peer.notify_cancelled(param).await;
    }
}

#[cfg(test)]
mod tests {
    use adjutant_core::Preset;
    use adjutant_view::approval::ApprovalQuestion;

    use super::*;

    fn run(last: char) -> RunId {
        format!("run_1735460684_aaaaa{last}").parse().unwrap()
    }

    fn asking(hash: &str) -> OpenQuestion {
        let root = run('1').root_session();
        OpenQuestion {
            hash: hash.into(),
            id: hash.into(),
            details: ApprovalQuestion::of_call(&Preset::Scout.policy(), &[], root, 0),
            is_about_whole_run: false,
            open_ms: 0,
            left_ms: 0,
            left_open: None,
        }
    }

    #[tokio::test]
    async fn notes_on_a_question_are_dropped_when_it_is_closed_or_its_run_has_ended() {
        let tracker = QuestionTracker::default();
        let mut open = [asking("dismissed"), asking("shown")];
        for run in [run('1'), run('2')] {
            tracker.show(run, "shown");
            tracker.leave_open(run, "dismissed", RejectedAnswerReason::NotAPerson);
            tracker.leave_open(
                run,
                "answered",
                RejectedAnswerReason::NotTaken("it does not answer".into()),
            );
            tracker.mark(run, &mut open);
            assert_eq!(open[0].left_open, Some(RejectedAnswerReason::NotAPerson));
            assert_eq!(open[1].left_open, None);
            assert!(tracker.shown_at(run, "shown").is_some());
            assert_eq!(tracker.open()[&run].len(), 2, "one of them was answered");
        }

        tracker.mark(run('1'), &mut []);
        let (gone, is_gone) = watch::channel(false);
        tracker.forget_after(run('2'), is_gone);
        tokio::task::yield_now().await;
        assert!(tracker.open().keys().eq([&run('2')]), "its process lives");
        gone.send(true).unwrap();
        tokio::task::yield_now().await;
        assert!(tracker.open().is_empty());
    }
}
