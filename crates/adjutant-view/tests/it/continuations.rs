//! A delegation that went on in a fresh conversation, in every view.

use adjutant_core::{AddedMessageReason, Event, Outcome, SessionId};
use adjutant_view::status::{ContentRetention, ObservedRun, detail, detail_json};
use adjutant_view::transcript::Transcript;
use adjutant_view::{Palette, ProcessLiveness, log, progress, tree};

use crate::history::{HOSTILE, History, tokens, wire_events};

/// A writer that was continued twice, the second time without a note.
pub(crate) fn continued() -> (History, SessionId) {
    let mut h = History::new();
    let [a] = h.call([("a", "Do it all")]);
    h.start(a);
    h.reserve(a, 1);
    h.read(a, "part");
    let nudge = AddedMessageReason::HandoverNote;
    h.push(Event::Told { session: a, nudge, text: "Write the note.".into() });
    h.reserve(a, 2);
    h.reply(a, "Half is done.", vec![], tokens(90_000, 100));
    let fresh = |handover: &str| Event::Continued {
        session: a,
        brief: vec!["Do it all".into()],
        handover: handover.into(),
    };
    h.push(fresh("Your handover note:\nHalf is done."));
    h.reserve(a, 3);
    h.read(a, "other");
    h.push(Event::NoteSkipped { session: a });
    h.push(fresh(HOSTILE));
    h.reserve(a, 4);
    h.reply(a, "All is done.", vec![], tokens(9_000, 100));
    h.end(a, Outcome::Completed, None);
    (h, a)
}

#[test]
fn the_tree_and_the_status_count_continuations() {
    let (h, a) = continued();
    let view = h.view();
    insta::assert_snapshot!(tree::render(&view, h.at(), ProcessLiveness::Alive, Palette::Plain, 160), @r"
    run_1738326896_aaaaaa
    [root] → running · delegate · depth 0 · in=101k out=300 · $0.3075 · 0.0s
    └─ #1 [a] ✓ complete · scout · depth 1 · in=101k out=300 · $0.3075 · 2 continuations · 0.0s
    ");
    let look = ObservedRun {
        view: &view,
        liveness: ProcessLiveness::Alive,
        now: h.at(),
        content: ContentRetention::Kept,
        program: "adjutant",
    };
    insta::assert_snapshot!(detail(&look, Some(a), Palette::Plain), @r"
    run_1738326896_aaaaaa → running
    goal    Review the tree
    in      work/tree
    preset  scout
    began   2025-01-31T12:34:56Z

    #1 [a] ✓ complete
      session  sess_1738326896_aaaaab
      agent    scout, acme/large, depth 1
      spent    in=101,000 out=300 · $0.3075 · 4 turns, 2 tool calls, 2 continuations
      time     0.0s

    1 subagent: 1 complete · in=101k out=300 · $0.3075 · 0.0s
    ");
    let json = serde_json::to_value(detail_json(&look, None)).unwrap();
    assert_eq!(json["runs"][0]["delegations"][0]["continuations"], 2);
    let json = serde_json::to_value(tree::json(&view, h.at(), ProcessLiveness::Alive)).unwrap();
    assert_eq!(json["root"]["children"][0]["continuations"], 2);
    assert_eq!(json["root"]["continuations"], serde_json::Value::Null);
}

#[test]
fn a_transcript_has_the_earlier_conversations_too() {
    let (h, a) = continued();
    let transcript = Transcript::of(h.entries(), a, ProcessLiveness::Alive).unwrap();
    assert_eq!(transcript.continued_at, [5, 9]);
    insta::assert_snapshot!(transcript.render().replace('\t', "<tab>"), @r"
    [a] sess_1738326896_aaaaab success
    scout, acme/large
    began 2025-01-31T12:34:56Z, ended 2025-01-31T12:34:56Z

    ── user ──
      Do it all

    ── assistant ──
      → Read part (call_1)

    ── tool call_1 ──
      text

    ── user ──
      Write the note.

    ── assistant ──
      Half is done.

    ── continuation 1 ──

    ── user ──
      Do it all

    ── user ──
      Your handover note:
      Half is done.

    ── assistant ──
      → Read other (call_1)

    ── tool call_1 ──
      text

    ── continuation 2 ──

    ── user ──
      Do it all

    ── user ──
      a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200B⟩
      ### [fake] ✓⟨U+0007⟩<tab>⟨U+009B⟩31m

    ── assistant ──
      All is done.
    ");
}

#[test]
fn the_log_the_progress_and_the_events_report_continuations() {
    let (h, _) = continued();
    let log = log::render(h.entries());
    let of_continuation = |line: &&str| line.contains("continues") || line.contains("told");
    insta::assert_snapshot!(log.lines().filter(of_continuation).collect::<Vec<_>>().join("\n"), @r"
    2025-01-31T12:34:56.000Z  [a] told (handover note): Write the note.
    2025-01-31T12:34:56.000Z  [a] continues in a fresh conversation: Your handover note:⏎Half is done.
    2025-01-31T12:34:56.000Z  [a] context full, continues without a handover note
    2025-01-31T12:34:56.000Z  [a] continues in a fresh conversation: a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200B⟩⏎### [fake] ✓⟨U+0007⟩ ⟨U+009B⟩31m
    ");
    let mut view = adjutant_view::RunView::light();
    let lines = h.entries().filter_map(|entry| {
        view.apply(entry);
        progress::line(&view, &entry, Palette::Plain)
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    run_1738326896_aaaaaa started
    [a] started (1/1)
    [a] Read part
    [a] context full: asked for a handover note
    [a] continues in a fresh conversation (1)
    [a] Read other
    [a] continues in a fresh conversation (2)
    [a] ✓ complete (in=101k out=300) 0.0s $0.3075
    ");
    let events = wire_events(h.entries()).into_iter().map(|it| serde_json::to_string(&it).unwrap());
    let events: Vec<String> = events.filter(|it| it.contains("\"continued\"")).collect();
    insta::assert_snapshot!(events.join("\n"), @r#"
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaab","event":"continued","label":"a","number":1}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaab","event":"continued","label":"a","number":2}
    "#);
}
