//! What an agent in a workspace sees: its own tree, shared with its children, the ignored directories that were
//! included, and none of the user's other files.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::kills::book::Book;
use crate::support::repository::Repo;
use crate::support::rig::{Call, Output, Rig};
use crate::support::terminal::Terminal;

const KINDS: [&str; 2] = ["overlay", "worktree"];

/// An agent of the project that only reads.
const READER: &str = "---\nname: reader\ndescription: Reads.\ntools: Read\n---\nYou read.\n";

fn call(who: &str, tool: &str, args: &str) -> String {
    format!("[[turn]]\n{who}\n[[turn.call]]\ntool = \"{tool}\"\nargs = {args}\n")
}

/// A turn with a completed return, in the form of stories.
fn ends(who: &str) -> String {
    let done =
        r#"{"status":"completed","summary":"It is done. It is short.","artifacts":[],"errors":[]}"#;
    format!("[[turn]]\n{who}\ntext = '{done}'\n")
}

fn command(text: &str) -> String {
    format!("{{ command = {} }}", Value::from(text))
}

/// A repository with one commit, and a script for its agents.
fn repository(script: &str) -> Repo {
    let repo = Repo { rig: Rig::with_script(script) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("list", "END\n");
    repo.rig.write(".claude/agents/reader.md", READER);
    repo
}

fn delegating<'a>(repo: &'a Repo, kind: &str, flags: &[&str]) -> Call<'a> {
    let kind = ["--workspace", kind];
    let path = std::env::var_os("PATH").unwrap();
    repo.rig.delegating(&["-t", "one=Do it"]).args(kind).args(flags).env("PATH", path)
}

fn book(repo: &Repo) -> Book {
    Book::read(&repo.rig.run_folder(&repo.rig.only_run()).join("journal.jsonl"))
}

/// What the tools of all agents answered, refusals among it, in the order of the journal.
fn told(repo: &Repo) -> Vec<String> {
    let text = |event: &Value| match event["type"].as_str() {
        Some("tool_returned") => event["content"].as_str().map(str::to_owned),
        Some("tool_refused") => event["text"].as_str().map(str::to_owned),
        _ => None,
    };
    book(repo).events.iter().filter_map(text).collect()
}

#[track_caller]
fn done(repo: &Repo, out: &Output) -> Vec<String> {
    assert_eq!(out.code, 0, "{out}\n{:?}", told(repo));
    told(repo)
}

#[test]
fn a_reader_below_a_writer_sees_the_files_of_the_writer_and_not_the_user_s() {
    let one = "label = \"one\"";
    let reader = "agent = \"reader\"";
    let edit = "{ file_path = \"list\", old_string = \"END\", new_string = \"by the writer\" }";
    let task = "{ agent = \"reader\", prompt = \"Read list\", context = [\"list\", \"new\"] }";
    let script = call(one, "Edit", edit)
        + &call(one, "Write", "{ file_path = \"new\", content = \"a new file\\n\" }")
        + &call(one, "Task", task)
        + &ends(one)
        + &call(reader, "Read", "{ path = \"list\" }")
        + &call(reader, "Write", "{ file_path = \"list\", content = \"by the reader\" }")
        + &ends(reader);
    for kind in KINDS {
        let repo = repository(&script);
        repo.commit("first");
        let before = repo.state();
        let out = delegating(&repo, kind, &["--preset", "story", "--enable-delegation"]).run();
        let told = done(&repo, &out);
        assert!(told[2].contains("by the writer"), "{kind}: {told:?}");
        assert!(!told.iter().any(|text| text.contains("UNKNOWN_AGENT")), "{kind}: {told:?}");
        assert!(told[3].contains("Write"), "{kind}: a reader was let write: {told:?}");
        // Its context files came from the same tree.
        let book = book(&repo);
        let below = book.of("granted").find(|it| it["brief"]["agent"] == "reader").unwrap();
        let opening = below["brief"]["opening"].as_str().unwrap();
        for words in ["by the writer", "a new file"] {
            assert!(opening.contains(words), "{kind}: {opening}");
        }
        assert_eq!(book.of("space_made").count(), 1, "{kind}: a reader needs no workspace");
        assert_eq!(repo.state(), before, "{kind}");
    }
}

