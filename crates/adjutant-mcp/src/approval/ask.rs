//! Asking a person through their client.

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

use super::{OpenQuestion, UnansweredReason};

/// Columns of the question; clients show it as it is.
const COLUMNS: usize = 80;

/// The one thing that is asked for, and what means yes.
const ANSWER: &str = "answer";
const START: &str = "start";
const REFUSE: &str = "refuse";

/// What a person said: yes, or no and in which way.
pub(crate) type PersonAnswer = Result<(), String>;

/// Questions that are out through this client; none is put twice at once.
#[derive(Clone, Default)]
pub(crate) struct QuestionTracker {
    // Std mutexes: held for a look at a set, never across an await.
    being_asked: Arc<Mutex<BTreeSet<String>>>,
    /// The runs that calls of this process were given.
    runs: Arc<Mutex<BTreeSet<RunId>>>,
    /// What is known of open questions, by their runs and hashes.
    open: Arc<Mutex<BTreeMap<RunId, BTreeMap<String, QuestionNotes>>>>,
}

/// What the server knows of an open question.
#[derive(Default)]
struct QuestionNotes {
    /// When the client was first shown it as part of a task.
    shown: Option<Instant>,
    /// Why it waits in the inbox although the client was asked.
    left_open: Option<UnansweredReason>,
}

impl QuestionTracker {
    /// Notes that a call was given a run.
    pub(crate) fn add_run(&self, run: RunId) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run);
    }

    /// Says whether questions of a run may be put here: those of a run that another client or a person
    /// began are answered where they were asked.
    pub(crate) fn may_ask_for(&self, run: RunId) -> bool {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).contains(&run)
    }

    /// Notes that the client is shown a question now, unless it was before.
    pub(crate) fn show(&self, run: RunId, hash: &str) {
        self.note(run, hash, |question| _ = question.shown.get_or_insert_with(Instant::now));
    }

    /// Returns when the client was first shown a question; `None` if another server showed it.
    pub(crate) fn shown_at(&self, run: RunId, hash: &str) -> Option<Instant> {
        self.open().get(&run)?.get(hash)?.shown
    }

    /// Leaves a question to the inbox: this client is not asked again.
    pub(crate) fn leave_open(&self, run: RunId, hash: &str, why: UnansweredReason) {
        self.note(run, hash, |question| question.left_open = Some(why));
    }

    /// Marks the open questions of a run that were left to the inbox, and forgets those that are not open any more.
    pub(crate) fn mark(&self, run: RunId, asks: &mut [OpenQuestion]) {
        let mut open = self.open();
        let Some(known) = open.get_mut(&run) else { return };
        known.retain(|hash, _| asks.iter().any(|asking| asking.hash == *hash));
        for asking in asks {
            asking.left_open = known.get(&asking.hash).and_then(|it| it.left_open.clone());
        }
        if known.is_empty() {
            open.remove(&run);
        }
    }

    /// Forgets the questions of a run once its process is gone, whether or not a client asks for the run again.
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

    /// Takes it upon us to put a question; nothing where that is being done.
    pub(crate) fn claim(&self, hash: &str) -> Option<AskClaim> {
        let mut out = self.being_asked.lock().unwrap_or_else(PoisonError::into_inner);
        out.insert(hash.to_owned())
            .then(|| AskClaim { tracker: self.clone(), hash: hash.to_owned() })
    }
}

/// A question that is ours to put, until this is dropped.
pub(crate) struct AskClaim {
    tracker: QuestionTracker,
    hash: String,
}

impl Drop for AskClaim {
    fn drop(&mut self) {
        self.tracker.being_asked.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.hash);
    }
}

/// Says whether a client can put a form to its person.
pub(crate) fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    capabilities
        .and_then(|it| it.elicitation.as_ref())
        // One that names no kind means forms, the only kind there was at first.
        .is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// Returns what is put to the person.
