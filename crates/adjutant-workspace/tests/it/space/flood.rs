//! Programs that write files that cannot be kept: the rest of their work is kept.

use adjutant_workspace::SkipReason;
use adjutant_workspace::sandbox::{ProgramEnd, ResourceBounds};
use adjutant_workspace::space::WorkspaceError;

use super::*;
use crate::git::put;
use crate::overlay::PROBE;

#[test]
fn deep_directories_and_sparse_files_do_not_lose_the_work() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let text = "echo x > kept; truncate -s 700000000 huge; mkdir -p d/e && echo y > d/e/f";
        let (ended, said) = run(&space, text);
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{said}");
        let deep: String = "n/".repeat(300);
        let text = format!("mkdir -p {deep} && echo z > {deep}bottom");
        assert_eq!(run(&space, &text).0.end, ProgramEnd::Exited(0));
        let kept = space.keep("work\n", now()).unwrap();
        let shown = contents(&user, &kept.commit.unwrap());
        assert_eq!(shown["kept"], "x\n", "{kind}");
        assert_eq!(shown["d/e/f"], "y\n", "{kind}");
        assert!(!shown.contains_key("huge") && !shown.keys().any(|path| path.ends_with("bottom")));
        let reason = |wanted: SkipReason| kept.skipped.iter().any(|it| it.reason == wanted);
        assert!(reason(SkipReason::TooLarge(700_000_000)), "{kind}: {:?}", kept.skipped);
        assert!(reason(SkipReason::TooDeep), "{kind}: {:?}", kept.skipped);
        // A file that is too large may be work, so it is not removed.
        assert!(matches!(space.close(), Err(WorkspaceError::Unkept { .. })), "{kind}");
        remove(&space, "huge");
        space.keep("work\n", now()).unwrap();
        space.close().unwrap();
    }
}

#[test]
fn five_thousand_levels_are_left_out_reported_and_removed() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        write(&space, "kept", "x\n");
        let levels = "n/".repeat(1_000);
        let down = format!("mkdir -p {levels} && cd -P {levels} && ");
        let (ended, said) = run(&space, &format!("{} echo z > bottom", down.repeat(5)));
        // Directories that are too deep to measure count as exceeding the bound.
        let made = matches!(ended.end, ProgramEnd::Exited(0) | ProgramEnd::TooMuchWritten { .. });
        assert!(made, "{kind}: {:?} {said}", ended.end);
        let kept = space.keep("work\n", now()).unwrap();
        assert_eq!(contents(&user, &kept.commit.unwrap())["kept"], "x\n", "{kind}");
        let deep = kept.skipped.iter().any(|it| it.reason == SkipReason::TooDeep);
        assert!(deep, "{kind}: {:?}", kept.skipped.len());
        space.close().unwrap();
        assert!(!space.directory().exists(), "{kind}");
        assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), [], "{kind}: nothing stays behind");
    }
}

#[test]
fn a_pipe_in_place_of_gitignore_or_gitattributes_does_not_block() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let text = "rm .gitignore && mkfifo .gitignore .gitattributes src/.gitignore src/.gitattributes && \
                    echo x > src/new && touch README src/*";
        let (ended, said) = run(&space, text);
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{kind}: {said}");
        let began = std::time::Instant::now();
        let kept = space.keep("work\n", now()).unwrap();
        let shown = contents(&user, &kept.commit.unwrap());
        assert_eq!(shown["src/new"], "x\n", "{kind}");
        let special = kept.skipped.iter().filter(|it| it.reason == SkipReason::Special);
        let names: Vec<&str> = special.map(|it| it.path.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [".gitattributes", ".gitignore", "src/.gitattributes", "src/.gitignore"],
            "{kind}"
        );
        space.close().unwrap();
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{kind}");
    }
}

#[test]
fn the_disk_bound_includes_unreadable_directories() {
    for (backing, kind) in KINDS {
        for closed in ["true", "chmod 000 full"] {
            let user = user();
            let spaces = open(&user, backing);
            let space = spaces.make("run", "child", "1", None).unwrap();
            let bounds = ResourceBounds { disk_bytes: 20 << 20, ..ResourceBounds::default() };
            let sandbox =
                space.sandbox(SandboxOptions { bounds, ..SandboxOptions::default() }).unwrap();
            let fill = "for n in 1 2 3 4; do head -c 15000000 /dev/zero > full/$n; done; sync";
            let text = format!("mkdir full && {fill}; {closed}; exec sleep 60");
            let mut captured = BoundedOutput::new(64 << 10);
            let cancel = CancelHandle::new().unwrap();
            let ended = sandbox.run(&ProgramSpec::shell(&text), &cancel, &mut captured).unwrap();
            assert!(
                matches!(ended.end, ProgramEnd::TooMuchWritten { .. }),
                "{kind}: {:?}",
                ended.end
            );
        }
    }
}

