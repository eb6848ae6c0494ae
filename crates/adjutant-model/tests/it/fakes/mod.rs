//! The clients against strict servers of the four APIs, over loopback.
//!
//! Client and server were written apart from each other, both from the APIs' documentation; what
//! they agree on is what is documented.

mod cuts;
mod errors;
mod loops;
mod never_began;
mod streams;

use std::sync::Arc;

use adjutant_core::{AttemptResult, Message, ModelReply, SessionId, ToolSpec};
use adjutant_model::{Model, TurnProgress, TurnRequest};
use adjutant_testkit::fake::{Api, FakeServer, RunningServer, Script, Turn};
use serde_json::json;

/// One agent's side of a conversation with a real client.
struct Agent {
    model: Arc<dyn Model>,
    session: SessionId,
    turn: u32,
    attempt: u32,
    messages: Vec<Message>,
    tools: Vec<ToolSpec>,
    may_call_tools: bool,
    /// The text that arrived while turns ran.
    heard: String,
    /// The bytes of what is not shown.
    hidden: u64,
}

impl Agent {
    fn new(model: Arc<dyn Model>, number: u8) -> Self {
        let schema = json!({
            "type": "object",
            "properties": { "path": { "type": "string" }, "limit": { "type": "integer" } },
            "required": ["path"],
            "additionalProperties": false,
        });
        let (name, description) = ("Read".to_owned(), "Reads a file.".to_owned());
        Self {
            model,
            session: SessionId::new(1_735_460_684, [number; 6]),
            turn: 1,
            attempt: 1,
            messages: vec![Message::User { content: format!("Look around, agent {number}.") }],
            tools: vec![ToolSpec { name, description, schema }],
            may_call_tools: true,
            heard: String::new(),
            hidden: 0,
        }
    }

    /// Asks for the current turn and leaves the conversation as it is.
    async fn attempt(&mut self) -> AttemptResult {
        let request = TurnRequest {
            agent: "scout",
            label: "look",
            session: self.session,
            turn: self.turn,
            attempt: self.attempt,
            system: "You look around.",
            messages: &self.messages,
            tools: &self.tools,
            may_call_tools: self.may_call_tools,
            max_output: 1_000,
            effort: self.model.spec().effort,
            context_tokens: 100,
        };
        self.attempt += 1;
        let (heard, hidden) = (&mut self.heard, &mut self.hidden);
        let mut listen = |progress: TurnProgress<'_>| match progress {
            TurnProgress::Text(text) => heard.push_str(text),
            TurnProgress::Bytes(bytes) => *hidden += bytes,
            TurnProgress::Waiting { .. } => {}
        };
        self.model.turn(request, &mut listen).await
    }

    /// Asks for the current turn, which must succeed, and advances to the next.
    async fn ask(&mut self) -> ModelReply {
        let reply = self.attempt().await.unwrap_or_else(|error| panic!("{error}"));
        let ModelReply { text, tool_calls, opaque, .. } = reply.clone();
        self.messages.push(Message::Assistant { content: text, tool_calls, opaque });
        self.turn += 1;
        self.attempt = 1;
        reply
    }

    /// Answers every call of a reply.
    fn answer(&mut self, reply: &ModelReply) {
        for call in &reply.tool_calls {
            let content = format!("result of {}", call.arguments);
            let tool_call_id = call.id.clone();
            self.messages.push(Message::Tool { tool_call_id, content, is_error: false });
        }
    }

    fn says(&mut self, text: &str) {
        self.messages.push(Message::User { content: text.to_owned() });
    }
}

/// Starts a server that gives these turns to every conversation.
async fn serve(api: Api, turns: impl IntoIterator<Item = Turn>) -> RunningServer {
    FakeServer::new(api, Script::always(turns)).start().await
}

/// Returns the complaints of the server, of which there should be none.
fn complaints(fake: &RunningServer) -> Vec<String> {
    fake.requests().into_iter().filter_map(|request| request.complaint).collect()
}
