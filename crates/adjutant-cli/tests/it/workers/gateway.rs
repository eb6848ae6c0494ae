//! `adjutant gateway -- CMD`: a budget for the model calls of any program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use adjutant_testkit::fake::{Api, Script, Turn, Usage};
use serde_json::{Value, json};

use super::site::{WorkerSite, agent};
use crate::kills::chance::{Chance, seed};
use crate::support::rig::{Call, Output};
use crate::support::server::KEY;

fn site() -> WorkerSite {
    site_using(Turn::says("ok"))
}

fn site_using(turn: Turn) -> WorkerSite {
    let site = WorkerSite::with(Api::Chat, Script::always([turn]));
    site.configure("", &site.provider.url(), "chat");
    site
}

/// Prepares a shell command behind the gateway. `$CALL` in it makes a model call.
fn gateway<'a>(site: &'a WorkerSite, flags: &[&str], script: &str) -> Call<'a> {
    let call = format!("{} --call", agent().display());
    site.call(&["gateway", "--model", "fake/priced"])
        .args(flags)
        .args(["--", "sh", "-c", script])
        .env("CALL", call)
        .env("ACP_AGENT_MODEL", "priced")
}

fn run(site: &WorkerSite, flags: &[&str], script: &str) -> Output {
    gateway(site, flags, script).run()
}

#[test]
fn the_exit_code_is_the_program_s_and_its_output_is_untouched() {
    let site = site();
    let budget = ["--budget-usd", "0.5"];
    let out = run(&site, &budget, "cat; echo data; echo talk >&2; exit 7");
    assert_eq!((out.stdout.as_str(), out.code), ("data\n", 7), "{out}");
    assert!(out.stderr.contains("talk\n"), "{out}");
    assert_eq!(run(&site, &budget, "exit 0").code, 0);
    assert_eq!(run(&site, &budget, "kill -TERM $$").code, 128 + 15);
    assert_eq!(run(&site, &budget, "kill -KILL $$").code, 128 + 9);
    let fed = gateway(&site, &budget, "cat").stdin("typed\n").run();
    assert_eq!(fed.stdout, "typed\n");
    site.rig().assert_unharmed();
}

