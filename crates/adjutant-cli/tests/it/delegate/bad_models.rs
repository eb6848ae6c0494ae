//! Wrong providers and models: the message, the exit code, and a run that still ends in order. `adjutant-model` tests
//! the errors themselves.

use std::net::TcpListener;

use adjutant_testkit::fake::{Api, Call, Part, RawAnswer, Script, Turn};
use serde_json::json;

use crate::support::rig::{Output, Rig};
use crate::support::server::{KEY, Server, configure};

const ASK: [&str; 6] = ["delegate", "--yes", "-t", "look=Look", "--model", "fake/priced"];

/// Returns the error message of the failure alone.
#[track_caller]
fn complaint(rig: &Rig, output: &Output) -> String {
    rig.assert_unharmed();
    assert_eq!(output.code, 1, "{output}");
    let quoted = output
        .stdout
        .lines()
        .filter(|line| line.starts_with('>') || line.starts_with("**Next step"));
    let quoted: Vec<_> = quoted.map(|line| line.trim_start_matches("> ").to_owned()).collect();
    assert!(!format!("{}{}", output.stdout, output.stderr).contains(KEY), "{output}");
    quoted.join("\n")
}

#[test]
fn an_invalid_model_is_reported_before_anything_starts() {
    let rig = Rig::new();
    let mut said = Vec::new();
    for (model, url) in [
        ("antropic/claude", "http://127.0.0.1:1"),
        ("gpt-5", "http://127.0.0.1:1"),
        ("anthropic/", "http://127.0.0.1:1"),
        ("anthropic/../keys", "http://127.0.0.1:1"),
        ("anthropic/claude", "ftp://127.0.0.1"),
        ("anthropic/claude", "localhost:8080"),
        ("anthropic/claude", "nonsense"),
        ("anthropic/claude", "http://me:secret@127.0.0.1"),
    ] {
        let call = rig.call(["delegate", "--yes", "-t", "look=Look", "--model", model]);
        let out = call.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", url).run();
        assert_eq!(out.code, 2, "{out}");
        said.push(out.stderr);
    }
    let call = rig.call(["delegate", "--yes", "-t", "look=Look", "--model", "anthropic/claude"]);
    said.push(call.env("ANTHROPIC_API_KEY", "two\nlines").run().stderr);
    assert!(rig.runs().is_empty(), "nothing was started");
    insta::assert_snapshot!(said.join(""), @"
    adjutant: no provider `antropic`, did you mean anthropic; known are anthropic, openai, gemini, openrouter, ollama
      `adjutant models` lists what can be used.
    adjutant: `gpt-5` is not provider/model; did you mean openai/gpt-5?
      `adjutant models` lists what can be used.
    adjutant: `anthropic/` is not provider/model; did you mean anthropic/claude-fable-5-1 or anthropic/claude-opus-5-5 or anthropic/claude-sonnet-5-5 or anthropic/claude-haiku-5-5?
      `adjutant models` lists what can be used.
    adjutant: the model name `../keys` contains characters that are not allowed in a model name
      `adjutant models` lists what can be used.
    adjutant: the base URL of provider anthropic is neither http nor https
      Write it whole, as in http://127.0.0.1:11434/v1, in …_BASE_URL or in [providers.NAME] of the user config.
    adjutant: the base URL of provider anthropic is neither http nor https
      Write it whole, as in http://127.0.0.1:11434/v1, in …_BASE_URL or in [providers.NAME] of the user config.
    adjutant: the base URL of provider anthropic is no address
      Write it whole, as in http://127.0.0.1:11434/v1, in …_BASE_URL or in [providers.NAME] of the user config.
    adjutant: the base URL of provider anthropic holds a user name or password; keys go elsewhere
      Write it whole, as in http://127.0.0.1:11434/v1, in …_BASE_URL or in [providers.NAME] of the user config.
    adjutant: the key of provider anthropic contains characters that are not allowed in a key
      A key is one line of plain characters; look for quotes or line breaks in it.
    ");
}

#[test]
fn a_wrong_key_ends_the_task_and_is_not_tried_again() {
    for api in Api::ALL {
        let rig = Rig::new();
        let server = Server::start(api, Script::always([Turn::says("Hi.")]));
        let out = server.call(&rig, &ASK).env("FAKE_KEY", "another-key-12345").run();
        let said = complaint(&rig, &out);
        assert!(said.starts_with("authentication failed: HTTP 40"), "{api:?}: {said}");
        assert!(said.ends_with("**Next step**: Check the key of this provider."), "{said}");
        assert!(!said.contains("another-key"), "{said}");
        assert_eq!(server.stop().len(), 1, "{api:?}");
    }
}

#[test]
fn a_server_that_is_not_a_model_api_is_reported_with_what_to_check() {
    let answer = |status: u16, kind: &str, body: &str| {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        Turn { answer: Some(RawAnswer { status, headers, body: body.into() }), ..Turn::default() }
    };
    let mut said = Vec::new();
    for turn in [
        answer(200, "text/html", "<html>Welcome</html>"),
        answer(404, "text/html", "<html>Not found</html>"),
        answer(404, "application/json", r#"{"error":{"message":"model `priced` not found"}}"#),
        answer(301, "text/html", ""),
        answer(200, "text/plain", "hello"),
    ] {
        let rig = Rig::new();
        let server = Server::start(Api::Chat, Script::always([turn]));
        said.push(complaint(&rig, &server.call(&rig, &ASK).run()));
    }
    insta::assert_snapshot!(said.join("\n\n"), @"
    request rejected: the server answered with a web page, not as wire `chat` does; is the base URL right?
    **Next step**: Use another model, or change the task.

    request rejected: HTTP 404; is the base URL right?
    **Next step**: Use another model, or change the task.

    request rejected: HTTP 404: model `priced` not found
    **Next step**: Use another model, or change the task.

    request rejected: HTTP 301, a redirect, is not followed; is the base URL right?
    **Next step**: Use another model, or change the task.

    incomplete answer: the answer contained no event; check the base URL
    **Next step**: Try again later, or use another model.
    ");
}

#[test]
fn a_closed_port_is_reported_with_the_port() {
    let rig = Rig::new();
    // Bound and closed again, so that it is free.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    configure(&rig, &format!("http://127.0.0.1:{port}"), "chat");
    let out = rig.call(ASK).env("FAKE_KEY", KEY).run();
    let said = complaint(&rig, &out).replace(&port.to_string(), "PORT");
    insta::assert_snapshot!(said, @"
    network error: cannot connect to 127.0.0.1:PORT; is the server running?
    **Next step**: Try again later, or use another model.
    ");
}

#[test]
fn invalid_tool_calls_are_answered_and_reported_in_few_lines() {
    let call = |name: &str, raw: &str, id: &str| {
        let (name, raw, id) = (name.into(), Some(raw.into()), Some(id.into()));
        Part::Call(Call { name, raw, id, ..Call::default() })
    };
    let deep = format!(r#"{{"path":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let mut turn = Turn::default()
        .then(call("", r#"{"path":"a"}"#, "one"))
        .then(call("Read", r#"{"path":"a"}"#, "two"))
        .then(call("Read", r#"{"path":"b"}"#, "two"))
        .then(call("Read", &deep, "three"));
    for number in 4..1_000 {
        turn = turn.and_calls("Glob", &json!({ "pattern": format!("{number}*") }));
    }
    let rig = Rig::new();
    let server = Server::start(Api::Chat, Script::always([turn, Turn::says("I see.")]));
    let out = server.call(&rig, &ASK).run();
    assert_eq!(out.code, 0, "{out}");
    let refused: Vec<_> = out.stderr.lines().filter(|line| line.contains("Not run")).collect();
    assert_eq!(
        refused,
        [
            "[look] tool: Not run: the call names no tool.",
            "[look] Read: Not run: the call id `two` was used twice.",
            "[look] Read: Not run: the arguments are not valid JSON. Send one JSON object.",
            "[look] further calls: Not run: one turn may make 64 calls.",
        ]
    );
    let log = rig.run(["log", "--json"]);
    let kinds: Vec<_> = log.lines().map(|record| record["event"]["type"].clone()).collect();
    let of_kind = |kind: &str| kinds.iter().filter(|of| *of == kind).count();
    assert_eq!(of_kind("tool_refused") + of_kind("tool_called"), 1_000, "all are answered");
    assert_eq!(kinds.last().unwrap(), "run_ended");
    assert!(server.stop().iter().all(|request| request.complaint.is_none()));
}

/// Returns an address where no server listens.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn a_provider_that_does_not_answer_costs_nothing_and_is_named() {
    let rig = Rig::new();
    configure(&rig, &closed_port(), "anthropic");
    let call = rig.call(ASK).args(["--budget-usd", "0.10"]).env("FAKE_KEY", KEY);
    let said = complaint(&rig, &call.run());
    assert!(said.contains("cannot connect to 127.0.0.1:"), "{said}");
    let total = rig.run(["cost", "--json"]).json()["total"].clone();
    assert_eq!(total["cost_usd"], 0.0, "{total}");
    assert_eq!(total["estimated_tokens"], 0, "{total}");
    assert_eq!(total["calls"], 3, "three attempts and no more: {total}");
}
