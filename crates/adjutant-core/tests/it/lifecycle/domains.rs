//! Part of `lifecycle`: hosts that a person is asked about.

use super::*;
use crate::sim::tool;

fn online(settings: &[&str]) -> Sim {
    let mut all = vec!["network=true", "concurrency=4"];
    all.extend(settings);
    Sim::new(scout(&all))
}

fn fetch(id: &str, url: &str) -> ToolCall {
    tool(id, "WebFetch", json!({ "url": url }))
}

fn allow(sim: &mut Sim, host: &str) -> Vec<Event> {
    sim.submit(Command::AllowDomain { host: host.into() }).unwrap()
}

fn deny(sim: &mut Sim, host: &str) -> Vec<Event> {
    sim.submit(Command::DenyDomain { host: host.into(), reason: "no".into() }).unwrap()
}

/// Returns the hosts a person was asked about, in order.
fn questions(sim: &Sim) -> Vec<&str> {
    let mut hosts = Vec::new();
    for effect in &sim.effects {
        if let Effect::AskDomain { host, .. } = effect {
            hosts.push(host.as_str());
        }
    }
    hosts
}

/// Returns whom each fetch may ask, in order: the host itself, then all it may be led to.
fn fetches(sim: &Sim) -> Vec<String> {
    let words = |effect: &Effect| match effect {
        Effect::Fetch { host, hosts, .. } => {
            Some(format!("{host} {}", serde_json::to_string(hosts).unwrap()))
        }
        _ => None,
    };
    sim.effects.iter().filter_map(words).collect()
}

