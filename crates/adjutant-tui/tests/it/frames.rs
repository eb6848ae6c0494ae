//! Frames at several sizes.

use adjutant_core::{Event, Grant, SessionId};
use adjutant_tui::{OpenedRun, WatchState, WatchedRecord};
use adjutant_view::ProcessLiveness::{Alive, Dead};
use adjutant_view::layout::width;
use ratatui_crossterm::crossterm::event::KeyCode;

use crate::history::{HOSTILE, History, finished, three};
use crate::states::{asking, done, drawn, empty, listed, opened, typed};

/// Four runs in two folders; one asks, one works, one died.
fn list() -> WatchState {
    let mut state = empty();
    let (working, _) = three();
    state.runs = vec![
        listed(&asking(), 4, "/home/ann/there", Alive),
        listed(&working, 3, "/home/ann/here", Alive),
        listed(&done("Write the changelog"), 2, "/home/ann/here", Dead),
        listed(&working, 1, "/home/ann/there", Dead),
    ];
    state.hidden_runs = 9_950;
    state
}

fn tree() -> WatchState {
    let mut state = empty();
    state.open(opened(&three().0, Alive));
    state
}

#[test]
fn the_list_has_what_waits_first_then_the_runs_by_folder() {
    insta::assert_snapshot!(drawn(&mut list(), 100, 30));
}

#[test]
fn the_list_fits_other_terminals() {
    let state = &mut list();
    for (columns, rows) in [(160, 24), (60, 20), (50, 8), (20, 10)] {
        insta::assert_snapshot!(format!("list_{columns}x{rows}"), drawn(state, columns, rows));
    }
}

#[test]
fn an_empty_list_says_how_to_begin() {
    insta::assert_snapshot!(drawn(&mut empty(), 60, 8));
}

#[test]
fn a_run_has_its_budgets_its_tree_with_a_timeline_and_the_selected_agent() {
    let mut state = tree();
    typed(&mut state, &[KeyCode::Down, KeyCode::Down]);
    insta::assert_snapshot!(drawn(&mut state, 100, 30));
}

#[test]
fn a_run_fits_other_terminals() {
    let state = &mut tree();
    typed(state, &[KeyCode::Down]);
    for (columns, rows) in [(160, 40), (80, 24), (60, 20), (50, 8), (20, 10)] {
        insta::assert_snapshot!(format!("run_{columns}x{rows}"), drawn(state, columns, rows));
    }
}

#[test]
fn a_finished_run_is_shown_at_an_event_in_its_middle() {
    let mut state = empty();
    state.open(opened(&finished().0, Dead));
    typed(&mut state, &[KeyCode::Char('['); 10]);
    insta::assert_snapshot!(drawn(&mut state, 100, 30));
    typed(&mut state, &[KeyCode::Char(' ')]);
    assert!(
        drawn(&mut state, 100, 30).contains("event 30 of 30"),
        "{}",
        drawn(&mut state, 100, 30)
    );
}

#[test]
fn going_back_and_forth_ends_in_the_same_frame() {
    let mut state = empty();
    state.open(opened(&finished().0, Dead));
    let newest = drawn(&mut state, 100, 30);
    let all = state.opened.as_ref().unwrap().position().1;
    typed(&mut state, &vec![KeyCode::Left; all + 3]);
    assert_eq!(state.opened.as_ref().unwrap().position().0, 1, "the first event stays");
    typed(&mut state, &vec![KeyCode::Right; all]);
    assert_eq!(drawn(&mut state, 100, 30), newest);
}

