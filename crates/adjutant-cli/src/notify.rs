//! Tells a person that a run waits for an answer or has ended.
//!
//! A terminal gets its bell, and a notification (OSC 9) if it is known to show one. The user's configuration can
//! name a program that is started as well. Short runs are not announced, and no failure here reaches the run.
//! Start at [`Notifier::tell`].

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use adjutant_core::Timestamp;
use adjutant_view::{RunView, layout};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::live::is_dumb;
use crate::settings::notify_command;

/// Nothing of a younger run is announced: the person still looks at the terminal. A question that is asked before is
/// announced then, if it is still open.
const LEAST_AGE: Duration = Duration::from_secs(10);

/// How long the program may run after the run has ended.
const PROGRAM_TIME: Duration = Duration::from_secs(3);

/// The maximum width of the message.
const MESSAGE_COLUMNS: usize = 120;

/// The programs that were started and may still run.
static PROGRAMS: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// What a person is told of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotifiedEvent {
    /// The run waits for an answer.
    Waiting,
    /// The run has ended.
    Ended,
}

/// Announces each question and the end of a run once.
pub(crate) struct Notifier {
    /// The open questions that were announced.
    announced: BTreeSet<String>,
    /// Whether to start the `notify` program. Only the run's own process does.
    has_program: bool,
}

impl Notifier {
    pub(crate) const fn new(has_program: bool) -> Self {
        Self { announced: BTreeSet::new(), has_program }
    }

    /// Announces the questions that are new, as soon as the run is old enough.
    pub(crate) fn tell_of_questions(&mut self, view: &RunView, age: Timestamp) {
        if self.take_new(open_questions(view), age) {
            self.tell(view, age, NotifiedEvent::Waiting);
        }
    }

    /// Returns whether one of the open questions was not announced yet, and counts all of them as announced.
    fn take_new(&mut self, open: BTreeSet<String>, age: Timestamp) -> bool {
        if !is_old_enough(age) {
            return false;
        }
        let take_new = !open.is_subset(&self.announced);
        self.announced = open;
        take_new
    }

    /// Announces an event of a run that is old enough.
    pub(crate) fn tell(&self, view: &RunView, age: Timestamp, event: NotifiedEvent) {
        let Some(run) = view.run().filter(|_| is_old_enough(age)) else { return };
        let outcome = view.outcome().map_or("", adjutant_core::Outcome::word);
        let goal = layout::fit(view.goal(), MESSAGE_COLUMNS / 2);
        let message = match event {
            NotifiedEvent::Waiting => format!("{run} waits for your answer: {goal}"),
            NotifiedEvent::Ended if outcome.is_empty() => format!("{run} was interrupted: {goal}"),
            NotifiedEvent::Ended => format!("{run} {outcome}: {goal}"),
        };
        let message = layout::cut(message.trim_end_matches(": "), MESSAGE_COLUMNS);
        if io::stderr().is_terminal() && !is_dumb() {
            let signal = terminal_signal(&message, |name| std::env::var(name).unwrap_or_default());
            let _ = io::stderr().lock().write_all(signal.as_bytes());
        }
        if !self.has_program {
            return;
        }
        let facts = [
            ("ADJUTANT_RUN", run.to_string()),
            (
                "ADJUTANT_EVENT",
                if event == NotifiedEvent::Ended { "ended" } else { "waiting" }.into(),
            ),
            ("ADJUTANT_OUTCOME", outcome.to_owned()),
            ("ADJUTANT_MESSAGE", message),
        ];
        start_program(&notify_command(), facts);
    }
}

fn is_old_enough(age: Timestamp) -> bool {
    age.since(Timestamp::ZERO) >= LEAST_AGE
}

/// Returns what identifies each open question: the hash of a call, or the agent and the host.
fn open_questions(view: &RunView) -> BTreeSet<String> {
    if !view.has_question() {
        return BTreeSet::new();
    }
    let calls = view.approvals().iter().map(|open| open.hash.clone());
    let hosts = view.agents_with_host_question().flat_map(|agent| {
        agent.hosts.iter().map(|(call, host)| format!("{} {call} {host}", agent.session))
    });
    calls.chain(hosts).collect()
}

/// Returns what a terminal is sent: the bell, or a notification, which terminals announce as they like.
fn terminal_signal(message: &str, variable: impl Fn(&str) -> String) -> String {
    let (term, program) = (variable("TERM"), variable("TERM_PROGRAM"));
    let shows_messages = ["iTerm.app", "WezTerm", "ghostty"].contains(&program.as_str())
        || ["xterm-kitty", "xterm-ghostty", "foot"].contains(&term.as_str());
    // tmux passes the bell on, but not the notification.
    if shows_messages && variable("TMUX").is_empty() {
        return format!("\x1b]9;{message}\x1b\\\x07");
    }
    "\x07".to_owned()
}

/// Starts the program in a process group of its own, without the terminal. Its failure is ignored.
fn start_program(command: &[String], facts: [(&str, String); 4]) {
    let Some((program, arguments)) = command.split_first() else { return };
    let started = Command::new(program)
        .args(arguments)
        .envs(facts)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    programs.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    programs.extend(started.ok());
}

/// Waits a short time for the started programs, then kills the ones that are left.
pub(crate) fn finish() {
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    for child in programs.iter_mut() {
        while matches!(child.try_wait(), Ok(None)) {
            if began.elapsed() >= PROGRAM_TIME {
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let _ = pid.map(|pid| kill_process_group(pid, Signal::KILL));
                let _ = child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    programs.clear();
}

#[cfg(test)]
mod tests {
    use adjutant_core::Timestamp;

    use super::{Notifier, terminal_signal};

    #[test]
    fn each_question_is_announced_once_from_the_tenth_second_of_the_run_on() {
        let mut notifier = Notifier::new(true);
        for (at, open, is_told) in [
            (0, &["first"][..], false),
            (9_999, &["first"], false),
            (10_000, &["first"], true),
            (10_250, &["first"], false),
            (10_500, &["first", "second"], true),
            (10_750, &["second"], false),
            (11_000, &[], false),
            (11_250, &["third"], true),
            // Asked again after it was closed.
            (11_500, &[], false),
            (11_750, &["third"], true),
        ] {
            let open = open.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(notifier.take_new(open, Timestamp::from_millis(at)), is_told, "at {at}");
        }
    }

    #[test]
    fn a_terminal_gets_what_it_supports() {
        let cases = [
            (&[("TERM", "xterm-256color")][..], "\x07"),
            (&[("TERM", "xterm-kitty")], "\x1b]9;done\x1b\\\x07"),
            (&[("TERM_PROGRAM", "WezTerm")], "\x1b]9;done\x1b\\\x07"),
            (&[("TERM_PROGRAM", "WezTerm"), ("TMUX", "x")], "\x07"),
        ];
        for (variables, expected) in cases {
            let lookup = |name: &str| {
                let found = variables.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
            };
            assert_eq!(terminal_signal("done", lookup), expected, "{variables:?}");
        }
    }
}
