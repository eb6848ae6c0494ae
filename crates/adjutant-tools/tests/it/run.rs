//! Run: what a command may do, how it ends, and what of its output is shown.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use adjutant_tools::{Confinement, Masker, ToolCallResult, ToolCaps, ToolName, Toolbox};
use adjutant_workspace::Root;
use adjutant_workspace::sandbox::{
    CancelHandle, NetworkAccess, Sandbox, SandboxConfig, SandboxHelper, SandboxWorkspace,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A workspace with the sandbox of its commands.
struct Bench {
    outer: TempDir,
    toolbox: Toolbox,
    confinement: Confinement,
}

impl Bench {
    fn sandboxed() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut SandboxConfig)) -> Self {
        let built = env!("CARGO_BIN_EXE_tools-helper");
        let helper = std::env::var("ADJUTANT_TEST_HELPER").unwrap_or_else(|_| built.to_owned());
        Self::new(|root| {
            let workspace = SandboxWorkspace::directory(root);
            let mut config = SandboxConfig::new(SandboxHelper::at(helper), workspace, root);
            change(&mut config);
            Confinement::Sandboxed(Box::new(Sandbox::new(config).unwrap()))
        })
    }

    fn off() -> Self {
        Self::new(|root| Confinement::Off { root: root.to_owned() })
    }

    /// One with the sandbox and one without.
    fn both() -> [Self; 2] {
        [Self::sandboxed(), Self::off()]
    }

    fn new(confinement: impl FnOnce(&Path) -> Confinement) -> Self {
        // Not below /tmp, which the sandbox replaces with one of its own.
        let outer = TempDir::new_in("/var/tmp").unwrap();
        let at = outer.path().join("root");
        std::fs::create_dir(&at).unwrap();
        let toolbox = Toolbox::new(Root::open(&at).unwrap(), ToolCaps::default())
            .with_masker(Masker::new(["own-key-of-the-engine"]));
        let confinement = confinement(&at);
        Self { outer, toolbox, confinement }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.outer.path().join("root").join(relative)
    }

    fn call(&self, arguments: &Value, on_output: &mut dyn FnMut(&str)) -> ToolCallResult {
        let cancel = CancelHandle::new().unwrap();
        self.toolbox.run(arguments, &self.confinement, &[], &cancel, on_output)
    }

    fn run(&self, command: &str) -> ToolCallResult {
        self.call(&json!({"command": command, "timeout": 60}), &mut |_| {})
    }

    /// Runs a command; returns its first line without the time it took, and the rest without the last remark,
    /// which says what held it.
    fn said(&self, command: &str) -> (String, String) {
        split(&self.run(command))
    }
}

fn split(output: &ToolCallResult) -> (String, String) {
    let (first, rest) = output.text.split_once('\n').unwrap();
    let first = first.split(" in ").next().unwrap().to_owned();
    let rest = rest.rfind("[sandbox: ").map_or(rest, |at| &rest[..at]);
    let rest = rest.rfind("[to see what was left out, ").map_or(rest, |at| &rest[..at]);
    (first, rest.to_owned())
}

fn pair(first: &str, rest: &str) -> (String, String) {
    (first.to_owned(), rest.to_owned())
}

