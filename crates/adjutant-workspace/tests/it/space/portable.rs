//! Work that begins on one machine and goes on at another one, with nothing but bundles between them.

use std::fs;

use adjutant_workspace::space::{
    PortableBase, WorkspaceError, base_references, create_repository, recreate_checkout,
    refuse_new_credentials,
};
use adjutant_workspace::{Git, Repository};

use super::*;

const RUN: &str = "run_1700000000_abcdef";

fn git() -> Git {
    Git::find(&std::env::var_os("PATH").unwrap()).unwrap()
}

fn repository(user: &User) -> Repository {
    Repository::open(&git(), &user.tree, &state(user)).unwrap()
}

/// Another machine, with a copy of the user's checkout made from bundles.
struct Machine {
    outer: TempDir,
    spaces: Workspaces,
}

impl Machine {
    fn new(user: &User, base: &PortableBase, backing: WorkspaceBackingChoice) -> Self {
        let outer = TempDir::new_in("/var/tmp").unwrap();
        let [tree, state, bundle] = ["copy", "state", "bundle"].map(|it| outer.path().join(it));
        let copy = create_repository(&git(), &tree, &state, base).unwrap();
        let (head, commit) = base.commits().unwrap();
        let from = repository(user);
        let known: Vec<ObjectId> = head.clone().into_iter().collect();
        if head.is_some() {
            from.write_bundle(&["HEAD".to_owned()], &[], &bundle).unwrap();
            copy.take_bundle(&bundle).unwrap();
        }
        if head.as_ref() != Some(&commit) {
            let names = base_references(RUN, &[commit]);
            from.write_bundle(&names, &known, &bundle).unwrap();
            copy.take_bundle(&bundle).unwrap();
        }
        recreate_checkout(&copy, RUN, base).unwrap();
        let options = WorkspaceOptions {
            reproducible: true,
            shown_at: Some(base.checkout.clone()),
            ..options(backing)
        };
        let spaces = Workspaces::open(&tree, &state, options).unwrap();
        Self { outer, spaces }
    }

    /// Takes over the work that `other` has done.
    fn take_work(&self, other: &Self, reference: &str, base: &ObjectId) {
        let bundle = self.outer.path().join("work");
        let from = other.spaces.repository();
        from.write_bundle(&[reference.to_owned()], std::slice::from_ref(base), &bundle).unwrap();
        self.spaces.repository().take_bundle(&bundle).unwrap();
    }
}

fn check(prepare: impl Fn(&User)) {
    for (backing, _) in KINDS {
        let user = user();
        prepare(&user);
        let base = PortableBase::capture(&repository(&user), &user.tree, RUN, &[]).unwrap();
        let (_, commit) = base.commits().unwrap();
        let one = Machine::new(&user, &base, backing);
        let begun = one.spaces.make(RUN, "child", "batch", None).unwrap();
        assert_eq!(files(&begun), contents(&user, &commit), "the same files as at the user's");
        assert_eq!(begun.record().base, base.commit, "and the same commit");
        write(&begun, "new.txt", "made elsewhere\n");
        remove(&begun, "own.txt");
        let work = begun.keep("work", now()).unwrap();
        // The first machine is lost; its workspace is never closed.
        let two = Machine::new(&user, &base, backing);
        two.take_work(&one, &work.reference.to_string(), &commit);
        let record = begun.record();
        let gone_on =
            two.spaces.recreate(RUN, "child", &record, work.commit.as_ref().unwrap()).unwrap();
        assert_eq!(files(&gone_on), files(&begun));
        assert_eq!(gone_on.path(), begun.path(), "agents see the same path on both");
        write(&gone_on, "new.txt", "made elsewhere, changed here\n");
        let kept = gone_on.keep_and_close("work", now()).unwrap();
        // It fits into the user's repository, which never had the machines' objects.
        let bundle = user.outer.path().join("result");
        let from = two.spaces.repository();
        from.write_bundle(&[kept.reference.to_string()], &[commit], &bundle).unwrap();
        repository(&user).take_bundle(&bundle).unwrap();
        let result = contents(&user, &kept.commit.unwrap());
        assert_eq!(result["new.txt"], "made elsewhere, changed here\n");
        assert!(!result.contains_key("own.txt"), "{result:?}");
    }
}

#[test]
fn work_goes_on_at_another_machine_with_uncommitted_files() {
    check(|user| {
        user.write("own.txt", "uncommitted\n");
        user.write("deep/own.txt", "uncommitted too\n");
    });
}

#[test]
fn work_goes_on_at_another_machine_from_a_clean_checkout() {
    check(|user| {
        user.write("own.txt", "committed\n");
        user.commit("all of it");
    });
}

#[test]
fn work_goes_on_at_another_machine_from_a_shallow_clone() {
    check(|user| {
        user.write("own.txt", "committed\n");
        let tip = user.commit("the last one that is here");
        fs::write(user.tree.join(".git/shallow"), format!("{tip}\n")).unwrap();
        user.write("late.txt", "uncommitted\n");
    });
}

#[test]
fn a_state_with_credentials_is_not_captured_for_other_machines() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    for (path, text) in [
        (".env", "TOKEN=1\n"),
        ("deploy/.ssh/config", "Host x\n"),
        ("keys/server.pem", key),
        ("id_rsa", "anything"),
    ] {
        let user = user();
        user.write(path, text);
        let captured = PortableBase::capture(&repository(&user), &user.tree, RUN, &[]);
        let Err(WorkspaceError::Credentials { paths }) = captured else {
            panic!("{path}: {captured:?}");
        };
        assert_eq!(paths, [PathBuf::from(path)]);
        // Nor is the commit of an agent that made it.
        let repository_of_user = repository(&user);
        let base = repository_of_user.head().unwrap().unwrap();
        let work = user.commit("work");
        let refused = refuse_new_credentials(&repository_of_user, &base, &work);
        let Err(WorkspaceError::Credentials { paths }) = refused else {
            panic!("{path} in the work of an agent: {refused:?}");
        };
        assert_eq!(paths, [PathBuf::from(path)]);
        // One that is deleted but still in HEAD would go along with the history.
        fs::remove_file(user.tree.join(path)).unwrap();
        let captured = PortableBase::capture(&repository_of_user, &user.tree, RUN, &[]);
        assert!(matches!(captured, Err(WorkspaceError::Credentials { .. })), "{path} in HEAD");
        let cleaned = user.commit("removed");
        assert!(
            refuse_new_credentials(&repository_of_user, &work, &cleaned).is_ok(),
            "it was removed"
        );
        // A file that git ignores is not captured at all.
        user.write(path, text);
        user.write(".gitignore", &format!("/{path}\n"));
        assert!(PortableBase::capture(&repository(&user), &user.tree, RUN, &[]).is_ok(), "{path}");
    }
    let user = user();
    user.write(".env/bin/activate", "a virtual environment\n");
    user.write("certificate.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    assert!(PortableBase::capture(&repository(&user), &user.tree, RUN, &[]).is_ok());
}
