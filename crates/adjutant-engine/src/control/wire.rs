//! The messages of the control socket: one JSON object per line in both directions.

use adjutant_core::{Command, ErrorCode, Refusal, RunId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the protocol.
const VERSION: u32 = 1;

/// The most bytes of one line, with its line break: four times the longest message to an agent.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// A request to a live run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Return pid and state.
    Ping,
    /// Cancel a delegation and its descendants, or the whole run.
    Cancel {
        /// The delegation; absent for the whole run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
    },
    /// Give an agent a message before its next turn.
    Tell {
        /// The agent's session.
        session: SessionId,
        /// The message.
        text: String,
    },
    /// Answer a question that waits for a person.
    Decide {
        /// The hash of the call the question is about.
        hash: String,
        /// Whether the call may start.
        yes: bool,
        /// The reason for a no.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// The milliseconds since an MCP client was asked, if it relays the answer; absent if the person answers
        /// in a terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
}

impl ControlRequest {
    /// Serialises the request as a line with the protocol version.
    pub(crate) fn line(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct VersionedRequest<'a> {
            v: u32,
            #[serde(flatten)]
            request: &'a ControlRequest,
        }
        line(&VersionedRequest { v: VERSION, request: self })
    }

    /// Parses a line.
    pub(crate) fn read(line: &[u8]) -> Result<Self, ControlRefusal> {
        let mut asked: Value = serde_json::from_slice(line)
            .map_err(|error| ControlRefusal::unreadable(format!("not a JSON object: {error}")))?;
        let version = asked.as_object_mut().and_then(|fields| fields.remove("v"));
        match version.as_ref().map(Value::as_u64) {
            Some(Some(version)) if version == u64::from(VERSION) => {}
            Some(Some(version)) => {
                let both = format!("version {version} is not supported, expected {VERSION}");
                return Err(ControlRefusal::unreadable(both));
            }
            Some(None) | None => {
                return Err(ControlRefusal::unreadable("no version in `v`".into()));
            }
        }
        serde_json::from_value(asked).map_err(|error| ControlRefusal::unreadable(error.to_string()))
    }

    /// Returns the core command for this request; `None` for a ping.
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

/// Whether a run has ended, as its own process answers on the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The run has not ended.
    Running,
    /// The run has ended; its process is about to exit.
    Ended,
}

/// A run's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAnswer {
    /// The version of the protocol.
    pub v: u32,
    /// Whether the request was carried out.
    pub ok: bool,
    /// The run.
    pub run: RunId,
    /// The pid of the run's process.
    pub pid: u32,
    /// The state after the request.
    pub state: RunState,
    /// Why the request was not carried out.
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

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRefusal {
    /// The error code, as in returns.
    pub code: ErrorCode,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub recommendation: String,
}

impl ControlRefusal {
    pub(crate) fn unreadable(message: String) -> Self {
        let recommendation =
            format!(r#"Send one line of at most {MAX_LINE} bytes: {{"v":1,"do":"ping"}}."#);
        Self { code: ErrorCode::ValidationFailed, message, recommendation }
    }

    /// The run has ended.
    #[must_use]
    pub fn over() -> Self {
        Self {
            code: ErrorCode::UnknownParent,
            message: "the run has ended".into(),
            recommendation: "`adjutant result` shows what came of it.".into(),
        }
    }

    pub(crate) fn busy() -> Self {
        Self {
            code: ErrorCode::QueueFull,
            message: "too many requests at the same time".into(),
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
    // Serialising cannot fail: these types have only string keys and plain values.
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
    fn request_round_trips() {
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
    fn invalid_requests_have_an_error_message() {
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
        assert_eq!(said(r#"{"v":2,"do":"ping"}"#), "version 2 is not supported, expected 1");
    }
}
