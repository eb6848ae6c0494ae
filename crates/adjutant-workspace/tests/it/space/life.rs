//! The life of a workspace: made, written to, kept, closed.

use adjutant_workspace::sandbox::ProgramEnd;
use adjutant_workspace::space::{SweepOutcome, WorkspaceError};
use adjutant_workspace::{DiffStatus, GitError, LineCounts, SkipReason};

use super::*;
use crate::git::put;

#[test]
fn work_of_tools_and_programs_is_committed_to_the_reference() {
    for (backing, kind) in KINDS {
        let user = user();
        let before = user.untouched();
        let spaces = open(&user, backing);
        assert_eq!(spaces.kind(), kind);
        assert_eq!(spaces.fallback_reason().is_none(), kind == WorkspaceBacking::Overlay);
        let space = spaces.make("run", "child", "1", None).unwrap();
        write(&space, "README", "one\ntwo\n3\n");
        write(&space, "made/by/tool", "tool\n");
        remove(&space, "src/lib.rs");
        let (ended, said) = run(&space, "echo program > made/by/program && cat README; pwd");
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{said}");
        assert_eq!(said, format!("one\ntwo\n3\n{}\n", space.path().display()));
        let kept = space.keep("work\n", now()).unwrap();
        assert_eq!(kept.reference.to_string(), "refs/adjutant/run/child");
        let commit = kept.commit.clone().unwrap();
        assert_eq!(user.id("refs/adjutant/run/child"), commit);
        assert_eq!(user.id("refs/adjutant/run/child^"), kept.base);
        let shown: Vec<(String, DiffStatus, Option<LineCounts>)> = kept
            .diff
            .entries
            .iter()
            .map(|entry| (entry.path.display().to_string(), entry.status.clone(), entry.lines))
            .collect();
        let lines = |added, removed| Some(LineCounts { added, removed });
        assert_eq!(
            shown,
            [
                ("README".to_owned(), DiffStatus::Modified, lines(1, 1)),
                ("made/by/program".to_owned(), DiffStatus::Added, lines(1, 0)),
                ("made/by/tool".to_owned(), DiffStatus::Added, lines(1, 0)),
                ("src/lib.rs".to_owned(), DiffStatus::Deleted, lines(0, 1)),
            ]
        );
        assert_eq!(contents(&user, &commit), files(&space));
        space.close().unwrap();
        space.close().unwrap();
        assert!(space.root().is_err());
        assert_eq!(user.id("refs/adjutant/run/child"), commit);
        assert_eq!(user.untouched(), before, "{kind}");
        assert!(!space.directory().exists());
    }
}

#[test]
fn conclude_removes_kept_files_and_leaves_others() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        write(&space, "new", "1\n");
        let kept = space.keep_and_close("work\n", now()).unwrap();
        assert_eq!(contents(&user, &kept.commit.unwrap())["new"], "1\n", "{kind}");
        assert!(!space.directory().exists(), "{kind}");
        assert!(matches!(
            space.keep_and_close("work\n", now()),
            Err(WorkspaceError::Closed { .. })
        ));
        space.close().unwrap();
    }
}

#[test]
fn a_file_that_is_too_large_to_keep_stays_in_the_workspace() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        write(&space, "small", "small\n");
        let (ended, said) = run(&space, "truncate -s 600M huge && echo work >> huge");
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{said}");
        let kept = space.keep_and_close("work\n", now()).unwrap();
        let named: Vec<_> = kept.skipped.iter().filter(|it| it.is_work()).collect();
        assert_eq!(named.len(), 1, "{kind}: {named:?}");
        assert_eq!(contents(&user, &kept.commit.unwrap())["small"], "small\n");
        assert!(matches!(space.close(), Err(WorkspaceError::Unkept { .. })), "{kind}");
        drop(space);
        // No cleanup removes it.
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        assert!(matches!(swept[..], [SweepOutcome::Unclear(..)]), "{kind}: {swept:?}");
        let again = spaces.make("run", "child", "1", None).unwrap();
        let (ended, said) = run(&again, "tail -c 5 huge");
        assert_eq!((ended.end, said.as_str()), (ProgramEnd::Exited(0), "work\n"), "{kind}");
        remove(&again, "huge");
        again.keep("work\n", now()).unwrap();
        again.close().unwrap();
    }
}

