//! `mcp`: starts the MCP server with the person's settings, or changes a client's configuration.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adjutant_core::policy::PolicyKey;
use adjutant_core::schema::CallLimits;
use adjutant_mcp::{
    ApprovalMode, BearerToken, HttpOptions, HttpServer, MergeApproval, ServeError, ServerSetup,
    TOKEN_VARIABLE, serve,
};

use adjutant_view::sanitize;

use crate::args::{McpArgs, McpCommand, OnDisconnect};
use crate::delegate::absolute;
use crate::exit::{Exit, Failure};
use crate::hints::program;
use crate::mcp_clients::{self, InstallTarget};
use crate::output::{print, say};
use crate::settings::{McpConfig, Settings, command_folders, open_archive, user_config_path};

/// Reserved for limits that a parent process passes on. While it is set, nothing is delegated, because this version
/// does not understand such limits.
const CONTEXT: &str = "ADJUTANT_CONTEXT";

/// Runs `adjutant mcp`.
pub(crate) fn run_mcp(args: &McpArgs, given_home: Option<PathBuf>) -> Result<Exit, Failure> {
    if let Some(command) = &args.command {
        if let Some(flag) = misplaced_flag(args) {
            let text = format!("{flag} is before the subcommand and would have no effect");
            return Err(Failure::usage(text).hint(
                "The flags for the server go after `--`: \
                 adjutant mcp install claude -- --approve-below 0.50",
            ));
        }
        return set_up(command, &args.root, given_home.as_deref());
    }
    let root = absolute(&args.root)?;
    let settings = settings(args, &root)?;
    let program_path = env::current_exe().map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot find the path of the adjutant program: {error}"))
    })?;
    let refusal = env::var_os(CONTEXT).map(|_| {
        format!(
            "Not delegated: the environment variable {CONTEXT} is set for the server. It is reserved for limits \
             of a parent process, which this version cannot read; a person must unset it and restart the server."
        )
    });
    // The process of a run inherits the environment, so only a typed state directory is passed on.
    let is_typed = env::var_os("ADJUTANT_HOME").map(PathBuf::from) != given_home;
    let state = given_home.clone().filter(|_| is_typed);
    let setup = ServerSetup {
        archive: open_archive(given_home)?,
        program: program_path,
        arguments: arguments(args, &settings.mcp, &root, state.as_deref()),
        task_arguments: task_arguments(args),
        write_arguments: write_arguments(args),
        ends_with_server: ends_with_server(args, &settings.mcp),
        search: crate::results::search(),
        approval: approval(args, &settings.mcp)?,
        merge_approval: merge_approval(args, &settings.mcp)?,
        policy: settings.policy.policy().clone(),
        asks_client: args.ask_client.or(settings.mcp.ask_client).unwrap_or(true),
        limits: CallLimits::of(settings.policy.policy()),
        root,
        detach_after: args.detach_after.map(Duration::from_secs),
        result_bytes: args.result_bytes.and_then(|bytes| usize::try_from(bytes).ok()),
        command_folders: command_folders(),
        program_name: program().to_owned(),
        refusal,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    if settings.mcp.is_unasked_ignored {
        let file = user_config_path().unwrap_or_default().display().to_string();
        say(&format!(
            "adjutant: `write_unasked` and `merge_unasked` in {} have no effect: they count only in \
             .config/adjutant/config.toml below the home directory of your account",
            sanitize::line(&file)
        ));
    }
    match args.http {
        Some(address) => serve_http(setup, address, args.allow_origin.clone())?,
        None => serve(setup).map_err(|error| Failure::from_error(Exit::Failed, &error))?,
    }
    Ok(Exit::Completed)
}

/// Checks whether the server would start with these flags.
pub(crate) fn check(args: &McpArgs) -> Result<(), Failure> {
    let settings = settings(args, &absolute(&args.root)?)?;
    approval(args, &settings.mcp).map(drop)
}

/// Reads the settings that the processes of runs will read, so that errors appear now and not at the first call.
fn settings(args: &McpArgs, root: &Path) -> Result<Settings, Failure> {
    let mut settings = Settings::load(&args.policy, root)?;
    if let Some(usd) = args.budget_usd {
        settings.set(PolicyKey::BudgetUsd, usd, "--budget-usd")?;
    }
    if let Some(tokens) = args.budget_tokens {
        settings.set(PolicyKey::BudgetTokensRun, tokens, "--budget-tokens")?;
    }
    Ok(settings)
}

/// Returns a server flag that was typed before `install` or `remove`, where it would have no effect.
fn misplaced_flag(args: &McpArgs) -> Option<&'static str> {
    let is_typed_model = args.model.is_some() && args.model != env::var("ADJUTANT_MODEL").ok();
    let given = [
        ("--model", is_typed_model),
        ("--approval", args.approval.is_some()),
        ("--approve-below", args.approve_below.is_some()),
        ("--ask-client", args.ask_client.is_some()),
        ("--on-disconnect", args.on_disconnect.is_some()),
        ("--max-runs", args.max_runs.is_some()),
        ("--budget-usd", args.budget_usd.is_some()),
        ("--budget-tokens", args.budget_tokens.is_some()),
        ("--include-ignored", !args.include_ignored.is_empty()),
        ("--grant", !args.grant.is_empty()),
        ("--detach-after", args.detach_after.is_some()),
        ("--result-bytes", args.result_bytes.is_some()),
        ("--http", args.http.is_some()),
        ("--preset", args.policy.preset.is_some()),
        ("--set", !args.policy.set.is_empty()),
        ("--enable-delegation", args.policy.enable_delegation),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
}

