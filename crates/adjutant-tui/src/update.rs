//! What a key does: changes the state, and returns what must happen outside it.
//!
//! Start at [`update`]. A [`WatchAction`] is done by the program; a [`ChildCommand`] is the `adjutant` command that an action
//! runs, and [`CommandInput`] what a person types for it. Whether a command is allowed, the command judges; what the shown
//! state already excludes is said before anything is typed or confirmed ([`obstacle`]).

use adjutant_core::{RunId, SessionId};
use adjutant_view::results::resume_flag;
use adjutant_view::{ProcessLiveness, sanitize};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::key_bindings::{KeyCommand, command_of};
use crate::obstacle::{SelectedWork, obstacle};
use crate::opened_run::OpenedRun;
use crate::render::last_top;
use crate::run_list::{ListRow, ListRowId};
use crate::state::{WatchOverlay, WatchScreen, WatchState};
use crate::text_pane::TextPane;

/// What must happen outside the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchAction {
    /// Leave the program.
    Quit,
    /// Stop the process until the shell continues it.
    Suspend,
    /// Read the journal of this run from its first record.
    ReadRun(RunId, Option<SessionId>),
    /// Run a command in the background and show what it prints.
    ReadText(Vec<String>),
    /// Run a command on the normal screen.
    Run(ChildCommand),
}

/// An `adjutant` command that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildCommand {
    /// Its arguments.
    pub args: Vec<String>,
    /// What a person types for it.
    pub input: CommandInput,
    /// The run it is about.
    pub run: RunId,
    /// A short name of what it is about, for a question on a narrow terminal.
    pub target: String,
}

/// What a person types for a command on the normal screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandInput {
    /// Nothing.
    Nothing,
    /// A message, which the command reads from standard input.
    Message,
    /// The code of the question with this id, after `adjutant approvals` has shown it.
    Code(String),
    /// The answer to this question of an agent, which becomes the argument `--say=ANSWER`.
    Answer(String),
}

/// Handles a key.
pub fn update(state: &mut WatchState, key: KeyEvent) -> Vec<WatchAction> {
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    state.message = None;
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        let control = [('c', WatchAction::Quit), ('z', WatchAction::Suspend)];
        let pressed = |(letter, _): &(char, WatchAction)| key.code == KeyCode::Char(*letter);
        return control.into_iter().find(pressed).map(|(_, action)| action).into_iter().collect();
    }
    match state.overlay.take() {
        Some(WatchOverlay::Help(top)) => {
            scroll_help(state, top, key.code);
            Vec::new()
        }
        Some(WatchOverlay::Confirm(command)) if key.code == KeyCode::Char('y') => {
            vec![WatchAction::Run(command)]
        }
        Some(WatchOverlay::Confirm(_)) => Vec::new(),
        Some(WatchOverlay::Filter) => {
            edit_filter(state, key.code);
            Vec::new()
        }
        None => match command_of(key.code, state.screen) {
            Some(command) => act(state, command),
            None => {
                state.message = Some("This key does nothing here; ? lists the keys.".to_owned());
                Vec::new()
            }
        },
    }
}

/// Scrolls the keys; any other key closes them.
fn scroll_help(state: &mut WatchState, top: usize, code: KeyCode) {
    let by = match command_of(code, WatchScreen::List) {
        Some(KeyCommand::Up) => -1,
        Some(KeyCommand::Down) => 1,
        Some(KeyCommand::PageUp) => -page(state),
        Some(KeyCommand::PageDown) => page(state),
        Some(KeyCommand::First) => isize::MIN,
        Some(KeyCommand::Last) => isize::MAX,
        Some(_) | None => return,
    };
    let last = last_top(state);
    state.overlay = Some(WatchOverlay::Help(top.saturating_add_signed(by).min(last)));
}

/// Returns the rows of a page.
fn page(state: &WatchState) -> isize {
    isize::try_from(state.size.1.saturating_sub(4).max(1)).unwrap_or(1)
}

fn edit_filter(state: &mut WatchState, code: KeyCode) {
    let filter = match state.screen {
        WatchScreen::Run => &mut state.run_filter,
        WatchScreen::List | WatchScreen::Text => &mut state.list_filter,
    };
    if code == KeyCode::Enter {
        return;
    }
    if code == KeyCode::Esc {
        filter.clear();
        return;
    }
    if let KeyCode::Char(typed) = code {
        filter.push(typed);
    } else if code == KeyCode::Backspace {
        filter.pop();
    }
    state.overlay = Some(WatchOverlay::Filter);
}

