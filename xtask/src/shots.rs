//! `cargo xtask shots`: draws the pictures of the README and the guide from real runs.
//!
//! Each picture is the screen of a pseudo-terminal on which the real program runs, with a scripted model, in a
//! temporary directory. Start at [`draw_pictures`].

mod svg;

use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use vt100::Parser;

/// What went wrong, in a sentence.
type Problem = String;

/// How long a picture may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How long to wait for output before the time limit is checked.
const POLL: Duration = Duration::from_millis(200);

/// One picture: what is typed, and when the screen is drawn.
struct Shot {
    /// The file below `docs/`, without its ending.
    name: &'static str,
    columns: u16,
    rows: u16,
    /// Shell lines that run before, unseen.
    before: &'static str,
    /// The typed command.
    command: &'static str,
    /// The screen is drawn when it shows this text.
    until: &'static str,
    /// Keys that are typed, each when the screen shows the text before it.
    keys: &'static [(&'static str, &'static str)],
}

const REPOSITORY: &str = "git init -q . && cp \"$SHOTS\"/project/* . && git add . && \
    git -c user.name=You -c user.email=you@localhost commit -qm first";

const SHOTS: [Shot; 3] = [
    Shot {
        name: "live",
        columns: 100,
        rows: 24,
        before: REPOSITORY,
        command: "adjutant delegate --yes --write -t fix='Make it pass' -t docs='Describe it' -t tests='Add one'",
        until: "Run",
        keys: &[],
    },
    Shot {
        name: "approval",
        columns: 100,
        rows: 40,
        before: REPOSITORY,
        command: "adjutant delegate --write -t fix='Make the test pass' -t docs='Describe the parser'",
        until: "Start?",
        keys: &[],
    },
    Shot {
        name: "watch",
        columns: 100,
        rows: 26,
        before: "git init -q . && cp \"$SHOTS\"/project/* . && git add . && git -c user.name=You -c \
                 user.email=you@localhost commit -qm first && adjutant delegate --yes --write -t fix='Make it pass' \
                 -t docs='Describe it' -t tests='Add one' >/dev/null 2>&1; true",
        command: "adjutant watch latest",
        until: "receipt",
        keys: &[("[fix]", "j")],
    },
];

/// Draws all pictures, or those that are named, into `docs/`.
pub(crate) fn draw_pictures(names: &[&str]) -> Result<(), Problem> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace")?.to_owned();
    for name in names {
        if !SHOTS.iter().any(|shot| shot.name == *name) {
            let known = SHOTS.map(|shot| shot.name).join(", ");
            return Err(format!("no picture is named `{name}`; there are: {known}"));
        }
    }
    let binary = build(&root)?;
    for shot in SHOTS.iter().filter(|shot| names.is_empty() || names.contains(&shot.name)) {
        let svg = shot.draw(&root, &binary)?;
        let file = root.join("docs").join(format!("{}.svg", shot.name));
        fs::write(&file, svg)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        println!("docs/{}.svg", shot.name);
    }
    Ok(())
}

/// Builds the program. Returns the directory it is in.
fn build(root: &Path) -> Result<PathBuf, Problem> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", "adjutant-cli"])
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.success() {
        return Err("the program does not build".to_owned());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(root.join(target).join("debug"))
}

impl Shot {
    fn draw(&self, root: &Path, binary: &Path) -> Result<String, Problem> {
        let dir =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let work = dir.path().join("parser");
        fs::create_dir(&work).map_err(|error| error.to_string())?;
        let shots = root.join("xtask/shots");
        // The question names the script, so it has a short name.
        fs::copy(shots.join("model.toml"), dir.path().join("model.toml"))
            .map_err(|error| error.to_string())?;
        let environment = [
            ("HOME", dir.path().to_owned()),
            ("SHOTS", shots),
            ("ADJUTANT_MODEL", "script:../model.toml".into()),
            ("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", binary.display()).into()),
            ("TERM", "xterm-256color".into()),
            ("LC_ALL", "C.UTF-8".into()),
        ];
        let shell = |line: &str| {
            let mut command = CommandBuilder::new("/bin/sh");
            command.args(["-c", line]);
            command.env_clear();
            environment.iter().for_each(|(name, value)| command.env(name, value));
            command.cwd(&work);
            command
        };
        if !self.before.is_empty() {
            TerminalSession::start(self, shell(self.before))?.play(None, &[], self.name)?;
        }
        let mut session = TerminalSession::start(self, shell(self.command))?;
        // What a person would have typed; the screen begins with it.
        session.screen.process(format!("\x1b[1m$\x1b[0m {}\r\n", self.command).as_bytes());
        session.play(Some(self.until), self.keys, self.name)?;
        Ok(svg::picture(session.screen.screen(), &format!("{} in a terminal", self.command)))
    }
}

/// A command on a pseudo-terminal, and its screen.
struct TerminalSession {
    child: Box<dyn portable_pty::Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: Parser,
}

impl TerminalSession {
    fn start(shot: &Shot, command: CommandBuilder) -> Result<Self, Problem> {
        let text = |error: &dyn std::fmt::Display| format!("{}: {error}", shot.name);
        let size = PtySize { rows: shot.rows, cols: shot.columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).map_err(|error| text(&error))?;
        let child = pair.slave.spawn_command(command).map_err(|error| text(&error))?;
        let mut reader = pair.master.try_clone_reader().map_err(|error| text(&error))?;
        let keyboard = pair.master.take_writer().map_err(|error| text(&error))?;
        let (sender, output) = channel();
        thread::spawn(move || {
            let _open = pair.master;
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes.get(..count).unwrap_or_default().to_owned()).is_err() {
                    break;
                }
            }
        });
        let cells = |count: u16| NonZeroU16::new(count).ok_or("a terminal without cells");
        let screen = Parser::new(cells(shot.rows)?, cells(shot.columns)?, 0);
        Ok(Self { child, keyboard, output, screen })
    }

    /// Runs the command until the screen shows `until`, or to its end.
    fn play(
        &mut self,
        until: Option<&str>,
        keys: &[(&str, &str)],
        name: &str,
    ) -> Result<(), Problem> {
        let began = Instant::now();
        let mut keys = keys.iter();
        let mut next = keys.next();
        loop {
            match self.output.recv_timeout(POLL) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let shown = self.screen.screen().contents();
            if let Some((awaited, typed)) = next {
                if shown.contains(awaited) {
                    self.keyboard.write_all(typed.as_bytes()).map_err(|error| error.to_string())?;
                    next = keys.next();
                }
            } else if until.is_some_and(|text| shown.contains(text)) {
                let _ = self.child.kill();
                break;
            }
            if began.elapsed() > LIMIT {
                return Err(format!("{name}: the screen does not show what is awaited:\n{shown}"));
            }
        }
        let _ = self.child.wait();
        Ok(())
    }
}
