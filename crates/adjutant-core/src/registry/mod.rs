//! What outlives a run: who holds what, what started unasked today, which call began which run.
//!
//! [`Registry`] is the second aggregate beside `Tree`. It judges what several processes share: places for
//! live runs, the daily allowance, budgets over the stories of a PRD, claims on stories and calls. It
//! remembers consents, open questions, the runs on stories and what was merged. It does not know what happens
//! inside a run, and it reads no file and no clock: callers say what time it is.
//!
//! Start at [`Registry::decide`]. Invariant: what a process holds is freed by its own command or by
//! [`RegistryEvent::HolderGone`], and an amount that was reserved stays spent unless its run is settled.

mod calls;
mod command;
mod decide;
mod event;
mod evolve;
mod refusal;
mod runs;
mod state;
mod stories;

pub use command::RegistryCommand;
pub use event::{ImportedCall, ImportedDay, RegistryEvent};
pub use refusal::RegistryRefusal;
pub use state::{
    CallKey, CallRecord, HolderId, HolderRecord, LiveRun, MergeRecord, QuestionPointer, Registry,
    StoryEnd, StoryKey, StoryRun, StoryRunState, TreeKey,
};
