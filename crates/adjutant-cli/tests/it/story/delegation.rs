//! The eight integration scenarios of bounded delegation, each a story in a repository of its own.

use serde_json::{Value, json};

use crate::support::project::{Project, calls, done, one_story, runs, says, writes};

/// The newest text, without the signs of a quotation.
fn last(mut texts: Vec<String>) -> String {
    texts.pop().unwrap().replace("\n>\n", "\n\n").replace("\n> ", "\n")
}

/// Checks the text of a refusal for the agent, in the journal and in JSON output.
#[track_caller]
fn assert_refused(project: &Project, json: &Value, who: &str, code: &str, text: &str) {
    let run = project.rig().only_run();
    let told = last(project.told(&run, who));
    assert!(told.contains(text) && told.contains(code), "{told}");
    let refused = project.events(&run, "refused");
    assert_eq!(refused.len(), 1, "{refused:#?}");
    let reason = &refused[0]["reason"];
    assert_eq!((&reason["code"], &reason["message"]), (&json!(code), &json!(text)));
    let errors = project.call(["errors", "--json"]).run();
    let written = json!(text).to_string();
    assert!(errors.stdout.contains(&written), "{errors}");
    assert!(json.to_string().contains(&written), "{json:#}");
}

#[test]
fn simple_delegation() {
    let turns = [
        says("US-001", "I hand it down.\n\n[delegate:Implement JWT:4]\n"),
        done("US-001"),
        writes("Implement JWT", "jwt", "a token\n"),
        done("Implement JWT"),
    ];
    let project = Project::new(&one_story(), turns);
    let before = project.own();
    let json = project.json(&[], 0);
    let run = project.rig().only_run();
    assert_eq!(project.own(), before, "the user's files are the user's");

    // The child's work is part of the story's work, and both reports show its outcome.
    assert_eq!(project.left(&run, "US-001", "jwt"), "a token");
    let told = last(project.told(&run, "US-001"));
    for words in
        ["### US-001-DEL-001 [Implement JWT] ✓", "added `jwt` +1 -0", "merged into your workspace"]
    {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(json["stories"][0]["children"][0]["id"], "US-001-DEL-001", "{json:#}");
    assert_eq!(json["stories"][0]["passes"], true, "{json:#}");

    let (story, child) = (project.entry("US-001"), project.entry("US-001-DEL-001"));
    assert_eq!(story["passes"], true);
    assert_eq!(story["adjutant"]["run"], run.as_str());
    assert_eq!(story["adjutant"]["children"][0]["files_changed"], json!(["jwt"]));
    let context = json!({
        "parent_story_id": "US-001", "depth": 1, "can_delegate": true, "max_delegations": 10,
    });
    assert_eq!(child["delegationContext"], context);
    assert_eq!((&child["passes"], &child["estimatedHours"]), (&json!(true), &json!(4)));
    // The branch exists, and one command merges it.
    let merged = project.call(["merge", &run]).run();
    assert_eq!(merged.code, 0, "{merged}");
    assert_eq!(project.repo.read("jwt"), "a token\n");
}

#[test]
fn two_level_delegation() {
    let turns = [
        says("US-001", "[delegate:Implement JWT:4]"),
        done("US-001"),
        writes("Implement JWT", "jwt", "a token\n"),
        says("Implement JWT", "It is to be checked.\n[delegate:Check JWT:1]"),
        done("Implement JWT"),
        runs("Check JWT", "cat jwt > seen; env | sort | grep -E 'DELEG|CONTEXT' > terms"),
        done("Check JWT"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    let depths: Vec<Value> =
        project.events(&run, "granted").iter().map(|grant| grant["depth"].clone()).collect();
    assert_eq!(depths, [1, 2]);
    let child = "US-001-DEL-001-DEL-001";
    assert_eq!(project.entry(child)["delegationContext"]["depth"], 2);
    assert_eq!(project.entry(child)["delegationContext"]["can_delegate"], false);
    // It started from the work of its parent so far, and its own work was merged up both levels.
    assert_eq!(project.left(&run, "US-001", "seen"), "a token");
    assert_eq!(
        project.left(&run, "US-001", "terms"),
        "DELEGATION_DEPTH=2\nDELEGATION_TIMEOUT_SECONDS=1800\nENABLE_DELEGATION=true\n\
         MAX_CONTEXT_PER_AGENT=100000\nMAX_DELEGATIONS_PER_STORY=10\nMAX_DELEGATION_DEPTH=2\n\
         MAX_PARALLEL_DELEGATIONS=3"
    );
    let tree = project.call(["tree", &run]).run();
    assert!(tree.stdout.contains(&format!("   └─ #2 {child} [Check JWT] ✓")), "{tree}");
}

/// A chain of markers that goes one level deeper than two.
fn too_deep() -> [Value; 7] {
    [
        says("US-001", "[delegate:One:1]"),
        done("US-001"),
        says("One", "[delegate:Two:1]"),
        done("One"),
        says("Two", "[delegate:Implement advanced caching layer:1]"),
        done("Two"),
        done("Implement advanced caching layer"),
    ]
}

#[test]
fn depth_limit_rejection() {
    let project = Project::new(&one_story(), too_deep());
    let json = project.json(&[], 0);
    let run = project.rig().only_run();
    let text = "ERROR: Delegation depth limit (2) reached. Cannot delegate further.\n\n\
                Current depth: 2\n\
                Attempted delegation: Implement advanced caching layer\n\
                Suggestion: Complete this task at current level or simplify.";
    assert_refused(&project, &json, "Two", "MAX_DEPTH_EXCEEDED", text);
    assert_eq!(project.events(&run, "granted").len(), 2);

    // The third level can be configured, the fourth cannot.
    let deeper = Project::new(&one_story(), too_deep());
    let out = deeper.story(&["--set", "max_depth=3"]);
    assert_eq!(out.code, 0, "{out}");
    let run = deeper.rig().only_run();
    let id = "US-001-DEL-001-DEL-001-DEL-001";
    assert_eq!(deeper.entry(id)["delegationContext"]["depth"], 3);
    assert_eq!(deeper.events(&run, "granted").len(), 3);
    let out = deeper.story(&["--set", "max_depth=4"]);
    assert_eq!(out.code, 2, "{out}");
}

#[test]
fn a_cycle_by_description_shows_the_descriptions() {
    let turns = [
        says("US-001", "[delegate:Write the tests:1]"),
        done("US-001"),
        says("Write the tests", "[delegate:Write the tests:1]"),
        done("Write the tests"),
    ];
    let project = Project::new(&one_story(), turns);
    let json = project.json(&[], 0);
    let text = "ERROR: Delegation cycle detected. Cannot delegate to avoid infinite loop.\n\n\
                Cycle path: US-001 → US-001-DEL-001 (Write the tests) → \
                US-001-DEL-001-DEL-001 (Write the tests) (attempted)\n\n\
                This would create an infinite delegation loop.";
    assert_refused(&project, &json, "Write the tests", "CYCLE_DETECTED", text);
}

#[test]
fn cycle_rejection() {
    let turns = [
        says("US-001", "[delegate:Log in:1]"),
        done("US-001"),
        says("Log in", "[delegate:US-001:1]"),
        done("Log in"),
    ];
    let project = Project::new(&one_story(), turns);
    let json = project.json(&[], 0);
    let text = "ERROR: Delegation cycle detected. Cannot delegate to avoid infinite loop.\n\n\
                Cycle path: US-001 → US-001-DEL-001 → US-001 (attempted)\n\n\
                This would create an infinite delegation loop.";
    assert_refused(&project, &json, "Log in", "CYCLE_DETECTED", text);
    assert_eq!(project.entry("US-001")["passes"], true);
}

#[test]
fn a_story_of_the_prd_cannot_be_delegated_by_another_story() {
    let verify = "test -e out";
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "passes": false },
        { "id": "US-002", "title": "Log out", "verify": verify, "passes": false },
    ] });
    for asks in [
        says("US-001", "[delegate:US-002:1]"),
        calls("US-001", "Task", &json!({ "agent": "general", "prompt": "US-002" })),
        calls(
            "US-001",
            "Delegate",
            &json!({ "tasks": [{ "label": "other", "prompt": " US-002 " }] }),
        ),
    ] {
        let turns = [asks.clone(), done("US-001"), writes("US-002", "out", "x\n"), done("US-002")];
        let project = Project::new(&prd, turns);
        let json = project.json(&["--trust-prd"], 0);
        let runs = project.rig().runs();
        assert_eq!(runs.len(), 2, "{asks}");
        let granted: usize = runs.iter().map(|run| project.events(run, "granted").len()).sum();
        assert_eq!(granted, 0, "{asks}: its own run is the only one on it");
        let checked: Vec<_> = runs.iter().flat_map(|run| project.events(run, "checked")).collect();
        assert_eq!(checked.len(), 1, "{asks}: it passes by its own command");
        assert_eq!(project.entry("US-002")["passes"], true, "{json:#}");
        let refused: Vec<_> = runs.iter().flat_map(|run| project.events(run, "refused")).collect();
        assert_eq!(refused.len(), 1, "{asks}");
        assert_eq!(refused[0]["reason"]["code"], "VALIDATION_FAILED", "{asks}");
    }
}