/// Going back starts at an earlier state that was kept, which must not show.
#[test]
fn any_event_of_a_long_run_looks_as_it_did_when_it_was_the_newest() {
    let mut h = History::new();
    let agents = h.call([("one", "x"), ("two", "x")]);
    for number in 0..1_500 {
        let agent = agents[number % 2];
        if number < 2 {
            h.start(agent);
        }
        h.wait(10);
        h.note(agent, &format!("note {number}"));
        h.reply(agent, "said", vec![], crate::history::tokens(100, 1));
    }
    let all = h.records.len();
    assert!(all > 4_096, "the distance of the kept states has doubled: {all}");
    let mut state = empty();
    state.open(opened(&h, Dead));
    let run = state.opened.as_mut().unwrap();
    for place in [all - 1, 1, 255, 256, 257, 4_095, 4_097, 700, 2_048, 3, all - 2] {
        run.show_event(place);
        let mut newest = OpenedRun::new(crate::history::run_id(), None);
        let first = h.entries().take(place);
        newest.extend(first.map(|it| WatchedRecord::lean(it.at, it.wall_ms, it.event)));
        assert_eq!(run.position().0, place);
        assert_eq!(format!("{:?}", run.view()), format!("{:?}", newest.view()), "at {place}");
        assert_eq!(format!("{:?}", run.timeline()), format!("{:?}", newest.timeline()));
    }
    run.show_newest();
    let newest = opened(&h, Dead);
    assert_eq!(format!("{:?}", run.view()), format!("{:?}", newest.view()));
}

#[test]
fn a_text_is_wrapped_and_scrolled() {
    let mut state = tree();
    typed(&mut state, &[KeyCode::Down, KeyCode::Enter]);
    insta::assert_snapshot!("text_before_it_is_read", drawn(&mut state, 60, 10));
    let args = match &typed(&mut state, &[KeyCode::Esc, KeyCode::Enter])[..] {
        [adjutant_tui::WatchAction::ReadText(args)] => args.clone(),
        other => panic!("{other:?}"),
    };
    let lines: Vec<String> =
        (1..=20).map(|it| format!("{it}\tword {}", HOSTILE.repeat(it % 3))).collect();
    state.take_text(&args, &lines.join("\n"));
    typed(&mut state, &[KeyCode::PageDown, KeyCode::Down]);
    insta::assert_snapshot!(drawn(&mut state, 60, 10));
}

#[test]
fn help_lists_the_keys_of_the_screen() {
    let mut state = list();
    typed(&mut state, &[KeyCode::Char('?')]);
    insta::assert_snapshot!("help_of_the_list", drawn(&mut state, 80, 24));
    let mut state = tree();
    typed(&mut state, &[KeyCode::Char('?')]);
    insta::assert_snapshot!("help_of_a_run", drawn(&mut state, 100, 12));
}

#[test]
fn help_on_a_narrow_terminal_says_what_each_key_does_and_can_be_scrolled() {
    let mut state = list();
    typed(&mut state, &[KeyCode::Char('?')]);
    insta::assert_snapshot!("help_20x10", drawn(&mut state, 20, 10));
    let mut text = String::new();
    for _ in 0..80 {
        text += &drawn(&mut state, 20, 10);
        typed(&mut state, &[KeyCode::Down]);
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("leave; every run goes on"), "{words}");
    typed(&mut state, &[KeyCode::PageUp, KeyCode::Home]);
    assert!(drawn(&mut state, 20, 10).contains("enter"));
    typed(&mut state, &[KeyCode::Esc]);
    assert!(drawn(&mut state, 20, 10).contains("Runs"));
}

#[test]
fn a_confirmation_names_its_target_on_a_narrow_terminal() {
    let mut state = tree();
    typed(&mut state, &[KeyCode::Down, KeyCode::Down, KeyCode::Char('c')]);
    assert!(
        drawn(&mut state, 20, 10).contains("cancel [correc…? y/n"),
        "{}",
        drawn(&mut state, 20, 10)
    );
    assert!(drawn(&mut state, 40, 10).contains("cancel [correctness]? y/n"));
    let mut state = list();
    typed(&mut state, &[KeyCode::Down, KeyCode::Char('m')]);
    let frame = drawn(&mut state, 20, 10);
    assert!(frame.contains("merge aaaaac? y/n"), "{frame}");
}

#[test]
fn an_unknown_key_and_a_filter_without_matches_say_so() {
    let mut state = list();
    typed(&mut state, &[KeyCode::Char('z')]);
    assert!(drawn(&mut state, 60, 20).contains("This key does nothing here; ? lists the keys."));
    typed(&mut state, &[KeyCode::Down]);
    assert!(!drawn(&mut state, 60, 20).contains("does nothing here"));
    typed(&mut state, &[KeyCode::Char('/'), KeyCode::Char('z'), KeyCode::Char('q')]);
    let frame = drawn(&mut state, 60, 20);
    assert!(frame.contains("no run matches the filter"), "{frame}");
    assert!(frame.contains("? asks at its own prompt"), "questions stay: {frame}");
}

