//! The flags about workspaces and the sandbox, and the setup that the engine gets from them.

use std::path::{Path, PathBuf};

use adjutant_core::policy::{PolicyKey, WorkspaceSharing};
use adjutant_core::workspace::WorkspaceKind;
use adjutant_core::{Policy, Rights, RunId, ToolSet, VerifyCommand};
use adjutant_engine::{ResumeInfo, WorkspaceSetup, git_dirs_around, why_not_kept};
use clap::{Args, ValueEnum};

use crate::exit::Failure;
use crate::output::say;
use crate::settings::{Settings, command_folders, user_config_dir, user_folders};
use crate::toolchains::ToolchainSettings;

/// The flags about writing, of the commands that start a run.
#[derive(Args, Debug, Default)]
pub(crate) struct WriteFlags {
    /// Let agents write, each in its own workspace. Their work comes back as commits, which you review with
    /// `adjutant diff` and merge with `adjutant merge`.
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) write: bool,

    /// The command that must succeed before the work of an agent counts as done, such as "cargo test". It runs in a
    /// fresh copy of the finished work; if it fails, the agent gets its output and continues. Needs --write.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) verify: Option<String>,

    /// Files that the verify command sees as they were before the work, such as "tests/**" or check.sh, so that an
    /// agent cannot pass by changing its tests; can be repeated. Globs as in .gitignore.
    #[arg(long, value_name = "GLOB")]
    pub(crate) verify_keep: Vec<String>,

    /// Let another agent do the work of the subagents: claude, codex, opencode, gemini, or one of your configuration.
    /// It runs in the sandbox, and every model call it makes counts against the budget. `adjutant workers` lists what is
    /// installed. Needs --write.
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,

    /// A tool that commands need, such as cargo or go, as the lines `toolchain` of `adjutant doctor` name it; can be
    /// repeated. The run does not start without it; on a cluster, agents go only to workers that have it. Needs --write.
    #[arg(long, value_name = "TOOL")]
    pub(crate) needs: Vec<String>,

    #[command(flatten)]
    pub(crate) terms: WorkspaceSetupFlags,
}

/// The flags about workspaces, of the commands that start or resume a run.
#[derive(Args, Debug, Default)]
pub(crate) struct WorkspaceSetupFlags {
    /// A git-ignored directory to include in workspaces, such as target or node_modules; can be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) include_ignored: Vec<PathBuf>,

    /// The kind of workspace [default: overlay where this machine supports it, otherwise worktree].
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) workspace: Option<WorkspaceKindArg>,

    /// Whether the commands of agents run in a sandbox [default: on]. `off` runs them as you, with all your rights.
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(crate) sandbox: Option<SandboxSwitch>,

    /// A directory that commands may read in addition to the system's, such as a toolchain; can be repeated.
    #[arg(long, value_name = "DIR")]
    pub(crate) grant: Vec<PathBuf>,

    /// Hide your toolchains (rustup, pyenv, nvm and others) from commands: all of them, or one by its name in `adjutant
    /// doctor`; can be repeated. The system's own tools stay.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) no_toolchains: Vec<String>,
}

/// How workspaces are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkspaceKindArg {
    /// A writable layer over a shared checkout.
    Overlay,
    /// A git worktree.
    Worktree,
}

/// Whether commands of agents run in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxSwitch {
    /// In the sandbox; where it is not available, no command runs.
    On,
    /// Without a sandbox.
    Off,
}

impl WriteFlags {
    /// Applies `--write` to the policy.
    pub(crate) fn apply(&self, settings: &mut Settings) -> Result<(), Failure> {
        if self.write {
            write_in_workspaces(settings)?;
        }
        Ok(())
    }

