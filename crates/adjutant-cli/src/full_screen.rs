//! `watch` on a terminal: connects the full-screen program of `adjutant_tui` to this command line.

use std::io::{self, IsTerminal};
use std::path::{Path, absolute};

use adjutant_engine::Archive;
use adjutant_tui::{CommandStarter, WatchEnd, WatchSetup, run_program};
use adjutant_view::progress::total;

use crate::exit::{Exit, Failure};
use crate::hints::{has_typed_home, program};
use crate::live::{is_dumb, is_utf8_locale};
use crate::output::say;
use crate::records::{
    ViewDetail, colours, fold, fold_numbers, liveness, now, numbers, observe_run,
};
use crate::run_lookup::{self, ProjectTree};
use crate::watch::{conclude, is_over};

/// Returns whether there is a terminal that can show the program.
pub(crate) fn has_full_screen() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb()
}

/// Shows the list of runs, or the named one. The exit code is that of the named run, if it has ended.
pub(crate) fn run_full_screen(archive: &Archive, named: Option<&str>) -> Result<Exit, Failure> {
    let opened =
        named.map(|name| run_lookup::find_to_show(archive, Some(name), |_| true)).transpose()?;
    let session = opened.as_ref().and_then(|(files, session)| {
        session.filter(|session| *session != files.id().root_session())
    });
    let end = run_program(setup(archive, opened.as_ref().map(|(files, _)| (files.id(), session)))?)
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot watch: {error}")))?;
    let Some((files, _)) = opened else {
        say_state(archive, end);
        return Ok(if end.by_signal { Exit::Cancelled } else { Exit::Completed });
    };
    let life = liveness(&files)?;
    let (view, _) = numbers(&files)?;
    if !is_over(&view, life, session) {
        say(&format!("adjutant: no longer watching {}; it goes on", files.id()));
        return Ok(Exit::Cancelled);
    }
    conclude(view, life, &files, session, Some(colours()))
}

fn setup(
    archive: &Archive,
    opened: Option<(adjutant_core::RunId, Option<adjutant_core::SessionId>)>,
) -> Result<WatchSetup, Failure> {
    let failed = |error| Failure::new(Exit::Failed, format!("cannot watch: {error}"));
    let home = absolute(archive.path()).map_err(failed)?;
    let is_typed = has_typed_home();
    let tree = absolute(Path::new(".")).ok().map(|folder| ProjectTree::around(&folder));
    Ok(WatchSetup {
        archive: archive.clone(),
        fold: fold_numbers,
        is_here: Box::new(move |folder| tree.as_ref().is_some_and(|tree| tree.has(folder))),
        commands: CommandStarter {
            program: std::env::current_exe().map_err(failed)?,
            // A typed option is repeated in the commands that are recommended, a variable is not.
            options: if is_typed { vec!["--home".into(), home.clone().into()] } else { Vec::new() },
            environment: vec![("ADJUTANT_HOME".into(), home.into())],
        },
        palette: colours(),
        is_utf8: is_utf8_locale(),
        opened,
    })
}

/// Says on the normal screen where the selected run stands.
fn say_state(archive: &Archive, end: WatchEnd) {
    let found = end.run.and_then(|run| archive.find(&run.to_string()).ok());
    // What cannot be read any more was shown before.
    let Some((files, _)) = found else { return };
    let Ok((view, life)) = fold(&files, ViewDetail::Numbers) else { return };
    let state = observe_run(&view, life, &files).state_text();
    let sum = total(&view, now(&files, &view), life);
    say(&format!("{}: {state} · {sum}", files.id()));
    say(&format!("  `{} watch {}` opens it again", program(), files.id()));
}