#[test]
fn a_new_host_is_asked_about_once_per_run() {
    let mut sim = online(&[]);
    let kids = sim.children(vec![about("a"), about("b")]);
    let events = sim.call(
        kids[0],
        vec![fetch("1", "https://docs.rs/a"), fetch("2", "https://Docs.rs/b"), read("3", "x")],
    );
    assert_eq!(kinds(&events), "replied domain_asked domain_asked tool_called");
    sim.call(kids[1], vec![fetch("1", "http://docs.rs:8080/c")]);
    assert_eq!(questions(&sim), ["docs.rs"]);
    assert!(fetches(&sim).is_empty(), "nobody is asked before the person is");
    let events = allow(&mut sim, "docs.rs");
    assert_eq!(kinds(&events), "domain_allowed tool_called tool_called tool_called");
    assert_eq!(fetches(&sim), [r#"docs.rs ["docs.rs"]"#; 3]);
    // Later calls run at once, and another host asks anew.
    for call in 0..3 {
        sim.output(kids[0], call, "text");
    }
    let more = vec![fetch("1", "https://docs.rs/d"), fetch("2", "https://www.docs.rs/")];
    assert_eq!(kinds(&sim.call(kids[0], more)), "replied tool_called domain_asked");
    assert_eq!(questions(&sim), ["docs.rs", "www.docs.rs"]);
}

#[test]
fn a_denied_host_refuses_waiting_and_later_calls() {
    let mut sim = online(&[]);
    let child = sim.child(about("a"));
    sim.call(child, vec![fetch("1", "https://evil.example/x")]);
    let events = deny(&mut sim, "evil.example");
    assert_eq!(kinds(&events), "domain_denied tool_refused reserved");
    let events = sim.call(child, vec![fetch("1", "https://evil.example/y")]);
    assert_eq!(kinds(&events), "replied tool_refused reserved");
    assert_eq!(questions(&sim).len(), 1);
    insta::assert_snapshot!(sim.told(child).join("\n"), @"
    Not fetched: evil.example was not allowed (no). Do without it, and do not try it again.
    Not fetched: evil.example was not allowed (no). Do without it, and do not try it again.
    ");
    // A late yes changes nothing: the answer was given.
    assert!(allow(&mut sim, "evil.example").is_empty());
}

#[test]
fn hosts_of_the_policy_need_no_approval_and_do_not_include_subdomains() {
    let mut sim = online(&["web_domains=docs.rs,192.0.2.1"]);
    let child = sim.child(about("a"));
    let calls = ["https://docs.rs/", "http://192.0.2.1/", "https://x.docs.rs/"];
    let calls = calls.iter().zip(["1", "2", "3"]).map(|(url, id)| fetch(id, url)).collect();
    assert_eq!(kinds(&sim.call(child, calls)), "replied tool_called tool_called domain_asked");
    assert_eq!(fetches(&sim)[0], r#"docs.rs ["192.0.2.1","docs.rs"]"#);
}

#[test]
fn an_ambiguous_url_is_never_fetched_and_no_person_is_asked() {
    let mut sim = online(&["web_domains=docs.rs"]);
    let child = sim.child(about("a"));
    let odd =
        ["https://docs.rs\\@evil.example/", "https://docs.rs@evil.example/", "file:///etc/passwd"];
    let calls = odd.iter().zip(["1", "2", "3"]).map(|(url, id)| fetch(id, url)).collect();
    assert_eq!(
        kinds(&sim.call(child, calls)),
        "replied tool_refused tool_refused tool_refused reserved"
    );
    assert!(questions(&sim).is_empty() && fetches(&sim).is_empty());
}

#[test]
fn without_network_access_no_person_is_asked() {
    let mut sim = Sim::new(scout(&[]));
    let child = sim.child(about("a"));
    let events = sim.call(child, vec![fetch("1", "https://docs.rs/")]);
    assert_eq!(kinds(&events), "replied tool_refused reserved");
}

#[test]
fn a_question_about_a_host_expires_after_fifteen_minutes() {
    let mut sim = online(&["stall_s=none"]);
    let child = sim.child(about("a"));
    sim.call(child, vec![fetch("1", "https://docs.rs/")]);
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(900_000), DeadlineKind::Approval))
    );
    assert!(sim.tick_at_ms(899_999).is_empty());
    assert_eq!(kinds(&sim.tick_at(900)), "domain_denied tool_refused reserved");
    assert_eq!(sim.tree.next_deadline(), None);
}

#[test]
fn an_open_question_does_not_block_the_end_and_a_later_approval_counts() {
    let mut sim = online(&[]);
    let kids = sim.children(vec![about("a"), about("b")]);
    sim.call(kids[0], vec![fetch("1", "https://docs.rs/")]);
    sim.cancel(kids[0]);
    assert!(!sim.tree.awaits_domain("docs.rs"));
    assert_eq!(kinds(&allow(&mut sim, "docs.rs")), "domain_allowed");
    assert_eq!(
        kinds(&sim.call(kids[1], vec![fetch("1", "https://docs.rs/")])),
        "replied tool_called"
    );
    sim.cancel(kids[1]);
    sim.check_over();
    assert!(allow(&mut sim, "late.example").is_empty(), "the run is over");
}

#[test]
fn a_replay_waits_for_the_same_answers() {
    let mut sim = online(&[]);
    let kids = sim.children(vec![about("a"), about("b")]);
    sim.call(kids[0], vec![fetch("1", "https://docs.rs/")]);
    sim.call(kids[1], vec![fetch("1", "https://docs.rs/"), fetch("2", "https://b.example/")]);
    deny(&mut sim, "b.example");
    let mut again = Sim::replay(&sim.log);
    assert_eq!(format!("{:?}", again.tree), format!("{:?}", sim.tree));
    assert_eq!(kinds(&allow(&mut again, "docs.rs")), "domain_allowed tool_called tool_called");
}

#[test]
fn a_delay_by_the_engine_does_not_count_as_a_stall() {
    let mut sim = online(&["stall_s=10"]);
    let child = sim.child(about("a"));
    let pause = Command::Pause { session: child, provider: "anthropic".into(), ms: 60_000 };
    assert_eq!(kinds(&sim.submit(pause.clone()).unwrap()), "paused");
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(70_000), DeadlineKind::Stall))
    );
    assert!(sim.tick_at_ms(69_999).is_empty());
    assert_eq!(kinds(&sim.tick_at(70)), "attempt_failed");
    assert!(sim.submit(pause).unwrap().is_empty(), "there is no call to hold back");
}
