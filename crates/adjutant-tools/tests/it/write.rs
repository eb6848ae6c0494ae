//! Write and Edit: the results for the model, and the bytes of the files.

use adjutant_core::{ContentChange, WriteScope, content_hash};
use adjutant_tools::{PreparedWrite, ToolCallResult, ToolCaps};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::Rig;

const TEMP: &str = ".half.tmp";

impl Rig {
    /// Prepares and makes a change, as the engine does.
    fn change(&self, writes: &WriteScope, tool: &str, arguments: &Value) -> ToolCallResult {
        match self.toolbox.prepare_write(tool, arguments, writes) {
            PreparedWrite::Answer(output) => output,
            PreparedWrite::Change { intent, .. } => {
                self.toolbox.commit_write(tool, arguments, writes, &intent, TEMP, &|| false)
            }
        }
    }

    fn say(&self, writes: &WriteScope, tool: &str, arguments: &Value) -> String {
        let output = self.change(writes, tool, arguments);
        let kind = if output.is_error { "error: " } else { "" };
        format!("{kind}{}", output.text)
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.path(path)).unwrap()
    }
}

fn below(folder: &str) -> WriteScope {
    WriteScope::Below(folder.to_owned())
}

#[test]
fn an_edit_changes_no_other_byte() {
    for (before, old, new, after) in [
        ("a\r\nb\r\nc", "b", "B", "a\r\nB\r\nc"),
        ("last line without end", "without", "with no", "last line with no end"),
        ("\u{feff}bom\n\ttab \u{a0}\n", "tab", "TAB", "\u{feff}bom\n\tTAB \u{a0}\n"),
        ("日本語 e\u{301} é\n", "e\u{301}", "x", "日本語 x é\n"),
        ("a\n\n\n", "a", "", "\n\n\n"),
    ] {
        let rig = Rig::with(&[("f", before)]);
        let call = json!({"file_path": "f", "old_string": old, "new_string": new});
        let output = rig.change(&WriteScope::Anywhere, "Edit", &call);
        assert!(!output.is_error, "{}", output.text);
        assert_eq!(output.touched, ["f"]);
        assert_eq!(rig.bytes("f"), after.as_bytes(), "{before:?}");
    }
    let rig = Rig::new();
    for content in ["", "no end", "a\r\nb\r\n", "\0", "日本語\n"] {
        let call = json!({"file_path": "dir/f", "content": content});
        rig.change(&WriteScope::Anywhere, "Write", &call);
        assert_eq!(rig.bytes("dir/f"), content.as_bytes());
    }
}

