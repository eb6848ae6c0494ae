//! A call of a model API over plain HTTP, as an agent's library would make it, with blocking sockets.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// How often a waiting call looks whether the turn is cancelled.
const POLL: Duration = Duration::from_millis(20);

/// The model API that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelWire {
    /// OpenAI Chat Completions.
    #[default]
    Chat,
    /// Anthropic Messages.
    Messages,
    /// OpenAI Responses.
    Responses,
    /// Gemini.
    Gemini,
}

/// One request to the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelCall {
    /// The API.
    pub wire: ModelWire,
    /// The model; absent: the one in `ACP_AGENT_MODEL`.
    pub model: Option<String>,
    /// Whether the answer streams.
    pub stream: bool,
    /// The output cap; absent: the request has none.
    pub max_tokens: Option<u64>,
    /// The text of the user's message.
    pub text: String,
    /// Bytes of text added to it.
    pub padding: usize,
    /// Fields that are added to the body, or replace its own.
    pub fields: Value,
    /// Headers that are added.
    pub headers: Vec<(String, String)>,
    /// The path instead of the API's.
    pub path: Option<String>,
    /// Closes the connection after this many bytes of the answer.
    pub abandon_after: Option<usize>,
}

impl Default for ModelCall {
    fn default() -> Self {
        Self {
            wire: ModelWire::Chat,
            model: None,
            stream: true,
            max_tokens: None,
            text: "Hello".into(),
            padding: 0,
            fields: Value::Null,
            headers: Vec::new(),
            path: None,
            abandon_after: None,
        }
    }
}

impl ModelCall {
    /// Makes the call and returns what is remembered of it: `status`, `usage`, `text` or `error`.
    ///
    /// `is_cancelled` is asked while it waits; a cancelled call closes its connection.
    pub(super) fn make(&self, is_cancelled: &dyn Fn() -> bool) -> Value {
        let (path, body) = self.request();
        let about = json!({"wire": format!("{:?}", self.wire).to_lowercase(), "path": path});
        let answer = self.send(&path, &body, is_cancelled);
        let seen = match answer {
            Ok(answer) => answer.summary(),
            Err(error) => json!({"error": error.to_string()}),
        };
        merge(about, &seen)
    }

    fn request(&self) -> (String, Value) {
        let named = self.model.clone().or_else(|| std::env::var("ACP_AGENT_MODEL").ok());
        let model = named.unwrap_or_else(|| "model".into());
        let text = format!("{}{}", self.text, " padding".repeat(self.padding.div_ceil(8)));
        let message = json!([{"role": "user", "content": text}]);
        let (path, mut body) = match self.wire {
            ModelWire::Chat => {
                let mut body = json!({"model": model, "messages": message, "stream": self.stream});
                if self.stream {
                    body["stream_options"] = json!({"include_usage": true});
                }
                ("/v1/chat/completions".to_owned(), body)
            }
            ModelWire::Messages => {
                let body = json!({"model": model, "messages": message, "stream": self.stream});
                ("/v1/messages".to_owned(), body)
            }
            ModelWire::Responses => {
                let body = json!({"model": model, "input": message, "stream": self.stream, "store": false});
                ("/v1/responses".to_owned(), body)
            }
            ModelWire::Gemini => {
                let method =
                    if self.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
                let body = json!({"contents": [{"role": "user", "parts": [{"text": text}]}]});
                (format!("/v1beta/models/{model}:{method}"), body)
            }
        };
        if let Some(cap) = self.max_tokens {
            match self.wire {
                ModelWire::Chat | ModelWire::Messages => body["max_tokens"] = json!(cap),
                ModelWire::Responses => body["max_output_tokens"] = json!(cap),
                ModelWire::Gemini => body["generationConfig"] = json!({"maxOutputTokens": cap}),
            }
        }
        (self.path.clone().unwrap_or(path), merge(body, &self.fields))
    }

