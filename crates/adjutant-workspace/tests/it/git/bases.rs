//! Base checkouts: leased, updated by the differences, never changed while in use.

use adjutant_workspace::{BaseCheckouts, BaseLeaseCost, DiskUsage};

use super::*;

#[test]
fn a_base_is_reused_the_second_time_and_shared() {
    let user = User::new();
    let repository = user.open();
    let bases = BaseCheckouts::open(&repository).unwrap();
    let tree = user.id("HEAD^{tree}");
    let first = bases.lease(&tree).unwrap();
    let second = bases.lease(&tree).unwrap();
    assert_eq!((first.cost(), second.cost()), (BaseLeaseCost::Created, BaseLeaseCost::Warm));
    assert_eq!(first.path(), second.path());
}

#[test]
fn an_unused_base_is_updated_by_the_differences_and_a_leased_one_stays() {
    let user = User::new();
    let one = user.id("HEAD^{tree}");
    user.write("README", "two\n");
    fs::remove_file(user.path("src/deep/down/file")).unwrap();
    user.write("src/added", "two\n");
    user.commit("second");
    let two = user.id("HEAD^{tree}");
    let repository = user.open();
    let bases = BaseCheckouts::open(&repository).unwrap();

    let leased = bases.lease(&one).unwrap();
    let other = bases.lease(&two).unwrap();
    assert_eq!(other.cost(), BaseLeaseCost::Created, "the first is in use");
    assert_eq!(on_disk(leased.path()), user.files(&one));
    assert_eq!(on_disk(other.path()), user.files(&two));
    let folder = other.path().parent().unwrap().to_owned();
    drop(other);
    fs::remove_dir_all(folder).unwrap();
    drop(leased);
    let moved = bases.lease(&two).unwrap();
    assert_eq!(moved.cost(), BaseLeaseCost::Moved(3));
    assert_eq!(on_disk(moved.path()), user.files(&two));
    assert!(!moved.path().join("src/deep").exists(), "an emptied folder goes");
}

#[test]
fn unused_bases_of_all_repositories_go_when_the_disk_bound_is_reached_and_leased_ones_stay() {
    let (old, used, new) = (User::new(), User::new(), User::new());
    let spaces = tempfile::tempdir().unwrap();
    let open = |user: &User, name: &str| {
        user.write("large", &"x".repeat(1 << 20));
        user.commit("large");
        let state = spaces.path().join(name).join(".private");
        Repository::open(&find_git(), &user.tree, &state).unwrap()
    };
    let [old_tree, used_tree, new_tree] = [(&old, "old"), (&used, "used"), (&new, "new")]
        .map(|(user, name)| (open(user, name), user.id("HEAD^{tree}")));
    let lease = BaseCheckouts::open(&old_tree.0).unwrap().lease(&old_tree.1).unwrap();
    let unused = lease.path().to_owned();
    drop(lease);
    let leased = BaseCheckouts::open(&used_tree.0).unwrap().lease(&used_tree.1).unwrap();
    let measured = DiskUsage::measure(spaces.path());
    assert!(measured.bases >= 2 << 20 && measured.total() == measured.bases, "{measured:?}");

    let bases = BaseCheckouts::open(&new_tree.0).unwrap();
    let refused = bases.bounded(Some(1)).lease(&new_tree.1).unwrap_err();
    assert!(
        refused.to_string().contains("more than the policy key `disk_bytes` allows"),
        "{refused}"
    );
    assert!(!unused.exists() && leased.path().join("large").exists());
    let bases = BaseCheckouts::open(&new_tree.0).unwrap();
    let enough = bases.bounded(Some(measured.total() - (1 << 20)));
    assert_eq!(enough.lease(&new_tree.1).unwrap().cost(), BaseLeaseCost::Created);
    // The recorded size is not measured again until the base is updated.
    assert_eq!(DiskUsage::measure(spaces.path()).bases / (1 << 20), 2);
}

