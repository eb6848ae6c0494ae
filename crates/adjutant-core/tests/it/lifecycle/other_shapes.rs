//! Part of `lifecycle`: calls in the shapes of other products. Everything judges what they are read as.

use adjutant_core::{
    ContentChange, ResumeOptions, Rights, TranslatedCall, WriteFinding, WriteIntent,
};

use super::*;

const PATCH: &str =
    "*** Begin Patch\n*** Update File: a\n-x\n+y\n*** Add File: b\n+z\n*** End Patch";

fn writer(settings: &[&str]) -> (Sim, SessionId) {
    let settings = [&["approval=none", "contract=report"][..], settings].concat();
    let mut sim = Sim::new(policy(Preset::Command, &settings));
    let child = sim.child(about("x"));
    (sim, child)
}

fn refusals(events: &[Event]) -> Vec<&str> {
    let refused = events.iter().filter_map(|event| match event {
        Event::ToolRefused { text, .. } => Some(text.as_str()),
        _ => None,
    });
    refused.collect()
}

#[test]
fn the_journal_keeps_what_the_model_wrote_and_what_it_was_read_as() {
    let (mut sim, child) = one(&[]);
    let made = tool("1", "read_file", json!({"target_file": "a", "explanation": "look"}));
    let events = sim.call(child, vec![made.clone()]);
    let recorded = events.iter().find_map(|event| match event {
        Event::Replied { tool_calls, translations, .. } => Some((tool_calls, translations)),
        _ => None,
    });
    let (calls, translations) = recorded.unwrap();
    assert_eq!(calls, &[made]);
    let read = TranslatedCall::RunAs {
        tool: "Read".into(),
        arguments: json!({"file_path": "a"}),
        remarks: vec!["ignored: `explanation`".into()],
    };
    assert_eq!((translations[0].call, &translations[0].reading), (0, &read));
    let effect = sim.effects.iter().find_map(|effect| match effect {
        Effect::Tool { call, .. } => Some((call.name.as_str(), &call.arguments)),
        _ => None,
    });
    assert_eq!(effect, Some(("Read", &json!({"file_path": "a"}))));
    sim.output(child, 0, "1\tx\n");
    assert!(sim.log.iter().any(|(_, event)| matches!(
        event,
        Event::ToolReturned { output, .. } if output.content == "1\tx\n[ignored: `explanation`]"
    )));
    let mut talk = Conversation::default();
    let own = sim.log.iter().filter(|(_, event)| event.conversation() == Some(child));
    own.for_each(|(_, event)| talk.apply(event));
    let said = format!("{:?}", talk.messages());
    assert!(said.contains("read_file") && said.contains("target_file"), "{said}");
}

#[test]
fn an_alias_gives_no_right_and_its_refusal_names_the_limit() {
    let (mut sim, child) = one(&[]);
    let calls = vec![
        tool("1", "Bash", json!({"command": "ls"})),
        tool("2", "apply_patch", json!({"input": PATCH})),
        tool("3", "write_file", json!({"file_path": "a", "content": "x"})),
        tool("4", "shell", json!({"command": ["ls"], "with_escalated_permissions": true})),
        tool("5", "task", json!({"prompt": "x"})),
        tool("6", "TodoWrite", json!({"todos": []})),
    ];
    let events = sim.call(child, calls);
    insta::assert_snapshot!(refusals(&events).join("\n"), @r"
    Not run: `Bash` is `Run` here. `Run` needs a workspace of your own, which you do not have. Available: Glob, Grep, Note, Read.
    Not run: `apply_patch` is `Edit` here. `Edit` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: `write_file` is `Write` here. `Write` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: `with_escalated_permissions` is not possible: the limits of the sandbox hold for every command; leave it out, and say in your report what a person would have to allow.
    Not run: `task` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: `TodoWrite` is not available here; keep the plan in your answers, and findings with Note.
    ");
}

#[test]
fn a_patch_needs_the_tools_of_all_its_files() {
    let patch = || tool("1", "apply_patch", json!({"input": PATCH}));
    let (mut sim, child) = writer(&[r#"tools=["Edit","Read"]"#]);
    let events = sim.call(child, vec![patch()]);
    assert!(refusals(&events)[0].contains("`apply_patch` is `Write` here"), "{events:?}");
    let (mut sim, child) = writer(&[r#"tools=["Edit","Read","Write"]"#]);
    let events = sim.call(child, vec![patch()]);
    assert_eq!(refusals(&events), Vec::<&str>::new());
    assert!(
        matches!(sim.effects.last(), Some(Effect::PrepareWrite { call, .. }) if call.name == "Edit")
    );
}

#[test]
fn an_interrupted_patch_is_judged_file_by_file() {
    let change = |path: &str| ContentChange {
        path: path.into(),
        before: Some("before".into()),
        after: Some("after".into()),
    };
    let (mut sim, child) = writer(&[]);
    sim.call(child, vec![tool("1", "apply_patch", json!({"input": PATCH}))]);
    let intent = WriteIntent::of(vec![change("a"), change("b")]).unwrap();
    sim.submit(Command::PrepareWrite { session: child, turn: 1, call: 0, intent }).unwrap();
    let looked = vec![WriteFinding::Applied, WriteFinding::NotApplied];
    let rights = Rights::of(sim.tree.policy());
    let write_findings = [((child, 0), looked)].into_iter().collect();
    sim.restart(ResumeOptions { rights, write_findings, ..ResumeOptions::default() });
    let told = sim.log.iter().find_map(|(_, event)| match event {
        Event::ToolReturned { output, .. } => Some(output.clone()),
        _ => None,
    });
    let told = told.unwrap();
    assert_eq!((told.is_error, &told.touched[..]), (true, &["a".to_owned()][..]));
    assert!(told.content.contains("`a` has the content you wanted"), "{}", told.content);
    assert!(told.content.contains("`b` is unchanged"), "{}", told.content);
    assert!(!sim.effects.iter().any(|effect| matches!(effect, Effect::Write { .. })));
    let changed: Vec<_> = sim.node(child).changed().iter().map(String::as_str).collect();
    assert_eq!(changed, ["a"]);
}

#[test]
fn one_call_in_several_spellings_is_a_loop() {
    let (mut sim, child) = one(&[]);
    let names = ["path", "file_path", "filePath", "target_file", "absolute_path"];
    let ran = (0..LOOP_TOLD).map(|nth| {
        let name = if nth % 2 == 0 { "read_file" } else { "view" };
        turn(&mut sim, child, tool("1", name, json!({ (names[nth % names.len()]): "a" })))
    });
    let ran: Vec<bool> = ran.collect();
    assert_eq!(ran.iter().filter(|ran| **ran).count(), LOOP_TOLD - 1, "{ran:?}");
}
