//! Part of `admission`: fan out.

use super::*;

#[test]
fn requirement_24_a_call_with_too_many_tasks_is_refused_as_a_whole() {
    for (preset, most) in [(Preset::Scout, 8), (Preset::Command, 1), (Preset::Story, 10)] {
        let mut sim = Sim::new(policy(preset, &["enabled=true"]));
        let root = sim.root();
        let before = sim.log.len();
        let refusal = sim.ask(root, many(most + 1), None).unwrap_err();
        assert_eq!(refusal.code(), ErrorCode::MaxDelegationsExceeded);
        assert_eq!(sim.log.len(), before, "nothing may have happened");
        assert_eq!(granted(&sim.ask(root, many(most), None).unwrap()).len(), most, "{preset}");
    }
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    insta::assert_snapshot!(shown(&sim.ask(root, many(9), None).unwrap_err()), @r"
    MAX_DELEGATIONS_EXCEEDED: Too many delegations (9). Maximum: 8
    the call would have 9 delegations, limit 8
    => Delegate fewer, larger tasks, or start the run again with --set tasks_per_call=9.
    ");
}

#[test]
fn fan_out_counts_earlier_grants_of_the_same_batch() {
    // 45 of 50 are granted; of eight more five stand and three are refused, in input order.
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    for count in [8, 8, 8, 8, 8, 5] {
        assert_eq!(granted(&sim.ask(root, many(count), None).unwrap()).len(), count);
    }
    let events = sim.ask(root, many(8), None).unwrap();
    let answers: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            Event::Granted(_) => Some("granted"),
            Event::Refused { reason, .. } => Some(reason.code.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(answers[..5], ["granted"; 5]);
    assert_eq!(answers[5..], ["MAX_DELEGATIONS_EXCEEDED"; 3]);
    let Event::Refused { reason, index, .. } = &events[5] else { panic!("{events:?}") };
    assert_eq!(*index, 5);
    insta::assert_snapshot!(format!("{}\n=> {}", reason.message, reason.recommendation), @r"
    Too many delegations (51). Maximum: 50 per run
    => Delegate fewer, larger tasks, or start the run again with --set children_per_run=51.
    ");
}

#[test]
fn d12_ended_children_count_towards_the_limit_per_parent() {
    let mut sim = Sim::new(policy(Preset::Story, &["enabled=true"]));
    let root = sim.root();
    // A child that keeps the run open, and nine that come and go.
    let open = sim.child(about("open"));
    for n in 0..9 {
        let child = sim.child(about(&format!("n{n}")));
        sim.cancel(child);
    }
    let eleventh = sim.ask(root, many(1), None).unwrap();
    assert_eq!(refused(&eleventh), [ErrorCode::MaxDelegationsExceeded]);
    // The limit is each parent's own.
    assert_eq!(granted(&sim.ask(open, many(10), None).unwrap()).len(), 10);
    assert_eq!(
        refused(&sim.ask(open, many(1), None).unwrap()),
        [ErrorCode::MaxDelegationsExceeded]
    );
}

#[test]
fn equal_labels_in_one_call_get_numbers() {
    let labels = |labels: &[&str]| -> Vec<String> {
        let mut sim = Sim::new(scout(&[]));
        let briefs = labels.iter().map(|label| about(label)).collect();
        sim.children(briefs).iter().map(|child| sim.node(*child).label.to_string()).collect()
    };
    assert_eq!(labels(&["a", "b", "a", "a"]), ["a", "b", "a (2)", "a (3)"]);
    // A label that already looks numbered is not taken twice.
    assert_eq!(labels(&["a", "a (2)", "a"]), ["a", "a (2)", "a (3)"]);
    assert_eq!(labels(&["a", "a", "a (2)"]), ["a", "a (2)", "a (2) (2)"]);
}
