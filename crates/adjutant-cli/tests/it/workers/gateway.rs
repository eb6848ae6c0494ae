//! `adjutant gateway -- CMD`: a budget for the model calls of any program.

use adjutant_testkit::fake::{Api, Script, Turn, Usage};
use serde_json::Value;

use super::site::{WorkerSite, agent};
use crate::kills::chance::{Chance, seed};
use crate::support::rig::{Call, Output};
use crate::support::server::KEY;

fn site() -> WorkerSite {
    site_using(Turn::says("ok"))
}

fn site_using(turn: Turn) -> WorkerSite {
    let site = WorkerSite::with(Api::Chat, Script::always([turn]));
    site.configure("", &site.provider.url(), "chat");
    site
}

/// Prepares a shell command behind the gateway. `$CALL` in it makes a model call.
fn gateway<'a>(site: &'a WorkerSite, flags: &[&str], script: &str) -> Call<'a> {
    let call = format!("{} --call", agent().display());
    site.call(&["gateway", "--model", "fake/priced"])
        .args(flags)
        .args(["--", "sh", "-c", script])
        .env("CALL", call)
        .env("ACP_AGENT_MODEL", "priced")
}

fn run(site: &WorkerSite, flags: &[&str], script: &str) -> Output {
    gateway(site, flags, script).run()
}

#[test]
fn the_exit_code_is_the_program_s_and_its_output_is_untouched() {
    let site = site();
    let budget = ["--budget-usd", "0.5"];
    let out = run(&site, &budget, "cat; echo data; echo talk >&2; exit 7");
    assert_eq!((out.stdout.as_str(), out.code), ("data\n", 7), "{out}");
    assert!(out.stderr.contains("talk\n"), "{out}");
    assert_eq!(run(&site, &budget, "exit 0").code, 0);
    assert_eq!(run(&site, &budget, "kill -TERM $$").code, 128 + 15);
    assert_eq!(run(&site, &budget, "kill -KILL $$").code, 128 + 9);
    let fed = gateway(&site, &budget, "cat").stdin("typed\n").run();
    assert_eq!(fed.stdout, "typed\n");
    site.rig().assert_unharmed();
}

