//! The run that a call requests: tasks, tasks that write, a slash command, or a story of a PRD.
//!
//! Each becomes one run, executed by a subcommand of the program. Client input is passed on standard input,
//! as `--flag=value`, or after `--`, so that it can never be taken for a flag.

use std::ffi::OsString;
use std::path::{Component, Path};

use adjutant_core::schema::{CallLimits, DelegateCall, ReturnFormat};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ServerSetup;
use crate::tools::{AGENT, MAX_KEEP, McpTool, VERIFY, VERIFY_BYTES, VERIFY_KEEP};

/// The maximum length of a slash command. Inclusive. Equal to the kernel's limit for one argument.
pub(crate) const COMMAND_BYTES: usize = 128 << 10;

/// The maximum length of a path or id. Inclusive.
const NAME_BYTES: usize = 4096;

/// What a tool call asks to run: tasks, a slash command or a story.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RequestedRun {
    /// The arguments of a `Delegate` call.
    Tasks(Value),
    /// The arguments of a `delegate_write` call.
    Writers {
        /// The arguments that `Delegate` has too.
        call: Value,
        /// The verify command.
        verify: Option<String>,
        /// The globs of files that the verify command sees as they were before the work.
        keep: Vec<String>,
        /// The agent definition that the subagents work as.
        agent: Option<String>,
    },
    /// A slash command with its arguments.
    Command(String),
    /// A story of a PRD. Without an id, the next story that is ready.
    Story { prd: String, story: Option<String> },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandToolArgs {
    command: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoryToolArgs {
    prd: String,
    #[serde(default)]
    story: Option<String>,
}

impl RequestedRun {
    /// Parses the arguments of a tool that starts runs.
    pub(crate) fn parse(
        tool: McpTool,
        arguments: &Value,
        limits: &CallLimits,
    ) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("arguments: {error}");
        match tool {
            McpTool::Command => {
                let args = CommandToolArgs::deserialize(arguments).map_err(wrong)?;
                parse_command(args.command)
            }
            McpTool::Write => parse_writers(arguments, limits),
            McpTool::Story => {
                let args = StoryToolArgs::deserialize(arguments).map_err(wrong)?;
                parse_story(args)
            }
            McpTool::Delegate
            | McpTool::Start
            | McpTool::Wait
            | McpTool::Status
            | McpTool::Result
            | McpTool::Diff
            | McpTool::Merge
            | McpTool::Cancel
            | McpTool::Validate => {
                DelegateCall::parse(arguments, limits).map_err(|error| error.to_string())?;
                Ok(Self::Tasks(arguments.clone()))
            }
        }
    }

    /// Returns the requested form of the results.
    pub(crate) fn return_form(&self, limits: &CallLimits) -> ReturnFormat {
        match self {
            Self::Tasks(call) | Self::Writers { call, .. } => {
                DelegateCall::parse(call, limits).map(|call| call.return_form).unwrap_or_default()
            }
            Self::Command(_) | Self::Story { .. } => ReturnFormat::default(),
        }
    }

    /// Returns whether an equal call requests something else once this run has been reported: the next story.
    pub(crate) fn asks_for_next_story(&self) -> bool {
        matches!(self, Self::Story { story: None, .. })
    }

    /// Returns whether the process still has work to do after the run has ended: a branch and an entry in the
    /// PRD.
    pub(crate) fn has_work_after_end(&self) -> bool {
        matches!(self, Self::Story { .. })
    }

    /// Returns the command line of the run's process, with the additional arguments `terms`.
    pub(crate) fn arguments(&self, setup: &ServerSetup, terms: Vec<OsString>) -> Vec<OsString> {
        let mut all: Vec<OsString> = Vec::new();
        match self {
            Self::Tasks(_) => {
                all.push("delegate".into());
                all.extend(setup.task_arguments.iter().cloned());
            }
            Self::Writers { verify, keep, agent, .. } => {
                all.extend(["delegate".into(), "--write".into()]);
                all.extend(agent.iter().map(|name| format!("--agent={name}").into()));
                all.extend(verify.iter().map(|command| format!("--verify={command}").into()));
                all.extend(keep.iter().map(|glob| format!("--verify-keep={glob}").into()));
                all.extend(setup.task_arguments.iter().chain(&setup.write_arguments).cloned());
            }
            Self::Command(_) => all.push("run".into()),
            Self::Story { story, .. } => {
                // Clients always get a branch, even if the PRD asks for a merge.
                all.extend(["story".into(), "--merge=branch".into()]);
                all.push(match story {
                    Some(id) => format!("--story={id}").into(),
                    None => "--next".into(),
                });
            }
        }
        all.extend(setup.arguments.iter().cloned());
        if setup.ends_with_server {
            all.extend(["--leash".into(), std::process::id().to_string().into()]);
        }
        all.extend(terms);
        match self {
            Self::Tasks(_) | Self::Writers { .. } => all.extend(["--".into(), "-".into()]),
            Self::Command(_) => {}
            Self::Story { prd, .. } => all.extend(["--".into(), prd.into()]),
        }
        all
    }

    /// Returns what the process reads from standard input after the handover.
    pub(crate) fn input(&self) -> Vec<u8> {
        match self {
            Self::Tasks(call) | Self::Writers { call, .. } => call.to_string().into_bytes(),
            Self::Command(text) => text.clone().into_bytes(),
            Self::Story { .. } => Vec::new(),
        }
    }
}

