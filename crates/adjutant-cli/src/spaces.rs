//! What a person says about agents that write in workspaces of their own.

use std::path::{Path, PathBuf};

use adjutant_core::policy::Key;
use adjutant_core::space::SpaceKind;
use adjutant_core::{Rights, ToolSet};
use adjutant_engine::SpaceSetup;
use clap::{Args, ValueEnum};

use crate::exit::Failure;
use crate::output::say;
use crate::settings::Settings;

/// Flags of the commands that start agents.
#[derive(Args, Debug, Default)]
pub(crate) struct SpaceFlags {
    /// Let agents write, each in a workspace of its own: its work comes back as a commit to look at with
    /// `adjutant diff` and to take over with `adjutant merge`.
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) write: bool,

    /// An ignored folder that workspaces hold all the same, such as target or node_modules; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) include_ignored: Vec<PathBuf>,

    /// How workspaces are made; the better kind this machine allows by default.
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) workspace: Option<WorkspaceWish>,

    /// What holds the commands that agents run. Off runs them as you, with all your rights.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "on")]
    pub(crate) sandbox: SandboxWish,

    /// A directory that commands may read beside those of the system, such as a toolchain; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) grant: Vec<PathBuf>,
}

/// How workspaces are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkspaceWish {
    /// Layers over a shared checkout.
    Overlay,
    /// A work tree of git.
    Worktree,
}

/// What holds commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxWish {
    /// The sandbox, or nothing is run.
    #[default]
    On,
    /// Nothing.
    Off,
}

impl SpaceFlags {
    /// Takes the flags into the policy.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Failure> {
        if self.write {
            write_in_workspaces(settings)?;
        }
        if self.sandbox == SandboxWish::Off && self.workspace == Some(WorkspaceWish::Overlay) {
            return Err(Failure::usage(
                "--sandbox=off needs --workspace=worktree: an overlay is seen only within a sandbox",
            ));
        }
        if let Some(missing) = self.grant.iter().find(|grant| !grant.is_dir()) {
            let text = format!("--grant {}: there is no such directory", missing.display());
            return Err(Failure::usage(text));
        }
        if self.sandbox == SandboxWish::Off {
            say("adjutant: --sandbox=off: commands of agents run as you, with all your rights");
        }
        Ok(())
    }

    /// Returns what the engine is told.
    pub(crate) fn setup(&self, home: &Path) -> SpaceSetup {
        SpaceSetup {
            kind: self.workspace.map(|wish| match wish {
                WorkspaceWish::Overlay => SpaceKind::Overlay,
                WorkspaceWish::Worktree => SpaceKind::Worktree,
            }),
            include_ignored: self.include_ignored.clone(),
            sandbox_off: self.sandbox == SandboxWish::Off,
            // Seen from the workspace, a relative path would be another one.
            grants: self.grant.iter().filter_map(|grant| grant.canonicalize().ok()).collect(),
            ..usual(home)
        }
    }
}

/// Returns what the engine is told where nobody said anything: a person's home is never shown.
pub(crate) fn usual(home: &Path) -> SpaceSetup {
    SpaceSetup {
        hidden: std::env::var_os("HOME").map(PathBuf::from).into_iter().collect(),
        ..SpaceSetup::new(home.to_owned())
    }
}

/// Gives agents workspaces of their own and the tools to write there; a person has typed so.
pub(crate) fn write_in_workspaces(settings: &mut Settings) -> Result<(), Failure> {
    let held = Rights::of(settings.policy.policy()).tools;
    let all = ToolSet::all();
    let writing = all.iter().filter(|tool| ["Edit", "Write", "Run"].contains(tool));
    let tools: Vec<String> = held.iter().chain(writing).map(str::to_owned).collect();
    settings.set(Key::Workspace, "own", "--write")?;
    settings.set(Key::Tools, tools, "--write")
}
