//! Children that change the same file: the second is not merged; its parent gets each file and how to resolve the
//! conflict, and resolves it.

use serde_json::{Value, json};

use crate::support::project::{Project, calls, done, one_story, partial, runs, says, writes};

const ONE: &str = "Change it one way";
const TWO: &str = "Change it the other way";

/// The changes of each child, the resolution by the parent, and the conflicting files.
struct Clash {
    name: &'static str,
    one: Value,
    two: Value,
    /// What each side did, as it is reported.
    what: &'static str,
    path: &'static str,
    settle: Value,
    /// A command that succeeds on the final files of the story.
    holds: &'static str,
}

fn edit(who: &str, path: &str, old: &str, new: &str) -> Value {
    calls(who, "Edit", &json!({ "file_path": path, "old_string": old, "new_string": new }))
}

fn clashes() -> [Clash; 4] {
    [
        Clash {
            name: "both edit the same line",
            one: edit(ONE, "long", "line 2\n", "line two\n"),
            two: edit(TWO, "long", "line 2\n", "second line\n"),
            what: "both changed the same lines",
            path: "long",
            settle: edit("US-001", "long", "line two\n", "line two, the second line\n"),
            holds: "grep -qx 'line two, the second line' long",
        },
        Clash {
            name: "one deletes what the other edits",
            one: runs(ONE, "rm long"),
            two: edit(TWO, "long", "line 2\n", "second line\n"),
            what: "deleted in the target, changed by the result",
            path: "long",
            settle: writes("US-001", "long", "second line\n"),
            holds: "test \"$(cat long)\" = 'second line'",
        },
        Clash {
            name: "both rename it",
            one: runs(ONE, "mv long longer"),
            two: runs(TWO, "mv long longest"),
            what: "renamed on one side, changed differently on the other",
            path: "long",
            settle: runs("US-001", "mv longer longest"),
            holds: "test -f longest -a ! -e long -a ! -e longer",
        },
        Clash {
            name: "a link in place of the file that the other edits",
            one: edit(ONE, "long", "line 2\n", "line two\n"),
            two: runs(TWO, "ln -sf src/short long"),
            what: "the sides differ in file type or mode",
            path: "long",
            settle: edit("US-001", "long", "line two\n", "line two, no link\n"),
            holds: "grep -qx 'line two, no link' long && test ! -L long",
        },
    ]
}

#[test]
fn the_parent_agent_gets_a_conflict_as_its_task_and_resolves_it() {
    for clash in clashes() {
        let name = clash.name;
        let turns = [
            says("US-001", &format!("[delegate:{ONE}:1]\n[delegate:{TWO}:1]")),
            clash.settle,
            done("US-001"),
            clash.one,
            done(ONE),
            clash.two,
            writes(TWO, "beside", "by the other\n"),
            done(TWO),
        ];
        let project = Project::new(&one_story(), turns);
        let before = project.own();
        let json = project.json(&["--verify", clash.holds], 0);
        let run = project.rig().only_run();
        let merged = project.events(&run, "merged");
        assert_eq!(merged.len(), 2, "{name}: {merged:#?}");
        assert_eq!(merged[0]["conflicts"], Value::Null, "{name}: {merged:#?}");
        let conflicts = merged[1]["conflicts"].as_array().unwrap();
        let what = conflicts.iter().find(|it| it["path"] == clash.path).unwrap();
        assert_eq!(what["what"], clash.what, "{name}: {conflicts:#?}");

        let told = project.told(&run, "US-001").pop().unwrap();
        let two = project.session(&run, TWO);
        assert!(told.contains(&format!("`{}`", clash.path)), "{name}: {told}");
        assert!(told.contains("conflict") && told.contains("diff --git"), "{name}: {told}");
        // The second child is merged completely or not at all.
        let files = project.files(&run, "US-001");
        assert!(!files.contains(&"beside".to_owned()), "{name}: {files:?}");
        assert_eq!(project.left(&run, TWO, "beside"), "by the other", "{name}: its work stays");
        assert!(told.contains(&two), "{name}: {told}");
        assert_eq!(project.own(), before, "{name}");
        assert_eq!(project.entry("US-001")["passes"], true, "{name}");
        let child = &json["stories"][0]["children"][1];
        assert_eq!(child["work"]["merge"], "conflict", "{name}: {child:#}");
    }
}

#[test]
fn a_rename_an_edit_and_a_mode_change_of_children_are_combined() {
    let turns = [
        says("US-001", &format!("[delegate:{ONE}:1]\n[delegate:{TWO}:1]")),
        done("US-001"),
        runs(ONE, "mv long longer; chmod +x src/short"),
        done(ONE),
        edit(TWO, "long", "line 2\n", "second line\n"),
        edit(TWO, "src/short", "short\n", "shorter\n"),
        done(TWO),
    ];
    let project = Project::new(&one_story(), turns);
    let holds = "grep -qx 'second line' longer && test ! -e long -a -x src/short && grep -q shorter src/short";
    let out = project.story(&["--verify", holds]);
    assert_eq!(out.code, 0, "{out}");
}

