//! Running programs in the sandbox.

use std::time::Duration;

use adjutant_workspace::sandbox::{
    Bounds, Cancel, Captured, Config, End, Ended, Network, Place, Program, RunError, Sandbox,
};

use crate::overlay::{Ground, helper};

pub(crate) fn config(ground: &Ground, place: Place) -> Config {
    Config {
        helper: helper(),
        place,
        at: ground.path("at"),
        grants: Vec::new(),
        hidden: Vec::new(),
        network: Network::Off,
        bounds: Bounds::default(),
        may_miss: Vec::new(),
    }
}

/// A program's end and what it said.
pub(crate) fn run(sandbox: &Sandbox, program: &Program) -> Result<(Ended, String), RunError> {
    let mut said = Captured::new(1 << 20);
    let ended = sandbox.run(program, &Cancel::new().unwrap(), &mut said)?;
    Ok((ended, String::from_utf8_lossy(&said.bytes()).into_owned()))
}

#[test]
fn a_command_writes_into_the_overlay_and_the_handle_sees_it() {
    let ground = Ground::new();
    let mounted = ground.mount();
    let sandbox = Sandbox::new(config(&ground, Place::Overlay(mounted.clone()))).unwrap();
    let mut program = Program::shell("echo hi > file; echo said; exit 3");
    program.timeout = Duration::from_secs(20);
    let (ended, said) = run(&sandbox, &program).unwrap();
    assert_eq!((ended.end, said.as_str()), (End::Exited(3), "said\n"));
    assert_eq!(std::fs::read_to_string(ground.path("upper/file")).unwrap(), "hi\n");
}
