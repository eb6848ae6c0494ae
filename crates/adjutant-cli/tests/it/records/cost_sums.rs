//! `cost --since` and `cost --by`.

use std::fs;

use serde_json::json;

use crate::delegate;
use crate::support::rig::Rig;

/// A place with a run in the work tree and one in another directory.
fn rig() -> Rig {
    let rig = delegate::rig();
    assert_eq!(rig.delegate(&["-t", "reader=Look at the notes", "-t", "echo=Hello"]).code, 0);
    let other = rig.path().join("other");
    fs::create_dir(&other).unwrap();
    assert_eq!(rig.delegating(&["-t", "echo=Hello"]).cwd(&other).run().code, 0);
    rig
}

#[test]
fn runs_of_all_directories_are_summed_by_day_model_agent_or_folder() {
    let rig = rig();
    let folder = rig.path().join("empty");
    fs::create_dir(&folder).unwrap();
    let sums = |args: &[&str]| rig.call(["cost"]).args(args).cwd(&folder).run();
    insta::assert_snapshot!(sums(&["--by", "model"]), @"
    model                  runs  calls    in  out     cost
    script:../script.toml     2      4  3.2k  150  $0.0118

    2 runs
    Total: 3,350 tokens, $0.0118
    --- stderr ---
    [exit 0]
    ");
    insta::assert_snapshot!(sums(&["--by", "agent"]), @"
    agent  runs  calls    in  out     cost
    scout     2      4  3.2k  150  $0.0118

    2 runs
    Total: 3,350 tokens, $0.0118
    --- stderr ---
    [exit 0]
    ");
    let folders = sums(&["--by", "folder", "--json"]).json();
    let names: Vec<_> =
        folders["groups"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, [&json!(rig.work()), &json!(rig.path().join("other"))]);
    let days = sums(&["--since", "7d", "--json"]).json();
    assert_eq!(
        (&days["by"], &days["runs"], &days["total"]["calls"]),
        (&json!("day"), &json!(2), &json!(4))
    );
    for since in ["1h", "24h", "4w", "99999999999999999w", "2026-01-01"] {
        assert_eq!(sums(&["--since", since, "--json"]).json()["total"], days["total"], "{since}");
    }
}

#[test]
fn today_begins_at_midnight_of_utc() {
    let rig = rig();
    let today = rig.run(["cost", "--since", "today", "--json"]).json();
    let since = today["since"].as_str().unwrap();
    assert!(since.ends_with("T00:00:00Z"), "{since}");
    let now = rig.run(["cost", "--since", "1h", "--json"]).json();
    assert!(since <= now["since"].as_str().unwrap(), "{now}");
}

#[test]
fn a_period_without_costs_says_so() {
    let rig = rig();
    let out = rig.run(["cost", "--since", "9999-12-31"]);
    insta::assert_snapshot!(out, @"
--- stderr ---
No run spent anything since 2000-01-01T00:00:00Z
[exit 0]
");
    assert_eq!(rig.run(["cost", "--since", "9999-12-31", "--json"]).json()["groups"], json!([]));
    assert_eq!(Rig::new().run(["cost", "--by", "day"]).code, 0);
}

#[test]
fn other_periods_and_other_flags_are_refused_with_what_to_type() {
    let rig = rig();
    insta::assert_snapshot!(rig.run(["cost", "--since", "yesterday"]), @"
--- stderr ---
error: invalid value 'yesterday' for '--since <WHEN>': expected a length of time such as 30m, 24h, 7d or 4w, `today`, or a date such as 2026-11-01

For more information, try '--help'.
[exit 2]
");
    for wrong in ["", "d", "0d", "-1d", "7", "7y", "1.5d", "2026-13-01", "2026-02-30", "７d", "7d "]
    {
        let out = rig.run(["cost", &format!("--since={wrong}")]);
        assert_eq!(out.code, 2, "{wrong}: {out}");
    }
    for args in [&["latest", "--since", "7d"][..], &["--turns", "--by", "day"], &["--by", "year"]] {
        assert_eq!(rig.call(["cost"]).args(args).run().code, 2, "{args:?}");
    }
}

#[test]
fn cost_in_a_directory_without_runs_says_what_to_type() {
    let rig = rig();
    let folder = rig.path().join("empty");
    fs::create_dir(&folder).unwrap();
    insta::assert_snapshot!(rig.call(["cost"]).cwd(&folder).run(), @"
--- stderr ---
adjutant: no run in $PLACE/empty
  The latest elsewhere is run_0000000000_aaaaaa, in $PLACE/other: `adjutant cost run_0000000000_aaaaaa` (or the flag --anywhere) selects it. `adjutant cost --since 7d` sums over all runs.
[exit 2]
");
    for args in [&["--anywhere"][..], &["--since", "7d"]] {
        assert_eq!(rig.call(["cost"]).args(args).cwd(&folder).run().code, 0, "{args:?}");
    }
}