#[test]
fn an_agent_file_in_a_workspace_is_ignored() {
    let one = "label = \"one\"";
    let file = "{ file_path = \".claude/agents/new.md\", content = \"---\\nname: new\\ndescription: New.\\ntools: Read\\n---\\nNew.\\n\" }";
    let script = call(one, "Write", file)
        + &call(one, "Task", "{ agent = \"new\", prompt = \"Read\" }")
        + &ends(one);
    let repo = repository(&script);
    repo.commit("first");
    let out = delegating(&repo, "overlay", &["--preset", "story", "--enable-delegation"]).run();
    let told = done(&repo, &out);
    assert!(told[1].contains("Unknown agent: new. Known agents:"), "{told:?}");
    assert!(told[1].contains("reader"), "{told:?}");
}

/// Writes a file with a unique word.
fn secret(path: &Path, word: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{word}\n")).unwrap();
}

#[test]
fn home_the_state_directory_and_the_main_checkout_are_hidden_from_commands() {
    for kind in KINDS {
        let repo = repository("");
        let rig = &repo.rig;
        secret(&rig.home().join(".ssh/id_ed25519"), "of-home");
        secret(&rig.home().join("notes"), "of-notes");
        secret(&rig.state().join("other"), "of-state");
        repo.rig.write("list", "one\n");
        repo.rig.write(".gitignore", "private\n");
        repo.commit("first");
        // The workspace is shown at the path of the checkout, without what is only in the checkout.
        repo.rig.write("private", "of-the-tree\n");
        repo.git(["config", "user.word", "of-the-config"]);
        let (home, state) = (rig.home().display().to_string(), rig.state().display().to_string());
        let main = rig.work().display().to_string();
        let looks = [
            format!("cat {home}/.ssh/id_ed25519 {home}/notes; cat ~/.ssh/id_ed25519"),
            format!("ls {state}; cat {state}/other {state}/runs/*/journal.jsonl"),
            format!("cat {main}/.git/config {main}/private; ls {main}"),
        ];
        let one = "label = \"one\"";
        let script: String =
            looks.iter().map(|look| call(one, "Run", &command(&format!("{look}; true")))).collect();
        let script = script + &format!("[[turn]]\n{one}\ntext = \"done\"\n");
        fs::write(rig.path().join("script.toml"), script).unwrap();
        let above = rig.path().display().to_string();
        let words =
            ["of-home", "of-notes", "of-state", "run_started", "of-the-config", "of-the-tree"];
        let tries: [(&[&str], bool); 3] = [
            (&["--write"], false),
            // Not even when a folder around them is granted.
            (&["--write", "--grant", &above], false),
            (&["--write", "--sandbox", "off"], true),
        ];
        for (flags, is_seen) in tries {
            // Without a sandbox there is nothing to mount in, so that is tried in a work tree.
            let kind = if is_seen { "worktree" } else { kind };
            let out = delegating(&repo, kind, flags).run();
            let told = done(&repo, &out).concat();
            for word in words {
                assert_eq!(told.contains(word), is_seen, "{kind} {flags:?}: {word} in {told}");
            }
            fs::remove_dir_all(rig.state().join("runs")).unwrap();
        }
    }
}

