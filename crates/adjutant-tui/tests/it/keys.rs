//! What keys do, as tables.

use adjutant_core::Event;
use adjutant_core::registry::QuestionPointer;
use adjutant_tui::{CommandInput, WatchAction, WatchScreen, WatchState};
use adjutant_view::ProcessLiveness::{Alive, Dead};
use ratatui_crossterm::crossterm::event::KeyCode::{self, Char, Down, End, Enter, Esc, Home, Up};

use crate::history::{History, finished, run_id, three};
use crate::states::{asking, blocked, done, drawn, empty, listed, opened, typed};

fn list() -> WatchState {
    let mut state = empty();
    state.runs = vec![
        listed(&asking(), 2, "/home/ann/there", Alive),
        listed(&done("Write the changelog"), 1, "/home/ann/here", Dead),
    ];
    state
}

/// Returns the action as a person would name it: a command with its input, or what the program does.
fn named(actions: &[WatchAction]) -> String {
    match actions {
        [] => "nothing".into(),
        [WatchAction::Quit] => "quit".into(),
        [WatchAction::Suspend] => "suspend".into(),
        [WatchAction::ReadRun(run, _)] => format!("open {run}"),
        [WatchAction::ReadText(args)] => format!("show {}", args.join(" ")),
        [WatchAction::Run(line)] => match &line.input {
            CommandInput::Nothing => format!("run {}", line.args.join(" ")),
            CommandInput::Message => format!("run {} with a message", line.args.join(" ")),
            CommandInput::Code(id) => format!("run {} with the code of {id}", line.args.join(" ")),
            CommandInput::Answer(question) => {
                format!("run {} with an answer to: {question}", line.args.join(" "))
            }
        },
        several => format!("{several:?}"),
    }
}

#[test]
fn keys_of_the_list_are_about_the_selected_run() {
    let table: [(&[KeyCode], &str); 13] = [
        (&[Char('q')], "quit"),
        (&[Enter], "open run_1738326896_aaaaab"),
        (&[Down, Down, Down, Enter], "open run_1738326896_aaaaac"),
        (&[Up, Enter], "open run_1738326896_aaaaac"),
        (&[End, Enter], "open run_1738326896_aaaaac"),
        (&[Home, Enter], "open run_1738326896_aaaaac"),
        (&[Char('d')], "show diff run_1738326896_aaaaab"),
        (&[Home, Char('c')], "nothing"),
        (&[Home, Char('c'), Char('y')], "run cancel run_1738326896_aaaaac"),
        (&[Home, Char('c'), Char('n')], "nothing"),
        (&[Char('m'), Char('y')], "run merge run_1738326896_aaaaab"),
        (&[Char('t')], "nothing"),
        (&[Char('/'), Char('q')], "nothing"),
    ];
    for (keys, expected) in table {
        assert_eq!(named(&typed(&mut list(), keys)), expected, "{keys:?}");
    }
}

#[test]
fn keys_of_a_run_are_about_the_selected_agent() {
    let run = run_id();
    let agent = three().1[1];
    let table: [(&[KeyCode], String); 11] = [
        (
            &[Char('/'), Char('c'), Char('o'), Char('r'), Enter, Char('d')],
            format!("show diff {agent}"),
        ),
        (&[Char('/'), Char('z'), Char('z'), Enter, Char('c'), Char('y')], "nothing".to_owned()),
        (&[Char('c'), Char('y')], format!("run cancel {run}")),
        (&[Down, Down, Char('c'), Char('y')], format!("run cancel {agent}")),
        (&[Down, Down, Char('t')], format!("run tell {agent} - with a message")),
        (&[Down, Down, Char('x'), Char('y')], format!("run discard {agent}")),
        (&[Down, Down, Char('r'), Char('y')], "nothing".to_owned()),
        (&[Down, Down, Char('d')], format!("show diff {agent}")),
        (&[Down, Down, Enter], format!("show transcript {agent}")),
        (
            &[Char('/'), Char('c'), Char('o'), Char('r'), Enter, Down, Char('d')],
            format!("show diff {agent}"),
        ),
        (&[Char('a')], "nothing".to_owned()),
    ];
    for (keys, expected) in table {
        let mut state = empty();
        state.open(opened(&three().0, Alive));
        assert_eq!(named(&typed(&mut state, keys)), expected, "{keys:?}");
    }
}

#[test]
fn a_key_that_can_do_nothing_says_so_before_anything_is_typed() {
    let (asked, _) = blocked();
    let completed = done("Write the changelog");
    for (history, liveness, keys, said) in [
        (&asked, Alive, &[Down, Char('t')][..], "can be answered once the run has ended"),
        (&asked, Dead, &[Down, Char('t')], "press a to answer it"),
        (&asked, Dead, &[Down, Char('r')], "press a to answer it"),
        (&completed, Dead, &[Down, Char('t')], "It has ended and gets no messages."),
        (&completed, Dead, &[Down, Char('c')], "It has ended."),
        (&completed, Dead, &[Down, Char('r')], "There is nothing to resume"),
        (&three().0, Dead, &[Down, Down, Char('t')], "Its process is gone; press r to resume"),
    ] {
        let mut state = empty();
        state.open(opened(history, liveness));
        assert_eq!(named(&typed(&mut state, keys)), "nothing", "{keys:?}");
        let frame = drawn(&mut state, 100, 20);
        assert!(frame.contains(said), "{said}:\n{frame}");
    }
    let mut state = empty();
    state.open(opened(&three().0, Dead));
    let resumed = format!("run resume {}", three().1[1]);
    assert_eq!(named(&typed(&mut state, &[Down, Down, Char('r'), Char('y')])), resumed);
}

