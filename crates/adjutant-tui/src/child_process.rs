//! Runs other `adjutant` commands: on the normal screen with the terminal, or in the background for their text.
//!
//! So each command asks, refuses and reports as it does when a person types it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use ratatui_crossterm::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_current_process_group, waitpid};

use crate::update::{ChildCommand, CommandInput};

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
    /// The arguments before the command: what the person typed before `watch`, such as `--home DIR`.
    pub options: Vec<OsString>,
    /// Variables that the command gets in addition.
    pub environment: Vec<(OsString, OsString)>,
}

impl CommandStarter {
    fn command(&self, args: &[String], folder: Option<&Path>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
            command.current_dir(folder);
        }
        command
    }

    /// Runs a command on the terminal, and waits until the person has read what it printed.
    pub(crate) fn run(&self, line: &ChildCommand, folder: Option<&Path>) -> io::Result<()> {
        println_line(&format!("$ adjutant {}", line.args.join(" ")))?;
        let mut command = match &line.input {
            CommandInput::Nothing => self.command(&line.args, folder),
            CommandInput::Message => {
                let Some(text) = ask("Message (an empty line or esc sends nothing): ")? else {
                    return Ok(());
                };
                return self.send(line, folder, &text);
            }
            CommandInput::Answer(question) => {
                println_line(question)?;
                let Some(text) = ask("Answer (an empty line or esc sends nothing): ")? else {
                    return Ok(());
                };
                // One argument, because a text may begin with `-`.
                self.command(&[line.args.clone(), vec![format!("--say={text}")]].concat(), folder)
            }
            CommandInput::Code(id) => {
                let _ = wait(&self.command(&["approvals".to_owned()], folder).spawn()?)?;
                let question = format!(
                    "Code that approves {id}, `no` to refuse it, enter or esc to leave it open: "
                );
                let Some(typed) = ask(&question)? else { return Ok(()) };
                let answer =
                    if typed.eq_ignore_ascii_case("no") { "--deny".to_owned() } else { typed };
                self.command(&[line.args.clone(), vec![answer]].concat(), folder)
            }
        };
        wait_for_enter(wait(&command.spawn()?)?)
    }

    /// Runs a command that reads a text from its standard input.
    fn send(&self, line: &ChildCommand, folder: Option<&Path>, text: &str) -> io::Result<()> {
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

/// Waits for the end of a command. Returns its exit code; `None` if a signal ended it. While ctrl+z has stopped it, this process group stops too,
/// so that the shell gets the terminal.
fn wait(child: &Child) -> io::Result<Option<i32>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    loop {
        match waitpid(pid, WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => kill_current_process_group(Signal::STOP)?,
            Ok(Some((_, status))) => return Ok(status.exit_status()),
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

/// Asks for a line. `None` if it is empty or the person pressed esc.
fn ask(question: &str) -> io::Result<Option<String>> {
    // Raw, because a line of the terminal itself ends only with enter.
    enable_raw_mode()?;
    let mut stdout = io::stdout().lock();
    let shown = question.replace('\n', "\r\n");
    let typed = write!(stdout, "{shown}").and_then(|()| read_typed(&mut stdout));
    disable_raw_mode()?;
    writeln!(stdout)?;
    let typed = typed?.unwrap_or_default();
    Ok(Some(typed.trim().to_owned()).filter(|typed| !typed.is_empty()))
}

const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;
const BACKSPACES: [u8; 2] = [8, 0x7f];
const ESCAPE: u8 = 0x1b;

/// Reads what is typed up to enter, and shows it. `None` if the person gives up or the terminal is gone.
fn read_typed(stdout: &mut impl Write) -> io::Result<Option<String>> {
    let mut typed = Vec::new();
    let mut bytes = [0; 256];
    loop {
        stdout.flush()?;
        let count = match rustix::io::read(io::stdin(), &mut bytes) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let read = &bytes[..count];
        // An arrow or another key sends more bytes behind it at once.
        if read == [ESCAPE] {
            return Ok(None);
        }
        if read[0] == ESCAPE {
            continue;
        }
        for byte in read {
            match *byte {
                b'\r' | b'\n' => return Ok(Some(String::from_utf8_lossy(&typed).into_owned())),
                CTRL_C | CTRL_D => return Ok(None),
                byte if BACKSPACES.contains(&byte) => {
                    // A character may have several bytes.
                    while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
                    write!(stdout, "\x08 \x08")?;
                }
                byte if byte < b' ' => {}
                byte => {
                    typed.push(byte);
                    stdout.write_all(&[byte])?;
                }
            }
        }
    }
}

/// Says how a command ended, unless it succeeded, and waits until the person has read it.
fn wait_for_enter(code: Option<i32>) -> io::Result<()> {
    ask(&format!("\n{}Press enter to go back. ", ending(code))).map(drop)
}

/// Returns what an exit code of a command means, as in `adjutant --help`.
const fn ending(code: Option<i32>) -> &'static str {
    match code {
        Some(0) => "",
        Some(1) => "It failed. ",
        Some(2) => "The command was not accepted: its message says why. ",
        Some(3) => "Only a part of it succeeded. ",
        Some(4) => "It was refused. ",
        Some(5) => "An agent is blocked and needs an answer. ",
        Some(124) => "It ran out of time. ",
        Some(130) => "It was cancelled. ",
        Some(_) => "It did not succeed. ",
        None => "It was killed. ",
    }
}