    fn send(
        &self,
        path: &str,
        body: &Value,
        is_cancelled: &dyn Fn() -> bool,
    ) -> io::Result<HttpAnswer> {
        let base = base_url(self.wire).ok_or_else(|| io::Error::other("no base URL"))?;
        let authority =
            base.strip_prefix("http://").ok_or_else(|| io::Error::other(base.clone()))?;
        let authority = authority.trim_end_matches('/');
        let (host, prefix) = authority.split_once('/').unwrap_or((authority, ""));
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let body = body.to_string();
        let mut head = format!(
            "POST {prefix}{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n",
            body.len()
        );
        let key = match self.wire {
            ModelWire::Messages => "x-api-key: placeholder\r\nanthropic-version: 2023-06-01\r\n",
            ModelWire::Gemini => "x-goog-api-key: placeholder\r\n",
            ModelWire::Chat | ModelWire::Responses => "authorization: Bearer placeholder\r\n",
        };
        head.push_str(key);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        stream.set_read_timeout(Some(POLL))?;
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 * 1024];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return HttpAnswer::parse(&bytes),
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
            if is_cancelled() {
                return Err(io::Error::other("cancelled"));
            }
            if self.abandon_after.is_some_and(|limit| bytes.len() >= limit) {
                return Err(io::Error::other("abandoned"));
            }
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Returns the endpoint from the environment, without `/v1`.
fn base_url(wire: ModelWire) -> Option<String> {
    let vendor = match wire {
        ModelWire::Chat | ModelWire::Responses => "OPENAI_BASE_URL",
        ModelWire::Messages => "ANTHROPIC_BASE_URL",
        ModelWire::Gemini => "GOOGLE_GEMINI_BASE_URL",
    };
    let url = ["ACP_AGENT_BASE_URL", vendor].iter().find_map(|name| std::env::var(name).ok())?;
    let url = url.trim_end_matches('/');
    Some(url.strip_suffix("/v1").unwrap_or(url).to_owned())
}

struct HttpAnswer {
    status: u16,
    body: Vec<u8>,
    /// Whether the body ended as its framing says.
    is_whole: bool,
}

impl HttpAnswer {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.ok_or_else(|| io::Error::other("the answer has no head"))?;
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("the answer has no status"))?;
        let rest = &bytes[end + 4..];
        if head.contains("transfer-encoding: chunked") {
            let (body, is_whole) = unchunk(rest);
            return Ok(Self { status, body, is_whole });
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|text| text.trim().parse::<usize>().ok());
        let is_whole = length.is_none_or(|length| length == rest.len());
        Ok(Self { status, body: rest.to_vec(), is_whole })
    }

    /// Returns the status, the usage as the provider named it, and the body if it is an error.
    fn summary(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        let mut usage = json!({});
        let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
        for part in events.chain([text.as_ref()]) {
            let Ok(value) = serde_json::from_str::<Value>(part.trim()) else { continue };
            let places = ["/usage", "/usageMetadata", "/message/usage", "/response/usage"];
            for found in places.iter().filter_map(|place| value.pointer(place)) {
                usage = merge(usage, found);
            }
        }
        let mut summary = json!({"status": self.status, "whole": self.is_whole, "usage": usage});
        if self.status != 200 {
            summary["body"] = json!(text.chars().take(500).collect::<String>());
        }
        summary
    }
}

fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return (body, false);
        };
        let size = String::from_utf8_lossy(&rest[..end]).into_owned();
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { return (body, false) };
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(end + 2..end + 2 + size) else { return (body, false) };
        body.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
}

/// Returns `base` with the fields of `over`; fields that are null there change nothing.
fn merge(mut base: Value, over: &Value) -> Value {
    if let (Some(base), Some(over)) = (base.as_object_mut(), over.as_object()) {
        for (name, value) in over.iter().filter(|(_, value)| !value.is_null()) {
            base.insert(name.clone(), value.clone());
        }
    }
    base
}
