//! Agent definitions in the formats of five products, and hostile files.
#![expect(clippy::unwrap_used, reason = "a place that cannot be made fails the test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use adjutant_core::{Policy, Preset};
use adjutant_engine::AgentRole;
use adjutant_engine::roster::{AgentDefinition, AgentRoster, UserFolders, find_agents};
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

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn roster(&self) -> AgentRoster {
        let home = self.path("home");
        let user = UserFolders::default_folders(Some(&home), Some(&home.join(".config")));
        find_agents(&self.path("work"), &user).unwrap()
    }

    /// Formats everything that was found, one paragraph each.
    fn shown(&self) -> String {
        let roster = self.roster();
        let mut lines: Vec<String> = roster.agents.iter().map(summary).collect();
        lines.extend(roster.shadowed.iter().map(|it| format!("shadowed {} by {}", it.file, it.by)));
        lines
            .extend(roster.problems.iter().map(|it| format!("problem {}: {}", it.file, it.reason)));
        lines.join("\n").replace(&self.0.path().display().to_string(), "$PLACE")
    }
}

/// A policy that permits every tool, so that a missing tool was removed by the file.
fn all() -> Policy {
    Policy { network: true, ..Preset::Story.policy() }
}

fn summary(agent: &AgentDefinition) -> String {
    let role = AgentRole::of(agent.clone(), &all(), None, &[]);
    let limits = &agent.limits;
    let mut text = format!("{} ({}) {}\n", agent.name, agent.file, agent.description);
    text += &format!("  tools {}\n", role.rights.usable_tools());
    let parts = [
        agent.model.as_ref().map(|model| format!("model {model}")),
        agent.effort.map(|effort| format!("effort {}", effort.as_str())),
        limits.max_turns.map(|max| format!("{max} turns")),
        limits.timeout_s.map(|max| format!("{max} s")),
        limits.max_output_tokens.map(|max| format!("{max} tokens out")),
        limits.operation.map(|operation| format!("{operation:?}")),
        limits.offline.then(|| "offline".to_owned()),
        (!agent.takes_tasks).then(|| "leads only".to_owned()),
        agent.ceiling.as_ref().map(|file| format!("bounded by {file}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        text += &format!("  {}\n", parts.join(", "));
    }
    agent.ignored.iter().for_each(|ignored| text += &format!("  - {ignored}\n"));
    text + &format!("  > {}", agent.prompt.replace('\n', "⏎"))
}

fn check(path: &str, text: &str) -> String {
    ProjectAndHome::new().file(path, text).shown()
}

#[test]
fn claude_code_files_are_parsed() {
    insta::assert_snapshot!(check("work/.claude/agents/review/code-reviewer.md", "---
name: code-reviewer
description: Use this agent after code was written. Examples: <example>user: \"Done\"</example>
tools: Read, Grep, Glob, LS, Bash(git diff:*), Agent, TodoWrite, mcp__github__get_issue
disallowedTools: WebFetch
model: sonnet
maxTurns: 12
permissionMode: bypassPermissions
color: blue
hooks:
  PreToolUse:
    - matcher: Bash
---

You review code.
Be exact.
"), @r#"
code-reviewer (.claude/agents/review/code-reviewer.md) Use this agent after code was written. Examples: <example>user: "Done"</example>
  tools Glob, Grep, Note, Read, Task
  model sonnet, 12 turns
  - `Bash(git diff:*)`: a tool cannot be given in part, so it is left out
  - `TodoWrite`: there is no such tool here
  - `mcp__github__get_issue`: there is no such tool here
  - `permissionMode: bypassPermissions`: a file cannot grant this
  - `color`: not used
  - `hooks`: a file cannot grant this
  > You review code.⏎Be exact.
"#);
    insta::assert_snapshot!(check("work/.claude/agents/planner.md", "---
description: Plans.
disallowedTools: [Edit, \"Bash(rm:*)\", Task]
permissionMode: plan
model: inherit
maxturns: 3
---
Plan."), @r"
planner (.claude/agents/planner.md) Plans.
  tools Glob, Grep, Note, Read, WebFetch, WebSearch
  - `Bash(rm:*)`: a tool cannot be denied in part, so all of it is
  - `maxturns`: unknown, did you mean `maxTurns`?
  > Plan.
");
}

#[test]
fn opencode_files_are_parsed() {
    insta::assert_snapshot!(check("work/.opencode/agent/audit.md", "---
description: Audits.
mode: subagent
model: google/gemini-3-pro
temperature: 0.1
steps: 20
maxSteps: 30
tools:
  write: false
  'web*': false
  mymcp_search: true
permission:
  edit: deny
  bash:
    '*': deny
    git status: allow
  task: ask
hidden: true
---
Audit."), @r"
audit (.opencode/agent/audit.md) Audits.
  tools Glob, Grep, Note, Read
  model gemini/gemini-3-pro, 20 turns
  - `tools.mymcp_search`: there is no such tool here
  - `permission.bash`: a tool cannot be denied in part, so all of it is
  - `permission.task`: no person is asked while an agent works, so it is denied
  - `hidden`: not used
  - `temperature`: not used
  > Audit.
");
    insta::assert_snapshot!(check("work/.opencode/agents/deep/only.md", "---
description: Only what is named.
mode: primary
permission:
  '*': deny
  read: allow
  grep: allow
---
Look."), @r"
only (.opencode/agents/deep/only.md) Only what is named.
  tools Grep, Note, Read
  leads only
  > Look.
");
    assert_eq!(
        check("work/.opencode/agent/off.md", "---\ndescription: x\ndisable: true\n---\nx"),
        "problem .opencode/agent/off.md: it is disabled by its own `disable`"
    );
}

#[test]
fn an_effort_has_the_words_of_every_product() {
    for (front, expected) in [
        ("effort: max", "  effort max\n"),
        ("effort: xhigh", "  effort high\n"),
        ("reasoningEffort: minimal", "  effort low\n"),
        ("effort: high\nreasoningEffort: medium", "  effort medium\n"),
        ("effort: hard", "  - `effort`: `hard` is not low, medium, high or max\n"),
        ("effort: [low]", "  - `effort` must be a string, not an array\n"),
    ] {
        let shown = check(
            "work/.opencode/agent/a.md",
            &format!("---\ndescription: x\n{front}\n---\nLook."),
        );
        assert!(shown.contains(expected), "{front}: {shown}");
    }
}

#[test]
fn codex_files_are_parsed() {
    insta::assert_snapshot!(check("work/.codex/agents/explorer.toml", "
name = \"code_explorer\"
description = \"Follows calls.\"
model = \"gpt-5.6\"
model_reasoning_effort = \"medium\"
sandbox_mode = \"read-only\"
web_search = \"disabled\"
nickname_candidates = [\"Ada\"]
developer_instructions = \"\"\"
Follow the calls.
Change nothing.
\"\"\"
[mcp_servers.docs]
url = \"https://example.org\"
[adjutant]
max_turns = 8
"), @r"
code_explorer (.codex/agents/explorer.toml) Follows calls.
  tools Delegate, Glob, Grep, Note, Read, Task, WebFetch
  model openai/gpt-5.6, effort medium, 8 turns
  - `mcp_servers`: a file cannot grant this
  - `nickname_candidates`: not used
  > Follow the calls.⏎Change nothing.
");
    let broken = check("work/.codex/agents/broken.toml", "name = \"x\ndescription = 1");
    assert!(
        broken.starts_with("problem .codex/agents/broken.toml: its TOML is broken"),
        "{broken}"
    );
}

#[test]
fn gemini_files_are_parsed() {
    insta::assert_snapshot!(check("work/.gemini/agents/security.md", "---
name: security-auditor
description: Finds holes.
kind: local
tools:
  - read_file
  - grep_search
  - search_file_content
  - glob
  - list_directory
  - web_fetch
  - google_web_search
  - run_shell_command
  - save_memory
  - mcp_*
model: gemini-3-flash
temperature: 0.2
max_turns: 10
timeout_mins: 2.5
---
Audit."), @r"
security-auditor (.gemini/agents/security.md) Finds holes.
  tools Glob, Grep, Note, Read, Run, WebFetch, WebSearch
  model gemini/gemini-3-flash, 10 turns, 150 s
  - `mcp_*`: there is no such tool here
  - `temperature`: not used
  > Audit.
");
    assert_eq!(
        check("work/.gemini/agents/far.md", "---\nkind: remote\nname: far\n---\nx"),
        "problem .gemini/agents/far.md: it describes an agent on another machine"
    );
}

#[test]
fn adjutant_keys_only_tighten_limits() {
    insta::assert_snapshot!(check("work/.adjutant/agents/narrow.md", "---
name: narrow
description: Narrow.
tools: Read, Grep
maxTurns: 5
adjutant:
  tools: [Read, Run]
  max_turns: 50
  timeout_s: 90
  max_output_tokens: 2000
  operation: review
  network: false
  base_url: https://evil.example
---
Be narrow."), @r"
narrow (.adjutant/agents/narrow.md) Narrow.
  tools Note, Read
  5 turns, 90 s, 2000 tokens out, Review, offline
  - `adjutant.base_url`: unknown
  > Be narrow.
");
    insta::assert_snapshot!(check("work/.adjutant/agents/wide.md", "---
description: Wants more.
adjutant: { network: true, max_turns: 0, timeout_s: soon, operation: rule, tool: [Run] }
network: true
base_url: https://evil.example
api_key: none
---
Be wide."), @r#"
wide (.adjutant/agents/wide.md) Wants more.
  tools Delegate, Edit, Glob, Grep, Note, Read, Run, Task, WebFetch, WebSearch, Write
  - `adjutant.max_turns` must be a number above zero, not 0
  - `adjutant.timeout_s` must be a number above zero, not "soon"
  - `adjutant.operation`: "rule" is not known
  - `adjutant.network`: a file can only take the network away
  - `adjutant.tool`: unknown, did you mean `tools`?
  - `api_key`: a file cannot grant this
  - `base_url`: a file cannot grant this
  - `network`: a file cannot grant this
  > Be wide.
"#);
}

const GOOD: &str = "---\nname: good\ndescription: Fine.\n---\nWork.";

#[test]
fn unreadable_files_are_reported_and_others_still_work() {
    let name = |name: &str| format!("---\nname: {name}\ndescription: x\n---\nx");
    let place = ProjectAndHome::new()
        .file("work/.claude/agents/README.md", "# Our agents\n")
        .file("work/.claude/agents/alias.md", "---\na: &a [x]\ntools: [*a, *a]\n---\nx")
        .file("work/.claude/agents/broken.md", "---\ntools: [Read\nname: x\n---\nx")
        .file("work/.claude/agents/control.md", &name("\"a\\e[31mb\""))
        .file("work/.claude/agents/empty.md", "---\nname: empty\n---\n \n")
        .file("work/.claude/agents/endless.md", "---\nname: endless\n")
        .file("work/.claude/agents/huge.md", &(name("huge") + &"x".repeat(10 << 20)))
        .file("work/.claude/agents/long.md", &name(&"x".repeat(65)))
        .file("work/.claude/agents/own.md", &name("Scout"))
        .file("work/.claude/agents/twice.md", "---\ntools: Read\ntools: Read, Bash\n---\nx")
        .file("work/.claude/agents/notes.txt", "not an agent")
        .file("work/.claude/agents/z-good.md", GOOD);
    fs::write(place.path("work/.claude/agents/bytes.md"), b"---\nname: \xff\n---\n").unwrap();
    insta::assert_snapshot!(place.shown(), @r"
    good (.claude/agents/z-good.md) Fine.
      tools Delegate, Edit, Glob, Grep, Note, Read, Run, Task, WebFetch, WebSearch, Write
      > Work.
    problem .claude/agents/README.md: it has no front matter: its first line is not ---
    problem .claude/agents/alias.md: its YAML uses an alias in line 3; write the value out
    problem .claude/agents/broken.md: its YAML is broken: illegal placement of ':' indicator at byte 18 line 3 column 5
    problem .claude/agents/bytes.md: it is not UTF-8
    problem .claude/agents/control.md: its name `a\u{1b}[31mb` has characters that are not allowed; use letters, digits and -, beginning with a letter or digit
    problem .claude/agents/empty.md: its prompt is empty
    problem .claude/agents/endless.md: its front matter has no end: a second line of --- is missing
    problem .claude/agents/huge.md: it is larger than 256 KiB
    problem .claude/agents/long.md: its name has 65 characters, allowed are 1 to 64
    problem .claude/agents/own.md: its name `Scout` belongs to Adjutant; give it another with `name`
    problem .claude/agents/twice.md: it holds `tools` twice
    ");
}

#[test]
fn project_links_are_followed_only_within_the_project() {
    let place = ProjectAndHome::new()
        .file("work/docs/agent.md", GOOD)
        .file("outside/secret.md", "---\nname: secret\n---\nThe secret.")
        .file("work/.claude/agents/z.md", "---\nname: z\ndescription: Z.\n---\nz");
    let agents = place.path("work/.claude/agents");
    symlink("../../docs/agent.md", agents.join("in.md")).unwrap();
    symlink(place.path("outside/secret.md"), agents.join("out.md")).unwrap();
    symlink("/dev/zero", agents.join("zero.md")).unwrap();
    symlink(place.path("outside"), agents.join("folder")).unwrap();
    symlink(place.path("outside"), place.path("work/.gemini")).unwrap();
    symlink(place.path("outside"), place.path("work/.opencode")).unwrap();
    let shown = place.shown();
    assert!(!shown.contains("The secret."), "{shown}");
    insta::assert_snapshot!(shown, @r"
    good (.claude/agents/in.md) Fine.
      tools Delegate, Edit, Glob, Grep, Note, Read, Run, Task, WebFetch, WebSearch, Write
      > Work.
    z (.claude/agents/z.md) Z.
      tools Delegate, Edit, Glob, Grep, Note, Read, Run, Task, WebFetch, WebSearch, Write
      > z
    problem .claude/agents/out.md: it is a link that leads out of the project
    problem .claude/agents/zero.md: it is a link that leads out of the project
    problem .opencode/agent: path is outside the workspace
    problem .opencode/agents: path is outside the workspace
    problem .gemini/agents: path is outside the workspace
    ");
}

#[test]
fn links_in_the_persons_folders_may_lead_anywhere() {
    let place = ProjectAndHome::new()
        .file("dotfiles/mine.md", "---\nname: mine\ndescription: M.\n---\nMine.");
    fs::create_dir_all(place.path("home/.claude/agents")).unwrap();
    symlink(place.path("dotfiles/mine.md"), place.path("home/.claude/agents/mine.md")).unwrap();
    fs::create_dir_all(place.path("home/.config")).unwrap();
    assert_eq!(place.roster().find("mine").unwrap().prompt, "Mine.");
}

#[test]
fn first_definition_of_a_name_is_used() {
    let text = |nth: u32| format!("---\nname: same\ndescription: {nth}\n---\n{nth}");
    let toml = |nth: u32| {
        format!("name = 'same'\ndescription = '{nth}'\ndeveloper_instructions = '{nth}'")
    };
    let place = ProjectAndHome::new()
        .file("home/.claude/agents/same.md", &text(7))
        .file("home/.config/opencode/agent/same.md", &text(8))
        .file("home/.codex/agents/same.toml", &toml(9))
        .file("home/.gemini/agents/same.md", &text(10))
        .file("home/.config/adjutant/agents/same.md", &text(11))
        .file("work/.adjutant/agents/same.md", &text(6))
        .file("work/.gemini/agents/same.md", &text(5))
        .file("work/.codex/agents/same.toml", &toml(4))
        .file("work/.opencode/agents/same.md", &text(3))
        .file("work/.opencode/agent/same.md", &text(2))
        .file("work/.claude/agents/same.md", &text(1));
    let roster = place.roster();
    assert_eq!(roster.agents.len(), 1);
    assert_eq!(roster.agents[0].description, "1");
    assert_eq!(roster.shadowed.len(), 10);
    assert_eq!(roster.shadowed[0].file, ".opencode/agent/same.md");
    assert!(roster.shadowed[9].file.ends_with("home/.config/adjutant/agents/same.md"));
}

#[test]
fn persons_definition_limits_the_projects_of_the_same_name() {
    let place = ProjectAndHome::new()
        .file(
            "home/.claude/agents/reviewer.md",
            "---
name: reviewer
description: Mine.
tools: Read, Grep, Task
maxTurns: 10
model: opus
---
Mine.",
        )
        .file(
            "work/.claude/agents/reviewer.md",
            "---
name: Reviewer
description: Theirs.
tools: Read, Bash, WebFetch
maxTurns: 90
model: opus
adjutant: { timeout_s: 60 }
---
Theirs.",
        );
    insta::assert_snapshot!(place.shown(), @r"
    Reviewer (.claude/agents/reviewer.md) Theirs.
      tools Note, Read
      model opus, 10 turns, 60 s, bounded by $PLACE/home/.claude/agents/reviewer.md
      - your own $PLACE/home/.claude/agents/reviewer.md does not permit Run, WebFetch
      > Theirs.
    shadowed $PLACE/home/.claude/agents/reviewer.md by .claude/agents/reviewer.md
    ");
    assert!(place.roster().agents[0].model_is_theirs, "the person chose the same model");
}

#[test]
fn project_agent_is_dropped_if_the_persons_file_is_unreadable() {
    let place = ProjectAndHome::new()
        .file("home/.claude/agents/good.md", "---\nname: good\ntools: [Read\n---\nMine.")
        .file("work/.claude/agents/good.md", GOOD);
    let roster = place.roster();
    assert_eq!(roster.agents, []);
    assert_eq!(roster.problems[1].file, ".claude/agents/good.md");
    assert!(roster.problems[1].reason.ends_with("would limit it and cannot be used"));
}

#[test]
fn folders_in_the_home_directory_are_the_persons() {
    let place = ProjectAndHome::new().file("home/.claude/agents/good.md", GOOD);
    let home = place.path("home");
    let roster = find_agents(&home, &UserFolders::default_folders(Some(&home), None)).unwrap();
    assert_eq!(roster.agents.len(), 1);
    assert_eq!(roster.agents[0].scope.as_str(), "user");
    assert_eq!(roster.shadowed, []);
}

#[test]
fn number_of_files_per_scope_is_limited() {
    let mut place = ProjectAndHome::new();
    for nth in 0..502 {
        let text = format!("---\nname: a{nth}\ndescription: x\n---\nx");
        place = place.file(&format!("work/.claude/agents/a{nth:03}.md"), &text);
    }
    let roster = place.roster();
    assert_eq!(roster.agents.len(), 500);
    assert_eq!(roster.problems[0].file, ".claude/agents/a500.md");
    assert_eq!(roster.problems[0].reason, "it is one of more than 500 files; the rest is not read");
}

#[test]
fn unknown_agent_suggests_a_similar_name() {
    let place = ProjectAndHome::new();
    assert_eq!(place.roster(), AgentRoster::default());
    let error = place.roster().find("x").unwrap_err().to_string();
    assert_eq!(error, "there is no agent `x`; no agent is defined");
    let place = place.file("work/.claude/agents/good.md", GOOD);
    let error = place.roster().find("god").unwrap_err().to_string();
    assert_eq!(error, "there is no agent `god`, did you mean `good`?; known are good");
    assert!(find_agents(Path::new("/nowhere/at/all"), &UserFolders::default()).is_err());
}

#[test]
fn model_of_a_project_file_needs_the_persons_consent() {
    let agent = |scope: &str, model: &str| {
        let text = format!("---\nname: a\ndescription: x\nmodel: {model}\n---\nx");
        let place = ProjectAndHome::new().file(&format!("{scope}/.claude/agents/a.md"), &text);
        place.roster().agents.remove(0)
    };
    let allowed = ["openai/gpt-5.6".to_owned()];
    let newest = "anthropic/claude-opus-5-5";
    for (scope, model, running, expected) in [
        ("work", "inherit", newest, None),
        ("work", newest, newest, None),
        ("work", "gpt-5.6", newest, Some("openai/gpt-5.6")),
        ("home", "opus", "anthropic/claude-haiku-5-5", Some(newest)),
        ("home", "openai/other", newest, Some("openai/other")),
    ] {
        let role = AgentRole::of(agent(scope, model), &all(), Some(running), &allowed);
        assert_eq!(role.model.as_deref(), expected, "{scope} {model}");
        assert_eq!(role.ignored, Vec::<String>::new(), "{scope} {model}");
    }
    for (scope, model, running, why) in [
        ("work", "openai/other", newest, "models_allowed = [\"openai/other\"]"),
        ("work", "opus", "anthropic/claude-haiku-5-5", "a project's file cannot choose it"),
        ("home", "opus", "openai/gpt-5.6", "the run has another provider"),
        ("home", "script:/etc/passwd", newest, "cannot name a script or a recording"),
        ("home", "best", newest, "not of the form provider/model"),
    ] {
        let role = AgentRole::of(agent(scope, model), &all(), Some(running), &allowed);
        assert_eq!(role.model, None, "{scope} {model}");
        assert!(role.ignored[0].contains(why), "{:?}", role.ignored);
    }
}

/// A person's file that is not read might limit a project's agent, so that agent is not used either.
#[test]
fn files_over_the_limit_are_not_read_and_their_agents_not_used() {
    let keys: String = (0..201).map(|nth| format!("  k{nth}: 1\n")).collect();
    let place = ProjectAndHome::new()
        .file("work/.claude/agents/good.md", GOOD)
        .file("home/.claude/agents/GOOD.md", &format!("---\nmetadata:\n{keys}---\nMine."));
    let roster = place.roster();
    assert_eq!(roster.agents, []);
    assert_eq!(roster.problems[0].reason, "it has 202 keys, allowed are 200");
    assert!(roster.problems[1].reason.ends_with("would limit it and cannot be used"));

    let body = "x".repeat(250 << 10);
    let mut place = ProjectAndHome::new().file("work/.claude/agents/good.md", GOOD);
    for nth in 0..17 {
        let text = format!("---\nname: a{nth}\ndescription: x\n---\n{body}");
        place = place.file(&format!("home/.claude/agents/a{nth:02}.md"), &text);
    }
    let place = place.file("home/.claude/agents/good.md", GOOD);
    let roster = place.roster();
    assert_eq!(roster.agents.len(), 16, "{:?}", roster.problems);
    let said = "with it the files have more than 4 MiB; the rest is not read";
    assert_eq!(roster.problems[0].reason, said);
    assert_eq!(roster.problems[1].file, ".claude/agents/good.md");
    assert_eq!(roster.problems.len(), 2, "it is said once");
}

#[test]
fn agent_names_are_case_insensitive_in_any_script() {
    let text = |name: &str| format!("---\nname: {name}\ndescription: x\n---\nx");
    let place = ProjectAndHome::new()
        .file("work/.claude/agents/prüfer.md", &text("prüfer"))
        .file("home/.claude/agents/PRÜFER.md", "---\nname: [\n---\n");
    assert_eq!(place.roster().agents, [], "the bounds cannot be read");
    let place = ProjectAndHome::new()
        .file("work/.claude/agents/a.md", &text("prüfer"))
        .file("work/.claude/agents/b.md", &text("PRÜFER"));
    assert_eq!(place.roster().agents.len(), 1);
}
