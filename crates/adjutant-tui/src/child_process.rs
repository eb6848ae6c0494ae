//! Runs other `adjutant` commands: on the normal screen with the terminal, or in the background for their text.
//!
//! So each command asks, refuses and reports as it does when a person types it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::update::{CommandInput, CommandLine};

/// The most bytes of a text that are read; a diff may be of any size.
const TEXT_BYTES: u64 = 4 << 20;

/// The text that a command printed, with its arguments.
pub(crate) struct PrintedText {
    pub(crate) args: Vec<String>,
    pub(crate) text: String,
}

/// How other commands of this program are started.
#[derive(Clone, Debug)]
pub struct CommandStarter {
    /// The program.
    pub program: PathBuf,
    /// The arguments before the command, such as `--home DIR`.
    pub options: Vec<OsString>,
}

impl CommandStarter {
    fn command(&self, args: &[String], folder: Option<&Path>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(args);
        if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
            command.current_dir(folder);
        }
        command
    }

    /// Runs a command on the terminal, and waits until the person has read what it printed.
    pub(crate) fn run(&self, line: &CommandLine, folder: Option<&Path>) -> io::Result<()> {
        println_line(&format!("$ adjutant {}", line.args.join(" ")))?;
        let mut command = match &line.input {
            CommandInput::Nothing => self.command(&line.args, folder),
            CommandInput::Message => {
                let text = ask("Message (an empty line sends nothing): ")?;
                if text.is_empty() {
                    return Ok(());
                }
                return self.send(line, folder, &text);
            }
            CommandInput::Code(id) => {
                let _ = wait(&self.command(&["approvals".to_owned()], folder).spawn()?)?;
                let question = format!(
                    "Code that approves {id}, `no` to refuse it, or nothing to leave it open: "
                );
                let typed = ask(&question)?;
                let answer =
                    if typed.eq_ignore_ascii_case("no") { "--deny".to_owned() } else { typed };
                if answer.is_empty() {
                    return Ok(());
                }
                self.command(&[line.args.clone(), vec![answer]].concat(), folder)
            }
        };
        wait_for_enter(wait(&command.spawn()?)?)
    }

    /// Runs a command that reads a text from its standard input.
    fn send(&self, line: &CommandLine, folder: Option<&Path>, text: &str) -> io::Result<()> {
        let mut child = self.command(&line.args, folder).stdin(Stdio::piped()).spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // A command that refuses does not read it.
            let _ = input.write_all(text.as_bytes());
        }
        wait_for_enter(wait(&child)?)
    }

    /// Runs a command in the background; its text is sent to `to`.
    pub(crate) fn print(&self, args: Vec<String>, folder: Option<&Path>, to: Sender<PrintedText>) {
        let mut command = self.command(&args, folder);
        thread::spawn(move || {
            let text =
                printed(&mut command).unwrap_or_else(|error| format!("cannot run it: {error}"));
            // The program may have ended meanwhile.
            let _ = to.send(PrintedText { args, text });
        });
    }
}

/// Waits for the end of a command. Returns whether it succeeded. While ctrl+z has stopped it, this process stops too,
/// so that the shell gets the terminal.
fn wait(child: &Child) -> io::Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    loop {
        match waitpid(pid, WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => kill_process(getpid(), Signal::STOP)?,
            Ok(Some((_, status))) => return Ok(status.exit_status() == Some(0)),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn printed(command: &mut Command) -> io::Result<String> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The pipe ends when the last writer is gone, and the command holds two.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut bytes = Vec::new();
    let count = reader.take(TEXT_BYTES).read_to_end(&mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if count as u64 == TEXT_BYTES {
        text.push_str("\n… more is not shown here\n");
    }
    // The reader is closed, so a command that prints more ends.
    child.wait()?;
    Ok(text)
}

fn println_line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}

fn ask(question: &str) -> io::Result<String> {
    let mut stdout = io::stdout().lock();
    write!(stdout, "{question}")?;
    stdout.flush()?;
    let mut typed = String::new();
    io::stdin().read_line(&mut typed)?;
    Ok(typed.trim().to_owned())
}

fn wait_for_enter(is_success: bool) -> io::Result<()> {
    let ended = if is_success { "" } else { "It did not succeed. " };
    ask(&format!("\n{ended}Press enter to go back. ")).map(drop)
}
