//! The journal as text.

use adjutant_core::{AddedMessageReason, ErrorCode, Event, ModelErrorKind, Outcome};
use adjutant_view::log::render;

use crate::history::{HOSTILE, History, finished};

#[test]
fn every_event_is_one_line() {
    let (h, _) = finished();
    insta::assert_snapshot!(render(h.entries()), @"
    2025-01-31T12:34:56.000Z  run_1738326896_aaaaaa started by delegate, version 0.1.0: Review the tree
    2025-01-31T12:34:56.000Z  [security] granted to scout at depth 1, acme/large: scan for vulnerabilities in src/auth.rs
    2025-01-31T12:34:56.000Z  [correctness] granted to scout at depth 1, acme/large: check return values of every call
    2025-01-31T12:34:56.000Z  [refactor] granted to scout at depth 1, acme/large: propose simplifications
    2025-01-31T12:34:56.000Z  [security] started without a deadline
    2025-01-31T12:34:56.000Z  [correctness] started without a deadline
    2025-01-31T12:34:56.000Z  [refactor] started without a deadline
    2025-01-31T12:34:57.500Z  [security] turn 1 attempt 1 reserved: 10,000 tokens, $0.08
    2025-01-31T12:34:57.500Z  [security] turn 1 replied, 0 tool calls (in=45,000 out=2,100 $0.1665): Nothing⏎bad found.
    2025-01-31T12:34:57.500Z  [security] ended completed
    2025-01-31T12:35:06.500Z  [correctness] turn 1 attempt 1 reserved: 10,000 tokens, $0.08
    2025-01-31T12:35:06.500Z  [correctness] turn 1 replied, 1 tool call (in=23,000 out=890 $0.0824): Let me look.
    2025-01-31T12:35:06.500Z  [correctness] calls Read src/lib.rs
    2025-01-31T12:35:06.500Z  [refactor] turn 1 replied, 1 tool call (in=1,000 out=50 $0.0037)
    2025-01-31T12:35:06.500Z  [refactor] calls Read src/main.rs
    2025-01-31T12:35:06.500Z  [refactor] Read src/main.rs returned 4 bytes
    2025-01-31T12:35:06.500Z  [refactor] turn 1 replied, 1 tool call (in=1,000 out=50 $0.0037)
    2025-01-31T12:35:06.500Z  [refactor] calls Note main.rs repeats itself
    2025-01-31T12:35:06.500Z  [refactor] note: main.rs repeats itself
    2025-01-31T12:35:06.500Z  [refactor] turn 1 replied, 1 tool call (in=1,000 out=50 $0.0037)
    2025-01-31T12:35:06.500Z  [refactor] calls Note two parsers⏎for one format
    2025-01-31T12:35:06.500Z  [refactor] note: two parsers⏎for one format
    2025-01-31T12:35:06.500Z  [refactor] turn 1 replied, 0 tool calls (in=190,000 out=12,000 $0.75): I was about to look at the tests.
    2025-01-31T12:36:06.500Z  [refactor] ended partial, CONTEXT_EXHAUSTED: The context was exhausted: 199,000 of 200,000 tokens.
    2025-01-31T12:36:06.500Z  [deeper] refused MAX_DEPTH_EXCEEDED: ERROR: Delegation depth limit (1) reached. Cannot delegate further.⏎⏎Current depth: 1⏎Attempted delegation: look deeper…
    2025-01-31T12:36:07.000Z  [correctness] Read src/lib.rs failed: no such file
    2025-01-31T12:36:07.000Z  [correctness] turn 1 attempt 1 failed, not retried (in=4,000 out=1,000 $0.0270, estimated): provider overloaded: try later
    2025-01-31T12:36:07.000Z  [correctness] ended failed, PROVIDER_ERROR: provider overloaded: try later
    2025-01-31T12:36:07.000Z  [root] ended partial
    2025-01-31T12:36:07.000Z  run ended: partial
    ");
}

#[test]
fn a_backtrace_is_indented_below_its_crash() {
    let mut h = History::new();
    let [a] = h.call([(HOSTILE, HOSTILE)]);
    h.start(a);
    h.reserve(a, 1);
    h.fail(a, ModelErrorKind::RateLimited, Some(500));
    h.push(Event::Told {
        session: a,
        nudge: AddedMessageReason::LastCall(ErrorCode::BudgetExceeded),
        text: "now".into(),
    });
    h.push(Event::Crashed {
        session: a,
        message: "index out of bounds".into(),
        backtrace: "0: core::panic\n1: \u{1b}[31mmain\n".into(),
    });
    h.end(a, Outcome::Failed, None);
    h.push(Event::Late { session: a, what: "reply".into(), text: "too\nlate".into() });
    insta::assert_snapshot!(render(h.entries()), @"
    2025-01-31T12:34:56.000Z  run_1738326896_aaaaaa started by delegate, version 0.1.0: Review the tree
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] granted to scout at depth 1, acme/large: a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200B⟩⏎### [fake] ✓⟨U+0007⟩ ⟨U+009B⟩31m
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] started without a deadline
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] turn 1 attempt 1 reserved: 10,000 tokens, $0.08
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] turn 1 attempt 1 failed, retried in 0.5s (in=4,000 out=1,000 $0.0270, estimated): rate limited: try later
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] told (last call, budget exceeded): now
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] crashed: index out of bounds
        0: core::panic
        1: ⟨U+001B⟩[31mmain
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] ended failed
    2025-01-31T12:34:56.000Z  [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] late reply: too⏎late
    ");
}
