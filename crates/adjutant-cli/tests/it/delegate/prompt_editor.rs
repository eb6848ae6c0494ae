//! Editing the tasks of one's own call at the question.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::delegate;
use crate::support::rig::Rig;
use crate::support::terminal::Terminal;

/// Makes a program that is used as the editor; its file is `$1`.
fn editor(rig: &Rig, lines: &str) -> String {
    let path = rig.path().join("editor");
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn asked(rig: &Rig, editor: &str) -> Terminal {
    let args = ["delegate", "--model", rig.model(), "-t", "echo=Say something"];
    let env = [("EDITOR", editor), ("PATH", "/usr/bin:/bin")];
    let mut terminal = Terminal::start(rig, 80, &env, &args);
    terminal.wait_for("Start? [y]es [N]o [s]how [e]dit [u]p to [?]");
    terminal
}

fn asked_times(terminal: &mut Terminal, times: usize) {
    let count = move |screen: &str| screen.matches("Start? [y]es").count() == times;
    terminal.wait_until("question", count);
}

#[test]
fn edited_tasks_are_asked_about_as_a_new_call() {
    let rig = delegate::rig();
    let lines = "stat -c %a \"$1\" > ../mode\nsed -i 's/Say something/Say more/' \"$1\"";
    let mut terminal = asked(&rig, &editor(&rig, lines));
    terminal.types("e\r");
    asked_times(&mut terminal, 2);
    assert!(terminal.screen().contains("[echo]  Say more"), "{}", terminal.screen());
    assert_eq!(terminal.types("y\r").finish(), 0, "{}", terminal.screen());
    assert!(terminal.screen().contains("You said: Say more"), "{}", terminal.screen());
    assert_eq!(fs::read_to_string(rig.path().join("mode")).unwrap(), "600\n");
    // The first call is recorded as refused, and each question has its own hash.
    let mut hashes = Vec::new();
    let mut refused = Vec::new();
    for run in rig.runs() {
        let events = rig.events(&run);
        let asked = events.iter().find(|event| event["type"] == "approval_asked").unwrap();
        hashes.push(asked["hash"].clone());
        let denied = events.iter().find(|event| event["type"] == "denied");
        refused.extend(denied.map(|event| event["reason"].as_str().unwrap().to_owned()));
    }
    assert_eq!(hashes.len(), 2);
    assert_ne!(hashes[0], hashes[1]);
    assert_eq!(refused.len(), 1);
    assert!(refused[0].contains("edited the tasks"), "{refused:?}");
    rig.assert_unharmed();
}

#[test]
fn an_invalid_file_is_reported_and_what_was_written_can_be_edited_again() {
    let rig = delegate::rig();
    // Writes garbage first; then finds it again and repairs it.
    let lines = "if grep -q garbage \"$1\"; then echo '[{\"label\":\"b\",\"prompt\":\"Repaired\"}]' > \"$1\"\n\
                 else echo '{ garbage' > \"$1\"; fi";
    let mut terminal = asked(&rig, &editor(&rig, lines));
    terminal.types("e\r").wait_for("Edit again? [Y/n]");
    // Leaving the editor goes back to the question; nothing is lost.
    terminal.types("n\r").wait_for("Type e to go on editing");
    asked_times(&mut terminal, 2);
    terminal.types("e\r").wait_for("[b]  Repaired");
    assert_eq!(terminal.types("y\r").finish(), 0, "{}", terminal.screen());
    assert!(terminal.screen().contains("You said: Repaired"), "{}", terminal.screen());
}

#[test]
fn tasks_that_the_schema_refuses_are_reported_with_their_field() {
    let rig = delegate::rig();
    let mut terminal =
        asked(&rig, &editor(&rig, "echo '{\"tasks\":[{\"label\":\"a\"}]}' > \"$1\""));
    terminal.types("e\r").wait_for("Edit again? [Y/n]");
    assert!(terminal.screen().contains("prompt"), "{}", terminal.screen());
    terminal.types("n\r");
    asked_times(&mut terminal, 2);
    assert_eq!(terminal.types("y\r").finish(), 0, "the first tasks start");
    assert!(terminal.screen().contains("You said: Say something"), "{}", terminal.screen());
}

#[test]
fn an_editor_that_fails_or_changes_nothing_leaves_the_question_open() {
    let rig = delegate::rig();
    for (lines, said) in
        [("exit 3", "failed (exit status: 3)"), ("true", "The tasks are as they were.")]
    {
        let mut terminal = asked(&rig, &editor(&rig, lines));
        terminal.types("e\r").wait_for(said);
        asked_times(&mut terminal, 2);
        terminal.types("n\r");
        assert_eq!(terminal.finish(), 4);
    }
    let mut terminal = asked(&rig, "/nowhere/editor");
    terminal.types("e\r").wait_for("was not found; set VISUAL or EDITOR");
    asked_times(&mut terminal, 2);
    assert_eq!(terminal.types("y\r").finish(), 0);
}

#[test]
fn edited_tasks_that_the_limits_refuse_can_be_edited_again() {
    let rig = delegate::rig();
    let task = |n: usize| format!("{{\"label\":\"t{n}\",\"prompt\":\"Look {n}\"}}");
    let tasks: Vec<String> = (0..9).map(task).collect();
    let lines = format!("echo '[{}]' > \"$1\"", tasks.join(","));
    let mut terminal = asked(&rig, &editor(&rig, &lines));
    terminal.types("e\r").wait_for("Too many delegations (9)").wait_for("Edit again? [Y/n]");
    // The editor shows what was refused, and this one repairs it.
    editor(&rig, "grep -q t8 \"$1\" && echo '[{\"label\":\"one\",\"prompt\":\"Look\"}]' > \"$1\"");
    terminal.types("\r").wait_for("[one]  Look");
    assert_eq!(terminal.types("y\r").finish(), 0, "{}", terminal.screen());
    rig.assert_unharmed();
}

#[test]
fn giving_up_on_refused_tasks_exits_with_the_refusal() {
    let rig = delegate::rig();
    let task = |n: usize| format!("{{\"label\":\"t{n}\",\"prompt\":\"Look {n}\"}}");
    let tasks: Vec<String> = (0..9).map(task).collect();
    let mut terminal =
        asked(&rig, &editor(&rig, &format!("echo '[{}]' > \"$1\"", tasks.join(","))));
    terminal.types("e\r").wait_for("Edit again? [Y/n]").types("n\r");
    assert_eq!(terminal.finish(), 4, "{}", terminal.screen());
}

#[test]
fn nothing_is_drawn_into_an_editor_while_another_terminal_approves_the_call() {
    let rig = delegate::rig();
    let gate = rig.path().join("gate");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &gate,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    // Reading the gate blocks until the test opens it.
    let lines = "printf 'editor opened'\nread line < ../gate\nprintf 'editor closed\\n'";
    let mut terminal = asked(&rig, &editor(&rig, lines));
    let mut list = Terminal::start(&rig, 200, &[], &["approvals"]);
    assert_eq!(list.finish(), 0);
    let screen = list.screen();
    let mut words = screen.split_once(" approve ").unwrap().1.split_whitespace();
    let (id, code) = (words.next().unwrap(), words.next().unwrap().trim_end_matches('.'));
    terminal.types("e\r").wait_for("editor opened");
    let mut approve = Terminal::start(&rig, 200, &[], &["approve", id, code]);
    assert_eq!(approve.finish(), 0, "{}", approve.screen());
    // The whole run passes while the editor has the terminal.
    assert_eq!(rig.run(["wait"]).code, 0);
    fs::write(&gate, "go on\n").unwrap();
    assert_eq!(terminal.finish(), 0, "{}", terminal.screen());
    let during = terminal.raw.split_once("editor opened").unwrap().1;
    let (during, after) = during.split_once("editor closed").unwrap();
    assert_eq!(during, "");
    let answered = after.find("Answered in another terminal: yes");
    let result = after.find("You said: Say something");
    assert!(answered.is_some() && answered < result, "{after}");
    assert!(!after.contains("The tasks are as they were"), "nothing waits for them: {after}");
}
