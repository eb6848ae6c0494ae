//! Which story is next, and why another is not.

use adjutant_formats::prd::PrdError;
use proptest::prelude::*;

use super::prd;

/// Writes a PRD from lines such as `A 2 < B C`, `A done` and `A in B`.
fn written(lines: &str) -> String {
    let story = |line: &str| {
        let mut words = line.split_whitespace();
        let id = words.next().unwrap();
        let mut fields = format!(r#""id": "{id}", "title": "t""#);
        while let Some(word) = words.next() {
            fields += &match word {
                "done" => r#", "passes": true"#.to_owned(),
                "in" => format!(
                    r#", "delegationContext": {{"parent_story_id": "{}"}}"#,
                    words.next().unwrap()
                ),
                "<" => {
                    let ids: Vec<String> = words.by_ref().map(|id| format!("\"{id}\"")).collect();
                    format!(r#", "dependencies": [{}]"#, ids.join(","))
                }
                priority if priority.bytes().all(|byte| byte.is_ascii_digit()) => {
                    format!(r#", "priority": {priority}"#)
                }
                priority => format!(r#", "priority": "{priority}""#),
            };
        }
        format!("{{{fields}}}")
    };
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    format!(r#"{{"stories": [{}]}}"#, lines.map(story).collect::<Vec<_>>().join(","))
}

fn check(lines: &str) -> String {
    let read = prd(&written(lines));
    let names = |stories: Vec<&adjutant_formats::prd::Story>| {
        stories.iter().map(|story| story.id.as_str()).collect::<Vec<_>>().join(" ")
    };
    let order = read.order().map_or_else(|error| error.to_string(), names);
    let mut may_run = read.order().unwrap_or_else(|_| read.stories().iter().collect());
    may_run.retain(|story| read.select(&story.id).is_ok());
    format!("{order} | {}", names(may_run))
}

#[test]
fn dependencies_come_first_then_priority_then_the_order_of_the_file() {
    for (lines, expected) in [
        ("", " | "),
        ("A\nB\nC", "A B C | A B C"),
        ("A 3\nB 1\nC 2", "B C A | B C A"),
        ("A low\nB\nC critical\nD medium\nE P1", "C E D A B | C E D A B"),
        ("A 1 < B\nB 9\nC 5", "C B A | C B"),
        ("A < B\nB done\nC done", "A | A"),
        ("A 1 < B B C\nB < C\nC 9\nD 2", "D C B A | D C"),
        // A child is never run by itself; a story that depends on a child waits for the child's story.
        ("P-DEL-001 in P\nP\nA 1 < P-DEL-001", "P A | P"),
        ("P done\nP-DEL-001 in P\nA < P-DEL-001", "A | "),
        ("P-DEL-001 done in P\nP 9\nA 1 < P-DEL-001", "P A | P"),
        ("P-DEL-001 done in P\nP done\nA 1 < P-DEL-001", "A | A"),
        ("P-DEL-001 done in P\nP < P-DEL-001", "P | P"),
    ] {
        assert_eq!(check(lines), expected, "{lines}");
    }
}

#[test]
fn a_cycle_is_named_with_its_path() {
    let cycle = "line 1: the dependencies of stories form a cycle: ";
    for (lines, expected) in [
        ("A < A", "A → A | "),
        ("A < B\nB < A", "A → B → A | "),
        ("X < A\nA < B C\nB < C\nC < A\nFree", "A → B → C → A | Free"),
        ("P < P-DEL-001\nP-DEL-001 in P", "P → P | "),
    ] {
        assert_eq!(check(lines), format!("{cycle}{expected}"), "{lines}");
    }
    // A cycle among stories that already pass blocks no other story.
    assert_eq!(check("A done < B\nB done < A\nC < A"), "C | C");
}

#[test]
fn selecting_a_story_that_cannot_run_says_why() {
    let read = prd(&written(
        "US-001\nUS-002 < US-001 US-003\nUS-003\nUS-004 done\nUS-001-DEL-001 in US-001",
    ));
    assert_eq!(read.select("US-001").unwrap().id, "US-001");
    for (id, said) in [
        ("US-002", "story `US-002` depends on `US-001`, `US-003`, which do not pass yet"),
        ("US-004", "story `US-004` already passes; set its `passes` to false to run it again"),
        (
            "US-001-DEL-001",
            "story `US-001-DEL-001` is a child of `US-001` and is not run by itself; run `US-001`",
        ),
        ("us-01", "there is no story `us-01`; did you mean `US-001`?"),
        ("elsewhere", "there is no story `elsewhere`"),
    ] {
        assert_eq!(read.select(id).unwrap_err().to_string(), said);
    }
}

#[test]
fn the_last_child_number_of_a_story_is_found() {
    let read = prd(&written(
        "A\nA-DEL-002 in A\nA-DEL-1000 in A\nA-DEL-x\nA-DEL-002-DEL-007 in A-DEL-002\nB",
    ));
    assert_eq!(read.last_child_number("A"), 1000);
    assert_eq!(read.last_child_number("A-DEL-002"), 7);
    assert_eq!(read.last_child_number("B"), 0);
}

#[test]
fn a_chain_of_fifty_thousand_stories_is_sorted() {
    let count = 50_000;
    let story = |n: u32| format!("S{n} < S{}", n + 1);
    let lines: Vec<String> = (0..count).map(story).chain([format!("S{count}")]).collect();
    let order = prd(&written(&lines.join("\n")));
    let order = order.order().unwrap();
    assert_eq!((order.len(), order[0].id.as_str()), (count as usize + 1, "S50000"));
    let closed: Vec<String> = (0..count).map(|n| format!("S{n} < S{}", (n + 1) % count)).collect();
    let Err(PrdError::Cycle { path, .. }) = prd(&written(&closed.join("\n"))).order() else {
        panic!("the last depends on the first");
    };
    assert_eq!(path.len(), count as usize + 1);
}

proptest! {
    /// Every story that may run is in the order once, behind all it waits for, or there is a cycle
    /// whose every step is a dependency.
    #[test]
    fn the_order_puts_every_dependency_first(
        stories in prop::collection::vec(
            (0..4u8, any::<bool>(), prop::collection::vec(0..12usize, 0..3)), 1..12),
    ) {
        let count = stories.len();
        let line = |(n, (priority, passes, on)): (usize, &(u8, bool, Vec<usize>))| {
            let on: Vec<String> = on.iter().map(|n| format!("S{}", n % count)).collect();
            format!("S{n} {priority} {} < {}", if *passes { "done" } else { "" }, on.join(" "))
        };
        let lines: Vec<String> = stories.iter().enumerate().map(line).collect();
        let read = prd(&written(&lines.join("\n")));
        match read.order() {
            Ok(order) => {
                let place = |id: &str| order.iter().position(|story| story.id == id);
                let open = read.stories().iter().filter(|story| !story.passes).count();
                prop_assert_eq!(order.len(), open);
                for (at, story) in order.iter().enumerate() {
                    for id in read.waits_for(story) {
                        prop_assert!(place(id).unwrap() < at);
                    }
                }
            }
            Err(PrdError::Cycle { path, .. }) => {
                prop_assert!(path.len() > 1 && path.first() == path.last());
                for pair in path.windows(2) {
                    let story = read.story(&pair[0]).unwrap();
                    prop_assert!(!story.passes && story.dependencies.contains(&pair[1]));
                }
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