fn act(state: &mut WatchState, command: KeyCommand) -> Vec<WatchAction> {
    let page = page(state);
    if let Some(why) = SelectedWork::of(state).and_then(|work| obstacle(&work, command)) {
        state.message = Some(why.to_owned());
        return Vec::new();
    }
    match command {
        KeyCommand::Quit => return vec![WatchAction::Quit],
        KeyCommand::Help => state.overlay = Some(WatchOverlay::Help(0)),
        KeyCommand::Filter => state.overlay = Some(WatchOverlay::Filter),
        KeyCommand::Back => go_back(state),
        KeyCommand::Up => go(state, -1),
        KeyCommand::Down => go(state, 1),
        KeyCommand::PageUp => go(state, -page),
        KeyCommand::PageDown => go(state, page),
        KeyCommand::First => go(state, isize::MIN),
        KeyCommand::Last => go(state, isize::MAX),
        KeyCommand::EarlierEvent => scrub(state, |run| run.step(-1)),
        KeyCommand::LaterEvent => scrub(state, |run| run.step(1)),
        KeyCommand::Earlier => scrub(state, |run| run.step(-twentieth(run))),
        KeyCommand::Later => scrub(state, |run| run.step(twentieth(run))),
        KeyCommand::Newest => scrub(state, OpenedRun::show_newest),
        KeyCommand::Open => return open_selected(state),
        KeyCommand::Transcript => return read(state, "transcript"),
        KeyCommand::Diff => return read(state, "diff"),
        KeyCommand::Approve => return approve(state),
        KeyCommand::Tell => {
            let Some(target) = CommandTarget::of(state) else { return no_target(state) };
            let args = vec!["tell".to_owned(), target.session(), "-".to_owned()];
            let input = CommandInput::Message;
            let (run, target) = (target.run, target.short_name());
            return vec![WatchAction::Run(ChildCommand { args, input, run, target })];
        }
        KeyCommand::Cancel => return confirm(state, "cancel", None),
        KeyCommand::Merge => return confirm(state, "merge", None),
        KeyCommand::Discard => return confirm(state, "discard", None),
        KeyCommand::Resume => {
            let flag = SelectedWork::of(state).and_then(|work| resume_flag(work.view));
            return confirm(state, "resume", flag);
        }
    }
    Vec::new()
}

/// What a command is about: a run, or one of its agents.
struct CommandTarget {
    run: RunId,
    agent: Option<SessionId>,
    name: String,
    /// Whether the root works itself, so that it has a transcript.
    is_root_agent: bool,
}

impl CommandTarget {
    fn of(state: &WatchState) -> Option<Self> {
        let run = state.current_run()?;
        let opened = state.opened.as_ref().filter(|_| state.screen != WatchScreen::List);
        let node = opened.and_then(|run| run.selected_agent(&state.run_filter));
        if opened.is_some() && node.is_none() {
            return None;
        }
        let below = node.filter(|node| node.parent.is_some());
        Some(Self {
            run,
            agent: below.map(|node| node.session),
            name: below.map_or_else(
                || run.to_string(),
                |node| format!("[{}]", sanitize::label(node.label.as_str())),
            ),
            is_root_agent: node.is_some_and(|node| node.parent.is_none() && node.model.is_some()),
        })
    }

    /// Returns the id that a command takes: of the agent, or of the run for its root.
    fn id(&self) -> String {
        self.agent.map_or_else(|| self.run.to_string(), |agent| agent.to_string())
    }

    /// Returns the label of the agent, or the end of the run's id, by which lists name it.
    fn short_name(&self) -> String {
        if self.agent.is_some() {
            return self.name.clone();
        }
        let id = self.run.to_string();
        id.rsplit('_').next().unwrap_or(&id).to_owned()
    }

    /// Returns the id of the agent; that of the root for a run.
    fn session(&self) -> String {
        self.agent.unwrap_or_else(|| self.run.root_session()).to_string()
    }
}

fn no_target(state: &mut WatchState) -> Vec<WatchAction> {
    state.message = Some("Nothing is selected.".to_owned());
    Vec::new()
}

fn open_selected(state: &mut WatchState) -> Vec<WatchAction> {
    let Some(key) = state.selected_id() else { return no_target(state) };
    vec![WatchAction::ReadRun(key.run(), None)]
}

/// Asks whether a command shall run that cannot be taken back by a key.
fn confirm(state: &mut WatchState, verb: &str, flag: Option<&str>) -> Vec<WatchAction> {
    let Some(target) = CommandTarget::of(state) else { return no_target(state) };
    let mut args = vec![verb.to_owned(), target.id()];
    args.extend(flag.map(str::to_owned));
    let (run, target) = (target.run, target.short_name());
    let command = ChildCommand { args, input: CommandInput::Nothing, run, target };
    state.overlay = Some(WatchOverlay::Confirm(command));
    Vec::new()
}

