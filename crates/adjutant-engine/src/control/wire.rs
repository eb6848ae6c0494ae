//! What goes over the control socket: one JSON object per line, both ways.

use adjutant_core::{Code, Command, Refusal, RunId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the protocol.
const VERSION: u32 = 1;

/// The most bytes of one line, its end included. A word to an agent fits four times.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// What may be asked of a live run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Say who you are.
    Ping,
    /// Stop a delegation and all below it, or the whole run.
    Cancel {
        /// Which; the whole run without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
    /// Say something to an agent before its next turn.
    Tell {
        /// To whom.
        session: SessionId,
        /// What.
        text: String,
    },
    /// Answer a question that waits for a person.
    Decide {
        /// What the answer is bound to: the hash of the exact call.
        hash: String,
        /// Whether the call may start.
        yes: bool,
        /// Why not.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// How many milliseconds before this a client was asked that brings the answer; absent where the person
        /// answers in a terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
}

impl ControlRequest {
    /// Returns the request as a line.
    pub(crate) fn line(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct VersionedRequest<'a> {
            v: u32,
            #[serde(flatten)]
            request: &'a ControlRequest,
        }
        line(&VersionedRequest { v: VERSION, request: self })
    }

    /// Reads a line, or says what is wrong with it.
    pub(crate) fn read(line: &[u8]) -> Result<Self, ControlRefusal> {
        let mut asked: Value = serde_json::from_slice(line)
            .map_err(|error| ControlRefusal::unreadable(format!("not a JSON object: {error}")))?;
        let version = asked.as_object_mut().and_then(|fields| fields.remove("v"));
        match version.as_ref().map(Value::as_u64) {
            Some(Some(version)) if version == u64::from(VERSION) => {}
            Some(Some(version)) => {
                let both = format!("version {version} is not spoken here, only {VERSION}");
                return Err(ControlRefusal::unreadable(both));
            }
            Some(None) | None => {
                return Err(ControlRefusal::unreadable("no version in `v`".into()));
            }
        }
        serde_json::from_value(asked).map_err(|error| ControlRefusal::unreadable(error.to_string()))
    }

    /// Returns what the tree is asked to judge.
    pub(crate) fn command(&self, run: RunId) -> Option<Command> {
        match self {
            Self::Ping => None,
            Self::Cancel { session } => {
                Some(Command::Cancel { session: session.unwrap_or_else(|| run.root_session()) })
            }
            Self::Tell { session, text } => {
                Some(Command::Tell { session: *session, text: text.clone() })
            }
            Self::Decide { hash, yes, reason, after_ms } => {
                let (hash, reason) = (hash.clone(), reason.clone());
                Some(match (yes, *after_ms) {
                    (true, None) => Command::Approve { hash },
                    (false, None) => Command::Deny { hash, reason },
                    (true, Some(after_ms)) => {
                        Command::RelayAnswer { hash, answer: Ok(()), after_ms }
                    }
                    (false, Some(after_ms)) => {
                        Command::RelayAnswer { hash, answer: Err(reason), after_ms }
                    }
                })
            }
        }
    }
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Somebody works in it.
    Running,
    /// It has ended; its process is about to.
    Ended,
}

/// What a run answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAnswer {
    /// The version of the protocol.
    pub v: u32,
    /// Whether it was done.
    pub ok: bool,
    /// The run.
    pub run: RunId,
    /// The process that carries it.
    pub pid: u32,
    /// Where it stands after this.
    pub state: RunState,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ControlRefusal>,
}

impl ControlAnswer {
    pub(crate) fn new(run: RunId, state: RunState, error: Option<ControlRefusal>) -> Self {
        let (ok, pid) = (error.is_none(), std::process::id());
        Self { v: VERSION, ok, run, pid, state, error }
    }

    pub(crate) fn line(&self) -> Vec<u8> {
        line(self)
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRefusal {
    /// The code.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub recommendation: String,
}

impl ControlRefusal {
    pub(crate) fn unreadable(message: String) -> Self {
        let recommendation =
            format!(r#"Send one line of at most {MAX_LINE} bytes: {{"v":1,"do":"ping"}}."#);
        Self { code: Code::ValidationFailed, message, recommendation }
    }

    pub(crate) fn over() -> Self {
        Self {
            code: Code::UnknownParent,
            message: "the run has ended".into(),
            recommendation: "`adjutant result` shows what came of it.".into(),
        }
    }

    pub(crate) fn busy() -> Self {
        Self {
            code: Code::QueueFull,
            message: "too many orders are under way".into(),
            recommendation: "Try again in a moment.".into(),
        }
    }
}

impl From<&Refusal> for ControlRefusal {
    fn from(refusal: &Refusal) -> Self {
        let (code, message) = (refusal.code(), refusal.message());
        Self { code, message, recommendation: refusal.recommendation() }
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // These types have string keys and plain values only: they always have a JSON form.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(yes: bool, reason: &str, after_ms: Option<u64>) -> ControlRequest {
        ControlRequest::Decide { hash: "0a".into(), yes, reason: reason.into(), after_ms }
    }

    #[test]
    fn a_request_reads_back_as_it_was_written() {
        let session: SessionId = "sess_1700000000_abcdef".parse().unwrap();
        for request in [
            ControlRequest::Ping,
            ControlRequest::Cancel { session: None },
            ControlRequest::Cancel { session: Some(session) },
            decide(true, "", None),
            decide(false, "no \"thanks\"", Some(12)),
            ControlRequest::Tell { session, text: "a \"line\"\nand another".into() },
        ] {
            let line = request.line();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
            assert_eq!(ControlRequest::read(&line).unwrap(), request);
        }
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said() {
        let said = |line: &str| ControlRequest::read(line.as_bytes()).unwrap_err().message;
        let all = [
            "garbage",
            "[]",
            r#"{"do":"ping"}"#,
            r#"{"v":2,"do":"ping"}"#,
            r#"{"v":"1","do":"ping"}"#,
            r#"{"v":1,"do":"dance"}"#,
            r#"{"v":1,"do":"tell","session":"sess_1700000000_abcdef"}"#,
            r#"{"v":1,"do":"cancel","session":"../x"}"#,
            r#"{"v":1,"do":"cancel","sesion":"sess_1700000000_abcdef"}"#,
        ];
        for line in all {
            assert!(!said(line).is_empty(), "{line}");
        }
        assert_eq!(said(r#"{"v":2,"do":"ping"}"#), "version 2 is not spoken here, only 1");
    }
}
