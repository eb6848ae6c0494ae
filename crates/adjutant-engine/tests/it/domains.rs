//! Approval of hosts, and calls that need no approval.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use adjutant_core::{Event, Outcome, Usd};
use adjutant_engine::{ApproverAnswer, ApproverQuestion, ControlCommand, WebAccess};
use adjutant_testkit::Rig;

/// Serves pages on loopback; `/away` redirects to another host.
#[expect(clippy::unwrap_used, reason = "a test without its server cannot go on")]
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 2_048];
            let Ok(count) = stream.read(&mut head) else { continue };
            let away = head[..count].starts_with(b"GET /away");
            let answer = if away {
                format!("302 Found\r\nLocation: http://localhost:{port}/\r\nContent-Length: 0")
            } else {
                "200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4".to_owned()
            };
            let body = if away { "" } else { "page" };
            let _ = write!(stream, "HTTP/1.1 {answer}\r\n\r\n{body}");
        }
    });
    port
}

/// Two agents that each fetch twice from one host and report the results.
fn rig(port: u16, path: &str) -> Rig {
    let fetch = format!("http://127.0.0.1:{port}/{path}");
    let script = format!(
        r#"
        [[turn]]
        [[turn.call]]
        tool = "WebFetch"
        args = {{ url = "{fetch}" }}
        [[turn.call]]
        tool = "WebFetch"
        args = {{ url = "{fetch}?again" }}
        [[turn]]
        text = "{{{{result 1}}}}"
        "#
    );
    let web = WebAccess::new().with_loopback_for_tests(&[port], Vec::new());
    Rig::new().script(&script).web(web).task("left", "Look left").task("right", "Look right")
}

/// Returns the final reports of the agents.
fn said(events: &[(adjutant_core::Timestamp, Event)]) -> Vec<&str> {
    let mut said = Vec::new();
    for (_, event) in events {
        if let Event::Replied { text, tool_calls, .. } = event
            && tool_calls.is_empty()
        {
            said.push(text.as_str());
        }
    }
    said
}

#[tokio::test]
async fn new_host_is_asked_about_once_and_questions_come_one_at_a_time() {
    let port = server();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (kept, out) = (Arc::clone(&asked), AtomicUsize::new(0));
    let trace = rig(port, "")
        .approver(move |question| {
            assert_eq!(out.fetch_add(1, Ordering::SeqCst), 0, "two questions at once");
            if let ApproverQuestion::Domain { label, host, url } = question {
                kept.lock().unwrap().push(format!("{label} {host} {url}"));
            }
            out.fetch_sub(1, Ordering::SeqCst);
            ApproverAnswer::Yes
        })
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    assert_eq!(*asked.lock().unwrap(), [format!("left 127.0.0.1 http://127.0.0.1:{port}/")]);
    assert!(said(&trace.events).iter().all(|text| text.contains("page")), "{:?}", trace.events);
}

#[tokio::test]
async fn denied_host_is_a_tool_error_and_nothing_is_fetched() {
    let trace = rig(server(), "")
        .approver(|question| match question {
            ApproverQuestion::Call { .. } => ApproverAnswer::Yes,
            ApproverQuestion::Domain { .. } => ApproverAnswer::No("not that one".into()),
        })
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    for text in said(&trace.events) {
        assert!(text.contains("127.0.0.1 was not allowed (not that one)"), "{text}");
    }
    assert!(!trace.kinds().contains(&"tool_called".to_owned()));
}

#[tokio::test]
async fn redirect_to_another_host_returns_the_host_to_request() {
    let port = server();
    let trace = rig(port, "away").delegate().await;
    for text in said(&trace.events) {
        assert!(
            text.contains(&format!("to request approval, fetch http://localhost:{port}/")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn unanswered_question_does_not_block_the_end_of_the_run() {
    let (answer, never) = std::sync::mpsc::channel::<()>();
    let never = Mutex::new(never);
    let trace = rig(server(), "")
        .approver(move |question| {
            if matches!(question, ApproverQuestion::Domain { .. }) {
                let _ = never.lock().unwrap().recv();
            }
            ApproverAnswer::Yes
        })
        .on_event(|event, control| {
            if matches!(event, Event::DomainAsked { .. }) {
                let _ = control.try_send(ControlCommand::CancelRun);
            }
        })
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Cancelled);
    drop(answer);
}

#[tokio::test(start_paused = true)]
async fn calls_below_the_amount_need_no_approval_and_the_first_above_does() {
    let script = r#"
        price = { input = 1.0, output = 10.0 }
        [[turn]]
        agent = "lead"
        [[turn.call]]
        tool = "Delegate"
        args = { tasks = [{ label = "one", prompt = "First" }] }
        [[turn]]
        agent = "lead"
        [[turn.call]]
        tool = "Delegate"
        args = { tasks = [{ label = "two", prompt = "Second" }] }
        [[turn]]
        agent = "lead"
        text = "{{result}}"
        [[turn]]
        text = "done"
    "#;
    let trace = Rig::new()
        .script(script)
        .goal("Go")
        .policy(|policy| {
            policy.budget_tokens = Some(20_000);
            policy.approve_below_usd = Usd::from_dollars(0.25);
        })
        .answer(ApproverAnswer::No("too much".into()))
        .delegate()
        .await;
    let amounts: Vec<Usd> = trace
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::AutoApproved { amount, .. } => Some(*amount),
            _ => None,
        })
        .collect();
    assert_eq!(amounts, [Usd::from_dollars(0.20).unwrap()]);
    assert_eq!(trace.ends(), ["one: completed", "two: refused APPROVAL_DENIED"]);
}
