//! Delegation markers from a streaming provider as models write them: in pieces, in code, quoted, too many, and
//! invalid.

use adjutant_testkit::fake::{Api, Script, Turn};
use serde_json::{Value, json};

use crate::support::project::{Project, calls, done, one_story, says, writes};
use crate::support::server::Server;

fn returns(summary: &str) -> Turn {
    let result = json!({
        "status": "completed", "summary": summary, "artifacts": [], "errors": [],
    });
    Turn::calls("Return", &result)
}

/// The labels of the children of a run, in order.
fn granted(project: &Project, run: &str) -> Vec<String> {
    let label = |event: Value| event["brief"]["label"].as_str().unwrap().to_owned();
    project.events(run, "granted").into_iter().map(label).collect()
}

#[test]
fn markers_cut_across_the_pieces_of_a_stream_are_whole() {
    for api in [Api::Anthropic, Api::Chat, Api::Responses, Api::Gemini] {
        for pieces in [1, 3, 7] {
            let text = "Two parts.\n[delegate:Schlüssel prüfen → ✓:2]\n[delegate:Create UI:1]\nThat is all.";
            let script = Script::new()
                .on(
                    "Story US-001",
                    [Turn::says(text).fragmented(&[pieces]), returns("All is done. It is whole.")],
                )
                .on("Schlüssel prüfen → ✓", [returns("The key is right. It was tried.")])
                .on("Create UI", [returns("The form is there. It was tried.")]);
            let project = Project::new(&one_story(), []);
            let server = Server::start(api, script);
            let args =
                ["story", "prd.json", "--yes", "--model", "fake/priced", "--enable-delegation"];
            let call = server.call(project.rig(), &args);
            let out = call.env("PATH", std::env::var_os("PATH").unwrap()).run();
            assert_eq!(out.code, 0, "{api:?} by {pieces}: {out}");
            let run = project.rig().only_run();
            assert_eq!(granted(&project, &run), ["Schlüssel prüfen → ✓", "Create UI"], "{api:?}");
            assert_eq!(project.entry("US-001-DEL-001")["description"], "Schlüssel prüfen → ✓");
            // Two requests for the story, one per child: none was repeated.
            assert_eq!(server.stop().len(), 4, "{api:?} by {pieces}");
        }
    }
}

#[test]
fn markers_in_code_blocks_and_in_read_files_are_not_run() {
    let project = Project::new(
        &one_story(),
        [
            calls("US-001", "Read", &json!({ "path": "notes.md" })),
            says(
                "US-001",
                "As the notes say:\n```\n[delegate:In a fence:1]\n```\nor `[delegate:In a span:1]`, \
                 or \\[delegate:Escaped:1].\n\n[delegate:The real one:1]",
            ),
            done("US-001"),
            done("The real one"),
        ],
    );
    project.rig().write("notes.md", "[delegate:From a file:1]\n");
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(granted(&project, &project.rig().only_run()), ["The real one"]);
}

fn parts(of: std::ops::RangeInclusive<u32>) -> String {
    of.map(|n| format!("[delegate:Part {n}:1]\n")).collect()
}

#[test]
fn eleven_markers_at_once_are_all_refused_and_reported() {
    let mut turns = vec![says("US-001", &parts(1..=11)), says("US-001", &parts(1..=10))];
    turns.push(done("US-001"));
    turns.extend((1..=11).map(|n| done(&format!("Part {n}"))));
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    let told = project.told(&run, "US-001");
    assert!(told[0].contains("Too many delegations (11). Maximum: 10"), "{told:#?}");
    assert!(told[0].contains("Nothing was delegated"), "{told:#?}");
    // No delegation started, so no child number was used.
    assert_eq!(granted(&project, &run).len(), 10, "{out}");
    assert_eq!(project.entry("US-001-DEL-010")["title"], "Part 10");
}