#[test]
fn a_call_that_cannot_be_run_is_answered_with_the_correct_form() {
    for bench in Bench::both() {
        std::fs::write(bench.path("file"), "").unwrap();
        std::os::unix::fs::symlink("/usr", bench.path("usr")).unwrap();
        let long = "x".repeat(64 * 1024 + 1);
        for (arguments, words) in [
            (json!({}), "`command` is required"),
            (json!({"command": ""}), "`command` is required"),
            (json!({"command": " \n\t"}), "`command` is blank; write the command to run"),
            (
                json!({"command": "echo a\0b"}),
                "`command` contains a NUL byte, which no command can",
            ),
            (
                json!({"command": long}),
                "`command` has 65,537 bytes, more than the 65,536 that are taken; write a script with Write and \
                 run that",
            ),
            (json!({"command": ["ls", "-l"]}), "`command` must be a string, not an array"),
            (
                json!({"command": "ls", "timeout": 0}),
                "`timeout` must be a whole number of at least 1, not 0",
            ),
            (
                json!({"command": "ls", "timeout": 120_000}),
                "`timeout` is in seconds, 600 at most (policy key `run_max_s`), got 120000",
            ),
            (
                json!({"command": "ls", "shell": "zsh"}),
                "`shell` is not possible: commands run with /bin/sh; write `bash -c '…'` for another shell",
            ),
            (
                json!({"command": "ls", "cwd": "/usr"}),
                "`/usr` is outside the workspace; give a path relative to its root",
            ),
            (
                json!({"command": "ls", "cwd": ".."}),
                "`..` is outside the workspace; give a path relative to its root",
            ),
            (
                json!({"command": "ls", "cwd": "usr"}),
                "`usr` is outside the workspace; give a path relative to its root",
            ),
            (json!({"command": "ls", "cwd": "file"}), "`file` is not a directory"),
            (json!({"command": "ls", "cwd": "no"}), "`no` does not exist; find paths with Glob"),
            (json!({"command": "ls", "cwd": "a\0"}), "`a\0` contains a NUL byte"),
        ] {
            let output = bench.call(&arguments, &mut |_| panic!("nothing was run"));
            assert_eq!((output.text.as_str(), output.is_error), (words, true));
        }
    }
}

#[test]
fn the_longest_command_is_run() {
    for bench in Bench::both() {
        let command = format!("echo {}", "x".repeat(64 * 1024 - 5));
        // How it ended, the beginning of the output, what was left out and how to see it.
        assert_eq!(bench.run(&command).text.lines().count(), 4);
    }
}

#[test]
fn exit_codes_and_signals_are_reported() {
    for bench in Bench::both() {
        for (command, first, is_error) in [
            ("echo x", "exit 0", false),
            ("echo x; exit 3", "exit 3", true),
            ("echo x; exit 255", "exit 255", true),
            ("echo x; kill -KILL $$", "signal 9", true),
            ("echo x; kill -SEGV $$", "signal 11", true),
        ] {
            let output = bench.run(command);
            assert_eq!(split(&output), pair(first, "x\n"), "{command}");
            assert_eq!(output.is_error, is_error, "{command}");
            assert!(output.touched.is_empty());
        }
        let output = bench.run("no-such-command --version");
        let (first, rest) = split(&output);
        assert_eq!(first, "exit 127");
        assert!(rest.contains("no-such-command") && rest.contains("not found"), "{rest}");
        assert_eq!(bench.said("true").1.trim_end(), "[no output]");
        assert_eq!(bench.said("if").0, "exit 2");
    }
}

#[test]
fn the_first_line_gives_the_duration_and_the_last_the_sandbox_level() {
    let timed = |text: &str| {
        let first = text.lines().next().unwrap();
        let seconds: f64 =
            first.strip_prefix("exit 0 in ").unwrap().strip_suffix(" s").unwrap().parse().unwrap();
        assert!((0.2..30.0).contains(&seconds), "{first}");
    };
    for (output, level) in
        Bench::both().map(|bench| bench.run("sleep 0.2; echo x")).iter().zip(["full", "off"])
    {
        timed(&output.text);
        let (_, said) = output.text.split_once("\nx\n[sandbox: ").unwrap();
        // If the machine lacks an optional layer, the result says so.
        assert!(said == format!("{level}]") || said.starts_with("reduced: "), "{said}");
        assert_eq!(output.sandbox.as_deref(), said.strip_suffix(']'));
        assert_eq!(said == "off]", level == "off");
    }
}