#[test]
fn each_failed_write_is_answered_with_advice() {
    let rig = Rig::with(&[("a.rs", "one\ntwo\ntwo\n"), ("bin", "a\0b")]);
    rig.write("latin", b"caf\xe9");
    rig.link("a.rs", "link");
    mknodat(CWD, rig.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let all = &WriteScope::Anywhere;
    let edit = |path: &str, old: &str, new: &str| {
        let call = json!({"file_path": path, "old_string": old, "new_string": new});
        rig.say(all, "Edit", &call)
    };
    let write = |path: &str, content: &str| {
        rig.say(all, "Write", &json!({"file_path": path, "content": content}))
    };
    insta::assert_snapshot!(edit("a.rs", "two", "three"), @"error: `a.rs`: `old_string` occurs 2 times, at line 2, 3; add surrounding lines to it until it occurs once, or set `replace_all`");
    insta::assert_snapshot!(edit("a.rs", "tow", "x"), @"error: `a.rs`: `old_string` was not found, nor any line like its first; read the file again");
    insta::assert_snapshot!(edit("a.rs", "one", "one"), @"error: `a.rs`: `old_string` and `new_string` are equal; nothing would change");
    insta::assert_snapshot!(edit("b.rs", "one", "x"), @"error: `b.rs` does not exist; find paths with Glob, or create it with Write");
    insta::assert_snapshot!(edit("bin", "a", "x"), @"error: `bin` is a binary file and was not edited");
    insta::assert_snapshot!(edit("latin", "caf", "x"), @"error: `latin` is a binary file and was not edited");
    insta::assert_snapshot!(edit("link", "one", "x"), @"error: `link` leads through a symbolic link; name the real path");
    insta::assert_snapshot!(edit("pipe", "one", "x"), @"error: `pipe` is a named pipe, not a regular file");
    insta::assert_snapshot!(edit("a.rs", "one", "1"), @"Replaced 1 match in `a.rs` (line 1).");
    insta::assert_snapshot!(write("a.rs", "1\ntwo\ntwo\n"), @"`a.rs` has this content already; nothing was written.");
    insta::assert_snapshot!(write("new/b.rs", "x\ny"), @"Created `new/b.rs`: 2 lines, 3 bytes.");
    insta::assert_snapshot!(write("new/b.rs", ""), @"Replaced `new/b.rs`: 0 lines, 0 bytes.");
    insta::assert_snapshot!(write("new", "x"), @"error: `new` is a directory; name a file");
    insta::assert_snapshot!(write("a.rs/b", "x"), @"error: `a.rs/b` cannot be: a part of it is a file, not a directory");
    insta::assert_snapshot!(write("../x", "x"), @"error: `../x` is outside the workspace; give a path relative to its root");
    insta::assert_snapshot!(write(".git/config", "x"), @"error: `.git/config` is in a git directory, or would make one; agents do not write there");
    insta::assert_snapshot!(rig.say(all, "Write", &json!({"file_path": "c"})), @"error: `content` is required; it may be empty");
    insta::assert_snapshot!(rig.say(all, "Edit", &json!({"file_path": "a.rs", "old_string": "two", "new_string": "2", "replace_all": "true"})), @"Replaced 2 matches in `a.rs` (line 2, 3).");
    assert_eq!(rig.bytes("a.rs"), b"1\n2\n2\n");
}

#[test]
fn writes_stay_below_the_granted_folder() {
    let rig = Rig::with(&[("src/a.rs", "x"), (".adjutant/specs/list.md", "x")]);
    let specs = &below(".adjutant/specs");
    let write = |path: &str| rig.say(specs, "Write", &json!({"file_path": path, "content": "new"}));
    insta::assert_snapshot!(write("src/a.rs"), @"error: `src/a.rs` may not be written; you may write only below `.adjutant/specs`");
    insta::assert_snapshot!(write(".adjutant/specs/../config.toml"), @"error: `.adjutant/specs/../config.toml` may not be written; you may write only below `.adjutant/specs`");
    insta::assert_snapshot!(write("/etc/passwd"), @"error: `/etc/passwd` may not be written; you may write only below `.adjutant/specs`");
    insta::assert_snapshot!(write("./.adjutant/specs/list.md"), @"Replaced `.adjutant/specs/list.md`: 1 line, 3 bytes.");
    let whole = rig.path(".adjutant/specs/12/plan.md");
    assert!(write(whole.to_str().unwrap()).starts_with("Created `.adjutant/specs/12/plan.md`"));
    // A granted folder that is a link grants nothing at its target.
    rig.link("src", "linked");
    let call = json!({"file_path": "linked/a.rs", "content": "new"});
    assert!(rig.change(&below("linked"), "Write", &call).is_error);
    assert_eq!(rig.bytes("src/a.rs"), b"x");
    let call = json!({"file_path": "src/a.rs", "content": "new"});
    assert_eq!(rig.say(&WriteScope::Nowhere, "Write", &call), "error: you may not write files");
    // Without a grant nothing may be written.
    let output = rig.toolbox.call_by_name("Write", &call, &|| false);
    assert!(output.is_error && output.text == "you may not write files", "{}", output.text);
    assert_eq!(rig.bytes("src/a.rs"), b"x");
}

#[test]
fn tools_do_not_write_the_task_list() {
    for (specs, name) in [".adjutant/specs", ".opencode/specs"]
        .into_iter()
        .flat_map(|specs| ["TODO.md", "state.json", "errors.json", "todo.MD"].map(|it| (specs, it)))
    {
        let file = format!("{specs}/{name}");
        let rig = Rig::with(&[(&file, "- [NOT STARTED]"), (&format!("{specs}/1/f"), "x")]);
        let edit = |path: &str, writes: &WriteScope| {
            let change =
                json!({"file_path": path, "old_string": "NOT STARTED", "new_string": "COMPLETED"});
            rig.say(writes, "Edit", &change)
        };
        let write = |path: &str, writes: &WriteScope| {
            rig.say(writes, "Write", &json!({"file_path": path, "content": "- [COMPLETED]"}))
        };
        let whole = rig.path(&file);
        let kept = "is kept by adjutant itself; name what you made in your return instead";
        for path in [&file, &format!("./{specs}/./{name}"), whole.to_str().unwrap()] {
            for writes in [&WriteScope::Anywhere, &below(specs)] {
                for said in [edit(path, writes), write(path, writes)] {
                    assert!(said.starts_with("error: ") && said.ends_with(kept), "{said}");
                }
            }
        }
        // Nor is there a way around.
        let around = format!("{specs}/1/../{name}");
        for said in [edit(&around, &WriteScope::Anywhere), write(&around, &WriteScope::Anywhere)] {
            assert!(said.starts_with("error: "), "{said}");
        }
        assert_eq!(rig.bytes(&file), b"- [NOT STARTED]");
        // A file of that name elsewhere is one like any other.
        for free in [format!("{specs}/1/{name}"), name.to_owned()] {
            let said = write(&free, &WriteScope::Anywhere);
            assert!(said.starts_with("Created"), "{said}");
        }
    }
}

#[test]
fn only_the_prepared_write_is_made() {
    let rig = Rig::with(&[("f", "old")]);
    let (all, call) = (&WriteScope::Anywhere, json!({"file_path": "f", "content": "new"}));
    let PreparedWrite::Change { intent, before } = rig.toolbox.prepare_write("Write", &call, all)
    else {
        panic!("there is something to change")
    };
    let change = intent.change;
    assert_eq!(before, [Some(b"old".to_vec())]);
    assert_eq!(change.before, Some(content_hash(b"old")));
    assert_eq!(change.after, Some(content_hash(b"new")));
    assert_eq!(rig.bytes("f"), b"old", "looking changes nothing");
    let commit = |change: &ContentChange, stop: bool| {
        let intent = change.clone().into();
        rig.toolbox.commit_write("Write", &call, all, &intent, TEMP, &|| stop)
    };
    rig.write("f", "theirs");
    let output = commit(&change, false);
    assert!(output.is_error && output.text.contains("changed by someone else"), "{}", output.text);
    assert_eq!(rig.bytes("f"), b"theirs");
    rig.write("f", "old");
    let other = ContentChange { after: Some(content_hash(b"other")), ..change.clone() };
    assert!(commit(&other, false).is_error);
    assert!(commit(&change, true).text.contains("stopped before"));
    assert_eq!(rig.bytes("f"), b"old");
    assert!(!commit(&change, false).is_error);
    assert_eq!(rig.toolbox.content_hash("f").unwrap(), change.after);
    assert_eq!(rig.toolbox.content_hash("g").unwrap(), None);
}

#[test]
fn a_write_never_replaces_a_secret_by_its_mask() {
    let line = format!("token = \"ghp_{}\"\nname = \"x\"\n", "a1B2".repeat(9));
    let rig = Rig::with(&[("conf", &line)]);
    let shown = rig.read(json!({"path": "conf"}));
    assert!(shown.contains("[masked:"), "{shown}");
    let all = &WriteScope::Anywhere;
    let content = "token = \"[masked:github-token]\"\nname = \"y\"\n";
    let said = rig.say(all, "Write", &json!({"file_path": "conf", "content": content}));
    assert!(said.contains("a secret you were not shown"), "{said}");
    let call = json!({"file_path": "conf", "old_string": "token = \"[masked:github-token]\"", "new_string": "a"});
    assert!(rig.say(all, "Edit", &call).contains("a secret you were not shown"));
    let call = json!({"file_path": "conf", "old_string": "\"x\"", "new_string": "\"y\""});
    assert!(rig.say(all, "Edit", &call).starts_with("Replaced 1 match"));
    assert_eq!(rig.bytes("conf"), line.replace("\"x\"", "\"y\"").as_bytes());
}

#[test]
fn a_huge_file_is_refused_by_its_size() {
    let rig = Rig::with_caps(ToolCaps { write_bytes: 100, ..ToolCaps::default() });
    rig.write("big", "x".repeat(101));
    rig.write("small", "x".repeat(99));
    let all = &WriteScope::Anywhere;
    let call = json!({"file_path": "big", "content": "new"});
    insta::assert_snapshot!(rig.say(all, "Write", &call), @"error: `big` has more than 100 bytes, the most that is taken");
    let call = json!({"file_path": "new", "content": "y".repeat(101)});
    insta::assert_snapshot!(rig.say(all, "Write", &call), @"error: `new` would have 101 bytes; the most is 100");
    let call =
        json!({"file_path": "small", "old_string": "x", "new_string": "xy", "replace_all": true});
    insta::assert_snapshot!(rig.say(all, "Edit", &call), @"error: `small` would have 198 bytes; the most is 100");
}

#[test]
fn a_toolbox_without_commands_refuses_run_with_the_reason() {
    let output = Rig::new().toolbox.call_by_name("Run", &json!({"command": "ls"}), &|| false);
    insta::assert_snapshot!(output.text, @"you may not run commands");
}

#[test]
fn concurrent_edits_that_succeeded_are_all_in_the_file() {
    const WRITERS: usize = 4;
    const EDITS: usize = 25;
    let rig = Rig::with(&[("f", "END")]);
    let rig = &rig;
    let told: usize = std::thread::scope(|scope| {
        let work = |who: usize| {
            let edit = |nth: usize| {
                let line = format!("{who}-{nth}\nEND");
                let call = json!({"file_path": "f", "old_string": "END", "new_string": line});
                let prepared = rig.toolbox.prepare_write("Edit", &call, &WriteScope::Anywhere);
                let PreparedWrite::Change { intent, .. } = prepared else { panic!("{prepared:?}") };
                let (writes, temp) = (&WriteScope::Anywhere, format!(".{who}.tmp"));
                rig.toolbox.commit_write("Edit", &call, writes, &intent, &temp, &|| false)
            };
            (0..EDITS).filter(|nth| !edit(*nth).is_error).count()
        };
        let writers: Vec<_> = (0..WRITERS).map(|who| scope.spawn(move || work(who))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let text = String::from_utf8(rig.bytes("f")).unwrap();
    assert_eq!(text.lines().count() - 1, told, "{text}");
    assert!(told >= EDITS, "someone always comes first");
}

#[test]
fn several_edits_of_one_file_are_made_together_or_not_at_all() {
    let all = &WriteScope::Anywhere;
    let rig = Rig::with(&[("f", "a\nb\nc\n")]);
    let edit = |old: &str, new: &str| json!({"old_string": old, "new_string": new});
    let call = |edits: Value| json!({"file_path": "f", "edits": edits});
    let said = rig.say(all, "Edit", &call(json!([edit("a", "A"), edit("missing", "x")])));
    assert!(said.contains("edit 2 of 2") && said.ends_with("Nothing was changed"), "{said}");
    assert_eq!(rig.bytes("f"), b"a\nb\nc\n");
    // Later edits see the text after the earlier ones.
    let said =
        rig.say(all, "Edit", &call(json!([edit("a", "b"), edit("b\nb", "two"), edit("c", "C")])));
    assert_eq!(said, "Replaced 3 matches in `f` (line 1, 1, 2).");
    assert_eq!(rig.bytes("f"), b"two\nC\n");
    for (arguments, why) in [
        (call(json!([])), "must have 1 to 100 items"),
        (call(json!("x")), "must be a list"),
        (call(json!([{"old_string": "a"}])), "item 1 of `edits`: `new_string` is required"),
        (call(json!([{"old_string": "a", "new_string": "b", "file_path": "g"}])), "the same file"),
        (json!({"file_path": "f", "edits": [edit("a", "b")], "old_string": "a"}), "not both"),
        (json!({"file_path": "f", "old_string": "", "new_string": "x"}), "create files with Write"),
    ] {
        let said = rig.say(all, "Edit", &arguments);
        assert!(said.contains(why), "{arguments}: {said}");
    }
}

fn patch(body: &str) -> Value {
    json!({"patch": format!("*** Begin Patch\n{body}\n*** End Patch")})
}

#[test]
fn a_patch_changes_and_adds_files_with_one_intent() {
    let all = &WriteScope::Anywhere;
    let rig = Rig::with(&[("a.rs", "one\ntwo\n"), ("b.rs", "three\n")]);
    let call = patch(
        "*** Update File: a.rs\n@@\n one\n-two\n+TWO\n*** Update File: b.rs\n-three\n+THREE\n*** Add File: new/c.rs\n+four",
    );
    let PreparedWrite::Change { intent, before } = rig.toolbox.prepare_write("Edit", &call, all)
    else {
        panic!("there is something to change")
    };
    let paths: Vec<_> = intent.changes().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["a.rs", "b.rs", "new/c.rs"]);
    assert_eq!(before, [Some(b"one\ntwo\n".to_vec()), Some(b"three\n".to_vec()), None]);
    assert!(!rig.path("new").exists(), "looking makes no folder");
    // One file that was changed meanwhile keeps all others from being written.
    rig.write("b.rs", "theirs\n");
    let output = rig.toolbox.commit_write("Edit", &call, all, &intent, TEMP, &|| false);
    assert!(output.is_error, "{}", output.text);
    assert_eq!(rig.bytes("a.rs"), b"one\ntwo\n");
    rig.write("b.rs", "three\n");
    let output = rig.toolbox.commit_write("Edit", &call, all, &intent, TEMP, &|| false);
    assert_eq!(output.touched, ["a.rs", "b.rs", "new/c.rs"]);
    insta::assert_snapshot!(output.text, @r"
    Replaced 1 hunk in `a.rs` (line 1).
    Replaced 1 hunk in `b.rs` (line 1).
    Created `new/c.rs`: 1 line, 5 bytes.
    ");
    assert_eq!(rig.bytes("a.rs"), b"one\nTWO\n");
    assert_eq!(rig.bytes("new/c.rs"), b"four\n");
}

#[test]
fn a_patch_that_fits_only_in_part_changes_nothing() {
    let rig = Rig::with(&[("a", "one\n"), ("b", "  two\n"), ("x", "x\nx\n"), ("bin", "\0")]);
    let ok = "*** Update File: a\n-one\n+ONE\n";
    for (writes, rest, why) in [
        (WriteScope::Anywhere, "*** Update File: b\n-\ttwo\n+TWO", "`old_string` 1 tab"),
        (WriteScope::Anywhere, "*** Update File: x\n-x\n+y", "occur several times, at line 1, 2"),
        (WriteScope::Anywhere, "*** Update File: missing\n-x\n+y", "`missing` does not exist"),
        (WriteScope::Anywhere, "*** Update File: bin\n-x\n+y", "is a binary file"),
        (WriteScope::Anywhere, "*** Update File: b\n@@ fn f\n-x\n+y", "after `@@` was not found"),
        (WriteScope::Anywhere, "*** Add File: b\n+x", "`b` exists"),
        (WriteScope::Anywhere, "*** Add File: ../b\n+x", "outside the workspace"),
        (WriteScope::Anywhere, "*** Add File: .git/config\n+x", "git directory"),
        (
            WriteScope::Anywhere,
            "*** Add File: .adjutant/specs/TODO.md\n+x",
            "kept by adjutant itself",
        ),
        (WriteScope::Anywhere, "*** Update File: ./a\n-one\n+two", "twice"),
        (WriteScope::Anywhere, "*** Delete File: b", "use `rm` or `mv` in Run"),
        (WriteScope::Below("docs".to_owned()), "*** Add File: docs/b\n+x", "only below `docs`"),
        (WriteScope::Nowhere, "*** Add File: c\n+x", "you may not write files"),
    ] {
        let said = rig.say(&writes, "Edit", &patch(&format!("{ok}{rest}")));
        assert!(said.starts_with("error: ") && said.contains(why), "{rest}: {said}");
        assert_eq!(rig.bytes("a"), b"one\n", "{rest}");
    }
}

#[test]
fn a_patch_that_is_stopped_halfway_says_what_was_written() {
    let all = &WriteScope::Anywhere;
    let rig = Rig::with(&[("a", "one\n"), ("b", "two\n")]);
    let call = patch("*** Update File: a\n-one\n+ONE\n*** Update File: b\n-two\n+TWO");
    let PreparedWrite::Change { intent, .. } = rig.toolbox.prepare_write("Edit", &call, all) else {
        panic!("there is something to change")
    };
    let asked = std::cell::Cell::new(0);
    let stops = || {
        asked.set(asked.get() + 1);
        asked.get() > 1
    };
    let output = rig.toolbox.commit_write("Edit", &call, all, &intent, TEMP, &stops);
    assert_eq!(output.touched, ["a"]);
    insta::assert_snapshot!(output.text, @"stopped before `b` was written; the patch was applied in part: `a` was written, the rest was not. Read the files before you go on");
    assert_eq!((rig.bytes("a"), rig.bytes("b")), (b"ONE\n".to_vec(), b"two\n".to_vec()));
}
