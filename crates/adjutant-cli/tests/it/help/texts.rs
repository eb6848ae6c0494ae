//! `--version`, `--help`, `completions`, and flags that do not exist.

use crate::support::rig::Rig;

const COMMANDS: [&str; 33] = [
    "init",
    "update",
    "eval",
    "workers",
    "gateway",
    "commands",
    "demo",
    "run",
    "delegate",
    "story",
    "check",
    "parse",
    "validate",
    "policy",
    "task",
    "status",
    "tree",
    "watch",
    "result",
    "transcript",
    "cost",
    "errors",
    "log",
    "cancel",
    "wait",
    "tell",
    "diff",
    "merge",
    "discard",
    "undo",
    "prune",
    "mcp",
    "completions",
];

#[test]
fn the_version_names_the_crate_s_and_the_build() {
    let out = Rig::new().run(["--version"]);
    let start = concat!("adjutant ", env!("CARGO_PKG_VERSION"), " (from source, ");
    assert!(out.stdout.starts_with(start), "{}", out.stdout);
    assert_eq!(out.code, 0);
}

#[test]
fn help_names_every_command_and_every_exit_code() {
    insta::assert_snapshot!(Rig::new().run(["--help"]), @"
        Bounded delegation for AI agents.

        Adjutant gives tasks to subagents under hard limits on depth, cycles, fan-out, tokens, money and
        time. It records every step and always returns a valid result. Results go to standard output,
        progress and messages to standard error.

        Start with `adjutant demo`: it needs no key and no network.

        Usage: adjutant [OPTIONS] [COMMAND]

        Start work:
          demo         Try it: three subagents read this directory, without an API key
          run          Work toward a goal with a parent agent that can delegate
          delegate     Give tasks to subagents and wait for their reports
          story        Work through the stories of a PRD, each in its own workspace
          gateway      Run a program with a budget for its model calls
          resume       Continue an interrupted run, or what an ended run left unfinished
          task         Add, list, show and update the tasks of a project

        Look at runs:
          status       List runs and what they are doing, or show one
          tree         Show the delegations of a run as a tree
          watch        Show all runs full-screen, or follow one until it ends
          result       Print the results of a run again
          transcript   Print the conversation of a subagent
          cost         Show what a run cost, by agent and by model
          errors       List the errors of all runs, and mark them as fixed
          log          Print every event of a run, one per line

        Steer runs:
          tell         Send a message to a running subagent
          wait         Wait for a run to end, and exit with its exit code
          cancel       Cancel a run, or one subagent and everything below it
          approvals    List the calls that wait for your approval
          approve      Approve or refuse a waiting call; works only in a terminal

        Review changes:
          diff         Show what the subagents of a run changed in their workspaces
          merge        Merge the changes of a run into your files, or undo a merge
          discard      Delete the changes of a run or of one subagent
          undo         Restore the files that agents changed in place
          prune        Delete the content of old runs, and old results that are merged

        Set up:
          init         Choose a model, check it, and write your configuration
          models       List known models, their prices, and which ones you can use
          workers      List other agents that can work for you, and what each needs
          agents       List the agents, built-in and from files, and what each may do
          commands     List the slash commands, built-in and from files
          policy       Show the limits in force and where each one comes from
          mcp          Let an MCP client such as Claude Code or Codex delegate
          completions  Print a completion script for your shell
          update       Say how this copy was installed and which command updates it

        Check:
          doctor       Check everything a run needs and report what is missing
          eval         Measure what agents achieve on tasks with known solutions
          check        Check whether the limits allow a delegation, given as JSON
          parse        Read [delegate:description:hours] markers from stdin
          validate     Check a subagent's return on stdin against the standard format

        `adjutant help COMMAND` describes a command.

        Options:
              --json
                  Print JSON instead of text; docs/schemas describes it

              --home <DIR>
                  The state directory [default: $XDG_STATE_HOME/adjutant or ~/.local/state/adjutant]
                  
                  [env: ADJUTANT_HOME]

          -h, --help
                  Print help (see a summary with '-h')

          -V, --version
                  Print version

        Exit codes:
            0  all completed            4  refused by a limit or a person
            1  all failed               5  blocked, needs an answer
            2  usage or bad input     124  a command or `wait --timeout` timed out
            3  partial or mixed       130  cancelled
        --- stderr ---
        [exit 0]
    ");
}

#[test]
fn every_command_has_help_of_its_own() {
    let rig = Rig::new();
    for command in COMMANDS {
        let out = rig.run([command, "--help"]);
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{command}");
        assert!(out.stdout.contains(&format!("Usage: adjutant {command}")), "{out}");
        assert!(out.stdout.contains("--json"), "{out}");
        assert!(!rig.state().exists(), "{command} --help touched the state directory");
    }
}

#[test]
fn the_help_of_delegate_teaches_by_example() {
    let out = Rig::new().run(["delegate", "--help"]);
    insta::assert_snapshot!(out, @r#"
        Give tasks to subagents and wait for their reports

        Usage: adjutant delegate [OPTIONS] [TASKS.json|-]

        Arguments:
          [TASKS.json|-]
                  A JSON file of tasks, as the Delegate tool takes them, or - for standard input

        Options:
          -t, --task <LABEL=PROMPT>
                  A task; can be repeated

              --dry-run
                  Show which tasks the limits allow and their worst case in tokens, cost and time; run
                  nothing

              --model <MODEL>
                  The model: provider/model, script:FILE or replay:FILE
                  
                  [env: ADJUTANT_MODEL=]

              --agent <NAME>
                  The agent to run as; `adjutant agents` lists them

              --record <FILE>
                  Record the requests to the provider and its answers in a new file, for --model replay:FILE

              --root <DIR>
                  The directory the subagents work on
                  
                  [default: .]

              --concurrency <N>
                  How many subagents run at once [default: all tasks given with --task, up to 4]

              --return <FORM>
                  The format of the result

                  Possible values:
                  - markdown: For people and models
                  - json:     For programs

          -y, --yes
                  Start without asking for approval

              --approve-below <USD>
                  Start calls without asking while the worst cases of all such calls of the run add up to at
                  most this amount

              --runtime <URL>
                  Where to run: restate://HOST:PORT for the workers of a cluster, or local [default: local]
                  
                  [env: ADJUTANT_RUNTIME]

              --events
                  Print one JSON event per line to standard output instead of the result

              --budget-usd <USD>
                  The most dollars the run may spend

              --budget-tokens <TOKENS>
                  The most tokens the run may use

              --allow-network
                  Let agents reach public addresses with WebFetch and WebSearch. You are asked about each
                  new host; with --yes it is only printed. With --write, commands can also use this
                  machine's network, including loopback and link-local addresses, without asking

              --in-place
                  Let agents write in the whole working tree, not only in the specs directory, as far as
                  their definitions allow; with `run`, it can also be part of a slash command, before the
                  prompt

              --merge <HOW>
                  What happens to results in workspaces when the run ends [default: report]; only completed
                  work is merged

                  Possible values:
                  - report: Report what would merge, what conflicts, and the commands to use next
                  - apply:  Merge completed work into your files, as `adjutant merge` does
                  - branch: Create a branch for completed work, as `adjutant merge --as branch` does

              --write
                  Let agents write, each in its own workspace. Their work comes back as commits, which you
                  review with `adjutant diff` and merge with `adjutant merge`

              --verify <COMMAND>
                  The command that must succeed before the work of an agent counts as done, such as "cargo
                  test". It runs in a fresh copy of the finished work; if it fails, the agent gets its
                  output and continues. Needs --write

              --verify-keep <GLOB>
                  Files that the verify command sees as they were before the work, such as "tests/**" or
                  check.sh, so that an agent cannot pass by changing its tests; can be repeated. Globs as in
                  .gitignore

              --worker <NAME>
                  Let another agent do the work of the subagents: claude, codex, opencode, gemini, or one of
                  your configuration. It runs in the sandbox, and every model call it makes counts against
                  the budget. `adjutant workers` lists what is installed. Needs --write

              --needs <TOOL>
                  A tool that commands need, such as cargo or go, as the lines `toolchain` of `adjutant
                  doctor` name it; can be repeated. The run does not start without it; on a cluster, agents
                  go only to workers that have it. Needs --write

              --include-ignored <DIR>
                  A git-ignored directory to include in workspaces, such as target or node_modules; can be
                  repeated

              --workspace <KIND>
                  The kind of workspace [default: overlay where this machine supports it, otherwise
                  worktree]

                  Possible values:
                  - overlay:  A writable layer over a shared checkout
                  - worktree: A git worktree

              --sandbox <WHICH>
                  Whether the commands of agents run in a sandbox [default: on]. `off` runs them as you,
                  with all your rights

                  Possible values:
                  - on:  In the sandbox; where it is not available, no command runs
                  - off: Without a sandbox

              --grant <DIR>
                  A directory that commands may read in addition to the system's, such as a toolchain; can
                  be repeated

              --no-toolchains[=<NAME>]
                  Hide your toolchains (rustup, pyenv, nvm and others) from commands: all of them, or one by
                  its name in `adjutant doctor`; can be repeated. The system's own tools stay

              --allow-domain <HOST>
                  A host that WebFetch may use without asking you; can be repeated

              --system <FILE>
                  A file that replaces the built-in base prompt of subagents

              --preset <NAME>
                  The preset that sets the limits: scout (forge), command (opencode) or story (claude-loop)
                  
                  [env: ADJUTANT_PRESET=]

              --set <KEY=VALUE>
                  Set a limit; `adjutant policy` lists the keys

              --enable-delegation
                  Allow delegation under a preset that has it off

              --json
                  Print JSON instead of text; docs/schemas describes it

              --home <DIR>
                  The state directory [default: $XDG_STATE_HOME/adjutant or ~/.local/state/adjutant]
                  
                  [env: ADJUTANT_HOME]

          -h, --help
                  Print help (see a summary with '-h')

        Examples:
          adjutant delegate -t security='Look for injection in src/' -t tests='Which modules lack tests?'
          adjutant delegate tasks.json --yes --return json
          echo '{"tasks":[{"label":"a","prompt":"Count the TODOs"}]}' | adjutant delegate - --dry-run
          adjutant delegate -t a='Try my policy' --model script:my-script.toml --yes
          adjutant delegate -t fix='Fix the parser' --write --verify "cargo test" --verify-keep "tests/**"

        A task file contains {"tasks": [{"label", "prompt", "context"?, "max_output_tokens"?}],
        "concurrency"?, "return"?}.
        --- stderr ---
        [exit 0]
    "#);
}

#[test]
fn the_help_of_check_shows_the_form_of_its_input() {
    insta::assert_snapshot!(Rig::new().run(["check", "-h"]), @r#"
        Check whether the limits allow a delegation, given as JSON

        Usage: adjutant check [OPTIONS]

        Options:
              --preset <NAME>      The preset that sets the limits: scout (forge), command (opencode) or
                                   story (claude-loop) [env: ADJUTANT_PRESET=]
              --set <KEY=VALUE>    Set a limit; `adjutant policy` lists the keys
              --enable-delegation  Allow delegation under a preset that has it off
              --json               Print JSON instead of text; docs/schemas describes it
              --home <DIR>         The state directory [default: $XDG_STATE_HOME/adjutant or
                                   ~/.local/state/adjutant] [env: ADJUTANT_HOME]
          -h, --help               Print help

        Example:
          echo '{"tree":[{"id":"r","agent":"implement"}],"request":{"parent":"r","agent":"implementer"}}' \
            | adjutant check --preset command

        Prints {"granted":true,"depth","path","timeout",…} and exits 0, or
        {"granted":false,"code","message","recommendation"} and exits 4. Bad input exits 2.
        --- stderr ---
        [exit 0]
    "#);
}

/// The examples of a help text are read by people in a hurry: they must work as they stand.
#[test]
fn the_example_of_check_works_when_pasted() {
    let rig = Rig::new();
    let help = rig.run(["check", "--help"]).stdout;
    let json = help.split('\'').find(|part| part.starts_with('{')).unwrap();
    let out = rig.call(["check", "--preset", "command"]).stdin(json).run();
    assert_eq!(out.json()["granted"], true, "{out}");
    assert_eq!(out.code, 0);
}

#[test]
fn completions_are_made_for_every_shell() {
    let rig = Rig::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let out = rig.run(["completions", shell]);
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{shell}");
        for command in COMMANDS {
            assert!(out.stdout.contains(command), "{shell} does not know {command}");
        }
    }
}

#[test]
fn unknown_commands_and_flags_are_named_and_exit_2() {
    let rig = Rig::new();
    insta::assert_snapshot!(rig.run(["delgate"]), @"
        --- stderr ---
        error: unrecognized subcommand 'delgate'

          tip: some similar subcommands exist: 'update', 'delegate'

        Usage: adjutant [OPTIONS] [COMMAND]

        For more information, try '--help'.
        [exit 2]
    ");
    insta::assert_snapshot!(rig.run(["delegate", "--budget", "5"]), @"
        --- stderr ---
        error: unexpected argument '--budget' found

          tip: a similar argument exists: '--budget-usd'

        Usage: adjutant delegate --budget-usd <USD> [TASKS.json|-]

        For more information, try '--help'.
        [exit 2]
    ");
    insta::assert_snapshot!(rig.run(["completions", "tcsh"]), @"
        --- stderr ---
        error: invalid value 'tcsh' for '<SHELL>'
          [possible values: bash, elvish, fish, powershell, zsh]

          tip: a similar value exists: 'zsh'

        For more information, try '--help'.
        [exit 2]
    ");
}

#[test]
fn no_paragraph_is_wrapped_twice() {
    let rig = Rig::new();
    for command in COMMANDS.iter().chain(&["approve", "agents", "resume", "mcp install"]) {
        let help = rig.run(command.split(' ').chain(["--help"])).stdout;
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let lines: Vec<&str> = help.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair.iter().all(|line| is_prose(line))) {
            let next = pair[1].split(' ').next().unwrap_or_default();
            let width = pair[0].chars().count() + 1 + next.chars().count();
            assert!(width > 100, "{command}: there is room behind `{}`\n{help}", pair[0]);
        }
    }
}

#[test]
fn a_word_of_another_tool_suggests_the_command_that_does_the_same() {
    let rig = Rig::new();
    let tip = |args: &[&str]| {
        let out = rig.run(args);
        assert_eq!(out.code, 2, "{out}");
        let tips = out.stderr.lines().filter(|line| line.contains("similar subcommand"));
        tips.map(str::trim).collect::<String>()
    };
    for (typed, meant) in [
        ("list", "'status'"),
        ("ps", "'status'"),
        ("lst", "exists: 'status'"),
        ("stop", "'cancel'"),
        ("kill", "'cancel'"),
        ("logs", "'log'"),
        ("history", "'status'"),
        ("show", "'status', 'result'"),
        ("start", "'run', 'delegate'"),
        ("LIST", "'status'"),
        // Clap's own: a slip of the hand.
        ("cancle", "'cancel'"),
    ] {
        let tip = tip(&[typed]);
        assert!(tip.contains(meant), "{typed}: {tip}");
        assert!(rig.run(["--json", typed]).stderr.contains(meant), "{typed}");
    }
    assert_eq!(tip(&["xyzzy"]), "");
    assert_eq!(tip(&["mcp", "ps"]), "", "a word below another command means something else");
}
