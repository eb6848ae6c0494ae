//! Kills Adjutant, the agent or both at random moments of a worker's run, and resumes.
//!
//! `ADJUTANT_KILLS` sets another number of kills, up to 200; `ADJUTANT_KILLS_SEED` repeats a failure's choices.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::lifecycle::kill_agents;
use super::site::{CALL_USD, WorkerSite, prompts};
use crate::kills::chance::{Chance, seed};
use crate::support::running::Running;

/// The default number of kills, and the largest.
const KILLS: u64 = 200;

/// Runs at the same time. A run mostly waits for its agent and provider, so that more than one fits a core.
const PLAYERS: u64 = 4;

/// Kills of one run before it may finish.
const DEEPEST: u64 = 3;

/// The events after which a kill may fall.
const EVENTS: [&str; 6] = [
    "space_made",
    "worker_session_opened",
    "worker_call_reserved",
    "worker_call_settled",
    "worker_acted",
    "replied",
];

/// Which processes are killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Adjutant,
    Agent,
    Both,
}

const VICTIMS: [Victim; 3] = [Victim::Adjutant, Victim::Agent, Victim::Both];

fn steps() -> Value {
    let call = json!({"call_model": {"max_tokens": 200, "text": "slow"}});
    let write = |name: &str| json!({"write": {"path": name, "text": format!("{name}\n")}});
    json!([call, write("one"), call, write("two"), call, write("three"),
        {"say": "The work is done. Nothing is left."}])
}

fn site() -> WorkerSite {
    use adjutant_testkit::fake::{Api, Script, Turn};
    let turn = Turn::says("some words of an answer").fragmented(&[3]);
    let turn = turn.delivered(|it| it.event_delay_ms = 3);
    let site = WorkerSite::with(Api::Chat, Script::always([turn]));
    site.script(&prompts([steps()]));
    site
}

fn events(site: &WorkerSite) -> Vec<String> {
    let Some(run) = site.rig().runs().into_iter().next() else { return Vec::new() };
    let journal = site.rig().run_folder(&run).join("journal.jsonl");
    let journal = std::fs::read_to_string(journal).unwrap_or_default();
    journal.lines().map(str::to_owned).collect()
}

/// Waits for the nth new event of a type. Says whether it came before the program ended.
fn wait_for(
    site: &WorkerSite,
    running: &mut Running<'_>,
    kind: &str,
    nth: usize,
    before: usize,
) -> bool {
    let wanted = format!("\"type\":\"{kind}\"");
    let until = std::time::Instant::now() + crate::support::running::GUARD;
    loop {
        let new = events(site);
        if new.iter().skip(before).filter(|line| line.contains(&wanted)).count() >= nth {
            return true;
        }
        if running.has_ended() {
            return false;
        }
        assert!(std::time::Instant::now() < until, "{kind} never came");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Plays a run that is killed several times. Returns the number of kills.
fn play(chance: &mut Chance, number: u64) -> u64 {
    let site = site();
    let mut kills = 0;
    let mut lives = 0;
    let result = loop {
        lives += 1;
        assert!(lives < 12, "it never ends");
        let before = events(&site).len();
        let mut running = if site.rig().runs().is_empty() {
            site.delegate(&[]).start()
        } else {
            site.call(&["resume", "--yes", "--json"]).start()
        };
        if kills < DEEPEST {
            let kind = EVENTS[usize::try_from(chance.below(EVENTS.len() as u64)).unwrap()];
            let nth = 1 + usize::try_from(chance.below(3)).unwrap();
            let victim = VICTIMS[usize::try_from((kills + number) % 3).unwrap()];
            if wait_for(&site, &mut running, kind, nth, before) {
                kills += 1;
                if matches!(victim, Victim::Agent | Victim::Both) {
                    kill_agents(&site);
                }
                if matches!(victim, Victim::Adjutant | Victim::Both) {
                    running.signal(Signal::KILL);
                }
            }
        }
        let out = running.finish();
        site.wait_until_gone();
        if out.code == 0 {
            break out.json();
        }
    };
    assert_eq!(result["results"][0]["outcome"], "completed", "{result}");
    for name in ["one", "two", "three"] {
        assert_eq!(site.kept(name), name);
    }
    site.rig().assert_unharmed();
    site.assert_settled_once();
    let cost = site.call(&["cost", "--json"]).run().json()["total"]["cost_usd"].as_f64().unwrap();
    let whole = site
        .provider
        .requests()
        .iter()
        .filter(|request| request.delivered == Some(adjutant_testkit::fake::DeliveryOutcome::Whole))
        .count();
    #[expect(clippy::cast_precision_loss, reason = "a handful of calls")]
    let served = whole as f64 * CALL_USD;
    assert!(cost >= served - 1e-12, "billed {cost}, served {served}");
    // Every request was reserved, so nothing was asked for behind the books.
    let reserved = site.events("worker_call_reserved").len();
    assert!(site.provider.requests().len() <= reserved);
    kills
}

#[test]
fn killed_workers_are_resumed_and_no_call_is_lost_or_paid_twice() {
    let wanted = std::env::var("ADJUTANT_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let wanted = wanted.min(KILLS);
    let seed = seed();
    let kills = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for player in 0..PLAYERS {
            let kills = &kills;
            scope.spawn(move || {
                let mut chance = Chance::new(seed.wrapping_add(player));
                let mut number = player;
                while kills.load(Ordering::Relaxed) < wanted {
                    eprintln!("run {number} of seed {seed}");
                    kills.fetch_add(play(&mut chance, number), Ordering::Relaxed);
                    number += PLAYERS;
                }
            });
        }
    });
    eprintln!("{} kills", kills.into_inner());
}
