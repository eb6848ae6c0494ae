//! A model server on this machine: it lists two models, and answers every request in the Chat API with one word or with
//! an error.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// The status and the body of the answers to model calls.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Ready,
    WrongKey,
    UnknownModel,
}

/// Starts the server; it ends with the test. Returns its base URL.
pub(crate) fn serve(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().flatten().for_each(|it| reply(it, answer)));
    url
}

fn reply(stream: TcpStream, answer: Answer) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while reader.read_line(&mut head).is_ok_and(|read| read > 2) {
        let line = head.lines().last().unwrap_or_default().to_lowercase();
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let error = |code: &str| format!(r#"{{"error":{{"message":"No.","code":"{code}"}}}}"#);
    let (status, kind, body) = match answer {
        _ if head.starts_with("GET /v1/models") => {
            let list = r#"{"object":"list","data":[{"id":"qwen3"},{"id":"llama"}]}"#;
            ("200 OK", "application/json", list.to_owned())
        }
        Answer::Ready => ("200 OK", "text/event-stream", stream_of_one_word()),
        Answer::WrongKey => ("401 Unauthorized", "application/json", error("invalid_api_key")),
        Answer::UnknownModel => ("404 Not Found", "application/json", error("model_not_found")),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // The client may be gone.
    let _ = reader.get_mut().write_all((head + &body).as_bytes());
}

fn stream_of_one_word() -> String {
    let chunk = |fields: &str| {
        format!(
            "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",{fields}}}\n\n"
        )
    };
    [
        chunk(r#""choices":[{"index":0,"delta":{"role":"assistant","content":"ready"},"finish_reason":null}]"#),
        chunk(r#""choices":[{"index":0,"delta":{},"finish_reason":"stop"}]"#),
        chunk(r#""choices":[],"usage":{"prompt_tokens":40,"completion_tokens":2,"total_tokens":42}"#),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat()
}