pub(crate) fn question_form(asking: &OpenQuestion, root: &str) -> ElicitRequestParams {
    let (what, title) = match asking.is_about_whole_run {
        true => ("begin a run", "Begin this run?"),
        false => ("start subagents", "Start these subagents?"),
    };
    let remedy = asking.question.remedy().map(|it| format!("\n{it}\n")).unwrap_or_default();
    let message = format!(
        "A client asks Adjutant to {what} in {}.\n\n{}{remedy}",
        adjutant_view::sanitize::line(root),
        asking.question.text(COLUMNS)
    );
    let choice = EnumSchema::builder(vec![START.to_owned(), REFUSE.to_owned()]).untitled();
    let choice = choice.title(title).build();
    let properties = ElicitationSchema::builder().required_enum_schema(ANSWER, choice);
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: adjutant_view::sanitize::block(message.trim_end()).into_owned(),
        requested_schema: properties.build_unchecked(),
    }
}

/// Reads what came back: nothing where the question was dismissed, else a plain yes or a no.
pub(crate) fn person_answer(result: &ElicitResult) -> Option<PersonAnswer> {
    if result.action == ElicitationAction::Cancel {
        return None;
    }
    let said = result.content.as_ref().and_then(|content| content.get(ANSWER));
    let is_yes = said.and_then(Value::as_str) == Some(START);
    if result.action == ElicitationAction::Accept && is_yes {
        return Some(Ok(()));
    }
    Some(Err("the person said no".into()))
}

/// A question that is out.
pub(crate) struct SentQuestion {
    handle: RequestHandle<RoleServer>,
    peer: Peer<RoleServer>,
    id: RequestId,
}

impl SentQuestion {
    /// Puts a question to the person.
    pub(crate) async fn send(
        peer: &Peer<RoleServer>,
        form: ElicitRequestParams,
    ) -> Result<Self, ServiceError> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
        let options = PeerRequestOptions::no_options();
        let handle = peer.send_cancellable_request(request, options).await?;
        Ok(Self { id: handle.id.clone(), peer: peer.clone(), handle })
    }

    /// Splits it into the answer that is waited for and what takes the question back.
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

/// Takes a question back.
pub(crate) struct QuestionWithdrawal {
    peer: Peer<RoleServer>,
    id: RequestId,
}

impl QuestionWithdrawal {
    /// Tells the client that nobody needs the answer any more.
    pub(crate) async fn send(self, reason: &str) {
        let param = CancelledNotificationParam::new(Some(self.id), Some(reason.to_owned()));
        // A client that is gone is noticed where it is read from.
        let _ = self.peer.notify_cancelled(param).await;
    }
}

#[cfg(test)]
mod tests {
    use adjutant_core::Preset;
    use adjutant_view::approval::Question;

    use super::*;

    fn run(last: char) -> RunId {
        format!("run_1735460684_aaaaa{last}").parse().unwrap()
    }

    fn asking(hash: &str) -> OpenQuestion {
        let root = run('1').root_session();
        OpenQuestion {
            hash: hash.into(),
            id: hash.into(),
            question: Question::of_call(&Preset::Scout.policy(), &[], root, 0),
            is_about_whole_run: false,
            open_ms: 0,
            left_ms: 0,
            left_open: None,
        }
    }

    #[tokio::test]
    async fn what_is_known_of_a_question_goes_when_it_is_not_open_any_more_or_its_run_is_over() {
        let tracker = QuestionTracker::default();
        let mut open = [asking("dismissed"), asking("shown")];
        for run in [run('1'), run('2')] {
            tracker.show(run, "shown");
            tracker.leave_open(run, "dismissed", UnansweredReason::NotAPerson);
            tracker.leave_open(
                run,
                "answered",
                UnansweredReason::NotTaken("it does not answer".into()),
            );
            tracker.mark(run, &mut open);
            assert_eq!(open[0].left_open, Some(UnansweredReason::NotAPerson));
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
