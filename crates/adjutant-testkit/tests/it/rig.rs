//! A raw HTTP client, and the smallest valid request of each API.

use adjutant_testkit::fake::{Api, FakeServer, KEY, RunningServer, Script};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Every API.
pub(crate) const APIS: [Api; 4] = [Api::Anthropic, Api::Chat, Api::Responses, Api::Gemini];

/// An answer, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The sizes of the chunks.
    pub(crate) chunks: Vec<usize>,
    /// Whether the body ended as HTTP says it must.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the JSON of every event that has some.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(fake: &RunningServer) -> Self {
        let stream = TcpStream::connect(fake.address()).await.unwrap();
        Self { stream, input: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn send(&mut self, request: &Request) -> Answer {
        self.write(&request.bytes()).await;
        self.answer().await
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        let mut answer = Answer::default();
        let Some(head) = self.until(b"\r\n\r\n").await else { return answer };
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        answer.status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let split = |line: &str| line.split_once(": ").map(|(k, v)| (k.to_owned(), v.to_owned()));
        answer.headers = lines.filter_map(split).collect();
        if answer.header("transfer-encoding") == Some("chunked") {
            self.chunks(&mut answer).await;
        } else {
            let length = answer.header("content-length").unwrap().parse().unwrap();
            let body = self.exactly(length).await;
            answer.whole = body.is_some();
            answer.body = body.unwrap_or_default();
        }
        answer
    }

    async fn chunks(&mut self, answer: &mut Answer) {
        loop {
            let Some(line) = self.until(b"\r\n").await else { return };
            let size = String::from_utf8(line).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let Some(chunk) = self.exactly(size + 2).await else { return };
            if size == 0 {
                answer.whole = true;
                return;
            }
            answer.chunks.push(size);
            answer.body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.input.windows(mark.len()).position(|bytes| bytes == mark) {
                return Some(self.input.drain(..at + mark.len()).collect());
            }
            self.fill().await?;
        }
    }

    async fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.input.len() < count {
            self.fill().await?;
        }
        Some(self.input.drain(..count).collect())
    }

    async fn fill(&mut self) -> Option<()> {
        let count = self.stream.read_buf(&mut self.input).await.unwrap_or(0);
        (count > 0).then_some(())
    }
}

/// A request, to be spoilt before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    /// Makes a request that its API accepts, with this body.
    pub(crate) fn new(api: Api, body: &Value) -> Self {
        let bearer = format!("Bearer {KEY}");
        let (target, auth): (_, Vec<(&str, &str)>) = match api {
            Api::Anthropic => {
                ("/v1/messages", vec![("x-api-key", KEY), ("anthropic-version", "2023-06-01")])
            }
            Api::Chat => ("/v1/chat/completions", vec![("authorization", &bearer)]),
            Api::Responses => ("/v1/responses", vec![("authorization", &bearer)]),
            Api::Gemini => (
                "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
                vec![("x-goog-api-key", KEY)],
            ),
        };
        let common = [("host", "localhost"), ("content-type", "application/json")];
        let headers = common.into_iter().chain(auth);
        Self {
            method: "POST".into(),
            target: target.into(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: body.to_string(),
        }
    }

    pub(crate) fn without(mut self, header: &str) -> Self {
        self.headers.retain(|(name, _)| name != header);
        self
    }

    pub(crate) fn with(self, header: &str, value: &str) -> Self {
        let mut request = self.without(header);
        request.headers.push((header.to_owned(), value.to_owned()));
        request
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n{}", self.body.len(), self.body);
        text.into_bytes()
    }
}

/// Makes the body of a first request: a system prompt, a question, one tool.
pub(crate) fn hello(api: Api) -> Value {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" } },
        "required": ["path"],
    });
    match api {
        Api::Anthropic => json!({
            "model": "claude-test",
            "max_tokens": 1024,
            "stream": true,
            "system": "You are alpha.",
            "tools": [{ "name": "Read", "description": "Reads.", "input_schema": schema }],
            "messages": [{ "role": "user", "content": "Hello" }],
        }),
        Api::Chat => json!({
            "model": "gpt-test",
            "stream": true,
            "stream_options": { "include_usage": true },
            "messages": [
                { "role": "system", "content": "You are alpha." },
                { "role": "user", "content": "Hello" },
            ],
            "tools": [{
                "type": "function",
                "function": { "name": "Read", "description": "Reads.", "parameters": schema },
            }],
        }),
        Api::Responses => json!({
            "model": "gpt-test",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "instructions": "You are alpha.",
            "input": [{
                "type": "message",
                "role": "user",
                "content": [{ "type": "input_text", "text": "Hello" }],
            }],
            "tools": [{
                "type": "function",
                "name": "Read",
                "description": "Reads.",
                "parameters": schema,
                "strict": false,
            }],
        }),
        Api::Gemini => json!({
            "systemInstruction": { "parts": [{ "text": "You are alpha." }] },
            "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }],
            "tools": [{ "functionDeclarations": [
                { "name": "Read", "description": "Reads.", "parameters": schema },
            ] }],
            "generationConfig": { "maxOutputTokens": 1024 },
        }),
    }
}

/// Starts a fake and asks it once.
pub(crate) async fn ask(api: Api, script: Script, body: &Value) -> Answer {
    let fake = FakeServer::new(api, script).start().await;
    Client::connect(&fake).await.send(&Request::new(api, body)).await
}

/// Changes a body.
pub(crate) fn changed(api: Api, change: impl FnOnce(&mut Value)) -> Value {
    let mut body = hello(api);
    change(&mut body);
    body
}

/// Says how each changed body is refused: `name: STATUS message`.
pub(crate) async fn refusals(api: Api, table: &[(&str, Value)]) -> String {
    let fake = FakeServer::new(api, Script::new()).start().await;
    let mut lines = String::new();
    let mut client = Client::connect(&fake).await;
    for (name, body) in table {
        let answer = client.send(&Request::new(api, body)).await;
        let said = &answer.json()["error"];
        let place = said.get("param").map(|param| format!(" [{param}]")).unwrap_or_default();
        let code = said.get("type").or(said.get("status")).unwrap().as_str().unwrap().to_owned();
        let message = said["message"].as_str().unwrap().trim_end();
        lines += &format!("{name}: {} {code}{place} {message}\n", answer.status);
    }
    lines
}