#[test]
fn an_interrupted_update_of_a_base_is_completed() {
    let user = User::new();
    let one = user.id("HEAD^{tree}");
    user.write("README", "two\n");
    user.write("b", "two\n");
    user.commit("second");
    let two = user.id("HEAD^{tree}");
    let repository = user.open();
    let bases = BaseCheckouts::open(&repository).unwrap();
    let path = bases.lease(&one).unwrap().path().to_owned();
    // The state after a kill in the middle: marked as moving, one file half written, one missing.
    let mark = path.parent().unwrap().join("state");
    let ready = fs::read_to_string(&mark).unwrap();
    let moving = ready.replace(&format!("ready {one}"), &format!("moving {one} {two}"));
    assert_ne!(ready, moving);
    fs::write(&mark, moving).unwrap();
    fs::write(path.join("README"), "tw").unwrap();
    let lease = bases.lease(&one).unwrap();
    assert_eq!(on_disk(lease.path()), user.files(&one));
}

#[test]
fn a_base_of_unknown_state_is_recreated() {
    let user = User::new();
    let tree = user.id("HEAD^{tree}");
    let repository = user.open();
    let bases = BaseCheckouts::open(&repository).unwrap();
    let path = bases.lease(&tree).unwrap().path().to_owned();
    for text in ["", "another-boot ready x", "garbage"] {
        fs::write(path.parent().unwrap().join("state"), text).unwrap();
        fs::write(path.join("README"), "torn").unwrap();
        let lease = bases.lease(&tree).unwrap();
        assert_eq!(lease.cost(), BaseLeaseCost::Created, "{text}");
        assert_eq!(on_disk(lease.path()), user.files(&tree));
    }
}

#[test]
fn many_threads_that_need_the_same_base_share_one() {
    let user = User::new();
    let repository = user.open();
    let tree = user.id("HEAD^{tree}");
    let leases: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| BaseCheckouts::open(&repository).unwrap().lease(&tree).unwrap())
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(leases.iter().all(|lease| lease.path() == leases[0].path()));
    let made = leases.iter().filter(|lease| lease.cost() == BaseLeaseCost::Created);
    assert_eq!(made.count(), 1);
}

#[test]
fn a_layer_over_a_base_shows_the_captured_state() {
    let user = User::new();
    user.write("gone/too", "x\n");
    user.write("folder/inside", "x\n");
    user.commit("more");
    fs::remove_dir_all(user.path("gone")).unwrap();
    fs::remove_dir_all(user.path("folder")).unwrap();
    user.write("folder", "a file now\n");
    fs::remove_file(user.path("README")).unwrap();
    user.write("README/inside", "a folder now\n");
    link("src", &user.path("link"));
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    // Later changes of the user are not visible.
    user.write("folder", "later\n");
    let layer = user.upper();
    let gone = repository.write_layer(&snapshot.head_tree, &snapshot.tree, &layer).unwrap();
    assert_eq!(gone, [PathBuf::from("gone/too")]);
    let expected = [
        ("README/inside", "100644 a folder now\n"),
        ("folder", "100644 a file now\n"),
        ("link", "120000 src"),
    ];
    assert_eq!(on_disk(&layer), expected.map(|(p, t)| (p.to_owned(), t.to_owned())).into());
}

#[test]
fn a_partial_clone_is_captured_and_fetches_nothing() {
    let full = User::new();
    full.git(["config", "uploadpack.allowFilter", "true"]);
    let user = User::bare_folder();
    let from = format!("file://{}", full.tree.display());
    user.git(["clone", "-q", "--no-checkout", "--filter=blob:none", &from, "."]);
    let head = user.id("HEAD");
    user.git(["read-tree", "HEAD"]);
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    assert_eq!(snapshot.changes.len(), 4, "nothing is checked out: {:?}", snapshot.changes);
    let objects = || fs::read_dir(user.path(".git/objects/pack")).unwrap().count();
    let before = objects();
    let bases = BaseCheckouts::open(&repository).unwrap();
    assert!(bases.lease(&user.id(&format!("{head}^{{tree}}"))).is_err(), "contents are missing");
    assert_eq!(objects(), before);
    assert!(bases.lease(repository.empty_tree()).is_ok(), "a failure leaves nothing behind");
}
