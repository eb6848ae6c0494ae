//! The full-screen program `adjutant watch`.
//!
//! It reads journals and shows what [`adjutant_view`] folds from them. Nothing here decides or changes anything: keys
//! that do run another `adjutant` command on the normal screen. [`WatchState`] with [`update`] and [`render`] is pure
//! and has the whole behaviour; [`run_program`] connects it to a terminal and to the files of the runs. Start at [`update`]
//! for what a key does, at [`render`] for what is drawn. Invariant: all text that is drawn passes through
//! [`adjutant_view::sanitize`].

mod child_process;
mod inbox;
mod key_bindings;
mod obstacle;
mod opened_run;
mod painter;
mod program;
mod render;
mod run_list;
mod run_reader;
mod state;
mod terminal_screen;
mod text_pane;
mod update;

pub use child_process::CommandStarter;
pub use inbox::InboxRow;
pub use key_bindings::{KEY_HELP, KeyCommand};
pub use opened_run::{OpenedRun, WatchedRecord};
pub use program::{WatchEnd, WatchSetup, run_program};
pub use render::render;
pub use run_list::{ListRowId, ListedRun};
pub use run_reader::FoldRunFn;
pub use state::{WatchScreen, WatchState};
pub use text_pane::TextPane;
pub use update::{ChildCommand, CommandInput, WatchAction, update};
