//! Races that a check of a path before opening it would lose.

use std::sync::atomic::{AtomicBool, Ordering};

use adjutant_workspace::sandbox::{ProgramEnd, ProgramSpec, Sandbox, SandboxWorkspace};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::overlay::Ground;
use crate::sandbox::{config, run};
use crate::{Tree, rel};

/// Swaps a directory with a link that leads outside, atomically and as fast as possible.
#[test]
fn a_directory_flipped_to_an_outward_link_never_leads_out() {
    let tree = Tree::new();
    tree.write("flip/file", "inside");
    std::fs::create_dir(tree.outer.path().join("away")).unwrap();
    std::fs::write(tree.outer.path().join("away/file"), "outside").unwrap();
    tree.link("../away", "other");
    let (flip, other) = (tree.path("flip"), tree.path("other"));
    let done = AtomicBool::new(false);
    let (mut inside, mut escaped) = (0_u32, 0_u32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &flip, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for index in 0..20_000 {
            let path = if index % 2 == 0 { "flip/file" } else { "flip/../flip/file" };
            if let Ok(opened) = tree.root.open_file(&rel(path)) {
                match std::io::read_to_string(opened.file).unwrap().as_str() {
                    "inside" => inside += 1,
                    _ => escaped += 1,
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(escaped, 0);
    assert!(inside > 0, "the race was never won by the directory, so nothing was tested");
}

/// Repeats an action in another thread while `body` runs.
fn meanwhile(act: impl Fn() + Sync, body: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                act();
            }
        });
        // Stops the thread even if the body panics.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        done.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Hidden paths below a grant are created, removed and change their type while sandboxes are built.
#[test]
fn a_hidden_path_that_is_replaced_all_the_time_fails_no_run_and_ends_up_hidden() {
    let ground = Ground::new();
    let cache = ground.path("cache");
    std::fs::create_dir_all(cache.join("folder")).unwrap();
    std::fs::write(cache.join("folder/in"), "secret").unwrap();
    std::fs::write(cache.join("file"), "secret").unwrap();
    let mut config = config(&ground, SandboxWorkspace::directory(ground.path("at")));
    config.grants = vec![cache.clone(), cache.join("gone")];
    config.hidden = ["folder", "file", "swapped", "made"].map(|name| cache.join(name)).into();
    let (folder, file) = (cache.join("folder"), cache.join("file"));
    let (swapped, made, gone) = (cache.join("swapped"), cache.join("made"), cache.join("gone"));
    std::fs::write(&swapped, "secret").unwrap();
    let sandbox = Sandbox::new(config).unwrap();
    // The content, under either of its names.
    let look = format!("cat '{0}'/* '{0}'/*/* 2>/dev/null; exit 0", cache.display());
    let outside = std::process::Command::new("/bin/sh").args(["-c", &look]).output().unwrap();
    assert!(String::from_utf8_lossy(&outside.stdout).contains("secret"));
    let flip = || {
        let _ = renameat_with(CWD, &swapped, CWD, &folder, RenameFlags::EXCHANGE);
        let _ = renameat_with(CWD, &swapped, CWD, &file, RenameFlags::EXCHANGE);
        let _ = std::fs::write(&made, "secret");
        let _ = std::fs::create_dir(&gone);
        let _ = std::fs::remove_file(&made);
        let _ = std::fs::remove_dir(&gone);
    };
    meanwhile(flip, || {
        for _ in 0..150 {
            let (ended, said) = run(&sandbox, &ProgramSpec::shell("true")).unwrap();
            assert_eq!(ended.end, ProgramEnd::Exited(0), "{said}");
        }
    });
    // Once nothing changes any more, nothing of it is visible.
    let (_, said) = run(&sandbox, &ProgramSpec::shell(look)).unwrap();
    assert!(!said.contains("secret"), "{said}");
}