#[test]
fn an_estimated_amount_has_its_mark_in_a_budget() {
    let mut state = empty();
    state.open(opened(&finished().0, Dead));
    let frame = drawn(&mut state, 100, 30);
    assert!(frame.contains(" ~$1.0371 spent"), "{frame}");
}

/// A run in which every text is hostile.
fn hostile() -> History {
    let mut h = History::with_goal(HOSTILE);
    if let Event::RunStarted { workdir, .. } = &mut h.records[0].1 {
        *workdir = format!("/tmp/{HOSTILE}");
    }
    let [one, wide] = h.call([(HOSTILE, HOSTILE), ("日本語のラベルはとても長いです", "x")]);
    h.start(one);
    h.start(wide);
    h.note(one, HOSTILE);
    let read = crate::history::call("Read", serde_json::json!({ "path": HOSTILE }));
    h.reply(one, HOSTILE, vec![read], crate::history::tokens(1_000, 50));
    h.push(Event::ToolCalled { session: one, call: 0 });
    h.wait(1_000);
    h.push(Event::Printed { session: one, text: HOSTILE.into() });
    h
}

#[test]
fn hostile_texts_are_shown_as_characters() {
    let mut state = empty();
    state.open(opened(&hostile(), Alive));
    typed(&mut state, &[KeyCode::Down]);
    let frame = drawn(&mut state, 120, 24);
    insta::assert_snapshot!(frame);
    state.runs = vec![listed(&hostile(), 1, &format!("/tmp/{HOSTILE}"), Alive)];
    let list = drawn(&mut state, 120, 24);
    typed(&mut state, &[KeyCode::Esc]);
    for frame in [frame, list, drawn(&mut state, 120, 24)] {
        let bad = |it: char| it != '\n' && adjutant_view::sanitize::is_terminal_control(it);
        assert!(!frame.contains(bad), "{frame:?}");
    }
}

#[test]
fn a_terminal_without_utf_8_gets_ascii_of_the_same_width() {
    let mut state = empty();
    state.open(opened(&hostile(), Alive));
    typed(&mut state, &[KeyCode::Down]);
    state.is_utf8 = false;
    let frame = drawn(&mut state, 100, 24);
    assert!(frame.is_ascii(), "{frame}");
    insta::assert_snapshot!(frame);
}

#[test]
fn every_size_can_be_drawn_and_no_row_is_wider_than_the_terminal() {
    let mut hostile_tree = empty();
    hostile_tree.open(opened(&hostile(), Alive));
    let mut past = empty();
    past.open(opened(&finished().0, Dead));
    typed(&mut past, &[KeyCode::Char('['); 5]);
    let mut help = tree();
    typed(&mut help, &[KeyCode::Char('?')]);
    for mut state in [list(), tree(), hostile_tree, past, help, empty()] {
        for columns in [0, 1, 2, 5, 9, 20, 33, 50, 59, 60, 61, 80, 200] {
            for rows in [0, 1, 2, 3, 4, 7, 8, 15, 17, 30] {
                let frame = drawn(&mut state, columns, rows);
                for line in frame.lines() {
                    assert!(width(line) <= columns.into(), "{columns}x{rows}: {line}");
                }
            }
        }
    }
}

#[test]
fn a_frame_of_a_thousand_agents_shows_the_selected_one() {
    let mut h = History::new();
    let grant = h.grant(crate::history::root(), "agent", "x");
    for number in 1..=1_000_u16 {
        let digits = [0, 0, 0, number / 1296, number / 36 % 36, number % 36];
        let session = SessionId::new(1_738_326_896, digits.map(|it| u8::try_from(it).unwrap()));
        h.push(Event::Granted(Box::new(Grant { session, ..grant.clone() })));
        h.start(session);
    }
    let mut state = empty();
    state.open(opened(&h, Alive));
    typed(&mut state, &[KeyCode::End]);
    assert!(drawn(&mut state, 100, 30).contains(">   #1000 [agent]"), "the selection is visible");
}
