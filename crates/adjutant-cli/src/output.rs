//! Writes data to standard output, where a closed pipe is not an error, and messages to standard error.

use std::io::{self, Write};

use adjutant_view::layout::{self, wrap_lines};
use adjutant_view::{sanitize, terminal_markdown};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::live::{is_dumb, is_utf8_locale};
use crate::pager;
use crate::records::colours;

/// Prints a value as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
    print(&format!("{}\n", escaped(&text)))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    print(&json_line(value)?)
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

/// Prints text unchanged.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
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
    if !pager::is_terminal() || is_dumb() {
        return print(text);
    }
    let rendered = terminal_markdown::render(text, pager::columns(), colours());
    print(&if is_utf8_locale() { rendered } else { layout::ascii(&rendered) })
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

/// Prints a message on standard error.
///
/// Messages quote files, paths and models, so control characters are removed.
pub(crate) fn say(text: &str) {
    // Errors are ignored: standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{}", sanitize::block(text));
}

/// Prints a message that the view has already sanitized, with its colours.
pub(crate) fn say_view(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