#[test]
fn context_budget_rejection() {
    let task = "x".repeat(200_000);
    let turns = [
        json!({
            "label": "US-001", "text": format!("[delegate:{task}:1]"),
            "usage": { "input": 5_000, "output": 50_000 },
        }),
        done("US-001"),
        done(&task[..32]),
    ];
    let project = Project::new(&one_story(), turns.clone());
    let json = project.json(&[], 0);
    // The context is the 5,000 tokens of the request and the answer of 200,013 characters, four to a
    // token; 5,000 of the estimate stand for what the child reads.
    let text = "ERROR: Agent context budget (100k tokens) exceeded. Simplify subtask.\n\n\
                Current context: 55,004 tokens\n\
                Subtask estimate: 55,000 tokens\n\
                Total would be: 110,004 tokens\n\
                Maximum allowed: 100,000 tokens\n\n\
                Suggestion: Break subtask into smaller pieces or reduce parent context.";
    assert_refused(&project, &json, "US-001", "CONTEXT_BUDGET_EXCEEDED", text);

    // The maximum is inclusive: with exactly that much it is granted, with one token less it is not.
    for (tokens, granted) in [(110_003, 0), (110_004, 1)] {
        let project = Project::new(&one_story(), turns.clone());
        let out = project.story(&["--set", &format!("context_tokens={tokens}")]);
        let run = project.rig().only_run();
        assert_eq!(project.events(&run, "granted").len(), granted, "{tokens}: {out}");
    }
}

