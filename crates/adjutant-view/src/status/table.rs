//! The table of runs that `adjutant status` prints: one row per run, fitted to the width of the terminal.
//!
//! Start at [`table`]. Invariant: no row is wider than the given width, down to [`LEAST_COLUMNS`].

use std::time::Duration;

use super::{ObservedRun, SANDBOX_OFF, live_activity};
use crate::layout::{columns, cut, fit, fit_ends, wrap_lines};
use crate::run::{ESTIMATE_NOTE, ProcessLiveness};
use crate::sanitize;
use crate::state_words::is_interrupted;
use crate::time_text::age;

/// From this width on a row has the whole id of its run, otherwise its last characters.
const WHOLE_ID_COLUMNS: usize = 80;
/// The columns of a short id: the random end of a run's id.
const SHORT_ID: usize = 6;
/// The minimum width of a title; a narrower terminal wraps rows.
const LEAST_TITLE: usize = 8;
/// The width below which rows are not made narrower.
const LEAST_COLUMNS: usize = 40;

/// How urgently a run concerns a person. A list begins with the most urgent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunUrgency {
    /// It waits for an answer.
    WaitsForPerson,
    /// A process works on it.
    Live,
    /// It has ended or was interrupted.
    Over,
}

/// Returns how urgently a run concerns a person.
#[must_use]
pub fn urgency(look: &ObservedRun<'_>) -> RunUrgency {
    match look.liveness {
        ProcessLiveness::Dead => RunUrgency::Over,
        ProcessLiveness::Alive if look.view.has_question() => RunUrgency::WaitsForPerson,
        ProcessLiveness::Alive => RunUrgency::Live,
    }
}

/// Draws the table for a terminal of `wide` columns. `wall_ms` is the current time, in Unix milliseconds.
#[must_use]
pub fn table(runs: &[ObservedRun<'_>], wall_ms: u64, wide: usize) -> String {
    let wide = wide.max(LEAST_COLUMNS);
    let heads = ["run", "age", "state", "cost", "folder", "title"].map(String::from);
    let mut rows = vec![heads.to_vec()];
    rows.extend(runs.iter().map(|look| row(look, wall_ms, wide)));
    // The folder and the title share what the other columns leave.
    let fixed = columns(&rows.iter().map(|row| row[..4].to_vec()).collect::<Vec<_>>(), &[1, 3]);
    let taken = fixed.lines().map(crate::layout::width).max().unwrap_or(0) + 4;
    let folders = rows.iter().map(|row| crate::layout::width(&row[4])).max().unwrap_or(0);
    let room = wide.saturating_sub(taken);
    let folder = folders.min((room / 3).max(LEAST_TITLE)).min(room.saturating_sub(LEAST_TITLE));
    for row in &mut rows {
        row[4] = fit_ends(&row[4], folder);
        row[5] = fit(&row[5], room.saturating_sub(folder).max(LEAST_TITLE));
    }
    let drawn = columns(&rows, &[1, 3]);
    let mut lines = drawn.lines();
    let mut text = lines.next().map(|head| format!("{}\n", cut(head, wide))).unwrap_or_default();
    for (line, look) in lines.zip(runs) {
        let mut below = String::new();
        if look.view.sandbox() == Some("off") {
            below += &format!("  sandbox {SANDBOX_OFF}\n");
        }
        below += &live_activity(look);
        for open in look.agent_questions() {
            below += &format!("  [{}] asks: {}\n  {}\n", open.label, open.question, open.command);
        }
        if is_interrupted(&look.view.state(), look.liveness) {
            below.extend(look.how_to_continue().map(|way| format!("  {way}\n")));
        }
        text += &format!("{}\n", cut(line, wide));
        text.extend(below.lines().map(|line| format!("{}\n", cut(line, wide))));
    }
    if runs.iter().any(|look| look.view.total().is_estimated()) {
        text += &wrap_lines(ESTIMATE_NOTE, wide);
    }
    text
}

fn row(look: &ObservedRun<'_>, wall_ms: u64, wide: usize) -> Vec<String> {
    let view = look.view;
    let id = view.run().map_or_else(|| "?".into(), |run| run.to_string());
    let id = if wide < WHOLE_ID_COLUMNS {
        id[id.len().saturating_sub(SHORT_ID)..].to_owned()
    } else {
        id
    };
    let began = view.started_at().map_or(wall_ms, |moment| moment.wall_ms);
    let state = match urgency(look) {
        RunUrgency::WaitsForPerson => "? asks you".to_owned(),
        RunUrgency::Live | RunUrgency::Over => look.state_text(),
    };
    let folder = view.workdir().rsplit('/').find(|part| !part.is_empty()).unwrap_or("/");
    vec![
        id,
        age(Duration::from_millis(wall_ms.saturating_sub(began))),
        state,
        view.total().money(),
        sanitize::line(folder).into_owned(),
        look.goal_or_labels(),
    ]
}