#[test]
fn the_policy_limits_entries_bytes_and_time_of_commands() {
    let one = "label = \"one\"";
    let add = "mkdir d; for n in $(seq 60); do : > d/$n; done; exec sleep 60";
    let write =
        "rm -r d; for n in 1 2 3 4 5; do head -c 600000 /dev/zero > $n; done; exec sleep 60";
    let script = call(one, "Run", "{ command = \"ls\", timeout = 61 }")
        + &call(one, "Run", &command(add))
        + &call(one, "Run", &command(write))
        + &format!("[[turn]]\n{one}\ntext = \"done\"\n");
    let limits = ["run_max_s=60", "workspace_entries=50", "workspace_bytes=2000000"];
    let flags: Vec<&str> = limits.iter().flat_map(|limit| ["--set", limit]).collect();
    for kind in KINDS {
        let repo = repository(&script);
        repo.commit("first");
        let out = delegating(&repo, kind, &[&["--write"], &flags[..]].concat()).run();
        let told = done(&repo, &out);
        // A work tree's size is measured only while the free space falls, and other programs may free some.
        let measured = if kind == "overlay" { 3 } else { 2 };
        assert!(told.len() >= measured, "{kind}: {told:?}");
        for (text, words) in told.iter().take(measured).zip([
            "`timeout` is in seconds, 60 at most (policy key `run_max_s`), got 61",
            "stopped: commands may add 50 files and directories to the workspace (policy key \
             `workspace_entries`), and added more; remove some",
            "stopped: the workspace may hold 2,000,000 bytes of what commands write (policy key \
             `workspace_bytes`), and holds more",
        ]) {
            assert!(text.contains(words), "{kind}: {text}");
        }
    }
}

/// A project with dependencies and build results that git ignores.
fn with_ignored(script: &str) -> Repo {
    let repo = repository(script);
    repo.rig.write(".gitignore", "node_modules/\ntarget/\nother/\n");
    repo.commit("first");
    repo.rig.write("node_modules/dep/index", "a dependency\n");
    repo.rig.write(
        "node_modules/.bin/check",
        "grep -q 'a dependency' node_modules/dep/index && echo checked\n",
    );
    repo.rig.write("target/built", "built before\n");
    repo.rig.write("other/thing", "not asked for\n");
    repo
}

/// Every ignored file of the person, with its content and its date.
fn ignored(repo: &Repo) -> String {
    let list = repo.git(["ls-files", "--others", "--ignored", "--exclude-standard"]);
    let file = |path: &str| {
        let at = repo.rig.work().join(path);
        format!("{path} {:?} {}", fs::metadata(&at).unwrap().modified().unwrap(), repo.read(path))
    };
    list.lines().map(file).collect()
}

#[test]
fn included_ignored_folders_are_writable_copies_that_are_not_part_of_the_result() {
    let tries = "sh node_modules/.bin/check; cat target/built; ls; echo by-agent >> node_modules/dep/index; \
                 echo new > target/new; rm target/built; echo kept > kept; cat node_modules/dep/index; ls target";
    let one = "label = \"one\"";
    let run = call(one, "Run", &command(tries)) + &format!("[[turn]]\n{one}\ntext = \"done\"\n");
    let folders = ["--write", "--include-ignored", "node_modules", "--include-ignored", "target"];
    for kind in KINDS {
        let repo = with_ignored(&run);
        let (before, theirs) = (repo.state(), ignored(&repo));
        // The second run sees the same files as the first: its writes stayed in its workspace.
        for round in 0..2 {
            let out = delegating(&repo, kind, &folders).run();
            let told = done(&repo, &out).concat();
            for words in ["checked", "built before", "a dependency\nby-agent", "\nnew"] {
                assert!(told.contains(words), "{kind} {round}: {words} in {told}");
            }
            assert!(!told.contains("other"), "{kind} {round}: {told}");
            assert_eq!(told.matches("by-agent").count(), 1, "{kind} {round}: {told}");
            assert_eq!(ignored(&repo), theirs, "{kind} {round}: the person's folders changed");
            assert_eq!(repo.state(), before, "{kind} {round}");
            let kept = book(&repo).of("space_kept").next().unwrap().clone();
            let files =
                repo.git(["ls-tree", "-r", "--name-only", kept["commit"].as_str().unwrap()]);
            assert!(files.lines().any(|path| path == "kept"), "{kind} {round}: {files}");
            for path in ["node_modules", "target", "other"] {
                assert!(!files.contains(path), "{kind} {round}: {path} was kept: {files}");
            }
            fs::remove_dir_all(repo.rig.state().join("runs")).unwrap();
        }
        let without = delegating(&repo, kind, &["--write"]).run();
        let told = done(&repo, &without).concat();
        assert!(!told.contains("checked") && !told.contains("built before"), "{kind}: {told}");
    }
}