#[test]
fn parallel_delegation() {
    let names = ["Implement JWT", "Create UI", "Write tests"];
    let markers = names.map(|name| format!("[delegate:{name}:1]")).join("\n");
    let work = |name: &str| [writes(name, &name.replace(' ', "-"), "x\n"), done(name)];
    let mut turns = vec![says("US-001", &markers), done("US-001")];
    turns.extend(names.iter().flat_map(|name| work(name)));
    let project = Project::with_script(&one_story(), &json!({ "delay_ms": 100, "turn": turns }));
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert_eq!(most_at_once(&project.rig().events(&run)), 3);
    let files = project.files(&run, "US-001");
    for name in names {
        assert!(files.contains(&name.replace(' ', "-")), "{files:?}");
    }
    let ids: Vec<String> = (1..=3).map(|n| format!("US-001-DEL-00{n}")).collect();
    assert!(ids.iter().all(|id| project.entry(id)["passes"] == true), "{:#}", project.prd());

    // A PRD may ask for one at a time.
    let prd = json!({
        "delegationConfig": { "allow_parallel_execution": false },
        "userStories": [{ "id": "US-001", "title": "Log in", "passes": false }],
    });
    let project = Project::new(&prd, turns);
    assert_eq!(project.story(&[]).code, 0);
    assert_eq!(most_at_once(&project.rig().events(&project.rig().only_run())), 1);
}

