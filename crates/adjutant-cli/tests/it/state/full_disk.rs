//! Disks that fill up, are read-only or disappear, and a process that is stopped past its deadline.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::rig::{BINARY, Output, Rig};
use crate::support::running::Running;

/// Reads a file in every turn, so that the journal grows.
fn growing() -> Rig {
    let script = (1..=12).fold(String::new(), |script, turn| {
        let call = format!("[[turn.call]]\ntool = \"Read\"\nargs = {{ path = \"{turn}.txt\" }}\n");
        format!("{script}[[turn]]\ntext = \"{turn}\"\n{call}")
    });
    let rig = Rig::with_script(&format!("{script}[[turn]]\ntext = \"read all of it\"\n"));
    for turn in 1..=12 {
        let line = format!("line of file {turn}, neither short nor long\n");
        rig.write(&format!("{turn}.txt"), line.repeat(400));
    }
    rig
}

/// Runs a shell script with the binary as `$ADJUTANT`, in the rig's place and environment.
pub(crate) fn shell(rig: &Rig, program: &[&str], script: &str) -> Output {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(["sh", "-c", script]).current_dir(rig.work());
    command.env_clear().envs(rig.environment()).env("ADJUTANT", BINARY);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).stdout(Stdio::piped());
    Running::start(rig, command, None).finish()
}

/// Says whether this machine lets a test mount a file system of its own; loudly when it does not.
#[expect(clippy::print_stderr, reason = "a test that proves nothing has to say so")]
pub(crate) fn may_mount(rig: &Rig) -> bool {
    fs::create_dir_all(rig.state()).unwrap();
    let tried = shell(rig, &NAMESPACE, "mount -t tmpfs none \"$ADJUTANT_HOME\"");
    if tried.code != 0 {
        eprintln!("SKIPPED: no tmpfs can be mounted here, so no disk was filled: {}", tried.stderr);
    }
    tried.code == 0
}

pub(crate) const NAMESPACE: [&str; 2] = ["unshare", "-rm"];

