//! Which object directories a sandbox shows; the repository itself names them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use super::*;
use crate::git::put;

/// Objects are data: a program in an object directory can be read but not executed.
#[test]
fn files_in_object_directories_cannot_be_executed() {
    for (backing, kind) in KINDS {
        let user = user();
        let program = user.path(".git/objects/pack/tool");
        put(&program, "#!/bin/sh\necho it runs\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        // A child process that another test is forking may have the file open for a moment.
        let outside = loop {
            match std::process::Command::new(&program).output() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                tried => break tried.unwrap(),
            }
        };
        assert_eq!(outside.stdout, b"it runs\n");
        let space = open(&user, backing).make("run", "child", "1", None).unwrap();
        // Both streams in one, to keep their order.
        let text = "exec 2>&1; cd /.adjutant-git/objects-0/pack; ./tool || cat tool | wc -l";
        let (_, said) = run(&space, text);
        assert!(said.contains("Permission denied") && said.ends_with("2\n"), "{kind}: {said}");
        let (_, mounts) = run(&space, "cat /proc/self/mounts");
        let line = mounts.lines().find(|line| line.contains("/.adjutant-git/objects-0 ")).unwrap();
        for option in ["ro", "nosuid", "nodev", "noexec"] {
            let options = line.split(' ').nth(3).unwrap();
            assert!(options.split(',').any(|it| it == option), "{kind}: {option} in {line}");
        }
        space.close().unwrap();
    }
}

#[test]
fn alternates_that_are_not_granted_prevent_no_command() {
    for (backing, kind) in KINDS {
        let (user, lender) = (user(), user());
        let lent = lender.path(".git/objects");
        put(&user.path(".git/objects/info/alternates"), &format!("{}\n", lent.display()));
        // More than can be hidden one by one.
        for number in 0..1_001 {
            put(&lent.join(format!("note-{number}")), "");
        }
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        assert_eq!(run(&space, "echo fine").1, "fine\n", "{kind}");
        let granted =
            SandboxOptions { grants: vec![lender.tree.clone()], ..SandboxOptions::default() };
        assert!(space.sandbox(granted).is_err(), "{kind}");
        space.close().unwrap();
    }
}

#[test]
fn alternates_expose_no_other_directory_and_sockets_are_hidden() {
    for (backing, kind) in KINDS {
        let (user, lender) = (user(), user());
        // Otherwise both would have the same commit.
        lender.write("lent", "lent\n");
        lender.commit("lent");
        let loot = user.outer.path().canonicalize().unwrap().join("loot");
        for folder in ["plain", "half/objects", "linked/refs", "linked/real"] {
            put(&loot.join(folder).join("secret"), "secret\n");
        }
        put(&loot.join("linked/HEAD"), "ref: refs/heads/main\n");
        std::os::unix::fs::symlink("real", loot.join("linked/objects")).unwrap();
        let lent = lender.path(".git/objects");
        let named = ["plain", "half/objects", "linked/objects", "linked/real"];
        let mut list: String =
            named.iter().map(|name| format!("{}\n", loot.join(name).display())).collect();
        list.push_str(&format!("{}\n", lent.display()));
        put(&user.path(".git/objects/info/alternates"), &list);
        put(&lent.join("note"), "secret\n");
        put(&lent.join("other/note"), "secret\n");
        let top = UnixListener::bind(lent.join("s")).unwrap();
        let deep = UnixListener::bind(lent.join("pack/s")).unwrap();
        let before = fs::read_dir(&lent).unwrap().count();

        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let text = format!(
            "exec 2>/dev/null; find '{0}' -name secret | wc -l; \
             test -S '{1}/s' || test -S '{1}/pack/s' && echo socket; \
             cat '{1}/note' '{1}/other/note' | wc -c; git cat-file -t {2}",
            loot.display(),
            lent.display(),
            lender.id("HEAD"),
        );
        let (_, said) = run(&space, &text);
        assert_eq!(said, "0\n0\n", "{kind}: the list of the repository opened another one");
        let remarks = space.record().remarks;
        assert!(remarks.iter().any(|it| it.contains("borrowed")), "{kind}: {remarks:?}");
        // A user may grant it; files that are not objects stay hidden.
        let (_, said) = run_with(&space, &text, vec![lender.tree.clone()]);
        assert_eq!(said, "0\n0\ncommit\n", "{kind}");
        assert_eq!(fs::read_dir(&lent).unwrap().count(), before);
        drop((top, deep));
        space.close().unwrap();
    }
}