/// The most children that were at work at the same time, as the journal says.
fn most_at_once(events: &[Value]) -> usize {
    let root = events[0]["run"].as_str().unwrap().replacen("run_", "sess_", 1);
    let (mut now, mut most) = (0, 0);
    for event in events.iter().filter(|event| event["session"] != root.as_str()) {
        match event["type"].as_str() {
            Some("started") => now += 1,
            Some("ended") => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    most
}

#[test]
fn cost_attribution_across_the_hierarchy() {
    let usage = |mut turn: Value, input: u64, output: u64, read: u64| {
        turn["usage"] = json!({
            "input": input, "output": output, "cache_read": read, "cache_write": 10 });
        turn
    };
    let script = json!({
        "price": { "input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75 },
        "turn": [
            usage(says("US-001", "[delegate:One:1]\n[delegate:Two:1]"), 1_000, 100, 0),
            usage(done("US-001"), 2_000, 200, 500),
            usage(says("One", "[delegate:Three:1]"), 3_000, 300, 7),
            usage(done("One"), 4_000, 400, 0),
            usage(done("Two"), 5_000, 500, 1_234),
            usage(done("Three"), 6_000, 600, 99),
        ],
    });
    let project = Project::with_script(&one_story(), &script);
    let json = project.json(&[], 0);
    let run = project.rig().only_run();
    let events = project.rig().events(&run);
    let all = ["US-001", "One", "Two", "Three"];
    let sessions = all.map(|who| (who, project.session(&run, who)));
    let sum = |of: &[&str], field: &str| -> u64 {
        let is_of = |event: &&Value| {
            sessions.iter().any(|(who, own)| of.contains(who) && event["session"] == own.as_str())
        };
        let own = events.iter().filter(is_of);
        own.filter_map(|event| event.pointer(&format!("/settlement/usage/{field}"))?.as_u64()).sum()
    };
    // Prices are per million tokens, so a token costs as many micro-dollars as the price says.
    let cost = |of: &[&str]| -> f64 {
        let micro =
            |field: &str, price: f64| f64::from(u32::try_from(sum(of, field)).unwrap()) * price;
        (micro("input", 3.0)
            + micro("output", 15.0)
            + micro("cache_read", 0.3)
            + micro("cache_write", 3.75))
            / 1_000_000.0
    };
    let trees: [(&str, &str, &[&str]); 4] = [
        ("US-001", "US-001", &all),
        ("One", "US-001-DEL-001", &["One", "Three"]),
        ("Two", "US-001-DEL-002", &["Two"]),
        ("Three", "US-001-DEL-001-DEL-001", &["Three"]),
    ];
    assert_eq!(sum(&all, "output"), 2_100, "the script's own numbers are in the journal");
    assert_eq!(sum(&all, "cache_read"), 1_840);
    let costs = project.call(["cost", &run, "--json"]).run().json();
    let jsonl = project.call(["log", &run, "--delegations"]).run();
    let is = |value: &Value, wanted: f64, what: &str| {
        let found = value.as_f64().unwrap_or_else(|| panic!("{what}: {value}"));
        assert!((found - wanted).abs() < 1e-9, "{what}: {found} is not {wanted}");
    };
    let story = project.entry("US-001");
    for (who, id, below) in trees {
        let node = costs["nodes"].as_array().unwrap().iter().find(|it| it["label"] == who).unwrap();
        is(&node["inclusive"]["cost_usd"], cost(below), who);
        is(&node["own"]["cost_usd"], cost(&[who]), who);
        assert_eq!(node["inclusive"]["usage"]["cache_read"], sum(below, "cache_read"), "{who}");
        let tokens_in = ["input", "cache_read", "cache_write"].map(|it| sum(below, it));
        let tokens_in: u64 = tokens_in.iter().sum();
        let record = if id == "US-001" {
            &story["adjutant"]
        } else {
            let children = story["adjutant"]["children"].as_array().unwrap();
            children.iter().find(|child| child["id"] == id).unwrap()
        };
        is(&record["cost_usd"], cost(below), id);
        assert_eq!(record["tokens_in"], tokens_in, "{id}");
        assert_eq!(record["tokens_out"], sum(below, "output"), "{id}");
        let Some(ended) =
            jsonl.lines().find(|it| it["child_story"] == id && it["status"] == "completed")
        else {
            assert_eq!(id, "US-001", "{jsonl}");
            continue;
        };
        // A line is about one agent alone, so that the lines of a run add up to its cost.
        let tokens_in = ["input", "cache_read", "cache_write"].map(|it| sum(&[who], it));
        assert_eq!(ended["tokens_out"], sum(&[who], "output"), "{id}: {ended}");
        assert_eq!(ended["tokens_in"], tokens_in.iter().sum::<u64>(), "{id}: {ended}");
        is(&ended["cost_usd"], cost(&[who]), id);
    }
    let tree = project.call(["tree", &run, "--json"]).run().json();
    is(&tree["root"]["inclusive"]["cost_usd"], cost(&all), "tree");
    is(&json["stories"][0]["inclusive"]["cost_usd"], cost(&all), "report");
    is(&json["stories"][0]["own"]["cost_usd"], cost(&["US-001"]), "report");
}

#[test]
fn failure_handling() {
    let turns = [
        says("US-001", "[delegate:Implement JWT:1]\n[delegate:Create UI:1]"),
        writes("US-001", "note", "the tokens are for later\n"),
        done("US-001"),
        writes("Implement JWT", "jwt", "half a token\n"),
        json!({ "label": "Implement JWT", "error": "bad_request", "message": "no such thing" }),
        writes("Create UI", "ui", "a form\n"),
        done("Create UI"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    let run = project.rig().only_run();
    let told = last(project.told(&run, "US-001"));
    assert!(told.contains("US-001-DEL-001 [Implement JWT] ✗"), "{told}");
    assert!(told.contains("no such thing"), "{told}");
    // The parent continued with the work of the successful child and without that of the failed one.
    let files = project.files(&run, "US-001");
    assert!(files.contains(&"ui".to_owned()) && files.contains(&"note".to_owned()), "{files:?}");
    assert!(!files.contains(&"jwt".to_owned()), "{files:?}");
    assert_eq!(project.left(&run, "Implement JWT", "jwt"), "half a token");
    assert_eq!(project.entry("US-001-DEL-001")["passes"], false);
    assert_eq!(project.entry("US-001-DEL-002")["passes"], true);
    assert_eq!(project.entry("US-001")["passes"], true, "{out}");
    assert_eq!(out.code, 0, "{out}");
    assert!(told.contains(&project.session(&run, "Implement JWT")), "{told}");
}

#[test]
fn tools_delegate_in_stories_too() {
    let tasks = json!({ "tasks": [{ "label": "Implement JWT", "prompt": "Implement JWT" }] });
    let turns = [
        calls("US-001", "Delegate", &tasks),
        says("US-001", "[delegate:Create UI:1]"),
        done("US-001"),
        writes("Implement JWT", "jwt", "a token\n"),
        done("Implement JWT"),
        writes("Create UI", "ui", "a form\n"),
        done("Create UI"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert_eq!(project.left(&run, "US-001", "jwt"), "a token");
    assert_eq!(project.left(&run, "US-001", "ui"), "a form");
    // Child numbers belong to the parent, whichever way it delegated.
    assert_eq!(project.entry("US-001-DEL-001")["title"], "Implement JWT");
    assert_eq!(project.entry("US-001-DEL-002")["title"], "Create UI");
}