    /// Refuses workspace flags if `policy` gives agents no workspaces. `merge` says whether `--merge` was typed.
    pub(crate) fn refuse_unused(&self, policy: &Policy, merge: bool) -> Result<(), Failure> {
        let verify = self.verify.as_ref().map(|_| "--verify");
        let keep = (!self.verify_keep.is_empty()).then_some("--verify-keep");
        let worker = self.worker.as_ref().map(|_| "--worker");
        let needs = (!self.needs.is_empty()).then_some("--needs");
        let typed = verify
            .or(keep)
            .or(worker)
            .or(needs)
            .or(self.terms.first_typed_flag())
            .or(merge.then_some("--merge"));
        match typed {
            Some(flag) if !gives_workspaces(policy) => {
                let text = format!("{flag}: no agent has a workspace of its own here");
                Err(Failure::usage(text).hint(WITH_WRITE))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the verify command that was typed.
    ///
    /// # Errors
    ///
    /// If the command is empty, a glob is invalid, or globs were typed without a command.
    pub(crate) fn typed_verify(&self) -> Result<Option<VerifyCommand>, Failure> {
        check_kept_globs(&self.verify_keep, "--verify-keep")?;
        match &self.verify {
            None if self.verify_keep.is_empty() => Ok(None),
            None => Err(Failure::usage("--verify-keep has no effect without --verify")
                .hint("Add --verify COMMAND.")),
            Some(command) if command.trim().is_empty() => {
                Err(Failure::usage("--verify: the command is empty")
                    .hint("Give a shell command, for example --verify \"cargo test\"."))
            }
            Some(command) => {
                let keep = self.verify_keep.clone();
                Ok(Some(VerifyCommand { command: command.clone(), keep }))
            }
        }
    }

    /// Returns the workspace setup of a new run in `tree`.
    pub(crate) fn setup(
        &self,
        home: &Path,
        tree: &Path,
        settings: &Settings,
    ) -> Result<WorkspaceSetup, Failure> {
        let mut setup = default_setup(home);
        self.terms.add_to(&mut setup, tree)?;
        self.terms.find_toolchains(&mut setup, &settings.toolchains, settings.policy.policy())?;
        setup.needed_tools.clone_from(&self.needs);
        warn_of_wide_root(tree);
        if setup.sandbox_off {
            say("adjutant: --sandbox=off: commands of agents run as you, with all your rights");
        }
        Ok(setup)
    }
}

/// Refuses globs that cannot be used; `origin` is where they were written.
pub(crate) fn check_kept_globs(globs: &[String], origin: &str) -> Result<(), Failure> {
    match why_not_kept(globs) {
        None => Ok(()),
        Some(why) => Err(Failure::usage(format!("{origin} {why}"))
            .hint("Write globs as in .gitignore: \"tests/**\", \"*_test.go\", check.sh.")),
    }
}

const WITH_WRITE: &str = "Add --write, which lets agents write, each in its own workspace.";

impl WorkspaceSetupFlags {
    /// Returns the first flag that was typed.
    pub(crate) fn first_typed_flag(&self) -> Option<&'static str> {
        let all = [
            (!self.include_ignored.is_empty(), "--include-ignored"),
            (self.workspace.is_some(), "--workspace"),
            (self.sandbox.is_some(), "--sandbox"),
            (!self.grant.is_empty(), "--grant"),
            (!self.no_toolchains.is_empty(), "--no-toolchains"),
        ];
        all.into_iter().find(|(is_typed, _)| *is_typed).map(|(_, flag)| flag)
    }

    /// Returns the workspace setup of a resumed run: what its journal records, changed by the flags typed now.
    pub(crate) fn setup_resumed(
        &self,
        home: &Path,
        run: RunId,
        past: &ResumeInfo,
        toolchains: Option<&ToolchainSettings>,
        merge: bool,
    ) -> Result<WorkspaceSetup, Failure> {
        let typed = self.first_typed_flag().or(merge.then_some("--merge"));
        if let Some(flag) = typed.filter(|_| !gives_workspaces(&past.policy)) {
            let text = format!("{flag}: no agent of {run} has a workspace of its own");
            return Err(Failure::usage(text)
                .hint("Leave the flag out: whether agents write is decided when a run starts."));
        }
        let mut setup = default_setup(home);
        if let Some(toolchains) = toolchains {
            self.find_toolchains(&mut setup, toolchains, &past.policy)?;
        }
        for lost in past.terms.iter().flat_map(|terms| setup.restore(terms)) {
            say(&format!("adjutant: {lost}"));
        }
        self.add_to(&mut setup, &past.workdir)?;
        if self.sandbox == Some(SandboxSwitch::Off) && past.has_overlays {
            let text = format!(
                "--sandbox=off: {run} uses overlay workspaces, which exist only inside a sandbox"
            );
            return Err(Failure::usage(text)
                .hint("Resume without --sandbox=off, or start a new run with it."));
        }
        if setup.sandbox_off && gives_workspaces(&past.policy) {
            let why = if self.sandbox.is_some() { "" } else { ", as it was before" };
            say(&format!(
                "adjutant: the sandbox is off{why}: commands of agents run as you, with all your rights"
            ));
        }
        Ok(setup)
    }

    /// Adds the toolchains that commands see, if agents have workspaces of their own.
    fn find_toolchains(
        &self,
        setup: &mut WorkspaceSetup,
        toolchains: &ToolchainSettings,
        policy: &Policy,
    ) -> Result<(), Failure> {
        let mut toolchains = toolchains.clone();
        toolchains.add_flag(&self.no_toolchains)?;
        if gives_workspaces(policy) {
            toolchains.find(setup);
        }
        Ok(())
    }

    /// Adds the typed flags to the setup, and prints warnings about them.
    pub(crate) fn add_to(&self, setup: &mut WorkspaceSetup, tree: &Path) -> Result<(), Failure> {
        if let Some(wish) = self.workspace {
            setup.kind = Some(match wish {
                WorkspaceKindArg::Overlay => WorkspaceKind::Overlay,
                WorkspaceKindArg::Worktree => WorkspaceKind::Worktree,
            });
        }
        if let Some(wish) = self.sandbox {
            setup.sandbox_off = wish == SandboxSwitch::Off;
        }
        if setup.sandbox_off && setup.kind == Some(WorkspaceKind::Overlay) {
            return Err(Failure::usage(
                "--sandbox=off needs --workspace=worktree: an overlay exists only inside a sandbox",
            ));
        }
        for grant in &self.grant {
            // Canonical, because a relative path means something else in a workspace, and a link may change later.
            let path = resolve_granted_path(grant)?;
            if let Some((why, hint)) = why_not_granted(&path, setup, tree) {
                return Err(
                    Failure::usage(format!("--grant {}: {why}", grant.display())).hint(hint)
                );
            }
            setup.grants.push(path);
        }
        if !self.include_ignored.is_empty() {
            for typed in &self.include_ignored {
                refuse_included(typed, tree)?;
            }
            setup.include_ignored.extend(self.include_ignored.iter().cloned());
            for strange in setup.resolve_included(tree) {
                say(&format!("adjutant: --include-ignored: {strange}"));
            }
        }
        Ok(())
    }
}

fn resolve_granted_path(typed: &Path) -> Result<PathBuf, Failure> {
    let refused = |why: &str| Failure::usage(format!("--grant {}: {why}", typed.display()));
    let path = typed.canonicalize().ok().filter(|path| path.is_dir());
    let path = path.ok_or_else(|| refused("there is no such directory"))?;
    // The journal records it as text, for `resume`.
    if path.to_str().is_none() {
        return Err(refused("its path is not UTF-8"));
    }
    Ok(path)
}

/// Returns why a directory must not be granted, and what to do instead.
fn why_not_granted(
    grant: &Path,
    setup: &WorkspaceSetup,
    tree: &Path,
) -> Option<(&'static str, &'static str)> {
    const NARROWER: &str = "Name the directories that commands need, such as a toolchain.";
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (tree, state) = (real(tree), real(&setup.state));
    if grant == Path::new("/") {
        return Some(("that is everything, and most of it must stay hidden", NARROWER));
    }
    if ["/proc", "/dev"].iter().any(|own| grant.starts_with(own)) {
        let hint = "Leave it out: commands find /proc and /dev as they may see them.";
        return Some(("each command has one of its own there", hint));
    }
    if grant.starts_with(&state) {
        return Some(("the state directory is never shown to agents", NARROWER));
    }
    if grant == tree || git_dirs_around(&tree).iter().any(|git| grant.starts_with(git)) {
        let hint = "Leave it out; --include-ignored DIR brings ignored folders along.";
        return Some(("agents work in copies of this repository and never see it itself", hint));
    }
    if setup.home.iter().chain(&setup.hidden).any(|hidden| grant == real(hidden)) {
        let hint = "Name the directories in it that commands need, such as ~/.cargo.";
        return Some(("your home directory as a whole is never shown to agents", hint));
    }
    None
}

/// Refuses directories that can never be included: git directories and the whole tree.
fn refuse_included(typed: &Path, tree: &Path) -> Result<(), Failure> {
    const USUAL: &str = "Name ignored folders that commands need, such as target or node_modules.";
    let refused = |why: &str| {
        let text = format!("--include-ignored {}: {why}", typed.display());
        Err(Failure::usage(text).hint(USUAL))
    };
    let is_called_git =
        typed.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"));
    let is_in = |git: &PathBuf| tree.join(typed).canonicalize().is_ok_and(|it| it.starts_with(git));
    if is_called_git || git_dirs_around(tree).iter().any(is_in) {
        return refused("a git directory never comes along; each workspace has one of its own");
    }
    let is_top = |top: PathBuf| tree.join(typed).canonicalize().is_ok_and(|it| it == top);
    if typed.as_os_str().is_empty() || tree.canonicalize().is_ok_and(is_top) {
        return refused("that is the whole tree, of which all comes along that is not ignored");
    }
    Ok(())
}

/// Returns whether agents have their own workspaces under a policy.
fn gives_workspaces(policy: &Policy) -> bool {
    policy.workspace == WorkspaceSharing::Own && !policy.in_place
}

/// Warns if agents would work in the home directory or in `/`.
fn warn_of_wide_root(root: &Path) {
    let Ok(root) = root.canonicalize() else { return };
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let what = if root == Path::new("/") {
        "the root of the file system"
    } else if home.is_some_and(|home| home == root) {
        "your home directory"
    } else {
        return;
    };
    say(&format!(
        "adjutant: warning: agents work in {what}, with all files in it; change to the folder of a project, or name \
         it with --root"
    ));
}

/// Returns the default workspace setup: commands see a private directory in place of `$HOME`, and agents cannot
/// access the user's configuration.
pub(crate) fn default_setup(state: &Path) -> WorkspaceSetup {
    WorkspaceSetup {
        home: std::env::var_os("HOME").map(PathBuf::from),
        config: user_config_dir(),
        read_only: [user_folders(), command_folders()]
            .into_iter()
            .flat_map(|it| it.0)
            .map(|it| it.1)
            .collect(),
        ..WorkspaceSetup::new(state.to_owned())
    }
}

/// Applies `--write`: gives agents their own workspaces and the tools to write there.
pub(crate) fn write_in_workspaces(settings: &mut Settings) -> Result<(), Failure> {
    let held = Rights::of(settings.policy.policy()).tools;
    let all = ToolSet::all();
    let writing = all.iter().filter(|tool| ["Edit", "Write", "Run"].contains(tool));
    let tools: Vec<String> = held.iter().chain(writing).map(str::to_owned).collect();
    settings.set(PolicyKey::Workspace, "own", "--write")?;
    settings.set(PolicyKey::Tools, tools, "--write")
}