#[test]
fn credentials_are_hidden_however_deep_they_lie_in_a_grant() {
    let user = user();
    let grant = user.outer.path().join("grant");
    let named = [".ssh/id", "homes/ann/.ssh/id", "homes/ann/.netrc", "a/b/c/d/id_ed25519"];
    let more = [
        ".env",
        "app/.env",
        "homes/ann/.vault-token",
        "homes/ann/.terraform.d/credentials.tfrc.json",
        "homes/ann/.my.cnf",
        "homes/ann/.boto",
        "homes/ann/.s3cfg",
        "homes/ann/.databrickscfg",
        "homes/ann/.cache/huggingface/token",
        "homes/ann/.cache/huggingface/stored_tokens",
        "homes/ann/.huggingface/token",
    ];
    for secret in named.iter().chain(&more) {
        put(&grant.join(secret), "secret\n");
    }
    // A private key counts whatever precedes it; certificates alone are needed by programs.
    let kind = "PRIVATE";
    let key = format!("-----BEGIN {kind} KEY-----\nsecret\n-----END {kind} KEY-----\n");
    let certificate = "-----BEGIN CERTIFICATE-----\nshown\n-----END CERTIFICATE-----\n";
    let named = ["server.key", "AuthKey.p8", "SERVER.KEY", "chain.crt", "chain.Cer", "plain"];
    for name in named.map(|name| format!("tls/{name}")).iter().chain(&["server.pem".to_owned()]) {
        put(&grant.join(name), &format!("{certificate}{key}"));
    }
    let putty = "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\nsecret\n";
    put(&grant.join("login.ppk"), putty);
    // Text that quotes a key is not one.
    put(&grant.join("tls/README"), &format!("shown\n{}", key.replace("secret", "key")));
    put(&grant.join("tls/ca.crt"), certificate);
    put(&grant.join("tls/ca.pem"), certificate);
    // A virtual environment of that name is not a credential.
    put(&grant.join("venv/.env/bin/activate"), "shown\n");
    put(&grant.join("homes/ann/notes"), "notes\n");
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    let space = spaces.make("run", "child", "1", None).unwrap();
    let look = format!(
        "cd {} && cat homes/ann/notes; grep -rs secret . | wc -l; grep -rls shown . | sort",
        grant.display()
    );
    let (ended, said) = run_with(&space, &look, vec![grant.clone()]);
    let expected = "notes\n0\n./tls/README\n./tls/ca.crt\n./tls/ca.pem\n./venv/.env/bin/activate";
    assert_eq!((ended.end, said.trim()), (ProgramEnd::Exited(0), expected), "{said}");
    assert_eq!(std::fs::read_to_string(grant.join(".ssh/id")).unwrap(), "secret\n");
}

#[test]
fn keeping_again_changes_nothing_and_unkept_work_is_not_removed() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        assert_eq!(space.keep("nothing\n", now()).unwrap().commit, None);
        write(&space, "new", "1\n");
        assert!(matches!(space.close(), Err(WorkspaceError::Unkept { .. })), "{kind}");
        let first = space.keep("work\n", now()).unwrap();
        let later = now() + std::time::Duration::from_secs(60);
        let second = space.keep("said otherwise\n", later).unwrap();
        assert_eq!(first, second);
        write(&space, "new", "2\n");
        assert!(matches!(space.close(), Err(WorkspaceError::Unkept { .. })), "{kind}");
        let third = space.keep("work\n", later).unwrap();
        assert_eq!(contents(&user, &third.commit.unwrap())["new"], "2\n");
        remove(&space, "new");
        let undone = space.keep("work\n", later).unwrap();
        assert_eq!(undone.diff.entries, [], "work that was undone is not reported");
        space.close().unwrap();
    }
}

