//! Writing to standard output: data only, and a closed pipe is no error.

use std::io::{self, Write};

use adjutant_view::sanitize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Prints a value as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
    print(&format!("{}\n", escaped(&text)))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
    print(&format!("{}\n", escaped(&text)))
}

/// Writes what could steer a terminal as `\uXXXX`, which says the same in JSON: such characters
/// stand only within its strings.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if sanitize::steers(character) {
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

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        // The reader has what it wanted, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(Failure::new(Exit::Failed, format!("cannot write to standard output: {error}")))
        }
    }
}

/// Says whether standard output is a pipe whose reader has left.
pub(crate) fn has_no_reader() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // Only the error is asked for; a terminal or a file has none.
    poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().contains(PollFlags::ERR)
}

/// Says something to the person, on standard error.
///
/// Much of what is said quotes files, paths and models, so nothing of it may steer the terminal.
pub(crate) fn say(text: &str) {
    // A standard error that is gone leaves nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{}", sanitize::block(text));
}

/// Says what a view has made safe already, colours and all.
pub(crate) fn say_view(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
