//! Journals of applications: damaged, interrupted, edited by the user, removed.

use adjutant_workspace::{ApplyError, RecoveredApply, UnrestoredFile, forget_applied};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::apply::result;
use super::*;

/// Applies a child's work and returns the directory of the journal.
fn applied(user: &User, written: &[(&str, &str)], deleted: &[&str]) -> PathBuf {
    let made = result(user, written, deleted);
    let repository = user.open();
    let applied = repository.apply(&made.commit, now()).unwrap();
    repository.discard(&child("w"), &made.commit).unwrap();
    user.state().join("applies").join(applied.name)
}

/// The state after a kill right before the mark.
fn cut_short(journal: &Path) {
    fs::remove_file(journal.join("done")).unwrap();
}

fn is_unfinished(error: &ApplyError, wanted: &Path) -> bool {
    matches!(error, ApplyError::Unfinished { journal, .. } if journal == wanted)
}

#[test]
fn a_journal_that_cannot_be_undone_is_reported_and_does_not_block_the_others() {
    let user = User::new();
    let before = on_disk(&user.tree);
    let journals = ["README", "src/lib.rs", "src/deep/down/file"]
        .map(|path| applied(&user, &[(path, "child\n")], &[]));
    journals.iter().for_each(|journal| cut_short(journal));
    let stuck = &journals[1];
    fs::rename(stuck.join("before/0"), stuck.join("away")).unwrap();
    let recovery = user.open().recover().unwrap();
    assert_eq!(recovery.put_back.len(), 2, "{recovery:?}");
    assert!(is_unfinished(&recovery.stuck.unwrap(), stuck));
    let mut expected = before.clone();
    expected.insert("src/lib.rs".into(), "100644 child\n".into());
    assert_eq!(on_disk(&user.tree), expected);
    let made = result(&user, &[("new", "x\n")], &[]);
    let refused = user.open().apply(&made.commit, now()).unwrap_err();
    assert!(is_unfinished(&refused, stuck), "{refused:?}");
    assert!(refused.to_string().contains("some of the files are replaced"), "{refused}");
    assert!(refused.to_string().contains(stuck.to_str().unwrap()), "{refused}");
    fs::rename(stuck.join("away"), stuck.join("before/0")).unwrap();
    assert!(user.open().recover().unwrap().stuck.is_none());
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn an_unreadable_plan_is_not_mistaken_for_a_missing_one() {
    let user = User::new();
    let before = on_disk(&user.tree);
    let journal = applied(&user, &[("README", "child\n")], &[]);
    cut_short(&journal);
    let (plan, away) = (journal.join("plan"), journal.join("away"));
    fs::rename(&plan, &away).unwrap();
    let whole = fs::read(&away).unwrap();
    let cut = whole[..whole.len() - 3].to_vec();
    for damaged in [None, Some(Vec::new()), Some(b"nonsense".to_vec()), Some(cut)] {
        match &damaged {
            Some(bytes) => fs::write(&plan, bytes).unwrap(),
            // A directory in place of the file, which cannot be read even by root.
            None => fs::create_dir(&plan).unwrap(),
        }
        let recovery = user.open().recover().unwrap();
        assert!(is_unfinished(&recovery.stuck.unwrap(), &journal), "{damaged:?}");
        assert_eq!(fs::read_to_string(journal.join("before/0")).unwrap(), "one\ntwo\nthree\n");
        assert!(fs::remove_file(&plan).or_else(|_| fs::remove_dir(&plan)).is_ok());
    }
    fs::rename(&away, &plan).unwrap();
    assert!(user.open().recover().unwrap().stuck.is_none());
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn a_failed_undo_reports_the_replaced_files_and_continues_later() {
    let user = User::new();
    let before = on_disk(&user.tree);
    let journal = applied(&user, &[("README", "child\n"), ("src/lib.rs", "child\n")], &[]);
    let name = journal.file_name().unwrap().to_str().unwrap();
    let image = journal.join("before/1");
    fs::rename(&image, journal.join("away")).unwrap();
    let failed = user.open().undo(name).unwrap_err();
    assert!(is_unfinished(&failed, &journal), "{failed:?}");
    fs::rename(journal.join("away"), &image).unwrap();
    let recovery = user.open().recover().unwrap();
    assert!(recovery.stuck.is_none() && recovery.put_back.len() == 1, "{recovery:?}");
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn the_plan_is_removed_before_the_rest_of_a_journal() {
    let user = User::new();
    let journal = applied(&user, &[("README", "child\n")], &[]);
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, &journal, WatchFlags::DELETE).unwrap();
    for folder in ["before", "after"] {
        inotify::add_watch(&watch, journal.join(folder), WatchFlags::DELETE).unwrap();
    }
    user.open().undo(journal.file_name().unwrap().to_str().unwrap()).unwrap();
    let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 4096];
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    let mut gone = Vec::new();
    while let Ok(event) = reader.next() {
        if !event.events().contains(ReadFlags::IGNORED) {
            gone.extend(event.file_name().map(|name| name.to_str().unwrap().to_owned()));
        }
    }
    assert_eq!(gone[..2], ["done", "plan"], "{gone:?}");
    assert!(gone.len() > 4 && !journal.exists(), "{gone:?}");
}

/// Edits of a user to files of an interrupted application, the files that then stay, and which of them have a saved
/// copy.
type Meeting = (&'static str, fn(&User), &'static [(&'static str, bool)]);

const MEETINGS: [Meeting; 5] = [
    (
        "adds to a folder that was a file",
        |user| user.write("README/mine", "x\n"),
        &[("README", true)],
    ),
    (
        "changes the file that was a folder",
        |user| user.write("src/deep", "mine\n"),
        &[("src/deep", false), ("src/deep/down/file", true)],
    ),
    (
        "makes a folder of a changed file",
        |user| {
            fs::remove_file(user.path("src/lib.rs")).unwrap();
            user.write("src/lib.rs/mine", "x\n");
        },
        &[("src/lib.rs", true)],
    ),
    (
        "puts a link on the way",
        |user| {
            fs::remove_file(user.path("src/deep")).unwrap();
            link("/tmp", &user.path("src/deep"));
        },
        &[("src/deep", false), ("src/deep/down/file", true)],
    ),
    (
        "puts a pipe in the place",
        |user| {
            fs::remove_file(user.path("src/lib.rs")).unwrap();
            let made = Command::new("mkfifo").arg(user.path("src/lib.rs")).status().unwrap();
            assert!(made.success());
        },
        &[("src/lib.rs", true)],
    ),
];

#[test]
fn a_swap_of_files_and_directories_is_reported_and_loses_nothing() {
    for (what, meet, expected) in MEETINGS {
        let user = User::new();
        let before = on_disk(&user.tree);
        let written = [
            ("README/inside/far", "was a file\n"),
            ("src/deep", "was a folder\n"),
            ("src/lib.rs", "child\n"),
        ];
        let journal = applied(&user, &written, &["README", "src/deep/down/file"]);
        cut_short(&journal);
        meet(&user);
        let recovery = user.open().recover().unwrap();
        assert!(recovery.stuck.is_none(), "{what}: {recovery:?}");
        let [RecoveredApply { left, .. }] = recovery.put_back.as_slice() else {
            panic!("{recovery:?}")
        };
        let mut found: Vec<(&str, bool)> =
            left.iter().map(|it| (it.path.to_str().unwrap(), it.before.is_some())).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{what}");
        for UnrestoredFile { path, before: copy } in left {
            let Some(copy) = copy else { continue };
            let had = &before[path.to_str().unwrap()]["100644 ".len()..];
            assert_eq!(fs::read_to_string(copy).unwrap(), had, "{what}");
        }
        assert!(!journal.exists(), "{what}");
        for (path, text) in &before {
            if !expected.iter().any(|(left, _)| Path::new(path).starts_with(left)) {
                assert_eq!(on_disk_one(&user, path), *text, "{what}: {path}");
            }
        }
    }
}

fn on_disk_one(user: &User, path: &str) -> String {
    format!("100644 {}", fs::read_to_string(user.path(path)).unwrap())
}

#[test]
fn partly_created_parent_directories_are_not_mistaken_for_the_users() {
    let user = User::new();
    let before = on_disk(&user.tree);
    let journal = applied(&user, &[("README/a/b/c", "was a file\n")], &["README"]);
    cut_short(&journal);
    // The state after a kill right after the first directory.
    fs::remove_dir_all(user.path("README/a")).unwrap();
    let recovery = user.open().recover().unwrap();
    assert_eq!(recovery.put_back[0].left, []);
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn files_saved_by_one_interrupted_application_are_not_overwritten_by_the_next() {
    let user = User::new();
    let made = result(&user, &[("README", "child\n")], &[]);
    let mut copies = Vec::new();
    for round in ["first", "second", "third"] {
        user.write("README", "one\ntwo\nthree\n");
        let applied = user.open().apply(&made.commit, now()).unwrap();
        cut_short(&user.state().join("applies").join(&applied.name));
        user.write("README", round);
        let recovery = user.open().recover().unwrap();
        let [RecoveredApply { name, left }] = recovery.put_back.as_slice() else {
            panic!("{round}")
        };
        assert_eq!(*name, applied.name);
        copies.push(left[0].before.clone().unwrap());
        assert!(copies.iter().all(|copy| copy.exists()), "{copies:?}");
    }
    copies.dedup();
    assert_eq!(copies.len(), 3, "{copies:?}");
}

#[test]
fn only_old_and_complete_applications_are_removed() {
    let user = User::new();
    let journals = ["README", "src/lib.rs", "src/deep/down/file"]
        .map(|path| applied(&user, &[(path, "child\n")], &[]));
    let [old, new, unfinished] = &journals;
    cut_short(unfinished);
    let long_ago = SystemTime::now() - Duration::from_secs(3_600);
    let done = fs::File::options().write(true).open(old.join("done")).unwrap();
    done.set_modified(long_ago - Duration::from_secs(1)).unwrap();
    assert_eq!(forget_applied(&user.state(), long_ago).unwrap(), 1);
    assert!(!old.exists() && new.exists() && unfinished.exists());
    assert_eq!(forget_applied(&user.outer.path().join("nothing"), long_ago).unwrap(), 0);
    assert_eq!(user.read("README"), "child\n", "the files stay");
}
