//! One reply of a fake model: what it says, how it fails, how its bytes travel.
//!
//! Everything is plain data, in the words of no particular API; each API's `stream` renders it.
//! Start at [`Turn`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One reply of the model.
///
/// Without parts it is an answer without content, which the APIs do give.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Turn {
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// Why it stops; derived from the parts if absent.
    pub stop: Option<Stop>,
    /// The tokens of this turn; the script's, or an estimate, if absent.
    pub usage: Option<Usage>,
    /// Leaves the usage out of the stream, as some compatible servers do.
    pub no_usage: bool,
    /// Fails instead of answering, or after some events.
    pub error: Option<Fault>,
    /// Answers with these bytes instead, like a server that is not a model API.
    pub answer: Option<RawAnswer>,
    /// The sizes of text and argument deltas, in characters, cycled; empty: one delta.
    pub fragment: Vec<usize>,
    /// Writes arguments in ASCII, so that fragments fall inside `\u` escapes.
    pub escape: bool,
    /// Adds what a client must ignore: pings, comments, events of unknown type.
    pub noise: bool,
    /// How the bytes travel.
    pub delivery: Delivery,
    /// What the first attempts at this turn get instead, in order.
    pub first: Vec<Turn>,
}

/// One piece of a reply.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text for the reader.
    Text(String),
    /// Thinking; the fake signs it, and checks the signature when it comes back.
    Thinking(String),
    /// Thinking that only the provider can read.
    Redacted(String),
    /// A refusal, where the API has a separate field for it.
    Refusal(String),
    /// A tool call.
    Call(Call),
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Call {
    /// The tool's name; may be empty, to test the client.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The arguments verbatim, well-formed or not; wins over `arguments`.
    pub raw: Option<String>,
    /// The call's id; invented if absent (Gemini then sends none).
    pub id: Option<String>,
}

/// Why a reply stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It is finished.
    End,
    /// It waits for the results of its calls.
    Calls,
    /// The output limit cut it off.
    Length,
    /// A stop sequence was met.
    Sequence,
    /// A filter, or the model itself, refused.
    Refused,
    /// The window is full.
    Window,
    /// The call it wanted to make could not be parsed (Gemini).
    Malformed,
}

/// The tokens of a reply, without double counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Input that was neither read from nor written to a cache.
    pub input: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Input written to the cache.
    pub cache_write: u64,
    /// Output, thinking included.
    pub output: u64,
    /// The part of the output that was thinking.
    pub thinking: u64,
}

/// A failure of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// What went wrong.
    pub class: FaultClass,
    /// The message, instead of the API's usual one.
    pub message: Option<String>,
    /// The `retry-after` header, verbatim.
    pub retry_after: Option<String>,
    /// The `retry-after-ms` header, verbatim.
    pub retry_after_ms: Option<String>,
    /// Answers 200 and fails in the stream, after this many of its events.
    pub after_events: Option<usize>,
}

/// The kinds of failure that a client must tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// The conversation does not fit the window.
    ContextLength,
    /// Too many requests or tokens; try later.
    RateLimited,
    /// The account's quota is used up; trying later does not help.
    Quota,
    /// The provider is overloaded.
    Overloaded,
    /// The key is wrong.
    Auth,
    /// The key may not do this.
    Permission,
    /// The model does not exist.
    NotFound,
    /// The request is wrong.
    BadRequest,
    /// A filter refused the request.
    Refused,
    /// The provider failed.
    #[default]
    Server,
}

/// A verbatim HTTP answer, as of a server that is not a model API.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers, beside the length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// How the bytes of a reply travel. Sizes and positions count bytes of the body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delivery {
    /// Waits before the status line.
    pub delay_ms: u64,
    /// Waits before each event but the first.
    pub event_delay_ms: u64,
    /// The sizes of what is written at once, cycled; empty: an event each.
    pub chunks: Vec<usize>,
    /// Waits before each write but the first.
    pub chunk_delay_ms: u64,
    /// Closes the connection after this many bytes.
    pub cut_after: Option<usize>,
    /// Ends a cut body as if it were whole, as a proxy does, and keeps the connection.
    pub cut_cleanly: bool,
    /// Sends nothing more after this many bytes, until the client disconnects.
    pub stall_after: Option<usize>,
    /// Inserts invalid bytes.
    pub garbage: Option<Garbage>,
    /// Closes the connection without any answer.
    pub hang_up: bool,
}

/// Invalid bytes that are inserted into a body.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Garbage {
    /// The byte of the body before which they are inserted.
    pub at: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Default for RawAnswer {
    fn default() -> Self {
        Self { status: 200, headers: Vec::new(), body: String::new() }
    }
}

impl Usage {
    /// Returns all input, cached or not.
    #[must_use]
    pub const fn all_input(&self) -> u64 {
        self.input + self.cache_read + self.cache_write
    }
}

impl Call {
    /// Returns the arguments as they go over the wire.
    #[must_use]
    pub fn text(&self) -> String {
        self.raw.clone().unwrap_or_else(|| Value::Object(self.arguments.clone()).to_string())
    }
}

impl Turn {
    /// Replies with a text.
    #[must_use]
    pub fn says(text: &str) -> Self {
        Self::default().then(Part::Text(text.to_owned()))
    }

    /// Calls a tool.
    ///
    /// # Panics
    ///
    /// If the arguments are not an object.
    #[must_use]
    pub fn calls(name: &str, arguments: &Value) -> Self {
        Self::default().and_calls(name, arguments)
    }

    /// Fails with a fault of this class.
    #[must_use]
    pub fn fails(class: FaultClass) -> Self {
        Self { error: Some(Fault { class, ..Fault::default() }), ..Self::default() }
    }

    /// Adds a part.
    #[must_use]
    pub fn then(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Adds a tool call.
    ///
    /// # Panics
    ///
    /// If the arguments are not an object.
    #[must_use]
    pub fn and_calls(self, name: &str, arguments: &Value) -> Self {
        let arguments = arguments.as_object().expect("arguments are an object").clone();
        self.then(Part::Call(Call { name: name.to_owned(), arguments, ..Call::default() }))
    }

    /// Adds thinking as the first part.
    #[must_use]
    pub fn thinking(mut self, text: &str) -> Self {
        self.parts.insert(0, Part::Thinking(text.to_owned()));
        self
    }

    /// Stops for this reason.
    #[must_use]
    pub const fn stopping(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Reports these tokens.
    #[must_use]
    pub const fn using(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Cuts texts and arguments into deltas of these sizes, in characters, cycled.
    #[must_use]
    pub fn fragmented(mut self, sizes: &[usize]) -> Self {
        self.fragment = sizes.to_vec();
        self
    }

    /// Changes how the bytes travel.
    #[must_use]
    pub fn delivered(mut self, change: impl FnOnce(&mut Delivery)) -> Self {
        change(&mut self.delivery);
        self
    }

    /// Adds a turn that answers one more of the first attempts instead.
    #[must_use]
    pub fn first(mut self, turn: Self) -> Self {
        self.first.push(turn);
        self
    }

    /// Returns the scripted stop reason, or derives it from the parts.
    #[must_use]
    pub fn stop(&self) -> Stop {
        let calls = self.parts.iter().any(|part| matches!(part, Part::Call(_)));
        let refuses = self.parts.iter().any(|part| matches!(part, Part::Refusal(_)));
        let derived = if calls {
            Stop::Calls
        } else if refuses {
            Stop::Refused
        } else {
            Stop::End
        };
        self.stop.unwrap_or(derived)
    }
}
