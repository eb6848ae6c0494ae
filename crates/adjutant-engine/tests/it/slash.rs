//! Slash commands: finding and parsing their files, and choosing their agents.
#![expect(clippy::unwrap_used, reason = "a place that cannot be made fails the test")]

use std::fs;
use std::os::unix::fs::symlink;

use adjutant_core::assignment::TaskDetails;
use adjutant_core::{Policy, Preset};
use adjutant_engine::AgentRole;
use adjutant_engine::roster::{AgentRoster, DefinitionScope, UserFolders, find_agents};
use adjutant_engine::slash::{
    ConfiguredRoutes, PrepareContext, PreparedCommand, SlashCommand, SlashCommands, TaskEntry,
    TaskLookup, builtin_agents, find_commands, user_folders,
};
use adjutant_formats::contract::ArtifactKind;
use tempfile::TempDir;

/// A project directory and a home directory.
struct ProjectAndHome(TempDir);

impl ProjectAndHome {
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        fs::create_dir(place.0.path().join("work")).unwrap();
        fs::create_dir(place.0.path().join("home")).unwrap();
        place
    }

    /// Writes a file below `work/` or `home/`.
    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn book(&self) -> SlashCommands {
        let home = self.0.path().join("home");
        let user = user_folders(Some(&home), Some(&home.join(".config")));
        find_commands(&self.0.path().join("work"), &user).unwrap()
    }

    fn roster(&self) -> AgentRoster {
        let none = UserFolders::default();
        let mut roster = find_agents(&self.0.path().join("work"), &none).unwrap();
        roster.agents.extend(builtin_agents(&roster.agents));
        roster
    }

    /// Formats everything that is not built in, one line each.
    fn shown(&self) -> String {
        let book = self.book();
        let files =
            book.commands.iter().filter(|it| it.definition.scope != DefinitionScope::BuiltIn);
        let mut lines: Vec<String> = files.map(summary).collect();
        lines.extend(book.shadowed.iter().map(|it| format!("shadowed {} by {}", it.file, it.by)));
        lines.extend(book.problems.iter().map(|it| format!("problem {}: {}", it.file, it.reason)));
        lines.join("\n").replace(&self.0.path().display().to_string(), "$PLACE")
    }

    /// Prepares a typed command and formats the result.
    fn typed(
        &self,
        text: &str,
        routes: &[(&str, &str, &str)],
        look: &dyn Fn(u64) -> TaskLookup,
    ) -> String {
        match self.prepared(text, routes, look) {
            Ok(prepared) => {
                let route = prepared.route.as_ref();
                let to =
                    route.map_or("itself".into(), |it| format!("{} by {}", it.agent, it.because));
                let tasks: Vec<String> =
                    prepared.arguments.tasks.iter().map(u64::to_string).collect();
                let about = match tasks.as_slice() {
                    [] => format!("Command: /{}", prepared.definition.name),
                    tasks => format!("Task: {}", tasks.join(", ")),
                };
                [vec![format!("{about}: {to}")], prepared.remarks].concat().join("\n")
            }
            Err(error) => error,
        }
    }

    fn prepared(
        &self,
        text: &str,
        routes: &[(&str, &str, &str)],
        look: &dyn Fn(u64) -> TaskLookup,
    ) -> Result<PreparedCommand, String> {
        let (book, roster) = (self.book(), self.roster());
        let mut own = ConfiguredRoutes::default();
        for (command, language, agent) in routes {
            own.0.entry((*command).into()).or_default().insert((*language).into(), (*agent).into());
        }
        let around = PrepareContext { roster: &roster, routes: &own, agent: None, tasks: look };
        let (command, rest) = book.recognise(text).map_err(|error| error.to_string())?.unwrap();
        book.prepare(command, rest, &around).map_err(|error| error.to_string())
    }
}

