//! The runtime: takes inputs from one queue, asks the core, records, acts, reports.
//!
//! The only crate that owns tasks and the clock. It judges nothing: every limit is decided by
//! [`adjutant_core::Tree::decide`]; what must happen comes back as [`adjutant_core::Effect`] and is
//! performed once the event behind it is on disk.
//!
//! Start at [`Engine::delegate`] to run, at [`Archive`] to read what ran. Invariant: no effect
//! happens and nothing is reported before its event is durable.

mod archive;
mod chain;
mod clock;
mod control;
mod crash;
mod desk;
mod engine;
mod execute;
mod follow;
mod ids;
mod inbox;
mod marking;
mod opening;
pub mod prd;
mod prompt;
mod questions;
mod recover;
mod registry;
mod resume;
mod role;
mod room;
pub mod roster;
mod runner;
pub mod slash;
mod spaces;
pub mod specs;
mod terms;
mod undo;
pub mod work;
mod writing;

pub use adjutant_core::Secret;
pub use adjutant_store::{open_private, open_private_existing};
pub use adjutant_tools::{DomainPolicy, SearchEndpoint, Tool, ToolOutput, Web, WebCaps};
pub use adjutant_workspace::sandbox::{
    close_inherited_files, helper_main_if_asked as sandbox_helper_if_asked,
};
pub use adjutant_workspace::{git_dirs_around, why_no_repository, with_link_targets};
pub use archive::{Archive, ArchiveError, Expiry, Life, ReadJournal, Records, RunFiles, Swept};
pub use clock::{Wall, wall_now};
pub use control::{Answer as ControlAnswer, Cancelled, Complaint, ControlError, Request, RunState};
pub use desk::ModelOpener;
pub use engine::{Engine, EngineError, Finished, Goal, Preview, Setup, Staff};
pub use execute::{Answer, Approver, Question, artifact_facts};
pub use follow::Follow;
pub use ids::{Chance, new_run_id};
pub use inbox::{Inbox, Waiting};
pub use opening::{Opened, Storage};
pub use prompt::lead_prompt;
pub use registry::{
    RegistryError, RegistryHandle, RegistryUnavailable, ReleaseOnDrop, StoryOutcome, story_key,
};
pub use resume::{Past, Resume};
pub use role::{Role, model_of_file};
pub use runner::{Control, Narrator, Reporter};
pub use spaces::SpaceSetup;
pub use undo::{Fate, Undo, UndoError, Undone};