fn parse_writers(arguments: &Value, limits: &CallLimits) -> Result<RequestedRun, String> {
    let mut call = arguments.clone();
    let mut take = |name: &str| call.as_object_mut().and_then(|all| all.remove(name));
    let (verify, keep, agent) = (take(VERIFY), take(VERIFY_KEEP), take(AGENT));
    DelegateCall::parse(&call, limits).map_err(|error| error.to_string())?;
    let verify: Option<String> = parse_optional(VERIFY, verify)?;
    let keep: Vec<String> = parse_optional(VERIFY_KEEP, keep)?.unwrap_or_default();
    let agent: Option<String> = parse_optional(AGENT, agent)?;
    if verify.is_none() && !keep.is_empty() {
        return Err(format!("{VERIFY_KEEP}: there is no `{VERIFY}` command to keep files for"));
    }
    if keep.len() > MAX_KEEP {
        return Err(format!("{VERIFY_KEEP}: {} globs, limit {MAX_KEEP}", keep.len()));
    }
    let globs = keep.iter().map(|glob| (VERIFY_KEEP, glob));
    let typed = verify.iter().map(|command| (VERIFY, command));
    for (name, text) in typed.chain(agent.iter().map(|name| (AGENT, name))).chain(globs) {
        if text.trim().is_empty() || text.len() > VERIFY_BYTES {
            return Err(format!("{name}: expected 1 to {VERIFY_BYTES} bytes"));
        }
        refuse_nul(name, text)?;
    }
    Ok(RequestedRun::Writers { call, verify, keep, agent })
}

fn parse_optional<T: DeserializeOwned>(
    name: &str,
    value: Option<Value>,
) -> Result<Option<T>, String> {
    let parse = |value| serde_json::from_value(value).map_err(|error| format!("{name}: {error}"));
    value.map(parse).transpose()
}

fn parse_command(text: String) -> Result<RequestedRun, String> {
    if text.len() > COMMAND_BYTES {
        return Err(format!("command: {} bytes, limit {COMMAND_BYTES}", text.len()));
    }
    if !text.starts_with('/') {
        return Err(
            "command: must start with a slash and a command name, for example /plan 12".into()
        );
    }
    refuse_nul("command", &text)?;
    Ok(RequestedRun::Command(text))
}