/// Mounts an overlay by hand in `folder`, then runs a command of the shell in which `at` is that overlay.
///
/// It does not use the code under test.
fn by_hand(folder: &Path, then: &str) -> std::process::Output {
    for name in ["lower", "upper", "work", "at"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    let script = format!(
        "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr at && {then}"
    );
    std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", &script])
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| {
            panic!("unshare, of util-linux, tells what this machine can do: {error}")
        })
}

fn workspaces_line(doctor: &Value) -> &str {
    let findings = doctor["findings"].as_array().unwrap();
    let line = findings.iter().find(|it| it["name"] == "workspaces").unwrap();
    line["says"].as_str().unwrap()
}

#[test]
fn the_workspace_kind_fits_the_machine_and_doctor_reports_it() {
    let one = "label = \"one\"";
    let repo = repository(&format!("[[turn]]\n{one}\ntext = \"done\"\n"));
    repo.commit("first");
    let tried = by_hand(&repo.rig.path().join("by-hand"), "echo new > at/new");
    let kind = if tried.status.success() { "overlay" } else { "worktree" };
    let doctor = repo.rig.call(["doctor", "--json"]).env("PATH", std::env::var_os("PATH").unwrap());
    let doctor = doctor.run().json();
    let shown = if kind == "overlay" { kind } else { "git work trees" };
    assert!(workspaces_line(&doctor).starts_with(shown), "{doctor} {tried:?}");
    let tasks = repo.rig.delegating(&["--write", "-t", "one=Do it"]);
    let out = tasks.env("PATH", std::env::var_os("PATH").unwrap()).run();
    done(&repo, &out);
    let made = book(&repo).of("space_made").next().unwrap().clone();
    assert_eq!(made["space"]["kind"], kind, "{made} {tried:?}");
}

#[test]
fn doctor_explains_why_a_state_directory_on_an_overlay_uses_work_trees() {
    let rig = Rig::new();
    let binary = crate::support::rig::BINARY;
    let doctor =
        by_hand(&rig.path().join("by-hand"), &format!("{binary} doctor --json --home at/state"));
    assert!(doctor.stderr.is_empty(), "{doctor:?}");
    let said: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let line = workspaces_line(&said);
    assert!(line.starts_with("git work trees") && line.contains("overlayfs"), "{line}");
}

/// While the user answers on a terminal, commands cannot reach it, with a sandbox and without.
#[test]
fn a_sandboxed_command_has_no_terminal_or_input_while_the_user_has_one() {
    let one = "label = \"one\"";
    let wants = "tty; cat; exec < /dev/tty; echo reached";
    let script = call(one, "Run", &command(wants)) + &format!("[[turn]]\n{one}\ntext = \"done\"\n");
    for sandbox in ["on", "off"] {
        let repo = repository(&script);
        repo.commit("first");
        // The same works for a process that has the terminal.
        let mut theirs =
            Terminal::shell(&repo.rig, "tty > /dev/null && exec < /dev/tty && echo reached");
        theirs.wait_for("reached");
        assert_eq!(theirs.finish(), 0);
        let path = std::env::var("PATH").unwrap();
        let args = [
            "delegate",
            "--write",
            "--sandbox",
            sandbox,
            "--model",
            repo.rig.model(),
            "-t",
            "one=Do it",
        ];
        let mut terminal = Terminal::start(&repo.rig, 100, &[("PATH", &path)], &args);
        terminal.wait_for("Start? [y]es").types("y\n");
        assert_eq!(terminal.finish(), 0, "{sandbox}: {}", terminal.screen());
        let told = told(&repo).concat();
        assert!(told.contains("not a tty"), "{sandbox}: {told}");
        assert!(!told.contains("reached"), "{sandbox}: {told}");
        assert!(told.starts_with("exit 2"), "{sandbox}: {told}");
    }
}