#[test]
fn a_workspace_starts_with_the_uncommitted_state_of_the_tree() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        user.write("untracked/file", "new\n");
        user.write("target/built", "built\n");
        user.write("note.log", "ignored\n");
        user.write("staged", "staged\n");
        user.git(["add", "staged"]);
        std::fs::remove_file(user.path("src/lib.rs")).unwrap();
        std::fs::remove_file(user.path("src/deep/down/file")).unwrap();
        put(&user.path("src/deep/down/file/now/a/folder"), "x\n");
        let before = user.untouched();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let expected = [
            (".gitignore", "target/\n*.log\n"),
            ("README", "dirty\n"),
            ("src/deep/down/file/now/a/folder", "x\n"),
            ("staged", "staged\n"),
            ("untracked/file", "new\n"),
        ];
        let expected: BTreeMap<String, String> =
            expected.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        assert_eq!(files(&space), expected, "{kind}");

        user.write("README", "later\n");
        user.write("later", "later\n");
        let sibling = spaces.make("run", "sibling", "1", None).unwrap();
        assert_eq!(files(&space), expected, "later edits show: {kind}");
        assert_eq!(files(&sibling), expected, "captured once for a batch: {kind}");
        let next = spaces.make("run", "next", "2", None).unwrap();
        assert_eq!(read(&next, "README").unwrap(), "later\n");
        write(&sibling, "only", "mine\n");
        assert_eq!(read(&space, "only"), None, "siblings see each other: {kind}");
        user.write("README", "dirty\n");
        std::fs::remove_file(user.path("later")).unwrap();
        let kept = sibling.keep("work\n", now()).unwrap();
        assert_eq!(kept.diff.entries.len(), 1, "{:?}", kept.diff);
        for space in [space, sibling, next] {
            space.close().unwrap();
        }
        assert_eq!(user.untouched(), before, "{kind}");
    }
}

#[test]
fn ignored_files_are_left_out_unless_they_are_included() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("target/debug/tool", "built\n");
        user.write("other.log", "x\n");
        let mut options = options(backing);
        options.include_ignored = vec!["target/debug".into(), "not/there".into()];
        let spaces = Workspaces::open(&user.tree, &state(&user), options).unwrap();
        let space = spaces.make("run", "child", "1", None).unwrap();
        assert_eq!(read(&space, "target/debug/tool").unwrap(), "built\n", "{kind}");
        assert_eq!(read(&space, "other.log"), None);
        user.write("target/debug/tool", "rebuilt\n");
        assert_eq!(read(&space, "target/debug/tool").unwrap(), "built\n", "shows through: {kind}");
        write(&space, "target/debug/tool", "mine\n");
        write(&space, "own.log", "mine\n");
        write(&space, "kept", "mine\n");
        let kept = space.keep("work\n", now()).unwrap();
        let paths: Vec<_> = kept.diff.entries.iter().map(|entry| entry.path.clone()).collect();
        assert_eq!(paths, [PathBuf::from("kept")], "{kind}");
        assert!(kept.skipped.iter().all(|skipped| skipped.reason == SkipReason::Ignored));
        assert!(kept.skipped.iter().any(|skipped| skipped.path == Path::new("own.log")));
        assert_eq!(user.read("target/debug/tool"), "rebuilt\n");
        space.close().unwrap();
    }
    let user = user();
    for bad in ["/etc", "../x", ".git", ""] {
        let mut options = options(WorkspaceBackingChoice::Best);
        options.include_ignored = vec![bad.into()];
        let spaces = Workspaces::open(&user.tree, &state(&user), options).unwrap();
        let refused = spaces.make("run", "child", "1", None).unwrap_err();
        assert!(matches!(refused, WorkspaceError::Include { .. }), "{bad}: {refused}");
    }
}

#[test]
fn git_inside_a_workspace_reads_and_cannot_write_to_the_users_repository() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        let planted = user.outer.path().join("planted");
        let monitor = format!("touch '{}'; false", planted.display());
        user.git(["config", "core.fsmonitor", &monitor]);
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let (_, clean) = run(&space, "git status --porcelain; git log --format=%s | cat");
        assert_eq!(clean, "State of the working tree before the work\nfirst\n", "{kind}");
        write(&space, "README", "child\n");
        write(&space, "new", "child\n");
        let text = "git status --porcelain; git diff --stat | tail -1; git show HEAD:README; \
            git add new 2>/dev/null || echo cannot add; \
            (echo x > .git/config) 2>/dev/null || echo cannot write";
        let (_, said) = run(&space, text);
        assert_eq!(
            said,
            " M README\n?? new\n 1 file changed, 1 insertion(+), 1 deletion(-)\ndirty\n\
             cannot add\ncannot write\n",
            "{kind}"
        );
        // The workspace is shown at the path of the user's checkout, whose own files are not.
        let text = format!(
            "cd '{}'; cat README; git config core.fsmonitor || echo no monitor; \
             for at in .git/objects /.adjutant-git/objects-0; do \
             touch $at/x 2>/dev/null || echo read-only; done",
            user.tree.display()
        );
        assert_eq!(run(&space, &text).1, "child\nno monitor\nread-only\nread-only\n", "{kind}");
        space.keep("work\n", now()).unwrap();
        space.close().unwrap();
        assert!(!planted.exists(), "a planted program ran: {kind}");
        user.try_git(["status"]);
        assert!(planted.exists(), "the trap does not work");
    }
}

