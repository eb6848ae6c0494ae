//! A conversation with a scripted model, driven by hand.

use adjutant_core::{AttemptResult, Message, ModelReply, SessionId};
use adjutant_model::{Model, ScriptedModel, TurnProgress, TurnRequest, estimate};

/// Loads a script that must be right.
pub(crate) fn script(toml: &str) -> ScriptedModel {
    ScriptedModel::from_toml(toml).unwrap_or_else(|error| panic!("{error}"))
}

/// One child's side of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) agent: &'static str,
    pub(crate) label: String,
    pub(crate) turn: u32,
    pub(crate) attempt: u32,
    pub(crate) messages: Vec<Message>,
    /// What arrived while a turn ran.
    pub(crate) progress: Vec<String>,
}

impl Child {
    pub(crate) fn new(label: &str) -> Self {
        Self {
            agent: "scout",
            label: label.to_owned(),
            turn: 1,
            attempt: 1,
            messages: vec![Message::User { content: "Look around.\nThen report.".to_owned() }],
            progress: Vec::new(),
        }
    }

    pub(crate) fn context_tokens(&self) -> u64 {
        let bytes = self.messages.iter().map(|message| match message {
            Message::User { content } | Message::Tool { content, .. } => content.len() as u64,
            Message::Assistant { content, tool_calls, .. } => {
                estimate::reply_bytes(content, tool_calls)
            }
        });
        estimate::tokens(bytes.sum())
    }

    /// Asks for the current turn and leaves the conversation as it is.
    pub(crate) async fn try_turn(&mut self, model: &ScriptedModel) -> AttemptResult {
        let context_tokens = self.context_tokens();
        let request = TurnRequest {
            agent: self.agent,
            label: &self.label,
            session: SessionId::new(1_735_460_684, [0; 6]),
            turn: self.turn,
            attempt: self.attempt,
            system: "",
            messages: &self.messages,
            tools: &[],
            may_call_tools: true,
            max_output: 4096,
            effort: None,
            context_tokens,
        };
        let arrived = &mut self.progress;
        let mut note = |progress: TurnProgress<'_>| match progress {
            TurnProgress::Text(text) => arrived.push(text.to_owned()),
            TurnProgress::Bytes(bytes) => arrived.push(format!("{bytes} bytes")),
            TurnProgress::Waiting { ms, .. } => arrived.push(format!("waits {ms} ms")),
        };
        model.turn(request, &mut note).await
    }

    /// Asks for the current turn, which must succeed, and advances to the next.
    pub(crate) async fn ask(&mut self, model: &ScriptedModel) -> ModelReply {
        let reply = self.try_turn(model).await.unwrap_or_else(|error| panic!("{error}"));
        let ModelReply { text, tool_calls, opaque, .. } = reply.clone();
        self.messages.push(Message::Assistant { content: text, tool_calls, opaque });
        self.turn += 1;
        self.attempt = 1;
        reply
    }

    /// Hands the result of the call `id` over.
    pub(crate) fn told(&mut self, id: &str, content: &str) {
        let (tool_call_id, content) = (id.to_owned(), content.to_owned());
        self.messages.push(Message::Tool { tool_call_id, content, is_error: false });
    }
}

/// Returns what `model` says to a child in `turns` turns, one line each, errors included.
pub(crate) async fn replies(model: &ScriptedModel, child: &mut Child, turns: u32) -> String {
    let mut lines = Vec::new();
    for turn in 1..=turns {
        child.turn = turn;
        lines.push(match child.try_turn(model).await {
            Ok(reply) => format!("{turn}: {}", reply.text),
            Err(error) => format!("{turn}: {error}"),
        });
    }
    lines.join("\n")
}
