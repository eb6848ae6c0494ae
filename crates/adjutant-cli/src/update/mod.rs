//! `update`: says how this copy of the program was installed, and which command updates it. Changes nothing.

mod installation;

use std::env;
use std::path::Path;

use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};

use installation::find_installation;

/// Runs `adjutant update`.
pub(crate) fn run_update(as_json: bool) -> Result<Exit, Failure> {
    let program = env::current_exe().map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot find the path of this program: {error}"))
    })?;
    let found = find_installation(Path::new("/"), &program);
    let command = found.update_command();
    if as_json {
        print_json(&json!({
            "v": 1, "version": env!("CARGO_PKG_VERSION"), "path": program,
            "installed_by": found.word(), "command": command,
        }))?;
        return Ok(Exit::Completed);
    }
    let mut text = format!(
        "adjutant {}\nProgram:       {}\nInstalled by:  {}\n",
        env!("BUILD_VERSION"),
        program.display(),
        found.description()
    );
    text += &match command {
        Some(command) => format!("Update with:   {command}\n"),
        None => "To update it, replace this file by that of a newer package.\n".to_owned(),
    };
    if found.needs_package() {
        text += "\nRun this in the directory with the new packages. No registry has them yet.\n";
    }
    print(&text)?;
    Ok(Exit::Completed)
}