#[test]
fn conflicting_modes_are_resolved_by_the_parent_too() {
    // Both make a new file of the same name, one of them a program.
    let turns = [
        says("US-001", &format!("[delegate:{ONE}:1]\n[delegate:{TWO}:1]")),
        runs("US-001", "chmod +x tool; echo settled >> tool"),
        done("US-001"),
        runs(ONE, "echo 'echo one' > tool"),
        done(ONE),
        runs(TWO, "echo 'echo two' > tool; chmod +x tool"),
        done(TWO),
    ];
    let project = Project::new(&one_story(), turns);
    let out =
        project.story(&["--verify", "grep -q one tool && grep -q settled tool && test -x tool"]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    let told = project.told(&run, "US-001").pop().unwrap();
    assert!(told.contains("`tool`") && told.contains("+echo two"), "{told}");
}

#[test]
fn without_merge_children_the_work_of_children_stays_in_references() {
    let turns = [
        says("US-001", &format!("[delegate:{ONE}:1]\n[delegate:{TWO}:1]")),
        done("US-001"),
        writes(ONE, "one", "by one\n"),
        done(ONE),
        writes(TWO, "two", "by two\n"),
        done(TWO),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&["--set", "merge_children=false"]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert!(project.events(&run, "merged").is_empty());
    assert_eq!(project.left(&run, ONE, "one"), "by one");
    assert_eq!(project.left(&run, TWO, "two"), "by two");
    let told = project.told(&run, "US-001").pop().unwrap();
    assert_eq!(told.matches("**Merge**: not merged into your workspace").count(), 2, "{told}");
    // The person merges them as any other work.
    let merged = project.call(["merge", &run]).run();
    assert_eq!(merged.code, 0, "{merged}");
    assert_eq!(project.repo.read("one") + &project.repo.read("two"), "by one\nby two\n");
}

#[test]
fn a_child_of_a_child_conflicts_with_its_own_parent_only() {
    let turns = [
        says("US-001", &format!("[delegate:{ONE}:1]")),
        done("US-001"),
        says(ONE, &format!("[delegate:{TWO}:1]\n[delegate:A third way:1]")),
        edit(ONE, "long", "second line\n", "second line, and the third way\n"),
        done(ONE),
        edit(TWO, "long", "line 2\n", "second line\n"),
        done(TWO),
        edit("A third way", "long", "line 2\n", "third line\n"),
        done("A third way"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&["--verify", "grep -qx 'second line, and the third way' long"]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert_eq!(project.left(&run, "A third way", "long").lines().nth(1), Some("third line"));
}

#[test]
fn a_child_passes_only_if_its_work_is_in_the_story() {
    const DEEP: &str = "Do a part of it";
    let below = |rest: Vec<Value>| {
        let begin = [
            says("US-001", &format!("[delegate:{ONE}:2]")),
            says(ONE, &format!("[delegate:{DEEP}:1]")),
            writes(DEEP, "deep", "deep\n"),
            done(DEEP),
            writes(ONE, "upper", "upper\n"),
        ];
        [begin.to_vec(), rest].concat()
    };
    let own = || writes("US-001", "own", "own\n");
    let (all, none): (&[&str], &[&str]) = (&[], &["--set", "merge_children=false"]);
    // What the tasks do after the deepest one, the flags, and whether the upper and the deepest pass.
    for (what, rest, flags, passes) in [
        ("all is merged", vec![done(ONE), own(), done("US-001")], all, [true, true]),
        ("nothing is merged", vec![done(ONE), own(), done("US-001")], none, [false, false]),
        (
            "the one above is partial",
            vec![partial(ONE), own(), done("US-001")],
            all,
            [false, false],
        ),
    ] {
        let project = Project::new(&one_story(), below(rest));
        let out = project.story(flags);
        let entries = ["US-001-DEL-001", "US-001-DEL-001-DEL-001"].map(|id| project.entry(id));
        let found = entries.each_ref().map(|entry| entry["passes"] == true);
        assert_eq!(found, passes, "{what}: {entries:?} {out}");
        // Passing work is in the story, whatever was reported about it.
        let files = project.files(&project.rig().only_run(), "US-001");
        assert_eq!(files.contains(&"deep".to_owned()), passes[1], "{what}: {files:?}");
    }
}

#[test]
fn work_merged_into_a_conflicting_task_does_not_pass() {
    const DEEP: &str = "Do a part of it";
    let turns = [
        says("US-001", &format!("[delegate:{ONE}:2]\n[delegate:{TWO}:2]")),
        writes(ONE, "same", "one\n"),
        done(ONE),
        says(TWO, &format!("[delegate:{DEEP}:1]")),
        writes(DEEP, "deep", "deep\n"),
        done(DEEP),
        writes(TWO, "same", "two\n"),
        done(TWO),
        done("US-001"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    let passes = |id: &str| project.entry(id)["passes"] == true;
    assert!(passes("US-001") && passes("US-001-DEL-001"), "{out}");
    assert!(!passes("US-001-DEL-002"), "{out}");
    assert!(!passes("US-001-DEL-002-DEL-001"), "it is in a work that is in conflict: {out}");
}

#[test]
fn quotes_of_a_conflict_contain_no_secrets() {
    let turns = [
        says("US-001", &format!("[delegate:{ONE}:1]\n[delegate:{TWO}:1]")),
        done("US-001"),
        runs(ONE, "sed -i s/line/first/ tokens"),
        done(ONE),
        runs(TWO, "sed -i s/line/second/ tokens"),
        done(TWO),
    ];
    let project = Project::new(&one_story(), turns);
    // So many secrets that the quotation is truncated inside one.
    let token = |nth: usize| format!("line ghp_{nth:036}\n");
    project.rig().write("tokens", (0..400).map(token).collect::<String>());
    let out = project.story(&[]);
    let run = project.rig().only_run();
    let merged = project.events(&run, "merged");
    let patches: Vec<&str> =
        merged.iter().filter_map(|it| it["conflicts"][0]["patch"].as_str()).collect();
    let [patch] = patches[..] else { panic!("{out}\n{merged:#?}") };
    assert!(patch.contains("[masked:github-token]") && patch.ends_with("(cut)"), "{patch}");
    assert!(patch.len() < 5_000, "{}", patch.len());
    let journal = format!("{:?}", project.rig().events(&run));
    assert!(!journal.contains("ghp_"), "{patch}");
}