#[test]
fn added_files_are_counted_and_those_of_the_base_are_not() {
    for (backing, kind) in KINDS {
        let user = user();
        for number in 0..300 {
            put(&user.tree.join(format!("base/{number}")), "x\n");
        }
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let bounds = ResourceBounds { entries: 200, ..ResourceBounds::default() };
        let run = |text: &str| {
            let bounds = bounds.clone();
            let sandbox =
                space.sandbox(SandboxOptions { bounds, ..SandboxOptions::default() }).unwrap();
            let mut captured = BoundedOutput::new(64 << 10);
            sandbox
                .run(&ProgramSpec::shell(text), &CancelHandle::new().unwrap(), &mut captured)
                .unwrap()
                .end
        };
        let add = |from: u32, to: u32| {
            format!(
                "mkdir -p new/sub; for n in $(seq {from} {to}); do : > new/sub/$n; done; sleep 0.6"
            )
        };
        // 200 with the two directories, over two runs. Changing and replacing files does not count.
        assert_eq!(run(&add(1, 100)), ProgramEnd::Exited(0), "{kind}");
        let change = "for n in $(seq 3 299); do echo y >> base/$n; done; echo y > a; mv a base/0";
        assert_eq!(run(&format!("{change}; {}", add(101, 198))), ProgramEnd::Exited(0), "{kind}");
        let ended = run(&format!("{}; exec sleep 60", add(199, 260)));
        assert!(
            matches!(ended, ProgramEnd::TooManyEntries { entries } if entries > 200),
            "{kind}: {ended:?}"
        );
        // Surplus files can be removed, but no more can be added.
        assert_eq!(run("rm new/sub/1; sleep 0.6"), ProgramEnd::Exited(0), "{kind}");
        let ended = run(&format!("{}; exec sleep 60", add(1_000, 1_100)));
        assert!(matches!(ended, ProgramEnd::TooManyEntries { .. }), "{kind}: {ended:?}");
        assert_eq!(run("rm -r new; sleep 0.6"), ProgramEnd::Exited(0), "{kind}");
        assert_eq!(run(&add(1, 150)), ProgramEnd::Exited(0), "{kind}");
    }
}

#[test]
fn the_disk_bound_includes_deleted_open_files() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let bounds = ResourceBounds { disk_bytes: 20 << 20, ..ResourceBounds::default() };
        let grants = vec![PathBuf::from(PROBE.as_str())];
        let backing = SandboxOptions { bounds, grants, ..SandboxOptions::default() };
        let sandbox = space.sandbox(backing).unwrap();
        let words = [PROBE.as_str(), "fill-unlinked", "200000000"].map(Into::into);
        let mut captured = BoundedOutput::new(64 << 10);
        let cancel = CancelHandle::new().unwrap();
        let ended = sandbox.run(&ProgramSpec::new(words), &cancel, &mut captured).unwrap();
        let said = String::from_utf8_lossy(&captured.bytes()).into_owned();
        let ProgramEnd::TooMuchWritten { bytes } = ended.end else {
            panic!("{kind}: {ended:?} {said}")
        };
        // The size was measured, not only assumed because measuring failed.
        assert!(bytes > (20 << 20) + 1, "{kind}: {bytes}");
    }
}

#[test]
fn writes_of_other_programs_on_the_same_disk_end_no_run() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let bounds = ResourceBounds { disk_bytes: 20 << 20, ..ResourceBounds::default() };
        let sandbox =
            space.sandbox(SandboxOptions { bounds, ..SandboxOptions::default() }).unwrap();
        // Zombies do not hide anything either.
        let text = "echo x > started; (exec true & exec sleep 3) & sleep 3; echo done";
        let mut captured = BoundedOutput::new(64 << 10);
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                while read(&space, "started").is_none() {
                    std::thread::yield_now();
                }
                let mut file = std::fs::File::create(user.outer.path().join("large")).unwrap();
                for _ in 0..100 {
                    std::io::Write::write_all(&mut file, &vec![1; 1 << 20]).unwrap();
                }
                file.sync_all().unwrap();
            });
            let cancel = CancelHandle::new().unwrap();
            sandbox.run(&ProgramSpec::shell(text), &cancel, &mut captured).unwrap()
        });
        let said = String::from_utf8_lossy(&captured.bytes()).into_owned();
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{kind}: {said}");
    }
}
