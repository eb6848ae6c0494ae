//! Writes data to standard output, where a closed pipe is not an error, and messages to standard error.

use std::io::{self, Write};

use adjutant_view::layout::{width, wrap_lines};
use adjutant_view::{sanitize, terminal_markdown};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::live;
use crate::pager;
use crate::records::colours;

/// Prints a value as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
    write_stdout(&format!("{}\n", escaped(&text)))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    write_stdout(&json_line(value)?)
}

/// Returns a value as one line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
    Ok(format!("{}\n", escaped(&text)))
}

/// Escapes control characters as `\uXXXX`, so that they cannot control a terminal. They occur only inside JSON
/// strings, so the value stays the same.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if sanitize::is_terminal_control(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                text += &format!("\\u{unit:04x}");
            }
        } else {
            text.push(character);
        }
    }
    text
}

/// Prints text: as it is for a program, and as far as the terminal can show it for a person.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    if pager::is_terminal() { write_stdout(&live::encoded(text)) } else { write_stdout(text) }
}

/// Writes text unchanged, such as JSON.
pub(crate) fn write_stdout(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        // The reader has closed the pipe, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(Failure::new(Exit::Failed, format!("cannot write to standard output: {error}")))
        }
    }
}

/// Prints Markdown: unchanged for a program, rendered on a terminal.
pub(crate) fn print_markdown(text: &str) -> Result<(), Failure> {
    if !pager::is_terminal() || live::is_dumb() {
        return print(text);
    }
    let rendered = terminal_markdown::render(text, pager::columns(), colours());
    print(&rendered)
}

/// Prints a list. On a terminal, lines that are too wide are wrapped between words.
pub(crate) fn print_list(text: &str) -> Result<(), Failure> {
    if pager::is_terminal() { print(&wrap_lines(text, pager::columns())) } else { print(text) }
}

/// Returns whether standard output is a pipe whose reader has closed it.
pub(crate) fn has_no_reader() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Only a pipe reports this error, not a terminal or a file.
    poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().contains(PollFlags::ERR)
}

/// Prints a message on standard error. On a terminal, lines that are too wide are wrapped between words.
///
/// Messages quote files, paths and models, so control characters are removed.
pub(crate) fn say(text: &str) {
    let safe = sanitize::block(text);
    match pager::message_columns() {
        Some(columns) if safe.lines().any(|line| width(line) > columns) => {
            let wrapped = wrap_lines(&safe, columns);
            // The text may end in a blank line; a line break after it is added below.
            let end = if safe.ends_with('\n') { "" } else { "\n" };
            say_view(wrapped.strip_suffix(end).unwrap_or(&wrapped));
        }
        Some(_) | None => say_view(&safe),
    }
}

/// Prints a message that the view has already sanitized, with its colours.
pub(crate) fn say_view(text: &str) {
    let text = if pager::message_columns().is_some() { live::encoded(text) } else { text.into() };
    // Errors are ignored: standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
