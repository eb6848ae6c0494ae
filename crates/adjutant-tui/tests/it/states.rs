//! States of the screen, from folded histories.

use adjutant_core::{ErrorCode, Event, Outcome, OutcomeReason, RunId, SessionId};
use adjutant_tui::{ListedRun, OpenedRun, WatchAction, WatchState, WatchedRecord, render, update};
use adjutant_view::layout::width;
use adjutant_view::status::ContentRetention;
use adjutant_view::{Palette, ProcessLiveness, RunView, TimedEvent};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::history::{History, WALL, run_id};

/// Draws the state on a terminal of this size, without the spaces at the ends of rows.
pub(crate) fn drawn(state: &mut WatchState, columns: u16, rows: u16) -> String {
    state.resize((columns, rows));
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    render(state, area, &mut buffer);
    let mut text = String::new();
    for y in 0..rows {
        let (mut row, mut x) = (String::new(), 0);
        while x < columns {
            let symbol = buffer[(x, y)].symbol();
            row.push_str(symbol);
            // A wide character hides the next cell.
            x += u16::try_from(width(symbol).max(1)).unwrap();
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Types keys, and returns the actions of the last one.
pub(crate) fn typed(state: &mut WatchState, keys: &[KeyCode]) -> Vec<WatchAction> {
    let press = |key: &KeyCode| update(state, KeyEvent::new(*key, KeyModifiers::NONE));
    keys.iter().map(press).last().unwrap_or_default()
}

pub(crate) fn empty() -> WatchState {
    let mut state = WatchState::new(Palette::Plain, true, (80, 24));
    state.wall_ms = WALL + 3_600_000;
    state
}

/// Returns run number `number` of a list, in a folder.
pub(crate) fn listed(
    h: &History,
    number: u8,
    folder: &str,
    liveness: ProcessLiveness,
) -> ListedRun {
    let id = RunId::new(run_id().stamp(), [0, 0, 0, 0, 0, number]);
    let mut records = h.records.clone();
    if let Event::RunStarted { run, workdir, .. } = &mut records[0].1 {
        (*run, *workdir) = (id, folder.to_owned());
    }
    let timed =
        records.iter().map(|(at, event)| TimedEvent::new(*at, WALL + at.as_millis(), event));
    let view = RunView::of(timed);
    let now = view.latest().at.plus_millis(1_000);
    let content = ContentRetention::Kept;
    ListedRun { id, view, liveness, now, content, is_here: folder == "/home/ann/here" }
}

/// Returns a run of which the tree is shown.
pub(crate) fn opened(h: &History, liveness: ProcessLiveness) -> OpenedRun {
    let mut run = OpenedRun::new(run_id(), None);
    run.extend(h.entries().map(|it| WatchedRecord::lean(it.at, it.wall_ms, it.event)));
    run.set_liveness(liveness, h.at());
    run
}

/// A call that waits for a person.
pub(crate) fn asking() -> History {
    let mut h = History::with_goal("Fix the parser");
    let mut grant = h.grant(crate::history::root(), "parser", "fix it");
    (grant.awaiting_approval, grant.call) = (true, 1);
    h.push(Event::Granted(Box::new(grant)));
    h.push(Event::ApprovalAsked {
        parent: crate::history::root(),
        call: 1,
        hash: "4f1c09a2be77".into(),
        expires: h.at().plus_millis(600_000),
    });
    h
}

/// A finished run with an agent that has ended with a question.
pub(crate) fn blocked() -> (History, SessionId) {
    let mut h = History::with_goal("Write the guide");
    let [one] = h.call([("docs", "x")]);
    h.start(one);
    h.wait(2_000);
    h.reply(one, "I must ask.", vec![], crate::history::tokens(1_000, 100));
    let reason = OutcomeReason {
        code: ErrorCode::UnknownError,
        message: "For users?".into(),
        recommendation: "Answer yes or no.".into(),
        recoverable: true,
    };
    h.end(one, Outcome::Blocked, Some(reason));
    h.end_run(Outcome::Blocked);
    (h, one)
}

/// A finished run with one agent.
pub(crate) fn done(goal: &str) -> History {
    let mut h = History::with_goal(goal);
    let [one] = h.call([("one", "x")]);
    h.start(one);
    h.wait(2_000);
    h.reply(one, "done", vec![], crate::history::tokens(1_000, 100));
    h.end(one, Outcome::Completed, None);
    h.end_run(Outcome::Completed);
    h
}
