//! Writing files for agents in two steps: [`prepare`] computes the change and saves the old content, and after
//! the change is recorded [`commit`] makes it. After a crash [`check_interrupted_writes`] finds out from the files what happened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use adjutant_core::{
    Command, Policy, Preset, SessionId, ToolCall, ToolOutput, Tree, WriteFinding, WriteIntent,
    WriteScope,
};
use adjutant_store::RunDir;
use adjutant_tools::PreparedWrite;
use adjutant_workspace::{RelPath, Root};

use crate::runner::effects::{EffectResult, TOOL_TIME, as_output, output_command};
use crate::runner::panics::catch_panic;
use crate::workspaces::ToolSite;

/// The specs folder of opencode, used if it exists.
const OPENCODE_SPECS: &str = ".opencode/specs";

/// Sets the folder in which agents of the `command` preset write to opencode's specs folder if it exists, unless
/// a person chose another.
pub(crate) fn choose_write_folder(policy: &mut Policy, root: &Root) {
    let is_usual = policy.write_below.as_deref() == Some(adjutant_core::policy::SPECS);
    let is_there = |folder: &str| {
        let folder = RelPath::new(folder).ok();
        folder.is_some_and(|folder| root.open_dir(&folder).is_ok())
    };
    if policy.preset == Preset::Command && is_usual && is_there(OPENCODE_SPECS) {
        policy.write_below = Some(OPENCODE_SPECS.to_owned());
    }
}

/// Returns the temporary file name of a write. It is made of ids only, so that it can be found after a crash.
fn temp_name(session: SessionId, turn: u32, call: u32) -> String {
    format!(".adjutant-{session}-{turn}-{call}.tmp")
}

/// Computes the change of a write call and saves the old content for `undo`. Blocks.
pub(crate) fn prepare(
    tool_site: &ToolSite,
    folder: Option<&RunDir>,
    session: SessionId,
    turn: u32,
    call: u32,
    request: &ToolCall,
    writes: &WriteScope,
) -> EffectResult {
    let prepared = catch_panic(|| {
        let prepared = tool_site.with_toolbox(|toolbox| {
            Ok(toolbox.prepare_write(&request.name, &request.arguments, writes))
        });
        let (intent, before) = match prepared.map_err(ToolOutput::error)? {
            PreparedWrite::Answer(output) => return Err(as_output(output)),
            PreparedWrite::Change { intent, before } => (intent, before),
        };
        for (change, before) in intent.changes().zip(before) {
            let (Some(folder), Some(hash), Some(bytes)) = (folder, &change.before, before) else {
                continue;
            };
            folder.save_before_image(hash, &bytes).map_err(|error| {
                let why = error.io();
                ToolOutput::error(format!(
                    "`{}` was not written: its present content could not be saved ({why})",
                    change.path
                ))
            })?;
        }
        Ok(intent)
    });
    let command = match prepared {
        Ok(Ok(intent)) => Command::PrepareWrite { session, turn, call, intent },
        Ok(Err(output)) => output_command(session, turn, call, Ok(output)),
        Err(crash) => crash.command(session),
    };
    command.into()
}

/// Makes a recorded change. Blocks.
#[expect(
    clippy::too_many_arguments,
    reason = "one call, where it may write, and what is on record"
)]
pub(crate) fn commit(
    tool_site: &ToolSite,
    session: SessionId,
    turn: u32,
    call: u32,
    request: &ToolCall,
    writes: &WriteScope,
    intent: &WriteIntent,
    stop: &AtomicBool,
) -> EffectResult {
    let began = Instant::now();
    let should_stop = || stop.load(Ordering::Relaxed) || began.elapsed() > TOOL_TIME;
    let temp = temp_name(session, turn, call);
    let (name, arguments) = (&request.name, &request.arguments);
    let result = catch_panic(|| {
        let written = tool_site.with_toolbox(|toolbox| {
            let written =
                toolbox.commit_write(name, arguments, writes, intent, &temp, &should_stop);
            Ok(as_output(written))
        });
        tool_site.store_work(written.unwrap_or_else(ToolOutput::error))
    });
    output_command(session, turn, call, result).into()
}

/// Checks the files of every recorded change without a result, after a crash.
pub(crate) fn check_interrupted_writes(
    tree: &Tree,
    tool_site: &dyn Fn(SessionId) -> ToolSite,
) -> BTreeMap<(SessionId, u32), Vec<WriteFinding>> {
    let checked = tree.open_writes().map(|(session, turn, call, intent)| {
        let site = tool_site(session);
        ((session, call), check_interrupted_write(&site, session, turn, call, intent))
    });
    checked.collect()
}

/// Checks the files of a recorded change without a result. Blocks.
pub(crate) fn check_interrupted_write(
    tool_site: &ToolSite,
    session: SessionId,
    turn: u32,
    call: u32,
    intent: &WriteIntent,
) -> Vec<WriteFinding> {
    let found = tool_site.with_toolbox(|toolbox| {
        let findings = intent.changes().map(|change| {
            // Best effort: a leftover temporary file does no harm.
            let _ = toolbox.clean(&change.path, &temp_name(session, turn, call));
            match toolbox.content_hash(&change.path) {
                Ok(now) => change.judge(now.as_deref()),
                Err(_) => WriteFinding::Unknown,
            }
        });
        Ok(findings.collect())
    });
    // If the workspace cannot be opened, the state of its files is unknown.
    found.unwrap_or_default()
}