/// A disk of every size from nothing to plenty: the run ends with an outcome or does not start, and its
/// journal is whole.
#[test]
fn on_a_disk_of_any_size_the_run_ends_with_an_intact_journal() {
    let rig = growing();
    if !may_mount(&rig) {
        return;
    }
    let out = shell(
        &rig,
        &NAMESPACE,
        r#"
        for size in 4 8 16 32 48 64 80 96 112 128 160 192 224 256 320 384 448 512 640 768 1024 2048; do
            mount -t tmpfs -o size=${size}k,mode=700 none "$ADJUTANT_HOME" || exit 99
            "$ADJUTANT" delegate --yes --model script:../script.toml -t a=x -t b=y >../out 2>../err
            code=$?
            "$ADJUTANT" log --json >../log 2>../log.err
            echo "$size $code $? $(tail -n 1 ../log | grep -c run_ended) $(grep -c DISK_FULL ../log)"
            if [ $code != 0 ]; then cp ../err ../err.$code; cp ../out ../out.$code; fi
            umount "$ADJUTANT_HOME" || exit 98
        done
        "#,
    );
    assert_eq!(out.code, 0, "{out}");
    let mut seen = [0; 3];
    for line in out.stdout.lines() {
        let [size, code, log, ended, full] = line
            .split(' ')
            .map(|word| word.parse::<u32>().unwrap())
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_else(|_| panic!("{line}"));
        match code {
            0 => assert_eq!((log, ended, full), (0, 1, 0), "{size} KiB"),
            3 => assert!(log == 0 && ended == 1 && full >= 2, "{size} KiB: {line}"),
            // There was no room to begin.
            1 => assert_ne!((log, ended), (0, 1), "{size} KiB"),
            _ => panic!("{size} KiB: exit {code}"),
        }
        seen[match code {
            0 => 0,
            3 => 1,
            _ => 2,
        }] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}\n{out}");
    let read = |name: &str| fs::read_to_string(rig.path().join(name)).unwrap();
    let results = read("out.3");
    assert!(results.contains("(DISK_FULL)"), "{results}");
    assert!(results.contains("Free space, then `adjutant resume run_"), "{results}");
    insta::assert_snapshot!(read("err.1"), @"
        adjutant: the run stopped: its journal cannot be written: no space left for the journal: No space left on device (os error 28)
          Free space, or keep runs elsewhere with ADJUTANT_HOME or --home DIR.
    ");
}

/// The space that returns is used, and the run from before is as it was.
#[test]
fn a_full_disk_damages_no_existing_file() {
    let rig = growing();
    if !may_mount(&rig) {
        return;
    }
    let out = shell(
        &rig,
        &NAMESPACE,
        r#"
        mount -t tmpfs -o size=1536k,mode=700 none "$ADJUTANT_HOME" || exit 99
        run() { "$ADJUTANT" delegate --yes --model script:../script.toml -t a=x >../out 2>../err; echo $?; }
        run
        before=$("$ADJUTANT" log --json | cksum)
        first=$(ls "$ADJUTANT_HOME/runs")
        # Another program fills the disk except for a few pages.
        free=$(df -k --output=avail "$ADJUTANT_HOME" | tail -n 1)
        head -c $(( (free - 120) * 1024 )) /dev/zero >"$ADJUTANT_HOME/filler"
        run
        [ "$before" = "$("$ADJUTANT" log $first --json | cksum)" ] && echo same
        rm "$ADJUTANT_HOME/filler"
        run
        "$ADJUTANT" status --json
        "#,
    );
    let lines: Vec<&str> = out.stdout.lines().take(4).collect();
    assert_eq!(lines, ["0", "3", "same", "0"], "{out}");
}

#[test]
fn a_read_only_disk_is_reported_before_any_model_call() {
    let rig = growing();
    if !may_mount(&rig) {
        return;
    }
    let out = shell(
        &rig,
        &NAMESPACE,
        r#"
        mount -t tmpfs -o ro,mode=700 none "$ADJUTANT_HOME" || exit 99
        exec "$ADJUTANT" delegate --yes --model script:../script.toml -t a=x
        "#,
    );
    insta::assert_snapshot!(out, @"
        --- stderr ---
        adjutant: cannot create $PLACE/state/runs: Read-only file system (os error 30)
          Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.
        [exit 1]
    ");
}

/// A limit on the length of files is a full disk, not a sudden death by signal.
#[test]
fn a_file_size_limit_ends_the_run_with_an_intact_journal() {
    let rig = growing();
    let mut ends = Vec::new();
    for kib in [8, 64, 128, 192, 256, 4096] {
        let script = format!(
            "exec prlimit --fsize={} \"$ADJUTANT\" delegate --yes --model script:../script.toml -t a=x",
            kib * 1024
        );
        let out = shell(&rig, &["env"], &script);
        if out.code == 3 {
            assert!(out.stdout.contains("(DISK_FULL)"), "{kib} KiB: {out}");
            rig.assert_unharmed();
        } else if out.code == 1 {
            assert!(out.stderr.contains("File too large"), "{kib} KiB: {out}");
            for run in rig.runs() {
                fs::remove_dir_all(rig.run_folder(&run)).unwrap();
            }
        }
        ends.push(out.code);
    }
    assert_eq!(ends.first(), Some(&1), "{ends:?}");
    assert_eq!(ends.last(), Some(&0), "{ends:?}");
    assert!(ends.contains(&3) && ends.iter().all(|code| [0, 1, 3].contains(code)), "{ends:?}");
}

const HANGING: &str = r#"
[[turn]]
text = "First I take a note."
[[turn.call]]
tool = "Note"
args = { content = "half of it is done" }

[[turn]]
delay_ms = DELAY
text = "an answer that came while nobody was awake"
"#;

#[test]
fn a_removed_state_directory_loses_the_transcripts_but_not_the_result() {
    let rig = Rig::with_script(&HANGING.replace("DELAY", "300000"));
    let mut run = rig.delegating(&["-t", "slow=think"]).start();
    run.wait_for("[slow] note: half of it is done");
    fs::remove_dir_all(rig.state()).unwrap();
    run.signal(Signal::INT);
    let out = run.finish();
    assert_eq!(out.code, 130, "{out}");
    assert!(out.stdout.contains("> half of it is done"), "{out}");
    assert!(out.stderr.contains("cannot write transcripts"), "{out}");
}

/// The deadline counts while a process is stopped. A process that continues after it is out of time, also
/// when an answer came meanwhile: that one is kept as late.
#[test]
fn a_run_stopped_past_its_deadline_ends_with_partial_results() {
    for delay_ms in ["300000", "1200"] {
        let rig = Rig::with_script(&HANGING.replace("DELAY", delay_ms));
        let mut run = rig.delegating(&["-t", "slow=think", "--set", "timeout_s=1"]).start();
        run.wait_for("[slow] note: half of it is done").signal(Signal::STOP);
        // Waits for the deadline to pass; a stopped process emits no event to wait for.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1_600) {
            thread::park_timeout(Duration::from_millis(100));
        }
        run.signal(Signal::CONT);
        let woken = Instant::now();
        let out = run.finish();
        assert!(woken.elapsed() < Duration::from_secs(20), "it did not wait for the model");
        assert_eq!(out.code, 3, "{delay_ms}: {out}");
        assert!(out.stdout.contains("(TIMEOUT)"), "{delay_ms}: {out}");
        assert!(out.stdout.contains("> half of it is done"), "{delay_ms}: {out}");
        let events = rig.events(&rig.only_run());
        let ends = events.iter().filter(|event| event["type"] == "ended").count();
        assert_eq!(ends, 2, "the child and the root, each once");
        assert!(events.iter().any(|event| event["type"] == "run_ended"));
        assert!(!events.iter().any(|event| event["type"] == "crashed"));
        let late = events.iter().filter(|event| event["type"] == "late").count();
        assert!(late <= usize::from(delay_ms == "1200"), "{delay_ms}: {late} late answers");
    }
}