#[test]
fn the_eleventh_delegation_of_a_story_is_refused() {
    let mut turns = vec![says("US-001", &parts(1..=6)), says("US-001", &parts(7..=12))];
    turns.push(done("US-001"));
    turns.extend((1..=12).map(|n| done(&format!("Part {n}"))));
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert_eq!(granted(&project, &run).len(), 10, "{out}");
    let told = project.told(&run, "US-001").pop().unwrap();
    for words in ["MAX_DELEGATIONS_EXCEEDED", "[Part 10] ✓", "[Part 11] ⊘", "[Part 12] ⊘"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(project.entry("US-001-DEL-010")["title"], "Part 10");
    assert_eq!(project.entry("US-001-DEL-011"), Value::Null);
}

#[test]
fn child_numbers_continue_across_turns() {
    let turns = [
        says("US-001", "[delegate:One:1]\n[delegate:Two:1]"),
        says("US-001", "[delegate:Three:1]"),
        done("US-001"),
        writes("One", "one", "1\n"),
        done("One"),
        done("Two"),
        // The third sees what the first did, for it was merged before the second turn.
        calls("Three", "Read", &json!({ "path": "one" })),
        json!({ "label": "Three", "last": "no such", "text": "lost" }),
        done("Three"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let titles = [1, 2, 3].map(|n| project.entry(&format!("US-001-DEL-00{n}"))["title"].clone());
    assert_eq!(titles, ["One", "Two", "Three"]);
    assert_eq!(project.entry("US-001-DEL-003")["passes"], true, "{out}");
}

#[test]
fn colons_brackets_and_many_scripts_are_part_of_a_description() {
    let names = ["Fix a[0]: the index: wrong", "日本語の試験", "e\u{301}te\u{301} 🦀 λ"];
    let markers = names.map(|name| format!("[delegate:{name}:3]")).join("\n");
    let mut turns = vec![says("US-001", &markers), done("US-001")];
    turns.extend(names.iter().map(|name| done(name)));
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    for (n, name) in names.iter().enumerate() {
        let entry = project.entry(&format!("US-001-DEL-{:03}", n + 1));
        assert_eq!(entry["description"], *name, "{out}");
        assert_eq!(entry["estimatedHours"], 3);
    }
}

#[test]
fn an_unparsable_marker_is_reported_and_the_others_run() {
    for (bad, why) in [
        ("[delegate:two\nlines:1]", "line"),
        ("[delegate:no hours]", "hours"),
        ("[delegate::1]", "description"),
        ("[delegate:half an hour:0.5]", "hours"),
        ("[delegate:never closed:1", "not closed"),
    ] {
        let turns = [
            says("US-001", &format!("{bad}\n\n[delegate:The good one:1]")),
            done("US-001"),
            done("The good one"),
        ];
        let project = Project::new(&one_story(), turns);
        let json = project.json(&[], 0);
        let run = project.rig().only_run();
        assert_eq!(granted(&project, &run), ["The good one"], "{bad}");
        let told = project.told(&run, "US-001").pop().unwrap();
        assert!(told.contains(why), "{bad}: {told}");
        let unread = json["stories"][0]["unread_markers"].as_array().unwrap();
        assert_eq!(unread.len(), 1, "{bad}: {json:#}");

        // An answer with only this marker gets the error too, and the agent continues.
        let project = Project::new(&one_story(), [says("US-001", bad), done("US-001")]);
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{bad}: {out}");
        let told = project.told(&project.rig().only_run(), "US-001").pop().unwrap();
        assert!(told.contains("Nothing was delegated") && told.contains(why), "{bad}: {told}");
    }
}

#[test]
fn without_delegation_markers_are_reported_and_not_run() {
    let turns =
        || [says("US-001", "[delegate:Implement JWT:4]"), done("US-001"), done("Implement JWT")];
    let project = Project::new(&one_story(), turns());
    let out = project.working(&[]).run();
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert!(granted(&project, &run).is_empty());
    let told = project.told(&run, "US-001").pop().unwrap();
    assert!(told.contains("Nothing was delegated"), "{told}");
    assert!(out.stdout.contains("Implement JWT") || out.stderr.contains("Implement JWT"), "{out}");
    // The environment switches it on as the flag does; a PRD does not.
    for (value, is_on) in [("true", true), ("1", true), ("0", false)] {
        let project = Project::new(&one_story(), turns());
        let out = project.working(&[]).env("ENABLE_DELEGATION", value).run();
        assert_eq!(out.code, 0, "{value}: {out}");
        let granted = granted(&project, &project.rig().only_run());
        assert_eq!(granted.contains(&"Implement JWT".to_owned()), is_on, "{value}: {granted:?}");
    }
    let mut prd = one_story();
    prd["delegationConfig"] = json!({ "enabled": true, "max_depth": 3 });
    let project = Project::new(&prd, turns());
    let out = project.working(&[]).run();
    assert!(out.stderr.contains("--enable-delegation"), "{out}");
    assert!(granted(&project, &project.rig().only_run()).is_empty());
}

#[test]
fn an_agent_that_repeats_its_markers_for_ever_is_stopped() {
    let mut again = says("US-001", "[delegate:Implement JWT:4]");
    again["times"] = json!("forever");
    let project = Project::new(&one_story(), [again, done("Implement JWT")]);
    let out = project.story(&[]);
    assert_eq!(out.code, 3, "{out}");
    let ended = project.events(&project.rig().only_run(), "ended");
    assert!(ended.iter().any(|it| it["reason"]["code"] == "LOOP_DETECTED"), "{ended:#?}");
    assert_eq!(project.entry("US-001")["passes"], false);
}