#[test]
fn a_repository_without_commits_works_and_a_missing_repository_is_reported() {
    for (backing, kind) in KINDS {
        let unborn = User::folder_in(TempDir::new_in("/var/tmp").unwrap()).initialised();
        let spaces = open(&unborn, backing);
        let empty = spaces.make("run", "empty", "1", None).unwrap();
        assert_eq!(files(&empty).len(), 0, "{kind}");
        unborn.write("first", "1\n");
        let space = spaces.make("run", "child", "2", None).unwrap();
        assert_eq!(read(&space, "first").unwrap(), "1\n");
        write(&space, "second", "2\n");
        let kept = space.keep("work\n", now()).unwrap();
        assert_eq!(kept.diff.entries.len(), 1);
        assert_eq!(run(&space, "git status --porcelain").1, "?? second\n", "{kind}");
        space.close().unwrap();
        empty.close().unwrap();

        let bare = User::bare_folder();
        let refused = Workspaces::open(&bare.tree, &state(&bare), options(backing)).unwrap_err();
        assert!(
            matches!(refused, WorkspaceError::Git(GitError::NotARepository { .. })),
            "{refused}"
        );
        assert!(refused.to_string().contains("`git init`"), "{refused}");
    }
}

#[test]
fn making_and_closing_workspaces_of_one_run_do_not_interfere() {
    let user = user();
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let spaces = &spaces;
            scope.spawn(move || {
                for round in 0..15 {
                    let child = format!("t{thread}-{}", round % 2);
                    let space = spaces.make("run", &child, "1", None).unwrap();
                    assert_eq!(read(&space, "README").unwrap(), "one\ntwo\nthree\n");
                    space.close().unwrap();
                }
            });
        }
    });
    let folder = std::fs::read_dir(state(&user).join("spaces")).unwrap().next().unwrap().unwrap();
    assert!(!folder.path().join("run").exists());
}

/// Meaningful only for an ordinary user: root reads everything.
#[test]
fn files_that_a_program_made_unreadable_are_kept() {
    let user = user();
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    let space = spaces.make("run", "child", "1", None).unwrap();
    let text = "mkdir -p a/b && echo x > a/b/c && echo y > a/d && chmod 000 a/d a/b a src README";
    assert_eq!(run(&space, text).0.end, ProgramEnd::Exited(0));
    let kept = space.keep("work\n", now()).unwrap();
    let shown = contents(&user, &kept.commit.unwrap());
    assert_eq!((shown["a/b/c"].as_str(), shown["a/d"].as_str()), ("x\n", "y\n"));
    assert_eq!(kept.diff.entries.len(), 2, "{:?}", kept.diff);
    assert_eq!(kept.skipped, []);
    space.close().unwrap();
    assert!(!space.directory().exists());
}

#[test]
fn eight_workspaces_are_made_at_once() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        let before = user.untouched();
        let spaces = open(&user, backing);
        let work = |number: usize| {
            let child = format!("c{number}");
            let space = spaces.make("run", &child, "1", None).unwrap();
            assert_eq!(read(&space, "README").unwrap(), "dirty\n");
            write(&space, "who", &child);
            let (ended, _) = run(&space, "cat who >> README");
            assert_eq!(ended.end, ProgramEnd::Exited(0));
            let kept = space.keep("work\n", now()).unwrap();
            space.close().unwrap();
            (child, kept.commit.unwrap())
        };
        let all: Vec<(String, ObjectId)> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..8).map(|it| scope.spawn(move || work(it))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (child, commit) in all {
            let shown = contents(&user, &commit);
            assert_eq!(shown["README"], format!("dirty\n{child}"), "{kind}");
        }
        assert_eq!(user.untouched(), before);
        assert_eq!(spaces.repository().results().unwrap().len(), 8);
    }
}