#[test]
fn a_gibibyte_of_output_costs_neither_memory_nor_many_events() {
    for bench in Bench::both() {
        let begun = Instant::now();
        let (mut events, mut longest) = (0_u128, 0);
        let command =
            "echo begin; yes 'a line of text that repeats' | head -c 1073741824; echo; echo end";
        let arguments = json!({"command": command, "timeout": 120});
        let output = bench.call(&arguments, &mut |text| {
            events += 1;
            longest = longest.max(text.len());
        });
        let took = begun.elapsed();
        let (first, rest) = split(&output);
        assert_eq!(first, "exit 0");
        assert!(rest.starts_with("begin\na line of"), "{}", &rest[..80]);
        assert!(rest.ends_with("\nend\n"), "{}", &rest[rest.len() - 80..]);
        assert!(rest.len() <= ToolCaps::default().run_bytes + 64, "{}", rest.len());
        let said = rest.lines().find(|line| line.starts_with("… 1,07")).unwrap();
        let left_out: usize = said
            .trim_start_matches("… ")
            .split(' ')
            .next()
            .unwrap()
            .replace(',', "")
            .parse()
            .unwrap();
        let shown = rest.len() - said.len() - 1;
        assert_eq!(left_out + shown, 1_073_741_824 + "begin\n\nend\n".len());
        assert!(longest <= 4096, "{longest}");
        assert!((1..=took.as_millis() / 100 + 2).contains(&events), "{events} in {took:?}");
        assert!(peak_kib() < 512 * 1024, "{} KiB", peak_kib());
    }
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_command_that_never_ends_is_stopped_and_its_output_kept() {
    for bench in Bench::both() {
        for command in ["echo x; sleep 1000", "echo x; trap '' TERM INT HUP; while :; do :; done"] {
            let begun = Instant::now();
            let output = bench.call(&json!({"command": command, "timeout": 3}), &mut |_| {});
            assert!(output.is_error);
            let expected = "timed out after 3 s\nx\n[`timeout` may be 600 seconds at most]";
            assert!(output.text.starts_with(expected), "{}", output.text);
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn there_is_no_input_and_no_terminal() {
    for bench in Bench::both() {
        assert_eq!(bench.said("cat; echo done"), pair("exit 0", "done\n"));
        assert_eq!(bench.said("read line || echo nothing"), pair("exit 0", "nothing\n"));
        assert_eq!(bench.said("tty; test -t 0 -o -t 1 -o -t 2"), pair("exit 1", "not a tty\n"));
        let (first, rest) = bench.said("exec < /dev/tty");
        assert_eq!(first, "exit 2", "{rest}");
    }
}

#[test]
fn background_processes_are_killed_at_the_end_of_the_call() {
    // Each process has detached from the shell as far as possible before the shell continues.
    const FAR: &str = "exec 3<>pipe; mkfifo up; (setsid sh -c 'sleep 1000 & echo > up; sleep 1000' >/dev/null 2>&1 &); \
                       read up < up; echo x";
    for (bench, command) in [
        (Bench::sandboxed(), "exec 3<>pipe; sleep 1000 & echo x"),
        (
            Bench::sandboxed(),
            "exec 3<>pipe; mkfifo up; setsid sh -c 'echo > up; sleep 1000' & read up < up; echo x",
        ),
        (Bench::sandboxed(), FAR),
        (Bench::off(), "exec 3<>pipe; sleep 1000 & echo x"),
        (Bench::off(), "exec 3<>pipe; (nohup sleep 1000 >/dev/null 2>&1 &); echo x"),
    ] {
        mknodat(CWD, bench.path("pipe"), FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let begun = Instant::now();
        assert_eq!(bench.said(command), pair("exit 0", "x\n"), "{command}");
        // A pipe that no process has open for reading cannot be opened for writing.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        while openat(CWD, bench.path("pipe"), flags, Mode::empty()).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{command} lives on");
            std::thread::yield_now();
        }
    }
}

#[test]
fn without_a_sandbox_a_surviving_process_is_reported_and_does_not_delay_the_call() {
    let bench = Bench::off();
    let begun = Instant::now();
    let output = bench.run("mkfifo up; setsid sh -c 'echo > up; sleep 40' & read up < up; echo x");
    assert!(begun.elapsed() < Duration::from_secs(30), "it was held by what it left behind");
    let expected = "\nx\n[a process left the command's group and may live on]\n[sandbox: off]";
    assert!(output.text.ends_with(expected), "{}", output.text);
}

#[test]
fn a_call_is_cancelled_from_another_thread() {
    for bench in Bench::both() {
        let cancel = CancelHandle::new().unwrap();
        let (started, has_started) = channel();
        let (output, took) = std::thread::scope(|scope| {
            let theirs = cancel.clone();
            let canceller = scope.spawn(move || {
                has_started.recv().unwrap();
                theirs.cancel();
                Instant::now()
            });
            let arguments = json!({"command": "echo started; sleep 1000"});
            let mut on_output = |_: &str| started.send(()).unwrap();
            let output =
                bench.toolbox.run(&arguments, &bench.confinement, &[], &cancel, &mut on_output);
            (output, canceller.join().unwrap().elapsed())
        });
        assert!(output.is_error);
        assert!(output.text.starts_with("stopped: cancelled after "), "{}", output.text);
        assert_eq!(split(&output).1, "started\n");
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
}

#[test]
fn terminal_control_sequences_are_removed_from_output() {
    for bench in Bench::both() {
        for (printed, shown) in [
            (r"日本語 é 🦀\n", "日本語 é 🦀\n"),
            (r"a\377b\303\n", "a\u{fffd}b\u{fffd}\n"),
            (r"\033[1;31mred\033[0m \033[2J\033[Hgone\n", "red gone\n"),
            (r"\033]0;title\007a\033]8;;http://x\033\\link\033]8;;\033\\b\n", "alinkb\n"),
            (r"\033]never ended\nnext\n", "\nnext\n"),
            (r"\033(Bx\033cy\033=z\n", "xyz\n"),
            (r"10%%\r20%%\r\ndone\n", "10%\n20%\ndone\n"),
            (r"a\bb\007c\000d\177e\tf\n", "abcde\tf\n"),
            (r"\302\23331mc1\n", "c1\n"),
            (r"\342\200\256turned\n", "turned\n"),
            (r"no end", "no end"),
        ] {
            let live = RefCell::new(String::new());
            let command = format!("printf '{printed}'");
            let output =
                bench.call(&json!({"command": command}), &mut |text| *live.borrow_mut() += text);
            let (first, rest) = split(&output);
            assert_eq!(
                (first.as_str(), rest.trim_end_matches('\n')),
                ("exit 0", shown.trim_end_matches('\n'))
            );
            assert_eq!(live.into_inner(), shown, "{printed}");
        }
    }
}

#[test]
fn secrets_are_masked_in_the_result_and_while_it_runs() {
    let bench = Bench::sandboxed();
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let slowly = format!(
        "printf own-key-; sleep 0.3; echo of-the-engine; printf 'own-\\033[1mkey-of-the-engine\\n'; \
         echo -----BEGIN PRIVATE KEY-----; sleep 0.3; echo {body}; sleep 0.3; echo {body}; \
         echo -----END PRIVATE KEY-----; echo after"
    );
    let live = RefCell::new(Vec::new());
    let arguments = json!({"command": slowly});
    let output = bench.call(&arguments, &mut |text| live.borrow_mut().push(text.to_owned()));
    let live = live.into_inner();
    assert!(live.len() >= 3, "{live:?}");
    for text in [live.concat(), output.text] {
        assert_eq!(text.matches("[masked:own-key]").count(), 2, "{text}");
        assert!(text.contains("[masked:private-key]") && text.contains("\nafter\n"), "{text}");
        for part in ["own-key-", "of-the-engine", "MIIEvQ", "Us8cKj"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }
}

#[test]
fn buffered_output_is_shown_before_the_command_ends() {
    for bench in Bench::both() {
        let cancel = CancelHandle::new().unwrap();
        // The second line follows the first too soon to be shown at once, and no other follows.
        let arguments = json!({"command": "echo one; sleep 0.02; echo two; sleep 1000"});
        let mut live = String::new();
        let mut on_output = |text: &str| {
            live.push_str(text);
            if live.ends_with("two\n") {
                cancel.cancel();
            }
        };
        let output =
            bench.toolbox.run(&arguments, &bench.confinement, &[], &cancel, &mut on_output);
        assert!(output.text.starts_with("stopped: cancelled"), "{}", output.text);
        assert_eq!(live, "one\ntwo\n");
    }
}

#[test]
fn both_streams_are_shown_in_the_order_of_writing() {
    for bench in Bench::both() {
        let command =
            "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
        let expected: String = (0..500).map(|i| format!("out {i}\nerr {i}\n")).collect();
        assert_eq!(bench.said(command), pair("exit 0", &expected));
    }
}

#[test]
fn a_command_starts_in_the_requested_directory() {
    for bench in Bench::both() {
        std::fs::create_dir_all(bench.path("a b/ü")).unwrap();
        std::os::unix::fs::symlink("a b", bench.path("link")).unwrap();
        let absolute = bench.path("a b");
        let root = bench.path("");
        let root = root.to_str().unwrap().trim_end_matches('/');
        for (cwd, shown) in [
            (json!(null), ""),
            (json!("."), ""),
            (json!("a b/ü"), "/a b/ü"),
            (json!("link"), "/a b"),
            (json!(absolute), "/a b"),
        ] {
            let arguments = json!({"command": "pwd -P; echo x > here", "cwd": cwd});
            let output = bench.call(&arguments, &mut |_| {});
            assert_eq!(split(&output), pair("exit 0", &format!("{root}{shown}\n")));
            std::fs::remove_file(bench.path(&format!("{shown}/here")[1..])).unwrap();
        }
    }
}

#[test]
fn a_command_gets_the_environment_it_is_given_and_no_other() {
    let added = [("DELEGATION_DEPTH", "2"), ("TERM", "vt100"), ("BAD=NAME", "x"), ("BAD", "\0")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let shown = |bench: &Bench| {
        let arguments =
            json!({"command": "env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort"});
        let cancel = CancelHandle::new().unwrap();
        let output =
            bench.toolbox.run(&arguments, &bench.confinement, &added, &cancel, &mut |_| {});
        split(&output).1
    };
    insta::assert_snapshot!(shown(&Bench::off()), @"
    CI=1
    DELEGATION_DEPTH=2
    LANG=C.UTF-8
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    TERM=vt100
    ");
    insta::assert_snapshot!(shown(&Bench::sandboxed()), @"
    CI=1
    DELEGATION_DEPTH=2
    HOME=/tmp
    LANG=C.UTF-8
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    TERM=vt100
    TMPDIR=/tmp
    ");
}

#[test]
fn programs_of_a_granted_toolchain_are_found_first() {
    use std::os::unix::fs::PermissionsExt as _;
    let chain = TempDir::new_in("/var/tmp").unwrap();
    std::fs::create_dir(chain.path().join("bin")).unwrap();
    let program = chain.path().join("bin/ls");
    std::fs::write(&program, "#!/bin/sh\necho granted\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let bench = Bench::with(|config| config.grants.push(chain.path().to_owned()));
    assert_eq!(bench.said("ls"), pair("exit 0", "granted\n"));
}

#[test]
fn a_command_that_takes_too_much_memory_is_stopped_with_the_bound() {
    let bench = Bench::with(|config| config.bounds.memory_bytes = 64 << 20);
    let (first, _) = bench.said("head -c 1000000000 /dev/zero | tail -c 900000000 | wc -c");
    assert_eq!(first, "stopped: used more than 64 MiB of memory");
}

#[test]
fn the_result_says_which_network_access_was_granted() {
    let bench = Bench::with(|config| config.network = NetworkAccess::Granted);
    let output = bench.run("echo x");
    let last = output.text.lines().rev().nth(1).unwrap();
    assert!(last.starts_with("[network: granted; services on this machine's loopback"), "{last}");
}

#[test]
fn run_is_offered_and_is_refused_without_a_confinement() {
    let bench = Bench::off();
    let specs = bench.toolbox.specs();
    let spec = specs.iter().find(|spec| spec.name == "Run").unwrap();
    assert_eq!(spec.schema["required"], json!(["command"]));
    for name in spec.schema["properties"].as_object().unwrap().keys() {
        let answer = bench.call(&json!({name.as_str(): null}), &mut |_| {});
        assert_eq!(answer.text, "`command` is required");
    }
    let output = bench.toolbox.call(ToolName::Run, &json!({"command": "echo x > ran"}), &|| false);
    assert_eq!((output.text.as_str(), output.is_error), ("you may not run commands", true));
    assert!(!bench.path("ran").exists());
}

#[test]
fn a_toolbox_can_be_moved_to_another_root() {
    let (bench, other) = (Bench::off(), Bench::off());
    std::fs::write(other.path("f"), "own-key-of-the-engine of the other\n").unwrap();
    let toolbox = bench.toolbox.with_root(Root::open(other.path("")).unwrap());
    let output = toolbox.call(ToolName::Read, &json!({"path": "f"}), &|| false);
    assert!(output.text.contains("[masked:own-key] of the other"), "{}", output.text);
    assert_eq!(toolbox.specs(), bench.toolbox.specs());
}