#[test]
fn the_bottom_line_offers_only_keys_that_apply_to_what_is_selected() {
    let last = |history: &History, liveness, keys: &[KeyCode]| {
        let mut state = empty();
        state.open(opened(history, liveness));
        typed(&mut state, keys);
        let frame = drawn(&mut state, 60, 20);
        frame.lines().last().unwrap().to_owned()
    };
    let lines = [
        last(&three().0, Alive, &[Down, Down]),
        last(&three().0, Dead, &[Down, Down]),
        last(&done("Write the changelog"), Dead, &[Down]),
        last(&blocked().0, Alive, &[Down]),
        last(&blocked().0, Dead, &[Down]),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    enter read  esc back  t tell  c cancel  ? help  q quit
    enter read  esc back  c cancel  r resume  ? help  q quit
    enter read  esc back  / filter  ? help  q quit
    enter read  esc back  / filter  ? help  q quit
    enter read  esc back  a answer  / filter  ? help  q quit
    ");
}

#[test]
fn help_does_not_cut_what_a_key_does() {
    for (columns, rows) in [(160, 40), (80, 24), (60, 20), (50, 12)] {
        let mut state = empty();
        state.open(opened(&finished().0, Dead));
        state.resize((columns, rows));
        typed(&mut state, &[Char('?')]);
        let frame = drawn(&mut state, columns, rows);
        assert!(!frame.contains('…'), "{columns}x{rows}:\n{frame}");
    }
}

#[test]
fn escape_goes_back_one_screen_at_a_time() {
    let mut state = empty();
    state.open(opened(&finished().0, Dead));
    typed(&mut state, &[Enter]);
    assert_eq!(state.screen(), WatchScreen::Text);
    typed(&mut state, &[Esc]);
    assert_eq!(state.screen(), WatchScreen::Run);
    typed(&mut state, &[Esc]);
    assert_eq!((state.screen(), state.opened.is_none()), (WatchScreen::List, true));
    typed(&mut state, &[Esc]);
    assert_eq!(state.screen(), WatchScreen::List);
}

#[test]
fn a_question_is_approved_with_its_code_if_the_registry_has_it() {
    let mut state = list();
    assert_eq!(named(&typed(&mut state, &[Home, Char('a')])), "nothing");
    assert!(drawn(&mut state, 100, 10).contains("answer it there"));
    let asked = QuestionPointer {
        run: state.runs[0].id,
        hash: "4f1c09a2be77".into(),
        code: "K7QM2P".into(),
        client: "claude-code".into(),
        asked_ms: 0,
        at_prompt: false,
    };
    state.questions = vec![("4f1c09a2be".into(), asked)];
    for keys in [&[Home, Char('a')][..], &[End, Char('a')]] {
        let expected = "run approve 4f1c09a2be with the code of 4f1c09a2be";
        assert_eq!(named(&typed(&mut state, keys)), expected, "{keys:?}");
    }
    assert!(!drawn(&mut state, 100, 10).contains("K7QM2P"), "only `approvals` shows the code");
}

#[test]
fn questions_of_two_agents_about_the_same_host_are_rows_of_their_own() {
    let mut history = History::with_goal("Read the documentation");
    let agents = history.call([("one", "x"), ("two", "x")]);
    for session in agents {
        history.start(session);
        let expires = history.at().plus_millis(600_000);
        history.push(Event::DomainAsked { session, call: 0, host: "docs.rs".into(), expires });
    }
    let mut state = empty();
    state.runs = vec![listed(&history, 1, "/home/ann/here", Alive)];
    typed(&mut state, &[Home]);
    let places: Vec<_> = (0..3)
        .map(|_| {
            let frame = drawn(&mut state, 100, 10);
            typed(&mut state, &[Down]);
            frame.lines().position(|line| line.starts_with("> ")).unwrap()
        })
        .collect();
    assert!(places.is_sorted_by(|before, after| before < after), "{places:?}");
}

#[test]
fn the_question_of_an_agent_is_answered_by_resuming_it_once_its_run_has_ended() {
    let (history, agent) = blocked();
    let answered = format!("run resume {agent} with an answer to: For users?");
    for (liveness, expected) in [(Dead, answered.as_str()), (Alive, "nothing")] {
        let mut state = empty();
        state.open(opened(&history, liveness));
        assert_eq!(named(&typed(&mut state, &[Char('a')])), expected);
        let mut state = empty();
        state.runs = vec![listed(&history, 0, "/home/ann/here", liveness)];
        assert_eq!(named(&typed(&mut state, &[Home, Char('a')])), expected);
    }
}

#[test]
fn the_selection_stays_on_its_run_while_others_come_and_go() {
    let mut state = list();
    typed(&mut state, &[End]);
    let selected = state.current_run();
    state.runs.insert(0, listed(&done("new"), 9, "/home/ann/there", Alive));
    assert_eq!(state.current_run(), selected);
    state.runs.retain(|run| Some(run.id) != selected);
    assert!(state.current_run().is_some(), "another run is selected when it is gone");
}

#[test]
fn a_filter_keeps_the_runs_that_contain_it() {
    let mut state = list();
    typed(&mut state, &[Char('/'), Char('C'), Char('H'), Char('A'), Char('N'), Enter]);
    let frame = drawn(&mut state, 100, 10);
    assert!(frame.contains("Write the changelog") && !frame.contains("→ awaiting"), "{frame}");
    typed(&mut state, &[Char('/'), Esc]);
    assert!(drawn(&mut state, 100, 10).contains("Fix the parser"));
}