fn summary(command: &SlashCommand) -> String {
    let it = &command.definition;
    let policy = Policy { network: true, ..Preset::Story.policy() };
    let role = AgentRole::of(it.clone(), &policy, None, &[]);
    let mut line = format!(
        "{} [{}] {} {:?}",
        command.usage(),
        command.form.as_str(),
        it.file,
        command.operation()
    );
    if it.tools.allowed.is_some() {
        line += &format!(" tools={}", role.rights.tools);
    }
    if let Some(timeout) = it.limits.timeout_s {
        line += &format!(" {timeout} s");
    }
    if let Some(ceiling) = &it.ceiling {
        line += &format!(" under {ceiling}");
    }
    for ignored in &it.ignored {
        line += &format!("\n  {ignored}");
    }
    line
}

fn in_language(language: &'static str) -> impl Fn(u64) -> TaskLookup {
    move |number| {
        TaskLookup::Found(TaskEntry {
            status: None,
            number,
            text: format!("### {number}. Prove it"),
            language: Some(language.to_owned()),
            file: "TODO.md".to_owned(),
            remarks: Vec::new(),
            facts: TaskDetails {
                number,
                folder: Some(format!("specs/{number}_prove_it")),
                ..TaskDetails::default()
            },
        })
    }
}

const fn no_list(_: u64) -> TaskLookup {
    TaskLookup::NoList
}

