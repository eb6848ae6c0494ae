//! The runtime: takes inputs from one queue, asks the core, records, acts, reports.
//!
//! The only crate that owns tasks and the clock. It judges nothing: every limit is decided by
//! [`adjutant_core::Tree::decide`]; what must happen comes back as [`adjutant_core::Effect`] and is
//! performed once the event behind it is on disk.
//!
//! Start at [`Engine::delegate`] to run, at [`Archive`] to read what ran. Invariant: no effect
//! happens and nothing is reported before its event is durable.

mod archive;
mod briefs;
mod chain;
mod control;
mod engine;
mod ids;
pub mod prd;
mod registry;
pub mod roster;
mod runner;
pub mod slash;
mod spaces;
pub mod specs;
pub mod work;

pub use adjutant_core::Secret;
pub use adjutant_store::{open_private, open_private_existing};
pub use adjutant_tools::{SearchEndpoint, Tool, ToolOutput, Web, WebCaps};
pub use adjutant_workspace::sandbox::{
    close_inherited_files, helper_main_if_asked as sandbox_helper_if_asked,
};
pub use adjutant_workspace::{git_dirs_around, why_no_repository, with_link_targets};
pub use archive::follow::Follow;
pub use archive::{Archive, ArchiveError, Expiry, Life, ReadJournal, Records, RunFiles, Swept};
pub use briefs::desk::ModelOpener;
pub use briefs::prompt::lead_prompt;
pub use briefs::role::{Role, model_of_file};
pub use control::{Answer as ControlAnswer, Cancelled, Complaint, ControlError, Request, RunState};
pub use engine::opening::{Opened, Storage};
pub use engine::resume::{Past, Resume};
pub use engine::{Engine, EngineError, Finished, Goal, Preview, Setup, Staff};
pub use ids::{Chance, new_run_id};
pub use registry::{
    RegistryError, RegistryHandle, RegistryUnavailable, ReleaseOnDrop, StoryOutcome, question_id,
    story_key,
};
pub use runner::clock::{Wall, wall_now};
pub use runner::effects::{Answer, Approver, Question, artifact_facts};
pub use runner::{Control, Narrator, Reporter};
pub use spaces::SpaceSetup;
pub use work::undo::{Fate, Undo, UndoError, Undone};
