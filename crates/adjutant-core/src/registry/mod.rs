//! The state that outlives a run and that several processes share.
//!
//! [`Registry`] is the second aggregate beside `Tree`. It decides about slots for live runs, the
//! daily auto-approval allowance, budgets over the stories of a PRD, and claims on stories and
//! calls. It also records consents, open questions, runs on stories, merges and what ended delegations consumed. It does not know
//! what happens inside a run, and reads no file and no clock.
//!
//! Start at [`Registry::decide`]. Invariant: what a process holds is freed by its own command or by
//! [`RegistryEvent::HolderGone`]; a reserved amount stays spent unless its run is settled.

mod calls;
mod command;
mod decide;
mod event;
mod evolve;
mod refusal;
mod runs;
mod samples;
mod state;
mod stories;

pub use command::RegistryCommand;
pub use event::{ImportedCall, ImportedDay, RegistryEvent};
pub use refusal::RegistryRefusal;
pub use samples::{DelegationSample, KEPT_SAMPLES, SampleGroup, SampleKey};
pub use state::{
    CallKey, CallRecord, HolderId, HolderRecord, LiveRun, MergeRecord, QuestionPointer, Registry,
    StoryEnd, StoryKey, StoryRun, StoryRunState, TreeKey,
};