/// Shows what a command prints about the selected agent or run.
fn read(state: &mut WatchState, verb: &str) -> Vec<WatchAction> {
    let Some(target) = CommandTarget::of(state) else { return no_target(state) };
    let wants_root = verb == "transcript" && target.is_root_agent;
    let id = if wants_root { target.session() } else { target.id() };
    let args = vec![verb.to_owned(), id];
    state.text = Some(TextPane::new(format!("{verb} of {}", target.name), args.clone()));
    state.screen = WatchScreen::Text;
    vec![WatchAction::ReadText(args)]
}

/// Answers the selected question, or else the first one of the run.
fn approve(state: &mut WatchState) -> Vec<WatchAction> {
    let run = state.current_run();
    let chosen = state.selected_id().filter(|_| state.screen == WatchScreen::List);
    let inbox = state.inbox();
    let is_chosen = |key: &ListRowId| matches!(key, ListRowId::Question(..));
    let row = match chosen.filter(is_chosen) {
        Some(ListRowId::Question(run, hash)) => {
            inbox.iter().find(|row| row.run == run && row.hash == hash)
        }
        Some(ListRowId::Run(_)) | None => inbox.iter().find(|row| Some(row.run) == run),
    };
    let Some(row) = row else { return answer(state) };
    let Some(id) = row.id.clone() else {
        state.message =
            Some("It is asked at the prompt of its own process; answer it there.".to_owned());
        return Vec::new();
    };
    let args = vec!["approve".to_owned(), id.clone()];
    let (target, input) = (id.clone(), CommandInput::Code(id));
    vec![WatchAction::Run(ChildCommand { args, input, run: row.run, target })]
}

/// Answers the question with which the selected agent has ended, or else the first agent of the run that has one.
fn answer(state: &mut WatchState) -> Vec<WatchAction> {
    let Some(run) = state.current_run() else { return no_target(state) };
    let Some(work) = SelectedWork::of(state) else { return no_target(state) };
    let (view, liveness) = (work.view, work.liveness);
    let Some(agent) = work.asking() else {
        state.message = Some("This agent has no open question.".to_owned());
        return Vec::new();
    };
    if liveness == ProcessLiveness::Alive {
        state.message = Some("Its question can be answered once the run has ended.".to_owned());
        return Vec::new();
    }
    let mut args = vec!["resume".to_owned(), agent.session.to_string()];
    args.extend(resume_flag(view).map(str::to_owned));
    let question = sanitize::collapsed(agent.open_question().unwrap_or_default());
    let target = format!("[{}]", sanitize::label(agent.label.as_str()));
    let input = CommandInput::Answer(question);
    vec![WatchAction::Run(ChildCommand { args, input, run, target })]
}

fn go_back(state: &mut WatchState) {
    state.screen = match state.screen {
        WatchScreen::Text if state.opened.is_some() => WatchScreen::Run,
        WatchScreen::Run if !state.run_filter.is_empty() => {
            state.run_filter.clear();
            WatchScreen::Run
        }
        WatchScreen::List | WatchScreen::Run | WatchScreen::Text => WatchScreen::List,
    };
    if state.screen != WatchScreen::Text {
        state.text = None;
    }
    if state.screen == WatchScreen::List {
        state.opened = None;
    }
}

fn scrub(state: &mut WatchState, change: impl FnOnce(&mut OpenedRun)) {
    if let Some(run) = &mut state.opened {
        change(run);
    }
}

fn twentieth(run: &OpenedRun) -> isize {
    isize::try_from(run.position().1.div_ceil(20)).unwrap_or(1)
}

/// Moves the selection, or scrolls the text.
fn go(state: &mut WatchState, by: isize) {
    match state.screen {
        WatchScreen::List => {
            let rows = state.list_rows();
            let keys: Vec<ListRowId> = rows.iter().filter_map(ListRow::key).collect();
            let chosen = state.selected_id();
            let place = keys.iter().position(|key| Some(key) == chosen.as_ref());
            state.selected = moved(place, by, keys.len()).map(|place| keys[place].clone());
        }
        WatchScreen::Run => {
            let filter = state.run_filter.clone();
            let Some(run) = &mut state.opened else { return };
            let selected = run.selected_agent(&filter).map(|node| node.session);
            let sessions: Vec<SessionId> = run.rows(&filter).iter().map(|it| it.session).collect();
            let place = sessions.iter().position(|it| Some(*it) == selected);
            if let Some(place) = moved(place, by, sessions.len()) {
                run.selected = sessions[place];
            }
        }
        WatchScreen::Text => {
            // The title and the keys take two rows.
            let visible = usize::from(state.size.1.saturating_sub(2));
            state.text.iter_mut().for_each(|pane| pane.scroll(by, visible));
        }
    }
}

/// Returns the place after a move, within `count` places.
fn moved(place: Option<usize>, by: isize, count: usize) -> Option<usize> {
    let last = count.checked_sub(1)?;
    Some(place.map_or(0, |place| place.saturating_add_signed(by).min(last)))
}