fn parse_story(args: StoryToolArgs) -> Result<RequestedRun, String> {
    let StoryToolArgs { prd, story } = args;
    for (name, text) in [("prd", Some(&prd)), ("story", story.as_ref())] {
        let Some(text) = text else { continue };
        if text.is_empty() || text.len() > NAME_BYTES {
            return Err(format!("{name}: expected 1 to {NAME_BYTES} bytes"));
        }
        refuse_nul(name, text)?;
    }
    let is_inside = Path::new(&prd)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_inside {
        return Err("prd: expected a path inside this server's tree, relative to its root".into());
    }
    Ok(RequestedRun::Story { prd, story })
}

/// Rejects NUL, which no command line can contain.
fn refuse_nul(name: &str, text: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err(format!("{name}: contains a NUL character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(tool: McpTool, arguments: &Value) -> Result<RequestedRun, String> {
        RequestedRun::parse(tool, arguments, &CallLimits::default())
    }

    fn tasks() -> Value {
        json!([{ "label": "a", "prompt": "Fix it" }])
    }

    /// A model chose the command, so it must not become a flag of its own.
    #[test]
    fn a_verify_command_is_one_argument_of_the_run_s_process() {
        let call = json!({
            "tasks": tasks(), "verify": "--yes", "verifyKeep": ["--grant=/"], "agent": "--sandbox=off",
        });
        let RequestedRun::Writers { call, verify, keep, agent } =
            job(McpTool::Write, &call).unwrap()
        else {
            panic!("not a run of writers")
        };
        assert_eq!(agent.as_deref(), Some("--sandbox=off"));
        assert_eq!(call, json!({ "tasks": tasks() }));
        assert_eq!((verify.as_deref(), keep), (Some("--yes"), vec!["--grant=/".to_owned()]));
    }

    #[test]
    fn arguments_that_no_command_line_could_contain_are_rejected() {
        let long = format!("/plan {}", "x".repeat(1 << 20));
        for (tool, arguments) in [
            (McpTool::Command, json!({ "command": "--yes" })),
            (McpTool::Command, json!({ "command": "-h" })),
            (McpTool::Command, json!({ "command": " /plan 1" })),
            (McpTool::Command, json!({ "command": "/plan \u{0}1" })),
            (McpTool::Command, json!({ "command": long })),
            (McpTool::Command, json!({ "command": ["/plan"] })),
            (McpTool::Command, json!({ "command": "/plan 1", "model": "other/model" })),
            (McpTool::Write, json!({})),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": "" })),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": " " })),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": null })),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": ["true"] })),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": "true\u{0}" })),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": "x".repeat(VERIFY_BYTES + 1) })),
            (McpTool::Write, json!({ "tasks": tasks(), "verifyKeep": ["tests/**"] })),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": "true", "verifyKeep": "a" })),
            (McpTool::Write, json!({ "tasks": tasks(), "verify": "true", "verifyKeep": [""] })),
            (
                McpTool::Write,
                json!({ "tasks": tasks(), "verify": "true", "verifyKeep": vec!["a"; MAX_KEEP + 1] }),
            ),
            (McpTool::Write, json!({ "tasks": tasks(), "agent": "" })),
            (McpTool::Write, json!({ "tasks": tasks(), "agent": ["fixer"] })),
            (McpTool::Write, json!({ "tasks": tasks(), "agent": "fixer\u{0}" })),
            (McpTool::Write, json!({ "tasks": tasks(), "grant": "/" })),
            (McpTool::Write, json!({ "tasks": tasks(), "merge": true })),
            (McpTool::Delegate, json!({ "tasks": tasks(), "verify": "true" })),
            (McpTool::Story, json!({})),
            (McpTool::Story, json!({ "prd": "" })),
            (McpTool::Story, json!({ "prd": "/etc/passwd" })),
            (McpTool::Story, json!({ "prd": "../prd.json" })),
            (McpTool::Story, json!({ "prd": "a/../../prd.json" })),
            (McpTool::Story, json!({ "prd": "prd\u{0}.json" })),
            (McpTool::Story, json!({ "prd": "prd.json", "trust_prd": true })),
            (McpTool::Story, json!({ "prd": "prd.json", "story": "" })),
        ] {
            assert!(job(tool, &arguments).is_err(), "{arguments}");
        }
    }
}