#[test]
fn the_bill_is_printed_at_the_end() {
    let site = site();
    let out =
        run(&site, &["--budget-usd", "0.5"], "$CALL '{}' > /dev/null && $CALL '{}' > /dev/null");
    insta::assert_snapshot!(out, @"
    --- stderr ---
                 calls   in  cache read  cache write  out      own  inclusive
    [root]           0    0           0            0    0    $0.00    $0.0006
      [program]      2  200           0            0   20  $0.0006    $0.0006

    agent  calls   in  cache read  cache write  out     cost
    scout      2  200           0            0   20  $0.0006

    model        calls   in  cache read  cache write  out     cost
    fake/priced      2  200           0            0   20  $0.0006

    Total: 220 tokens, $0.0006
    [exit 0]
    ");
    assert_eq!(site.provider.served_tokens(), 220);
}

#[test]
fn the_keys_stay_in_adjutant() {
    let site = site();
    let call = gateway(&site, &["--budget-usd", "0.5"], "env; cat /proc/self/environ");
    let out = call
        .env("OPENAI_API_KEY", "sk-another-secret-of-the-user")
        .env("ANTHROPIC_AUTH_TOKEN", "one-more-secret")
        .env("CLAUDECODE", "1")
        .run();
    assert_eq!(out.code, 0, "{out}");
    for secret in [KEY, "sk-another-secret-of-the-user", "one-more-secret", "CLAUDECODE="] {
        assert!(!out.stdout.contains(secret), "{secret}: {out}");
    }
    assert!(out.stdout.contains("OPENAI_API_KEY=held-by-adjutant"), "{out}");
}

#[test]
fn a_call_beyond_the_cap_is_refused_and_never_reaches_the_provider() {
    let usage = Usage { input: 900, output: 100, ..Usage::default() };
    for flags in [["--budget-usd", "0.05"], ["--budget-tokens", "6000"]] {
        let site = site_using(Turn::says("ok").using(usage));
        let script = "n=0; while $CALL '{\"max_tokens\": 150}'; do n=$((n+1)); done; exit $n";
        let out = run(&site, &flags, script);
        let calls: Vec<Value> = out.lines().collect();
        let last = calls.last().unwrap();
        assert_eq!(last["status"], 402, "{out}");
        assert!(last["body"].as_str().unwrap().contains("budget exhausted"), "{last}");
        let served = site.provider.requests().len();
        assert_eq!(served, calls.len() - 1);
        assert_eq!(usize::try_from(out.code).unwrap(), served, "{out}");
        // A call is 1,000 tokens and 0.0028 dollars.
        assert!((4..=18).contains(&served), "{served}");
    }
}

#[test]
fn what_cannot_be_started_or_bounded_is_refused() {
    let site = site();
    let start = |args: &[&str]| site.call(&["gateway"]).args(args).run().to_string();
    let missing = ["--budget-usd", "1", "--model", "fake/priced", "--", "no-such-program"];
    insta::assert_snapshot!(start(&missing), @"
    --- stderr ---
                 calls  in  cache read  cache write  out    own  inclusive
    [root]           0   0           0            0    0  $0.00      $0.00
      [program]      0   0           0            0    0  $0.00      $0.00

    Total: 0 tokens, $0.00
    adjutant: cannot start no-such-program: No such file or directory (os error 2)
    [exit 2]
    ");
    insta::assert_snapshot!(start(&["--budget-usd", "1", "--model", "fake/other", "--", "true"]), @"
    --- stderr ---
    adjutant: the price of fake/other is unknown, so dollars cannot bound it
      Use --budget-tokens, leave the model out, or set its price in [models] of the user config.
    [exit 2]
    ");
    insta::assert_snapshot!(start(&["--budget-usd", "1", "--model", "script:x", "--", "true"]), @"
    --- stderr ---
    adjutant: the script x must be named .toml or .json
    [exit 2]
    ");
    let out =
        site.call(&["gateway", "--budget-usd", "1", "--", "true"]).env_remove("FAKE_KEY").run();
    insta::assert_snapshot!(out, @"
    --- stderr ---
    adjutant: no model can be reached: no API key is set
      Set a key (`adjutant doctor` says how), or name a local model with --model.
    [exit 2]
    ");
    insta::assert_snapshot!(start(&["--budget-tokens", "2500", "--model", "fake/priced", "--", "true"]), @"
    --- stderr ---
                 calls  in  cache read  cache write  out    own  inclusive
    [root]           0   0           0            0    0  $0.00      $0.00
      [program]      0   0           0            0    0  $0.00      $0.00

    Total: 0 tokens, $0.00
    adjutant: Token budget exceeded: the task needs at least 5,101 tokens, 2,500 of the run's 2,500 are left.
    [exit 4]
    ");
    insta::assert_snapshot!(start(&["--budget-usd", "-1", "--model", "fake/priced", "--", "true"]), @"
    --- stderr ---
    error: unexpected argument '-1' found

      tip: to pass '-1' as a value, use '-- -1'

    Usage: adjutant gateway [OPTIONS] -- <COMMAND>...

    For more information, try '--help'.
    [exit 2]
    ");
    assert_eq!(site.provider.requests().len(), 0);
}

#[test]
fn another_program_without_the_secret_path_finds_nothing() {
    let site = site();
    // The secret is the first part of the path.
    let script = "ACP_AGENT_BASE_URL=${OPENAI_BASE_URL%/*/v1} $CALL '{}'; \
                  ACP_AGENT_BASE_URL=${OPENAI_BASE_URL%/*/v1}/00000000000000000000000000000000 $CALL '{}'; \
                  ACP_AGENT_BASE_URL=${OPENAI_BASE_URL%?/v1} $CALL '{}'; $CALL '{}'";
    let out = run(&site, &["--budget-usd", "1"], script);
    let statuses: Vec<Value> = out.lines().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, [404, 404, 404, 200], "{out}");
    assert_eq!(site.provider.requests().len(), 1);
}

#[test]
fn what_is_served_never_exceeds_the_cap_and_the_reported_overruns() {
    let seed = seed();
    let mut chance = Chance::new(seed);
    for case in 0..10 {
        let cap = 5_200 + chance.below(4_000);
        let at_once = 2 + chance.below(7);
        let usage = Usage {
            input: 100 + chance.below(1_500),
            output: 1 + chance.below(150),
            ..Usage::default()
        };
        let site = site_using(Turn::says("ok").using(usage));
        let script = format!(
            "for round in 1 2; do for i in $(seq {at_once}); do $CALL '{{\"max_tokens\": 150}}' & done; wait; done"
        );
        let cap_flag = cap.to_string();
        let out = run(&site, &["--budget-tokens", &cap_flag], &script);
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(out.lines().count() as u64, 2 * at_once, "{out}");
        let overruns: u64 = site
            .events("overran")
            .iter()
            .map(|event| event["amount"]["tokens"].as_u64().unwrap())
            .sum();
        let served = site.provider.served_tokens();
        let about = format!("case {case} of seed {seed}: cap {cap}, {at_once} at once, {usage:?}");
        assert!(served <= cap + overruns, "{about}: served {served}, overruns {overruns}");
        site.assert_settled_once();
        let billed = site.call(&["cost", "--json"]).run().json()["total"]["usage"].clone();
        let billed = billed["input"].as_u64().unwrap() + billed["output"].as_u64().unwrap();
        assert_eq!(billed, served, "{about}");
    }
}
