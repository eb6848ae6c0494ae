//! The names of runs and subagents: an id, the start of one, a label of the latest run, or `#N`.

use std::fs;

use serde_json::Value;

use crate::support::repository::Repo;
use crate::support::rig::Rig;

fn done(times: usize) -> Rig {
    Rig::with_script(&"[[turn]]\ntext = 'done'\n".repeat(times))
}

fn session(rig: &Rig, run: &str, label: &str) -> String {
    let granted = |event: &&Value| event["type"] == "granted" && event["brief"]["label"] == label;
    let events = rig.events(run);
    events.iter().find(granted).unwrap()["session"].as_str().unwrap().to_owned()
}

#[test]
fn every_view_accepts_a_subagent_by_label_number_or_id() {
    let rig = done(4);
    let out = rig.delegate(&["-t", "one=a", "-t", "two=b", "-t", "one=c"]);
    assert_eq!(out.code, 0, "{out}");
    let run = rig.only_run();
    for (number, label) in [(1, "one"), (2, "two"), (3, "one (2)")] {
        let session = session(&rig, &run, label);
        let names = [
            label.to_owned(),
            format!("#{number}"),
            format!("latest#{number}"),
            format!("{run}#{number}"),
            session[..session.len() - 1].to_owned(),
        ];
        for command in ["transcript", "result", "status", "cost", "log", "wait", "errors"] {
            let by_id = rig.run([command, &session]);
            assert_eq!(by_id.code, 0, "{command}: {by_id}");
            for name in &names {
                let out = rig.run([command, name]);
                assert_eq!((out.code, &out.stdout), (0, &by_id.stdout), "{command} {name}: {out}");
            }
        }
    }
}

#[test]
fn a_label_refers_to_the_latest_run_of_this_folder_and_wins_over_an_id_prefix() {
    let rig = done(3);
    let other = rig.path().join("other");
    fs::create_dir(&other).unwrap();
    // Every run id begins with these digits.
    assert_eq!(rig.delegate(&["-t", "17=a"]).code, 0);
    let first = rig.only_run();
    let args = ["delegate", "--yes", "-t", "17=a", "-t", "apart=b", "--model", rig.model()];
    assert_eq!(rig.call(args).cwd(&other).run().code, 0);
    let of = |name: &str| rig.run(["transcript", name, "--json"]);
    let session = session(&rig, &first, "17");
    assert_eq!(of("17").json()["session_id"], session.as_str());
    assert_eq!(of("apart").code, 2, "it is a label of another folder");
    assert_eq!(rig.call(["transcript", "apart"]).cwd(&other).run().code, 0);
}

#[test]
fn diff_merge_and_discard_accept_a_label_or_number() {
    let repo = Repo::new();
    let ran = repo.ran(&["one", "two", "three"]);
    for (place, file) in ["first", "second", "third"].into_iter().enumerate() {
        repo.keep(&ran, place, |tree| fs::write(tree.join(file), "new\n").unwrap());
    }
    for name in ["two", "#2", "latest#2"] {
        let out = repo.rig.run(["diff", name, "--stat"]);
        assert_eq!(out.stdout, "A    +1    -0  second\n", "{name}: {out}");
    }
    assert_eq!(repo.rig.run(["merge", "one"]).code, 0);
    assert_eq!(repo.rig.run(["discard", "#3", "--yes"]).code, 0);
    let work = repo.rig.work();
    let made: Vec<&str> =
        ["first", "second", "third"].into_iter().filter(|it| work.join(it).exists()).collect();
    assert_eq!(made, ["first"]);
    let left = repo.git(["for-each-ref", "--format=%(refname)", "refs/adjutant"]);
    assert!(left.contains(&ran.sessions[1]) && !left.contains(&ran.sessions[2]), "{left}");
}

#[test]
fn tell_and_cancel_accept_a_label_or_number() {
    let rig = Rig::with_script(&"[[turn]]\ndelay_ms = 300000\ntext = 'late'\n".repeat(2));
    let mut live = rig.delegating(&["-t", "slow=x", "-t", "other=y"]).start();
    live.wait_for("[slow] started").wait_for("[other] started");
    let run = rig.only_run();
    let told = rig.run(["tell", "other", "Be brief", "--json"]);
    assert_eq!(told.code, 0, "{told}");
    assert_eq!(told.json()["session"], session(&rig, &run, "other").as_str());
    let cancelled = rig.run(["cancel", "#1", "--json"]);
    assert_eq!(cancelled.code, 0, "{cancelled}");
    assert_eq!(cancelled.json()["session"], session(&rig, &run, "slow").as_str());
    live.wait_for("[slow] ■ cancelled");
    assert_eq!(rig.run(["cancel", "other"]).code, 0);
    let _ = live.finish();
}

/// A parent agent that delegates two tasks with the same label, one after the other.
const TWICE: &str = r#"
[[turn]]
label = "root"
text = "First."
[[turn.call]]
tool = "Delegate"
args = { tasks = [{ label = "look", prompt = "Look at a" }] }

[[turn]]
label = "root"
text = "Again."
[[turn.call]]
tool = "Delegate"
args = { tasks = [{ label = "look", prompt = "Look at b" }] }

[[turn]]
label = "root"
text = "Both are done."

[[turn]]
label = "look"
text = "seen"

[[turn]]
label = "look"
text = "seen"
"#;

#[test]
fn an_unknown_or_ambiguous_name_lists_the_choices() {
    let rig = Rig::with_script(TWICE);
    let out = rig.call(["run", "Look twice", "--yes", "--model", rig.model()]).run();
    assert_eq!(out.code, 0, "{out}");
    let talk = |name: &str| rig.run(["transcript", name]).talk();
    insta::assert_snapshot!(talk("look"), @"
    adjutant: `look` is the label of 2 tasks of run_0000000000_aaaaaa
      Name one by its number or session:
      '#1'  sess_0000000000_bbbbbb
      '#2'  sess_0000000000_cccccc
    [exit 2]
    ");
    insta::assert_snapshot!(talk("lok"), @"
    adjutant: there is no run `lok`
      It is not a label of the latest run here either: `adjutant tree run_0000000000_aaaaaa` lists them, `adjutant status` the runs. Did you mean look?
    [exit 2]
    ");
    insta::assert_snapshot!(talk("#3"), @"
    adjutant: there is no #3: run_0000000000_aaaaaa has #1 to #2
      `adjutant tree run_0000000000_aaaaaa` shows the numbers.
    [exit 2]
    ");
    insta::assert_snapshot!(talk("#x"), @"
    adjutant: there is no #x: run_0000000000_aaaaaa has #1 to #2
      `adjutant tree run_0000000000_aaaaaa` shows the numbers.
    [exit 2]
    ");
    let elsewhere = rig.call(["tell", "look", "Hello"]).cwd(rig.path()).run();
    insta::assert_snapshot!(elsewhere.talk(), @r#"
    adjutant: there is no run `look`
      Labels are those of the latest run here: no live run in $PLACE
      `adjutant status` lists the runs. A subagent that has ended goes on with `adjutant resume SESSION --say`.
    [exit 2]
    "#);
    insta::assert_snapshot!(rig.run(["transcript"]).talk(), @"
    adjutant: run_0000000000_aaaaaa has 3 transcripts; name one:
      `adjutant transcript sess_0000000000_aaaaaa`   [root]
      `adjutant transcript sess_0000000000_bbbbbb`   #1 [look]
      `adjutant transcript sess_0000000000_cccccc`   #2 [look]
    [exit 2]
    ");
}