#[test]
fn the_bill_is_printed_at_the_end() {
    let site = site();
    let out =
        run(&site, &["--budget-usd", "0.5"], "$CALL '{}' > /dev/null && $CALL '{}' > /dev/null");
    insta::assert_snapshot!(out, @"
    --- stderr ---
                 calls   in  cache read  cache write  out      own  inclusive
    [root]           0    0           0            0    0    $0.00    $0.0006
      [program]      2  200           0            0   20  $0.0006    $0.0006

    agent  calls   in  cache read  cache write  out     cost
    scout      2  200           0            0   20  $0.0006

    model        calls   in  cache read  cache write  out     cost
    fake/priced      2  200           0            0   20  $0.0006

    Total: 220 tokens, $0.0006
    [exit 0]
    ");
    assert_eq!(site.provider.served_tokens(), 220);
}

#[test]
fn the_keys_stay_in_adjutant() {
    let site = site();
    let call = gateway(&site, &["--budget-usd", "0.5"], "env; cat /proc/self/environ");
    let out = call
        .env("OPENAI_API_KEY", "sk-another-secret-of-the-user")
        .env("ANTHROPIC_AUTH_TOKEN", "one-more-secret")
        .env("CLAUDECODE", "1")
        .run();
    assert_eq!(out.code, 0, "{out}");
    for secret in [KEY, "sk-another-secret-of-the-user", "one-more-secret", "CLAUDECODE="] {
        assert!(!out.stdout.contains(secret), "{secret}: {out}");
    }
    assert!(out.stdout.contains("OPENAI_API_KEY=held-by-adjutant"), "{out}");
}

#[test]
fn a_call_beyond_the_cap_is_refused_and_never_reaches_the_provider() {
    let usage = Usage { input: 900, output: 100, ..Usage::default() };
    for flags in [["--budget-usd", "0.05"], ["--budget-tokens", "6000"]] {
        let site = site_using(Turn::says("ok").using(usage));
        let script = "n=0; while $CALL '{\"max_tokens\": 150}'; do n=$((n+1)); done; exit $n";
        let out = run(&site, &flags, script);
        let calls: Vec<Value> = out.lines().collect();
        let last = calls.last().unwrap();
        assert_eq!(last["status"], 402, "{out}");
        assert!(last["body"].as_str().unwrap().contains("budget exhausted"), "{last}");
        let served = site.provider.requests().len();
        assert_eq!(served, calls.len() - 1);
        assert_eq!(usize::try_from(out.code).unwrap(), served, "{out}");
        // A call is 1,000 tokens and 0.0028 dollars.
        assert!((4..=18).contains(&served), "{served}");
    }
}

#[test]
fn what_cannot_be_started_or_bounded_is_refused() {
    let site = site();
    let start = |args: &[&str]| site.call(&["gateway"]).args(args).run().to_string();
    let missing = ["--budget-usd", "1", "--model", "fake/priced", "--", "no-such-program"];
    insta::assert_snapshot!(start(&missing), @"
    --- stderr ---
                 calls  in  cache read  cache write  out    own  inclusive
    [root]           0   0           0            0    0  $0.00      $0.00
      [program]      0   0           0            0    0  $0.00      $0.00

    Total: 0 tokens, $0.00
    adjutant: cannot start no-such-program: No such file or directory (os error 2)
    [exit 2]
    ");
    insta::assert_snapshot!(start(&["--budget-usd", "1", "--model", "fake/other", "--", "true"]), @"
    --- stderr ---
    adjutant: the price of fake/other is unknown, so dollars cannot bound it
      Use --budget-tokens, leave the model out, or set its price in [models] of the user config.
    [exit 2]
    ");
    insta::assert_snapshot!(start(&["--budget-usd", "1", "--model", "script:x", "--", "true"]), @"
    --- stderr ---
    adjutant: the script x must be named .toml or .json
    [exit 2]
    ");
    let out =
        site.call(&["gateway", "--budget-usd", "1", "--", "true"]).env_remove("FAKE_KEY").run();
    insta::assert_snapshot!(out, @"
    --- stderr ---
    adjutant: no model can be reached: no API key is set
      Set a key (`adjutant doctor` says how), or name a local model with --model.
    [exit 2]
    ");
    insta::assert_snapshot!(start(&["--budget-tokens", "2500", "--model", "fake/priced", "--", "true"]), @"
    --- stderr ---
                 calls  in  cache read  cache write  out    own  inclusive
    [root]           0   0           0            0    0  $0.00      $0.00
      [program]      0   0           0            0    0  $0.00      $0.00

    Total: 0 tokens, $0.00
    adjutant: Token budget exceeded: the task needs at least 5,101 tokens, 2,500 of the run's 2,500 are left.
    [exit 4]
    ");
    insta::assert_snapshot!(start(&["--budget-usd", "-1", "--model", "fake/priced", "--", "true"]), @"
    --- stderr ---
    error: unexpected argument '-1' found

      tip: to pass '-1' as a value, use '-- -1'

    Usage: adjutant gateway [OPTIONS] -- <COMMAND>...

    For more information, try '--help'.
    [exit 2]
    ");
    assert_eq!(site.provider.requests().len(), 0);
}

#[test]
fn another_program_without_the_secret_path_finds_nothing() {
    let site = site();
    // The secret is the first part of the path.
    let script = "ACP_AGENT_BASE_URL=${OPENAI_BASE_URL%/*/v1} $CALL '{}'; \
                  ACP_AGENT_BASE_URL=${OPENAI_BASE_URL%/*/v1}/00000000000000000000000000000000 $CALL '{}'; \
                  ACP_AGENT_BASE_URL=${OPENAI_BASE_URL%?/v1} $CALL '{}'; $CALL '{}'";
    let out = run(&site, &["--budget-usd", "1"], script);
    let statuses: Vec<Value> = out.lines().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, [404, 404, 404, 200], "{out}");
    assert_eq!(site.provider.requests().len(), 1);
}

#[test]
fn what_is_served_never_exceeds_the_cap_and_the_reported_overruns() {
    let seed = seed();
    let mut chance = Chance::new(seed);
    for case in 0..10 {
        let cap = 5_200 + chance.below(4_000);
        let at_once = 2 + chance.below(7);
        let usage = Usage {
            input: 100 + chance.below(1_500),
            output: 1 + chance.below(150),
            ..Usage::default()
        };
        let site = site_using(Turn::says("ok").using(usage));
        let script = format!(
            "for round in 1 2; do for i in $(seq {at_once}); do $CALL '{{\"max_tokens\": 150}}' & done; wait; done"
        );
        let cap_flag = cap.to_string();
        let out = run(&site, &["--budget-tokens", &cap_flag], &script);
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(out.lines().count() as u64, 2 * at_once, "{out}");
        let overruns: u64 = site
            .events("overran")
            .iter()
            .map(|event| event["amount"]["tokens"].as_u64().unwrap())
            .sum();
        let served = site.provider.served_tokens();
        let about = format!("case {case} of seed {seed}: cap {cap}, {at_once} at once, {usage:?}");
        assert!(served <= cap + overruns, "{about}: served {served}, overruns {overruns}");
        site.assert_settled_once();
        let billed = site.call(&["cost", "--json"]).run().json()["total"]["usage"].clone();
        let billed = billed["input"].as_u64().unwrap() + billed["output"].as_u64().unwrap();
        assert_eq!(billed, served, "{about}");
    }
}

/// Answers every request with one JSON document, as providers do for requests that do not ask for a stream.
struct WholeAnswers {
    url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl WholeAnswers {
    fn start(answer: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&requests), answer.to_string());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let request = Self::serve(stream.unwrap(), &answer);
                seen.lock().unwrap().push(request);
            }
        });
        Self { url, requests }
    }

    /// Reads one request, answers it, and closes the connection.
    fn serve(mut stream: TcpStream, answer: &str) -> Value {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        )
        .unwrap();
        serde_json::from_slice(&body).unwrap()
    }
}

#[test]
fn answers_that_do_not_stream_are_bounded_and_billed_on_all_apis() {
    // Each answer reports 100 input and 10 output tokens.
    let cases = [
        (
            ("chat", "chat", "max_tokens"),
            json!({"id": "1", "object": "chat.completion", "model": "priced",
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "whole"}}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}),
        ),
        (
            ("messages", "anthropic", "max_tokens"),
            json!({"id": "1", "type": "message", "role": "assistant", "model": "priced", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "whole"}],
                "usage": {"input_tokens": 100, "output_tokens": 10}}),
        ),
        (
            ("responses", "responses", "max_output_tokens"),
            json!({"id": "1", "object": "response", "status": "completed", "model": "priced",
                "output": [{"type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": "whole"}]}],
                "usage": {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}}),
        ),
        (
            ("gemini", "gemini", "generationConfig"),
            json!({"candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [{"text": "whole"}]}}],
                "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}}),
        ),
    ];
    for ((wire, configured, cap), answer) in cases {
        let provider = WholeAnswers::start(&answer);
        let site = site();
        site.configure("", &provider.url, configured);
        let script = format!("$CALL '{{\"wire\": \"{wire}\", \"stream\": false}}'");
        let out = run(&site, &["--budget-usd", "0.5"], &script);
        let call: Value = out.lines().next().unwrap();
        assert_eq!(call["status"], 200, "{wire}: {out}");
        assert!(call.to_string().contains("whole"), "{wire}: {call}");
        assert!(out.stderr.contains("Total: 110 tokens, $0.0003"), "{wire}: {out}");
        let sent = provider.requests.lock().unwrap().clone();
        assert_eq!(sent.len(), 1, "{wire}");
        assert!(!sent[0][cap].is_null(), "{wire}: no output cap in {}", sent[0]);
    }
}
