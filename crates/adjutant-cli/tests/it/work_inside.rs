//! What an agent that works in a workspace sees: its own tree and those below it the same, nothing of
//! the person's, and the ignored folders that were asked for.

use serde_json::Value;

use crate::kills::book::Book;
use crate::rig::{Call, Output, Rig};
use crate::work_rig::Repo;

const KINDS: [&str; 2] = ["overlay", "worktree"];

/// An agent of the project that only reads.
const READER: &str = "---\nname: reader\ndescription: Reads.\ntools: Read\n---\nYou read.\n";

fn call(who: &str, tool: &str, args: &str) -> String {
    format!("[[turn]]\n{who}\n[[turn.call]]\ntool = \"{tool}\"\nargs = {args}\n")
}

/// A turn of one who is done, in the form that stories hand back.
fn ends(who: &str) -> String {
    let done =
        r#"{"status":"completed","summary":"It is done. It is short.","artifacts":[],"errors":[]}"#;
    format!("[[turn]]\n{who}\ntext = '{done}'\n")
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
fn a_reader_below_a_writer_sees_the_writers_files_and_not_the_persons() {
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
        // What it was given to read came from the same tree.
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
fn an_agent_that_a_writer_describes_is_known_to_nobody() {
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