/// Serves over HTTP. Prints the address, and the token if it was generated.
fn serve_http(
    setup: ServerSetup,
    address: SocketAddr,
    origins: Vec<String>,
) -> Result<(), Failure> {
    let chosen = env::var_os(TOKEN_VARIABLE);
    let token = match &chosen {
        Some(text) => BearerToken::parse(&text.to_string_lossy())
            .map_err(|error| Failure::new(Exit::Usage, format!("{TOKEN_VARIABLE}: {error}")))?,
        None => {
            BearerToken::generate().map_err(|error| Failure::from_error(Exit::Failed, &error))?
        }
    };
    let server = HttpServer::bind(setup, HttpOptions { address, token: token.clone(), origins })
        .map_err(|error| Failure::from_error(refusal_exit(&error), &error))?;
    if chosen.is_none() {
        say(&format!(
            "adjutant: clients must send this header; it is shown once:\n  Authorization: Bearer {}",
            token.reveal()
        ));
    }
    // Printed last: a program that reads the address may connect at once.
    print(&format!("{}\n", server.url()))?;
    server.serve().map_err(|error| Failure::from_error(Exit::Failed, &error))
}

fn refusal_exit(error: &ServeError) -> Exit {
    match error {
        ServeError::NotLoopback(_) | ServeError::Origin(_) => Exit::Usage,
        ServeError::Start(_) | ServeError::Listen { .. } => Exit::Failed,
    }
}

/// The default limit of live runs that clients may have in a tree. Inclusive.
const MAX_RUNS: u32 = 16;

/// Returns the approval mode: the flag, otherwise the user's configuration.
fn approval(args: &McpArgs, config: &McpConfig) -> Result<ApprovalMode, Failure> {
    match (args.approval, args.approve_below) {
        (Some(approval), _) => Ok(approval),
        (None, None) => config.approval_mode(),
        (None, Some(usd)) => format!("auto-below {usd}")
            .parse()
            .map_err(|problem| Failure::usage(format!("--approve-below: {problem}"))),
    }
}

/// Returns who approves merges: the user's configuration, narrowed by the flags.
fn merge_approval(args: &McpArgs, config: &McpConfig) -> Result<MergeApproval, Failure> {
    let own = config.approval_mode()?;
    Ok(approval(args, config)?.for_merges(own, config.merge_unasked))
}

fn ends_with_server(args: &McpArgs, config: &McpConfig) -> bool {
    match args.on_disconnect.or(config.on_disconnect).unwrap_or_default() {
        OnDisconnect::Keep => false,
        OnDisconnect::Cancel => true,
    }
}

/// Returns the arguments for calls of `Delegate` only: commands and stories have their own presets.
fn task_arguments(args: &McpArgs) -> Vec<OsString> {
    args.policy.preset.iter().flat_map(|name| ["--preset".into(), name.into()]).collect()
}

/// Returns the arguments for calls of `delegate_write` only: what workspaces contain and commands may read.
fn write_arguments(args: &McpArgs) -> Vec<OsString> {
    let included = args.include_ignored.iter().map(|path| ("--include-ignored=", path));
    let granted = args.grant.iter().map(|path| ("--grant=", path));
    let join = |(flag, path): (&str, &PathBuf)| {
        let mut argument = OsString::from(flag);
        argument.push(path);
        argument
    };
    included.chain(granted).map(join).collect()
}

/// Returns the arguments of the process of a run. They contain only the person's settings, nothing of the client.
fn arguments(
    args: &McpArgs,
    config: &McpConfig,
    root: &Path,
    state: Option<&Path>,
) -> Vec<OsString> {
    let mut all: Vec<OsString> = ["--detached", "--events"].map(Into::into).into();
    let mut flag = |name: &str, value: OsString| all.extend([name.into(), value]);
    flag("--root", root.into());
    state.into_iter().for_each(|state| flag("--home", state.into()));
    let places = args.max_runs.or(config.max_runs).unwrap_or(MAX_RUNS);
    flag("--max-runs", places.to_string().into());
    args.budget_usd.into_iter().for_each(|usd| flag("--budget-usd", usd.to_string().into()));
    if let Some(tokens) = args.budget_tokens {
        flag("--budget-tokens", tokens.to_string().into());
    }
    args.model.iter().for_each(|model| flag("--model", model.into()));
    args.policy.set.iter().for_each(|assignment| flag("--set", assignment.into()));
    if args.policy.enable_delegation {
        all.push("--enable-delegation".into());
    }
    all
}

/// Runs `mcp install` or `mcp remove`.
fn set_up(command: &McpCommand, root: &Path, home: Option<&Path>) -> Result<Exit, Failure> {
    match command {
        McpCommand::Install { client, print, scope, flags } => {
            let order = InstallTarget { client: *client, scope: *scope, root };
            let act = if *print { mcp_clients::show } else { mcp_clients::install };
            act(&order, flags, home)
        }
        McpCommand::Remove { client, scope } => {
            mcp_clients::remove(&InstallTarget { client: *client, scope: *scope, root })
        }
    }
}
