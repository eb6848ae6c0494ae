//! Runs a program of the person on the terminal: the pager and the editor.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus};

use crate::pager;

use super::Terminal;
use super::answers::ForegroundProgram;

/// Shows a text in the person's pager, or prints it if there is none.
pub(super) fn page(terminal: &Terminal, text: &str) {
    if run_pager(terminal, text).is_none() {
        terminal.print(text);
    }
}

/// Returns `None` if no pager could be started.
fn run_pager(terminal: &Terminal, text: &str) -> Option<()> {
    let (_, output) = terminal.handles().ok()?;
    let mut command = pager::command()?;
    let _running = ForegroundProgram::begin();
    let mut child = command.stdout(output).spawn().ok()?;
    if let Some(mut input) = child.stdin.take() {
        // A pager that was left early has closed its input.
        let _ = input.write_all(text.as_bytes());
    }
    child.wait().ok().map(drop)
}

/// Opens a file in `$VISUAL` or `$EDITOR`, else vi, and waits for it.
pub(super) fn edit(terminal: &Terminal, file: &Path) -> Result<(), String> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".into());
    let name = editor.to_string_lossy().into_owned();
    let status = run_editor(terminal, editor, file)
        .map_err(|error| format!("cannot start the editor `{name}`: {error}"))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(127) => Err(format!("the editor `{name}` was not found; set VISUAL or EDITOR")),
        _ => Err(format!("the editor `{name}` failed ({status})")),
    }
}

fn run_editor(terminal: &Terminal, editor: OsString, file: &Path) -> std::io::Result<ExitStatus> {
    let (input, output) = terminal.handles()?;
    // As git does it: the setting may have arguments of its own.
    let mut line = editor;
    line.push(" \"$@\"");
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).arg("sh").arg(file);
    command.stdin(input).stdout(output.try_clone()?).stderr(output);
    let _running = ForegroundProgram::begin();
    command.status()
}
