//! The keys, in one table: what a key does, where it works, and how help and the bottom line name it.

use ratatui_crossterm::crossterm::event::KeyCode;

use crate::state::WatchScreen;

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyCommand {
    /// Moves the selection or the text up.
    Up,
    /// Moves it down.
    Down,
    /// Moves it up by a page.
    PageUp,
    /// Moves it down by a page.
    PageDown,
    /// Moves it to the top.
    First,
    /// Moves it to the bottom.
    Last,
    /// Opens the selected run.
    Open,
    /// Goes back to the screen before.
    Back,
    /// Asks for a filter.
    Filter,
    /// Answers a question.
    Approve,
    /// Sends a message to an agent.
    Tell,
    /// Cancels a run or an agent.
    Cancel,
    /// Shows a diff.
    Diff,
    /// Shows a transcript.
    Transcript,
    /// Merges results.
    Merge,
    /// Deletes results.
    Discard,
    /// Resumes a run.
    Resume,
    /// Shows the state before the last shown event.
    EarlierEvent,
    /// Shows the state after one more event.
    LaterEvent,
    /// Goes back by a twentieth of the events.
    Earlier,
    /// Goes on by a twentieth of the events.
    Later,
    /// Shows the newest state.
    Newest,
    /// Shows the keys.
    Help,
    /// Leaves.
    Quit,
}

/// A line of the table.
pub(crate) struct KeyBinding {
    /// The keys that are read.
    codes: &'static [KeyCode],
    pub(crate) command: KeyCommand,
    /// The keys as they are shown.
    pub(crate) keys: &'static str,
    /// The word in the bottom line; empty if it is not shown there.
    pub(crate) short: &'static str,
    /// What help says.
    pub(crate) long: &'static str,
    screens: &'static [WatchScreen],
}

const LISTS: &[WatchScreen] = &[WatchScreen::List, WatchScreen::Run];
const LIST: &[WatchScreen] = &[WatchScreen::List];
const RUN: &[WatchScreen] = &[WatchScreen::Run];
const INNER: &[WatchScreen] = &[WatchScreen::Run, WatchScreen::Text];
const ALL: &[WatchScreen] = &[WatchScreen::List, WatchScreen::Run, WatchScreen::Text];

macro_rules! key {
    ($codes:expr, $command:ident, $keys:expr, $short:expr, $long:expr, $screens:expr) => {
        KeyBinding {
            codes: &$codes,
            command: KeyCommand::$command,
            keys: $keys,
            short: $short,
            long: $long,
            screens: $screens,
        }
    };
}

use KeyCode::Char;

/// All keys. The bottom line shows those that apply in this order, as far as they fit.
pub(crate) const BINDINGS: [KeyBinding; 24] = [
    key!([KeyCode::Enter], Open, "enter", "open", "open the run", LIST),
    key!([KeyCode::Enter], Transcript, "enter", "read", "show its transcript", RUN),
    key!([KeyCode::Esc, KeyCode::Backspace], Back, "esc", "back", "go back", INNER),
    key!([Char('a')], Approve, "a", "answer", "answer its question", LISTS),
    key!([Char('d')], Diff, "d", "diff", "show what was changed", LISTS),
    key!([Char('t')], Tell, "t", "tell", "send a message to the agent", LISTS),
    key!([Char('c')], Cancel, "c", "cancel", "cancel the run or the agent", LISTS),
    key!([Char('m')], Merge, "m", "merge", "merge it into your files", LISTS),
    key!([Char('x')], Discard, "x", "discard", "delete the changes", LISTS),
    key!([Char('r')], Resume, "r", "resume", "continue unfinished work", LISTS),
    key!([Char('/')], Filter, "/", "filter", "show only what has a text", LISTS),
    key!([KeyCode::Left], EarlierEvent, "left", "", "go back one event", RUN),
    key!([KeyCode::Right], LaterEvent, "right", "", "go on one event", RUN),
    key!([Char('[')], Earlier, "[", "", "go back 1/20 of the run", RUN),
    key!([Char(']')], Later, "]", "", "go on 1/20 of the run", RUN),
    key!([Char(' ')], Newest, "space", "", "show the newest state again", RUN),
    key!([KeyCode::Up, Char('k')], Up, "up k", "", "up", ALL),
    key!([KeyCode::Down, Char('j')], Down, "down j", "", "down", ALL),
    key!([KeyCode::PageUp], PageUp, "pgup", "", "a page up", ALL),
    key!([KeyCode::PageDown], PageDown, "pgdn", "", "a page down", ALL),
    key!([KeyCode::Home, Char('g')], First, "home g", "", "to the top", ALL),
    key!([KeyCode::End, Char('G')], Last, "end G", "", "to the bottom", ALL),
    key!([Char('?')], Help, "?", "help", "show the keys", ALL),
    key!([Char('q')], Quit, "q", "quit", "leave; every run goes on", ALL),
];

impl KeyBinding {
    /// Returns whether the key works on a screen.
    pub(crate) fn is_for(&self, screen: WatchScreen) -> bool {
        self.screens.contains(&screen)
    }
}

/// Returns what a key does on a screen.
pub(crate) fn command_of(code: KeyCode, screen: WatchScreen) -> Option<KeyCommand> {
    let fits = |it: &&KeyBinding| it.codes.contains(&code) && it.is_for(screen);
    BINDINGS.iter().find(fits).map(|it| it.command)
}

/// What `adjutant watch --help` says about the keys.
pub const KEY_HELP: &str = "\
Keys:
  up, down, enter, esc     select, open, go back; / filters, ? shows all keys, q leaves
  a  t  c                  answer a question, send a message to an agent, cancel it or the run
  enter  d                 in a run: the transcript and the diff of an agent
  m  x  r                  merge or discard its changes, resume the run
  left, right, [ ], space  go through the events of the run, and back to the newest one";
