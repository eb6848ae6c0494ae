//! Whose work the verify command of a run decides about, and what its agents are told.

use adjutant_core::VerifyCommand;
use adjutant_core::workspace::WorkspaceTerms;

use super::*;

/// Begins a run whose work a person wants verified.
fn verified_run(settings: &[&str]) -> Sim {
    let own =
        ["enabled=true", "contract=report", r#"tools=["Delegate","Edit","Read","Run","Write"]"#];
    let mut log = Sim::new(policy(Preset::Story, &[&own, settings].concat())).log;
    let Event::RunStarted { terms, .. } = &mut log[0].1 else { panic!("{:?}", log[0]) };
    let verify = VerifyCommand { command: "make test".into(), keep: vec!["tests/**".into()] };
    *terms = Some(Box::new(WorkspaceTerms { verify: Some(verify), ..WorkspaceTerms::default() }));
    Sim::replay(&log)
}

fn grant_of(sim: &Sim, session: SessionId) -> &adjutant_core::Grant {
    let found = sim.log.iter().find_map(|(_, event)| match event {
        Event::Granted(grant) if grant.session == session => Some(&**grant),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn the_command_of_a_run_decides_for_tasks_of_the_root_and_definitions_for_deeper_ones() {
    let mut sim = verified_run(&[]);
    let own = Brief { verify: Some("make own".into()), ..about("own") };
    let child = sim.child(own.clone());
    let command = |sim: &Sim, session| {
        grant_of(sim, session).brief.verify.as_ref().map(|it| it.command.clone())
    };
    assert_eq!(command(&sim, child).as_deref(), Some("make test"));
    insta::assert_snapshot!(grant_of(&sim, child).preface.as_deref().unwrap(), @"When you report that you are done, your work is committed and `make test` must succeed in a fresh copy of that commit. If it fails, you get its output and go on. Files that match `tests/**` are taken from the state you started from, so changes to them do not count.");
    let below = sim.child_of(child, Brief { prompt: "Another part".into(), ..own });
    assert_eq!(command(&sim, below).as_deref(), Some("make own"));
    let plain = sim.child_of(child, Brief { prompt: "A third part".into(), ..about("plain") });
    assert_eq!(command(&sim, plain), None);
}

#[test]
fn work_without_a_workspace_of_its_own_is_not_verified() {
    let mut sim = verified_run(&["workspace=shared"]);
    let reader = sim.child(Brief { verify: Some("make own".into()), ..about("x") });
    assert_eq!(grant_of(&sim, reader).brief.verify, None);
}
