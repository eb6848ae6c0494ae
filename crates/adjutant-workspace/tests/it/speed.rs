//! Figures: what a sandboxed call and an overlay cost. Run with `--ignored --nocapture`, best in release.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adjutant_workspace::overlay::Overlay;
use adjutant_workspace::sandbox::{
    BoundedOutput, CancelHandle, ProgramSpec, Sandbox, SandboxWorkspace,
};

use crate::overlay::{Ground, helper};
use crate::sandbox::config;

fn least(times: usize, mut work: impl FnMut()) -> (Duration, Duration) {
    let mut all: Vec<Duration> = (0..times)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        })
        .collect();
    all.sort();
    (all[0], all[times / 2])
}

#[test]
#[ignore = "a measurement"]
fn a_sandboxed_call_costs_at_most_six_milliseconds_more() {
    let ground = Ground::new();
    let sandbox = Sandbox::new(config(&ground, SandboxWorkspace::Overlay(ground.mount()))).unwrap();
    let cancel = CancelHandle::new().unwrap();
    let program = ProgramSpec::new(["/bin/true".into()]);
    let plain = least(300, || {
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().unwrap().success());
    });
    let inside = least(300, || {
        sandbox.run(&program, &cancel, &mut BoundedOutput::new(1024)).unwrap();
    });
    println!(
        "plain {:?} (median {:?}), sandboxed {:?} (median {:?})",
        plain.0, plain.1, inside.0, inside.1
    );
    assert!(inside.0 < plain.0 + Duration::from_millis(6), "{:?}", inside.0 - plain.0);
}

#[test]
#[ignore = "a measurement"]
fn mounting_an_overlay_takes_the_same_time_whatever_is_in_its_layers() {
    let mut least_of = Vec::new();
    for files in [100, 50_000] {
        let ground = Ground::new();
        for folder in 0..files / 100 {
            let folder = ground.path(&format!("base/{folder}"));
            fs::create_dir(&folder).unwrap();
            for file in 0..100 {
                fs::write(folder.join(file.to_string()), "x").unwrap();
            }
        }
        let ready = least(50, || drop(Overlay::mount(&helper(), ground.layers()).unwrap()));
        let mut mounts = Vec::new();
        for _ in 0..20 {
            let begun = Instant::now();
            let mounted = Overlay::mount(&helper(), ground.layers()).unwrap();
            mounts.push(begun.elapsed());
            drop(mounted);
        }
        let mount = mounts.iter().min().unwrap();
        println!(
            "{files} files: ready and gone in {:?} (median {:?}), ready in {mount:?}",
            ready.0, ready.1
        );
        least_of.push(ready.0);
    }
    assert!(least_of[1] < least_of[0] * 3 / 2 + Duration::from_millis(1), "{least_of:?}");
}