#[test]
fn commands_are_found_in_all_folders() {
    let place = ProjectAndHome::new()
        .file("work/.claude/commands/fix.md", "Fix issue $ARGUMENTS.")
        .file(
            "work/.claude/commands/front/test.md",
            "---\nargument-hint: [topic] [count]\n---\nTest.",
        )
        .file("work/.opencode/command/plan.md", "---\nagent: orchestrator\n---\nPlan $1.")
        .file("work/.opencode/commands/deep/er/look.md", "Look.")
        .file("work/.adjutant/commands/fix.md", "Another fix.")
        .file("work/.claude/commands/notes.txt", "No command.")
        .file("home/.claude/commands/mine.md", "---\ndescription: Mine.\n---\nDo it.")
        .file("home/.config/opencode/command/theirs.md", "Do it.")
        .file("home/.config/adjutant/commands/ours.md", "Do it.");
    insta::assert_snapshot!(place.shown(), @"
    /fix [free] .claude/commands/fix.md Unknown
    /front:test [topic] [count] [free] .claude/commands/front/test.md Unknown
    /plan N [PROMPT] [task] .opencode/command/plan.md Plan
    /deep/er/look [free] .opencode/commands/deep/er/look.md Unknown
    /mine [free] $PLACE/home/.claude/commands/mine.md Unknown
    /theirs [free] $PLACE/home/.config/opencode/command/theirs.md Unknown
    /ours [free] $PLACE/home/.config/adjutant/commands/ours.md Unknown
    shadowed .adjutant/commands/fix.md by .claude/commands/fix.md
    shadowed built-in by .opencode/command/plan.md
    ");
    let book = place.book();
    assert_eq!(book.find("/front/test").unwrap().name(), "front:test");
    assert_eq!(book.find("FIX").unwrap().definition.description, "Fix issue $ARGUMENTS.");
    assert_eq!(
        book.find("plna").unwrap_err().to_string(),
        "there is no command `/plna`, did you mean `/plan`?"
    );
}

#[test]
fn ignored_keys_of_command_files_are_reported() {
    let place = ProjectAndHome::new()
        .file(
            "work/.claude/commands/a.md",
            "---\nallowed-tools: Read, Bash(git:*)\nhooks: {}\nargument-hnt: x\ncontext_level: 2\n\
             context_loading: {strategy: lazy}\ntimeout: 9999\nadjutant: {operation: implement, arguments: words}\n---\n\
             Look at @src/main.rs and !`git status`.",
        )
        .file(
            "work/.opencode/command/implement.md",
            "---\nname: implement\nagent: orchestrator\ndescription: Does it.\nlanguage: varies\n\
             routing:\n  language_based: true\n  lean: lean-implementation-agent\n  default: implementer\n\
             timeout: 7200\nadjutant: {arguments: task}\n---\nDo $ARGUMENTS.",
        )
        .file("home/.claude/commands/slow.md", "---\ntimeout: 7000\nroutng: x\n---\nSlowly.");
    insta::assert_snapshot!(place.shown(), @"
    /a [free] .claude/commands/a.md Unknown tools=Note, Read 3600 s
      `adjutant.arguments` must be one of free, text, task, tasks, not `words`
      `Bash(git:*)`: a tool cannot be given in part, so it is left out
      `context_loading.strategy`: only `required`, `data_files` and `index` are used
      `adjutant.operation`: a project's file cannot give itself time
      `timeout`: 9999 s is cut to 3600 s
      `argument-hnt`: unknown, did you mean `argument-hint`?
      `context_level`: not used
      `hooks`: a file cannot grant this
      `!`git status``: nothing is executed, it is left as text
      `@src/main.rs`: no file is included, it is left as text
    /implement [task] .opencode/command/implement.md Implement 7200 s
    /slow [free] $PLACE/home/.claude/commands/slow.md Unknown 7000 s
      `routng`: unknown, did you mean `routing`?
    shadowed built-in by .opencode/command/implement.md
    ");
}

#[test]
fn unusable_command_file_does_not_affect_others() {
    let place = ProjectAndHome::new()
        .file("work/.claude/commands/plan.md", "---\nallowed-tools: [Read\n---\nx")
        .file("work/.claude/commands/empty.md", "---\ndescription: x\n---\n  ")
        .file("work/.claude/commands/open.md", "---\ndescription: x\n")
        .file("work/.claude/commands/alias.md", "---\na: &a x\nb: *a\n---\nx")
        .file("work/.claude/commands/two words.md", "x")
        .file("work/.claude/commands/lead.md", "x")
        .file("work/.claude/commands/big.md", &"x".repeat(300 << 10))
        .file("work/.claude/commands/good.md", "Good.")
        .file("work/.claude/commands/mine.md", "---\nallowed-tools: Read, Write\n---\nTheirs.")
        .file("work/.claude/commands/gone.md", "Theirs.")
        .file("home/.claude/commands/mine.md", "---\nallowed-tools: Read\ntimeout: 60\n---\nMine.")
        .file("home/.claude/commands/gone.md", "---\n")
        .file("home/secret.md", "Secret.");
    symlink("/etc/hostname", place.0.path().join("work/.claude/commands/link.md")).unwrap();
    insta::assert_snapshot!(place.shown(), @r"
    /good [free] .claude/commands/good.md Unknown
    /mine [free] .claude/commands/mine.md Unknown tools=Note, Read 60 s under $PLACE/home/.claude/commands/mine.md
      your own $PLACE/home/.claude/commands/mine.md does not permit Write
    shadowed $PLACE/home/.claude/commands/mine.md by .claude/commands/mine.md
    problem .claude/commands/alias.md: its YAML uses an alias in line 3; write the value out
    problem .claude/commands/big.md: it is larger than 256 KiB
    problem .claude/commands/empty.md: its body is empty
    problem .claude/commands/lead.md: its name `lead` belongs to Adjutant; give it another with `name`
    problem .claude/commands/link.md: it is a link that leads out of the project
    problem .claude/commands/open.md: its front matter has no end: a second line of --- is missing
    problem .claude/commands/plan.md: its YAML is broken: while parsing a flow sequence, expected ',' or ']' at byte 22 line 3 column 1
    problem .claude/commands/two words.md: its name `two words` holds a space; name it with -
    problem $PLACE/home/.claude/commands/gone.md: its front matter has no end: a second line of --- is missing
    problem .claude/commands/gone.md: $PLACE/home/.claude/commands/gone.md would limit it and cannot be used
    ");
    let broken = place.typed("/plan 12", &[], &no_list);
    assert!(
        broken.starts_with("/plan is described by .claude/commands/plan.md, which cannot be used"),
        "{broken}"
    );
}

#[test]
fn section_10_commands_are_routed_by_the_language_of_their_task() {
    let lean = "---\ndescription: Proves.\n---\nProve.";
    let place = ProjectAndHome::new()
        .file("work/.claude/agents/lean-planner.md", lean)
        .file("work/.claude/commands/solo.md", "Alone.")
        .file("work/.claude/commands/other.md", "---\nagent: reviewr\n---\nx")
        .file("work/.claude/commands/planner.md", "---\nagent: planner\n---\nx")
        .file(
            "work/.opencode/command/revise.md",
            "---\nrouting: {language_based: false, lean: lean-planner, target_agent: implementer}\n---\nx",
        );
    let (rust, proof) = (in_language("Rust"), in_language("Lean"));
    let gone = |_: u64| TaskLookup::Unknown { file: "TODO.md".to_owned() };
    let theirs = [("plan", "lean", "reviewer"), ("plan", "default", "researcher")];
    let none: &[(&str, &str, &str)] = &[];
    for (text, routes, look, expected) in [
        ("/plan 12", none, &rust as &dyn Fn(u64) -> TaskLookup, "Task: 12: planner by the command"),
        ("/plan 12", none, &proof, "Task: 12: lean-planner by its language lean"),
        (
            "/research 12",
            none,
            &proof,
            "Task: 12: researcher by the command\n\
             there is no agent `lean-research-agent`; `researcher` is used instead",
        ),
        ("/plan 12", none, &no_list, "Task 12 not found: the project has no tasks yet"),
        ("/plan 12", &theirs, &proof, "Task: 12: reviewer by your configuration"),
        ("/plan 12", &theirs, &rust, "Task: 12: researcher by your configuration"),
        ("/revise 12", none, &proof, "Task: 12: implementer by the command"),
        ("/implement 3,5-6", none, &rust, "Task: 3, 5, 6: implementer by the command"),
        ("/review src/", none, &no_list, "Command: /review: reviewer by the command"),
        ("/errors", none, &no_list, "Command: /errors: error-diagnostics-agent by the command"),
        ("/todo", none, &no_list, "Command: /todo: itself"),
        ("/solo", none, &no_list, "Command: /solo: itself"),
        (
            "/planner",
            none,
            &no_list,
            "Command: /planner: itself\n\
             the agent `planner` has the same name as the command and an agent cannot delegate to itself, so the \
             command's own agent does the work; rename one of them to use it",
        ),
        ("/plan 13", none, &gone, "Task 13 not found in TODO.md"),
    ] {
        assert_eq!(place.typed(text, routes, look), expected, "{text}");
    }
    let unknown = place.typed("/other", &[], &no_list);
    let expected = "/other (.claude/commands/other.md) delegates to `reviewr`, but there is no agent \
                    `reviewr`, did you mean `reviewer`?";
    assert!(unknown.starts_with(expected), "{unknown}");
}

#[test]
fn requirement_13_root_agent_gets_instructions_to_delegate() {
    let place = ProjectAndHome::new();
    let prepared = place.prepared("/plan 12 keep it small", &[], &in_language("rust")).unwrap();
    assert!(prepared.definition.prompt.starts_with("Plan the task: 12 keep it small\n"));
    let goal = prepared.goal(&Preset::Command.policy(), None, "a diff");
    assert_eq!(goal.agent.as_str(), "plan");
    insta::assert_snapshot!(goal.text, @r#"
    /plan 12 keep it small

    What the list of tasks says, quoted:

    <file path="TODO.md (task 12)">
    ### 12. Prove it
    </file>

    What was piped in, quoted:

    <file path="standard input">
    a diff
    </file>
    "#);
    for told in [
        "Task: 12.",
        "Language: rust.",
        "to the agent `planner`",
        "The line `Task: N` is put before its prompt for you",
        "Everything written for task 12 belongs in the folder `specs/12_prove_it`.",
    ] {
        assert!(goal.system.contains(told), "{told}: {}", goal.system);
    }
}

#[test]
fn context_loading_files_are_passed_to_the_agent() {
    let place = ProjectAndHome::new()
        .file(
            "work/.opencode/command/plan.md",
            "---\ncontext_loading:\n  strategy: lazy\n  index: .opencode/context/index.md\n  required:\n    \
             - core/plan.md\n    - .opencode/context/core/plan.md\n    - docs/style.md\n  data_files:\n    \
             - specs/state.json\n    - /etc/passwd\n---\nPlan $1.",
        )
        .file("work/.opencode/command/b.md", "---\ncontext_loading: {required: [a.md]}\n---\nx")
        .file("work/.opencode/command/c.md", "---\ncontext_loading: {required: a.md}\n---\nx")
        .file(
            "work/.opencode/command/d.md",
            "---\ncontext_loading: {data_files: [a, b, c, d, e, f, g, h, i, j, k, l]}\n---\nx",
        );
    let book = place.book();
    let context = |name: &str| {
        let command = book.find(name).unwrap();
        format!("{} {:?}", command.context.join(" "), command.definition.ignored)
    };
    insta::assert_snapshot!(["plan", "b", "c", "d"].map(context).join("\n"), @r#"
    .opencode/context/core/plan.md .opencode/context/docs/style.md specs/state.json /etc/passwd ["`context_loading.strategy`: only `required`, `data_files` and `index` are used"]
    a.md []
     ["`context_loading.required` must be an array, not a string"]
    a b c d e f g h i j ["`context_loading`: only the first 10 of 12 files are context"]
    "#);
    let prepared = place.prepared("/plan 12", &[], &in_language("rust")).unwrap();
    let assignment = prepared.assignment(&Preset::Command.policy());
    assert_eq!(assignment.context[0], ".opencode/context/core/plan.md");
    assert_eq!(assignment.facts[0].folder.as_deref(), Some("specs/12_prove_it"));
}

#[test]
fn requirement_28_built_in_command_sets_the_artifact_kind() {
    let place = ProjectAndHome::new().file("work/.opencode/command/revise.md", "Revise $1.");
    for (text, expected) in [
        ("/research 12", Some(ArtifactKind::Research)),
        ("/plan 12", Some(ArtifactKind::Plan)),
        ("/implement 12", Some(ArtifactKind::Implementation)),
        ("/review src", None),
        // The artifact kind of a command file is unknown.
        ("/revise 12", None),
    ] {
        let prepared = place.prepared(text, &[], &in_language("rust")).unwrap();
        let assignment = prepared.assignment(&Preset::Command.policy());
        assert_eq!(assignment.artifact_kind, expected, "{text}");
    }
    let prepared = ProjectAndHome::new().prepared("/revise 12", &[], &in_language("rust")).unwrap();
    let assignment = prepared.assignment(&Preset::Command.policy());
    assert_eq!(assignment.artifact_kind, Some(ArtifactKind::Plan));
}

#[test]
fn text_is_a_command_only_if_it_begins_with_one() {
    let book = ProjectAndHome::new().file("work/.opencode/command/a/b.md", "x").book();
    for (text, expected) in [
        ("/plan 12", Ok(Some(("plan", "12")))),
        ("/plan\n12\nand more", Ok(Some(("plan", "12\nand more")))),
        ("/a:b", Ok(Some(("a/b", "")))),
        ("/etc/hosts is strange", Ok(None)),
        (" /plan 12", Ok(None)),
        ("plan 12", Ok(None)),
        ("/", Ok(None)),
        ("//plan", Ok(None)),
        ("/ plan", Ok(None)),
        ("/a/c", Err(Some("a/b"))),
        ("/tmp is full", Err(None)),
        ("/plam 12", Err(Some("plan"))),
    ] {
        let found = book.recognise(text);
        let found =
            found.as_ref().map(|it| it.as_ref().map(|(command, rest)| (command.name(), *rest)));
        assert_eq!(found.map_err(|error| error.meant.as_deref()), expected, "{text}");
    }
}
