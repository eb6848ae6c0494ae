//! Asking a person through their client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::RunId;
use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientResult, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema, RequestId,
    ServerRequest,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleServer};
use serde_json::Value;
use tokio::time::Instant;

use super::Asking;

/// Columns of the question; clients show it as it is.
const COLUMNS: usize = 80;

/// The one thing that is asked for, and what means yes.
const ANSWER: &str = "answer";
const START: &str = "start";
const REFUSE: &str = "refuse";

/// What a person said: yes, or no and in which way.
pub(crate) type Verdict = Result<(), String>;

/// Questions that are out through this client; none is put twice at once.
#[derive(Clone, Default)]
pub(crate) struct Asker {
    // Std mutexes: held for a look at a set, never across an await.
    out: Arc<Mutex<BTreeSet<String>>>,
    /// The runs that calls of this process were given.
    begun: Arc<Mutex<BTreeSet<RunId>>>,
    /// Questions that the client was shown when it asked for a task, each with when it was first shown.
    shown: Arc<Mutex<BTreeMap<String, Instant>>>,
    /// Questions that the client could not bring a person's answer to.
    left: Arc<Mutex<BTreeSet<String>>>,
}

impl Asker {
    /// Notes that a call was given a run.
    pub(crate) fn gave(&self, run: RunId) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(run);
    }

    /// Says whether questions of a run may be put here: those of a run that another client or a person
    /// began are answered where they were asked.
    pub(crate) fn may_ask_for(&self, run: RunId) -> bool {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).contains(&run)
    }

    /// Notes that the client is shown a question now, unless it was before.
    pub(crate) fn show(&self, hash: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.entry(hash.to_owned()).or_insert_with(Instant::now);
    }

    /// Returns when the client was first shown a question; none if another server showed it.
    pub(crate) fn shown_at(&self, hash: &str) -> Option<Instant> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).get(hash).copied()
    }

    /// Leaves a question to the inbox: this client is not asked again.
    pub(crate) fn leave_open(&self, hash: &str) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(hash.to_owned());
    }

    /// Says whether a question was left to the inbox.
    pub(crate) fn is_left_open(&self, hash: &str) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).contains(hash)
    }

    /// Marks the questions that were left to the inbox.
    pub(crate) fn mark(&self, asks: &mut [Asking]) {
        asks.iter_mut().for_each(|asking| asking.is_left_open = self.is_left_open(&asking.hash));
    }

    /// Takes it upon us to put a question; nothing where that is being done.
    pub(crate) fn claim(&self, hash: &str) -> Option<Turn> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.insert(hash.to_owned()).then(|| Turn { asker: self.clone(), hash: hash.to_owned() })
    }
}

/// A question that is ours to put, until this is dropped.
pub(crate) struct Turn {
    asker: Asker,
    hash: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.asker.out.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.hash);
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
pub(crate) fn form(asking: &Asking, root: &str) -> ElicitRequestParams {
    let (what, title) = match asking.is_whole {
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
pub(crate) fn verdict(result: &ElicitResult) -> Option<Verdict> {
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
pub(crate) struct Out {
    handle: RequestHandle<RoleServer>,
    peer: Peer<RoleServer>,
    id: RequestId,
}

impl Out {
    /// Puts a question to the person.
    pub(crate) async fn put(
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
    ) -> (impl Future<Output = Result<ElicitResult, ServiceError>>, TakeBack) {
        let handle = self.handle;
        let answer = async move {
            let ClientResult::ElicitResult(result) = handle.await_response().await? else {
                return Err(ServiceError::UnexpectedResponse);
            };
            Ok(result)
        };
        (answer, TakeBack { peer: self.peer, id: self.id })
    }
}

/// Takes a question back.
pub(crate) struct TakeBack {
    peer: Peer<RoleServer>,
    id: RequestId,
}

impl TakeBack {
    /// Tells the client that nobody needs the answer any more.
    pub(crate) async fn tell(self, reason: &str) {
        let param = CancelledNotificationParam::new(Some(self.id), Some(reason.to_owned()));
        // A client that is gone is noticed where it is read from.
        let _ = self.peer.notify_cancelled(param).await;
    }
}
