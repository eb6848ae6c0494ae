//! `--version`, `--help`, `completions`, and flags that do not exist.

use crate::support::rig::Rig;

const COMMANDS: [&str; 28] = [
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
fn the_version_is_that_of_the_crate() {
    let out = Rig::new().run(["--version"]);
    assert_eq!(out.stdout, concat!("adjutant ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(out.code, 0);
}

#[test]
fn help_names_every_command_and_every_exit_code() {
    insta::assert_snapshot!(Rig::new().run(["--help"]), @"
        Bounded delegation for AI agents.

        Hand tasks to subagents under hard limits on depth, cycles, fan-out, tokens, money and time. Every
        step is recorded, and a valid answer always comes back. Data goes to standard output, talk to
        standard error.

        Start with `adjutant demo`: it needs no key and no network.

        Usage: adjutant [OPTIONS] <COMMAND>

        Commands:
          demo         Show everything at once: three subagents on a real tree, no key, no network
          run          Work towards a goal with a parent agent that may delegate
          delegate     Hand tasks to subagents and wait for their reports
          story        Work on the stories of a PRD, each in a workspace of its own
          resume       Go on with a run that was interrupted, or with what is left of one that has ended
          check        Judge one delegation, described as JSON on standard input, without running it
          parse        Read [delegate:description:hours] markers from standard input
          validate     Judge a return, given on standard input, against the standard format
          policy       Show the limits in force and where each comes from
          agents       List the agents that files describe and the built-in ones: what each may do, and what
                       is ignored
          commands     List the slash commands: from which file, for which agent, and what of the file is
                       ignored
          task         Add, list, show and move the tasks of a project
          models       List the well-known models, what they charge, and which can be used
          doctor       Look at everything a run needs and say what is missing
          init         Write a commented configuration file
          status       List runs and what they do, or show one
          tree         Show a run's delegations as a tree
          watch        Follow a run until it ends, from any terminal
          result       Print a run's results again
          transcript   Print what a subagent was told and said
          cost         Show what a run cost, own and inclusive, by agent and by model
          errors       List what went wrong in all runs, and tick it off
          log          Show every event of a run, one line each
          cancel       End a run, or a subagent and all below it, from any terminal
          wait         Wait for the end of a run; the exit code is that of the run
          tell         Say something to a subagent at work, before its next turn
          approvals    List what waits for your approval, from MCP clients and at prompts of other terminals
          approve      Let a call start that waits for your approval, or refuse it; from a terminal only
          diff         Show what the subagents of a run changed in their workspaces
          merge        Merge that work into the files or onto branches, or take a merge back
          discard      Drop that work
          undo         Put back what the agents of a run changed, where nobody touched it since
          prune        Remove the content of old runs and results that are merged; metadata and cost stay
          mcp          Serve an MCP client such as Claude Code or Codex, which can then delegate
          completions  Print a completion script for your shell
          help         Print this message or the help of the given subcommand(s)

        Options:
              --json
                  Print JSON instead of text; its schemas are in docs/schemas

              --home <DIR>
                  The state directory [default: $XDG_STATE_HOME/adjutant or ~/.local/state/adjutant]
                  
                  [env: ADJUTANT_HOME]

          -h, --help
                  Print help (see a summary with '-h')

          -V, --version
                  Print version

        Exit codes:
            0  all completed            4  refused by a limit or a person
            1  all failed               5  blocked, an answer is needed
            2  usage or bad input     124  the time of a command or of `wait --timeout` is up
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
        Hand tasks to subagents and wait for their reports

        Usage: adjutant delegate [OPTIONS] [TASKS.json|-]

        Arguments:
          [TASKS.json|-]
                  A JSON file of tasks in the form of the Delegate tool, or - for standard input

        Options:
          -t, --task <LABEL=PROMPT>
                  One task; may be repeated

              --dry-run
                  Show what would be granted and the worst case in tokens, cost and time; run nothing

              --model <MODEL>
                  The model, as provider/model, script:FILE or replay:FILE
                  
                  [env: ADJUTANT_MODEL=]

              --agent <NAME>
                  Work as the agent of that name; `adjutant agents` lists them

              --record <FILE>
                  Keep what the provider is asked and answers in a new file, for --model replay:FILE

              --root <DIR>
                  The tree the subagents look at
                  
                  [default: .]

              --concurrency <N>
                  How many work at once; unset, the tasks you type all do, up to 4

              --return <FORM>
                  How the result is written

                  Possible values:
                  - markdown: For people and models
                  - json:     For programs

          -y, --yes
                  Start without asking

              --approve-below <USD>
                  Start without asking while the worst cases of all such calls of the run fit this amount

              --events
                  Stream one JSON event per line to standard output instead of the result

              --budget-usd <USD>
                  The most dollars the run may spend

              --budget-tokens <TOKENS>
                  The most tokens the run may use

              --allow-network
                  Let the agents reach public addresses with WebFetch and WebSearch; each new host asks, or
                  is printed with --yes. With --write, commands reach the network of this machine too,
                  loopback and link-local addresses included, and nothing asks

              --in-place
                  Let agents whose definition says so write anywhere in the tree, not only below the specs
                  folder; `run` takes it within a slash command too, before the prompt

              --merge <HOW>
                  What becomes of the work in workspaces once the run has ended [default: report]; only
                  completed work is merged

                  Possible values:
                  - report: Say what would merge, what is in conflict, and the commands to go on with
                  - apply:  Merge what completed into the files, as `adjutant merge` does
                  - branch: Make a branch of what completed, as `adjutant merge --as branch` does

              --write
                  Let agents write, each in a workspace of its own: its work comes back as a commit to look
                  at with `adjutant diff` and to take over with `adjutant merge`

              --include-ignored <DIR>
                  An ignored folder that workspaces hold all the same, such as target or node_modules; may
                  be repeated

              --workspace <KIND>
                  How workspaces are made; the better kind this machine allows by default

                  Possible values:
                  - overlay:  Layers over a shared checkout
                  - worktree: A work tree of git

              --sandbox <WHICH>
                  What holds the commands that agents run, on by default. Off runs them as you, with all
                  your rights

                  Possible values:
                  - on:  The sandbox, or nothing is run
                  - off: Nothing

              --grant <DIR>
                  A directory that commands may read beside those of the system, such as a toolchain; may be
                  repeated

              --allow-domain <HOST>
                  A host that WebFetch may ask without a question; may be repeated

              --system <FILE>
                  A file that replaces the built-in base prompt of the subagents

              --preset <NAME>
                  The preset to start from: scout (forge), command (opencode) or story (claude-loop)
                  
                  [env: ADJUTANT_PRESET=]

              --set <KEY=VALUE>
                  Set a limit; `adjutant policy` lists the keys

              --enable-delegation
                  Switch delegation on where the preset has it off

              --json
                  Print JSON instead of text; its schemas are in docs/schemas

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

        A task file holds {"tasks": [{"label", "prompt", "context"?, "max_output_tokens"?}], "concurrency"?,
        "return"?}.
        --- stderr ---
        [exit 0]
    "#);
}

#[test]
fn the_help_of_check_shows_the_form_of_its_input() {
    insta::assert_snapshot!(Rig::new().run(["check", "-h"]), @r#"
        Judge one delegation, described as JSON on standard input, without running it

        Usage: adjutant check [OPTIONS]

        Options:
              --preset <NAME>      The preset to start from: scout (forge), command (opencode) or story
                                   (claude-loop) [env: ADJUTANT_PRESET=]
              --set <KEY=VALUE>    Set a limit; `adjutant policy` lists the keys
              --enable-delegation  Switch delegation on where the preset has it off
              --json               Print JSON instead of text; its schemas are in docs/schemas
              --home <DIR>         The state directory [default: $XDG_STATE_HOME/adjutant or
                                   ~/.local/state/adjutant] [env: ADJUTANT_HOME]
          -h, --help               Print help

        Example:
          echo '{"tree":[{"id":"r","agent":"implement"}],"request":{"parent":"r","agent":"implementer"}}' \
            | adjutant check --preset command

        Prints {"granted":true,"depth","path","timeout",…} and exits 0, or
        {"granted":false,"code","message","recommendation"} and exits 4; bad input exits 2.
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
fn what_does_not_exist_is_named_and_exits_2() {
    let rig = Rig::new();
    insta::assert_snapshot!(rig.run(["delgate"]), @"
        --- stderr ---
        error: unrecognized subcommand 'delgate'

          tip: a similar subcommand exists: 'delegate'

        Usage: adjutant [OPTIONS] <COMMAND>

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
    let bare = rig.run::<&str>([]);
    assert_eq!((bare.code, bare.stdout.as_str()), (2, ""));
    assert!(bare.stderr.contains("Usage: adjutant"), "{bare}");
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
