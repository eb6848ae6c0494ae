//! Merging the result of a child into the live workspace of its parent.

use adjutant_workspace::sandbox::ProgramEnd;
use adjutant_workspace::space::{ChildMergeOutcome, WorkspaceError};
use adjutant_workspace::{BinaryContent, ConflictKind, GitError, PatchOptions, SkipReason};

use super::*;

/// A user whose files are in memory if the machine offers that, so that many cases take little time.
pub(super) fn in_memory() -> User {
    let outer = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new_in("/var/tmp")).unwrap();
    User::folder_in(outer).initialised().filled()
}

/// A parent with uncommitted work, and what its children need.
pub(super) struct Family {
    pub(super) user: User,
    pub(super) spaces: Workspaces,
    pub(super) parent: Workspace,
}

impl Family {
    pub(super) fn new(backing: WorkspaceBackingChoice) -> Self {
        let user = in_memory();
        user.write("ten", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
        user.write("bin", "\0one");
        user.write("tool", "#!/bin/sh\necho\necho\necho 1\n");
        user.write("dir with space/ünï cödé", "1\n");
        // A dangling link whose target reads the same as text.
        std::os::unix::fs::symlink("link", user.path("link")).unwrap();
        user.commit("more");
        user.write("README", "dirty\ntwo\nthree\n");
        let spaces = open(&user, backing);
        let parent = spaces.make("run", "p", "1", None).unwrap();
        act(&parent, "echo parent > made; sed -i 's/three/parent/' README; rm src/lib.rs");
        Self { user, spaces, parent }
    }

    /// Runs a script in a child of the parent, and returns its kept result.
    pub(super) fn child(&self, name: &str, script: &str) -> ObjectId {
        below(&self.spaces, &self.parent, name, script)
    }

    fn take(&self, result: &ObjectId) -> ChildMergeOutcome {
        self.parent.take_in(result, now()).unwrap()
    }
}

/// Runs a script in a child of `parent`, and returns its kept result.
fn below(spaces: &Workspaces, parent: &Workspace, name: &str, script: &str) -> ObjectId {
    let child = spaces.make("run", name, "2", Some(parent)).unwrap();
    act(&child, script);
    let kept = child.keep("work\n", now()).unwrap();
    child.close().unwrap();
    kept.commit.unwrap()
}

pub(super) fn act(space: &Workspace, script: &str) {
    let (ended, said) = run(space, &format!("set -e; {script}"));
    assert_eq!(ended.end, ProgramEnd::Exited(0), "{script}: {said}");
}

/// Everything in a workspace: types, modes and contents, without directories.
pub(super) fn shown(space: &Workspace) -> Vec<String> {
    let (_, listed) = run(
        space,
        "find . -path ./.git -prune -o ! -type d -printf '%P|%y|%m|%l|' \
         \\( -type f -exec sh -c 'od -An -c \"$1\" | tr -d \"\\n\"' - {} \\; -o -true \\) -printf '\\n'",
    );
    let mut lines: Vec<String> = listed.split('\n').map(str::to_owned).collect();
    lines.sort();
    lines
}

fn kinds(taken: &ChildMergeOutcome) -> Vec<(String, ConflictKind)> {
    taken.conflicts.iter().map(|it| (it.path.display().to_string(), it.kind)).collect()
}

fn paths(taken: &ChildMergeOutcome) -> Vec<String> {
    taken.diff.entries.iter().map(|it| it.path.display().to_string()).collect()
}

const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

/// The parent's changes, the child's changes, and an expectation for some files.
type Case<T> = (&'static str, &'static str, &'static [(&'static str, T)]);

/// Cases with the parent's expected content.
const CLEAN: &[Case<&str>] = &[
    (
        "sed -i s/^1$/parent/ ten",
        "sed -i s/^9$/child/ ten",
        &[("ten", "100644 parent\n2\n3\n4\n5\n6\n7\n8\nchild\n10\n")],
    ),
    ("true", "sed -i s/dirty/child/ README", &[("README", "100644 child\ntwo\nparent\n")]),
    (
        "echo more >> tool",
        "chmod +x tool",
        &[("tool", "100755 #!/bin/sh\necho\necho\necho 1\nmore\n")],
    ),
    ("true", "printf '\\0two' > bin", &[("bin", "100644 \0two")]),
    (
        "true",
        "rm -r src; ln -s README src",
        &[("src", "120000 README"), ("src/deep/down/file", "")],
    ),
    ("true", "ln -sf tool link", &[("link", "120000 tool")]),
    ("true", "rm link; mkdir link; echo x > link/x", &[("link/x", "100644 x\n"), ("link", "")]),
    (
        "sed -i s/^1$/parent/ ten",
        "mkdir to; mv ten to/eleven",
        &[("ten", ""), ("to/eleven", "100644 parent\n2\n3\n4\n5\n6\n7\n8\n9\n10\n")],
    ),
    ("sed -i s/^1$/parent/ ten; mv ten new", "sed -i s/^9$/child/ ten", &[("ten", "")]),
    ("true", "rm -r src/deep", &[("src/deep/down/file", "")]),
    (
        "mkdir -p src/deep/empty/er",
        "rm -r src/deep; echo x > src/deep",
        &[("src/deep", "100644 x\n")],
    ),
    ("mkdir -p new/empty", "echo x > new", &[("new", "100644 x\n")]),
    ("true", "rm tool; mkdir tool; echo x > tool/x", &[("tool/x", "100644 x\n"), ("tool", "")]),
    (
        "echo 2 > 'dir with space/beside'",
        "echo 2 >> 'dir with space/ünï cödé'; echo 3 > 'dir with space/a \"b\" \\ 日本'",
        &[
            ("dir with space/ünï cödé", "100644 1\n2\n"),
            ("dir with space/a \"b\" \\ 日本", "100644 3\n"),
            ("dir with space/beside", "100644 2\n"),
        ],
    ),
    (
        "true",
        "echo x > 'new\nline'; : > empty",
        &[("new\nline", "100644 x\n"), ("empty", "100644 ")],
    ),
    ("echo same > both", "echo same > both", &[("both", "100644 same\n")]),
    ("rm ten", "rm ten; echo x > other", &[("ten", ""), ("other", "100644 x\n")]),
    (
        "chmod 444 ten",
        "sed -i s/^9$/child/ ten",
        &[("ten", "100644 1\n2\n3\n4\n5\n6\n7\n8\nchild\n10\n")],
    ),
    // An ignored file that already has the new content is no conflict.
    (
        "echo x.dat > .gitignore; echo same > x.dat",
        "echo same > x.dat",
        &[("x.dat", "100644 same\n")],
    ),
];

#[test]
fn a_merged_result_is_in_the_files_and_stays() {
    for (backing, kind) in KINDS {
        let family = Family::new(backing);
        for (number, (parent, child, expected)) in CLEAN.iter().enumerate() {
            let at = format!("{kind}: {parent}; {child}");
            let of = spaces_of(&family, number);
            let result = below(&family.spaces, &of, &format!("c{number}"), child);
            act(&of, parent);
            let mut before = files(&of);
            let taken = of.take_in(&result, now()).unwrap();
            assert_eq!(kinds(&taken), [], "{at}");
            assert!(!taken.already, "{at}");
            let live = shown(&of);
            assert_eq!(
                of.take_in(&result, now()).unwrap(),
                ChildMergeOutcome { already: true, ..taken.clone() }
            );
            assert_eq!(shown(&of), live, "{at}");

            // The reference has the content of the workspace, and nothing else changed.
            let kept = of.keep("work\n", now()).unwrap();
            let all = family.user.files(&kept.commit.unwrap());
            for (path, text) in *expected {
                if *path != "x.dat" {
                    assert_eq!(all.get(*path).map_or("", String::as_str), *text, "{at}: {path}");
                }
            }
            let mut after = files(&of);
            for entry in &taken.diff.entries {
                let path = entry.path.to_str().unwrap();
                if let adjutant_workspace::DiffStatus::Renamed(from) = &entry.status {
                    before.remove(from.to_str().unwrap());
                }
                assert!(
                    before.remove(path) != after.remove(path) || entry.old_mode != entry.new_mode
                );
            }
            assert_eq!(before, after, "{at}: changed and not said");
            of.close().unwrap();
        }
    }
}

/// A parent for one case.
fn spaces_of(family: &Family, number: usize) -> Workspace {
    family.spaces.make("run", &format!("p{number}"), "1", Some(&family.parent)).unwrap()
}

/// Cases with the expected conflicts.
const CLASHES: &[Case<ConflictKind>] = &[
    (
        "sed -i s/^5$/p/ ten",
        "sed -i s/^5$/c/ ten; echo x > other",
        &[("ten", ConflictKind::BothModified)],
    ),
    ("rm ten", "echo 11 >> ten", &[("ten", ConflictKind::DeletedByTarget)]),
    ("echo 11 >> ten", "rm ten; echo x > other", &[("ten", ConflictKind::DeletedByChild)]),
    ("rm ten", "mv ten eleven", &[("eleven", ConflictKind::Rename)]),
    ("printf '\\0p' > bin", "printf '\\0c' > bin", &[("bin", ConflictKind::Binary)]),
    ("echo p > both", "echo c > both", &[("both", ConflictKind::BothAdded)]),
    ("echo p >> src/deep/down/file", "rm -r src; ln -s README src", &[]),
    ("rm -r src; ln -s \"$OUT\" src", "echo c >> src/deep/down/file; echo c > src/new", &[]),
    ("rm tool; ln -s README tool", "echo c >> tool", &[]),
    // An ignored file is unknown to git and still in the way.
    (
        "echo '*.dat' > .gitignore; echo p > x.dat",
        "echo c > x.dat",
        &[("x.dat", ConflictKind::BothAdded)],
    ),
    (
        "echo out > .gitignore; mkdir out; echo p > out/x",
        "echo c > out",
        &[("out/x", ConflictKind::FileAndFolder)],
    ),
    (
        "echo out > .gitignore; echo p > out",
        "mkdir out; echo c > out/x",
        &[("out", ConflictKind::FileAndFolder)],
    ),
    (
        "echo out > .gitignore; ln -s \"$OUT\" out",
        "mkdir out; echo c > out/x",
        &[("out", ConflictKind::FileAndFolder)],
    ),
    (
        "echo out > .gitignore; ln -s \"$OUT/x\" out",
        "echo c > out",
        &[("out", ConflictKind::BothAdded)],
    ),
    ("mkfifo pipe", "echo c > pipe", &[("pipe", ConflictKind::BothAdded)]),
    (
        "echo p > src/deep/own.log",
        "rm -r src/deep; echo c > src/deep",
        &[("src/deep/own.log", ConflictKind::FileAndFolder)],
    ),
];

#[test]
fn conflicts_are_reported_and_nothing_changes() {
    for (backing, kind) in KINDS {
        let family = Family::new(backing);
        let outside = TempDir::new_in("/var/tmp").unwrap();
        for (number, (parent, child, expected)) in CLASHES.iter().enumerate() {
            let at = format!("{kind}: {parent}; {child}");
            let of = spaces_of(&family, number);
            let result = below(&family.spaces, &of, &format!("c{number}"), child);
            act(&of, &format!("OUT={}; {parent}", outside.path().display()));
            let before = shown(&of);
            let taken = of.take_in(&result, now()).unwrap();
            assert!(!taken.conflicts.is_empty(), "{at}: {taken:?}");
            if !expected.is_empty() {
                let expected: Vec<(String, ConflictKind)> =
                    expected.iter().map(|(path, kind)| ((*path).to_owned(), *kind)).collect();
                assert_eq!(kinds(&taken), expected, "{at}");
            }
            assert_eq!((paths(&taken), taken.already), (Vec::new(), false), "{at}");
            assert_eq!(shown(&of), before, "{at}");
            assert_eq!(of.take_in(&result, now()).unwrap(), taken, "{at}");
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "{at}");
            of.keep("work\n", now()).unwrap();
            of.close().unwrap();
            assert!(!of.path().parent().unwrap().join(".taking").exists());
        }
    }
}

#[test]
fn a_second_child_is_merged_unless_it_conflicts_with_the_first() {
    for (backing, kind) in KINDS {
        let family = Family::new(backing);
        let first = family.child("a", "sed -i s/^1$/a/ ten; echo a > of-a");
        let second = family.child("b", "sed -i s/^9$/b/ ten; echo b > of-b");
        let third = family.child("c", "sed -i s/^1$/c/ ten; echo c > of-c");
        assert_eq!(paths(&family.take(&first)), ["of-a", "ten"], "{kind}");
        assert_eq!(paths(&family.take(&second)), ["of-b", "ten"], "{kind}");
        let merged = TEN.replace("1\n2", "a\n2").replace("9\n", "b\n");
        assert_eq!(read(&family.parent, "ten").unwrap(), merged);
        let refused = family.take(&third);
        assert_eq!(kinds(&refused), [("ten".to_owned(), ConflictKind::BothModified)], "{kind}");
        assert_eq!(read(&family.parent, "of-c"), None);

        // Once the parent has removed the obstacle, the merge succeeds.
        act(&family.parent, "sed -i s/^a$/1/ ten");
        assert_eq!(paths(&family.take(&third)), ["of-c", "ten"], "{kind}");
        assert_eq!(read(&family.parent, "ten").unwrap(), merged.replace("a\n2", "c\n2"));
        // A merged result that was undone is not restored by asking again.
        assert!(family.take(&first).already);
        assert_eq!(read(&family.parent, "ten").unwrap(), merged.replace("a\n2", "c\n2"));
        let made = read(&family.parent, "made").unwrap();
        assert_eq!(made, "parent\n", "what the parent wrote before: {kind}");
        let all =
            contents(&family.user, &family.parent.keep("w\n", now()).unwrap().commit.unwrap());
        assert_eq!(all, files(&family.parent), "{kind}");
    }
}

#[test]
fn results_of_grandchildren_and_of_later_children_are_merged() {
    for (backing, kind) in KINDS {
        let family = Family::new(backing);
        let child = family.spaces.make("run", "c", "2", Some(&family.parent)).unwrap();
        act(&child, "echo c > of-c; sed -i s/^1$/c/ ten");
        let deep = below(&family.spaces, &child, "c.d", "echo d > of-d; sed -i s/^9$/d/ ten");
        act(&child, "echo later > of-c");
        assert_eq!(paths(&child.take_in(&deep, now()).unwrap()), ["of-d", "ten"], "{kind}");
        // A child that is made now starts with everything, from frozen layers or from a commit.
        let next = family.spaces.make("run", "c.e", "3", Some(&child)).unwrap();
        assert_eq!(files(&next), files(&child), "{kind}");
        act(&next, "echo e >> of-d; rm of-c");
        let of_next = next.keep("work\n", now()).unwrap();
        assert_eq!(of_next.diff.entries.len(), 2, "{kind}: {:?}", of_next.diff);
        assert_eq!(
            paths(&child.take_in(&of_next.commit.unwrap(), now()).unwrap()),
            ["of-c", "of-d"]
        );
        assert_eq!(read(&child, "of-c"), None);

        let result = child.keep("work\n", now()).unwrap().commit.unwrap();
        act(&family.parent, "echo p > of-p");
        assert_eq!(paths(&family.take(&result)), ["of-d", "ten"], "{kind}");
        assert_eq!(read(&family.parent, "of-d").unwrap(), "d\ne\n");
        let kept = family.parent.keep("work\n", now()).unwrap();
        assert_eq!(contents(&family.user, &kept.commit.unwrap()), files(&family.parent), "{kind}");
        for space in [&family.parent, &child, &next] {
            space.close().unwrap();
        }
    }
}

#[test]
fn a_workspace_can_be_kept_closed_and_reopened_after_a_merge() {
    for (backing, kind) in KINDS {
        let Family { user, spaces, parent } = Family::new(backing);
        let result = below(&spaces, &parent, "c", "echo c > of-c; rm -r src; chmod +x tool");
        let first = parent.take_in(&result, now()).unwrap();
        assert!(matches!(parent.close(), Err(WorkspaceError::Unkept { .. })), "{kind}");
        let (record, before) = (parent.record(), shown(&parent));
        drop((parent, spaces));
        let spaces = open(&user, backing);
        let parent = spaces.adopt("run", "p", &record).unwrap();
        assert_eq!(shown(&parent), before, "{kind}");
        // A caller that repeats the merge gets the same answer.
        let again = parent.take_in(&result, now()).unwrap();
        assert_eq!(again, ChildMergeOutcome { already: true, ..first }, "{kind}");
        parent.keep("work\n", now()).unwrap();
        parent.close().unwrap();
        let closed = parent.take_in(&result, now()).unwrap_err();
        assert!(matches!(closed, WorkspaceError::Closed { .. }), "{closed}");
        drop((parent, spaces));
        let spaces = open(&user, backing);
        let parent = spaces.adopt("run", "p", &record).unwrap();
        assert_eq!(shown(&parent), before, "made anew from its reference: {kind}");
        assert_eq!(kinds(&parent.take_in(&result, now()).unwrap()), [], "{kind}");
        assert_eq!(shown(&parent), before, "merged once more: {kind}");
    }
}

#[test]
fn ignored_files_stay_and_the_users_tree_is_not_touched() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("target/debug/tool", "built\n");
        let before = user.untouched();
        let mut options = options(backing);
        options.include_ignored = vec!["target/debug".into()];
        let spaces = Workspaces::open(&user.tree, &state(&user), options).unwrap();
        let parent = spaces.make("run", "p", "1", None).unwrap();
        write(&parent, "own.log", "parent\n");
        write(&parent, "target/more", "parent\n");
        let result =
            below(&spaces, &parent, "c", "echo c > own.log; echo c > of-c; rm -r target src");
        parent.take_in(&result, now()).unwrap();
        assert_eq!(read(&parent, "own.log").unwrap(), "parent\n", "{kind}");
        assert_eq!(read(&parent, "target/debug/tool").unwrap(), "built\n", "{kind}");
        assert_eq!(read(&parent, "target/more").unwrap(), "parent\n", "{kind}");
        assert_eq!(read(&parent, "of-c").unwrap(), "c\n", "{kind}");
        // A new `.gitignore` and the file that it no longer ignores are merged together.
        let result = below(&spaces, &parent, "d", ": > .gitignore; echo d > own.log");
        let refused = parent.take_in(&result, now()).unwrap();
        assert_eq!(kinds(&refused), [("own.log".to_owned(), ConflictKind::BothAdded)], "{kind}");
        assert_eq!(read(&parent, "own.log").unwrap(), "parent\n", "{kind}");
        assert_eq!(user.untouched(), before, "{kind}");
    }
}

#[test]
fn submodules_and_git_directories_are_left_out() {
    for (backing, kind) in KINDS {
        let family = Family::new(backing);
        let user = &family.user;
        let base = family.child("base", "echo c > of-c");
        // Workspaces never create such a commit; a given one may contain anything.
        let index = user.outer.path().join("index");
        let git = |arguments: &[&str]| {
            let output = user.command(arguments).env("GIT_INDEX_FILE", &index).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
        };
        git(&["read-tree", base.as_str()]);
        git(&["update-index", "--add", "--cacheinfo", &format!("160000,{base},module")]);
        let tree = git(&["write-tree"]);
        let parent = format!("{base}^");
        let made = git(&["commit-tree", &tree, "-p", &parent, "-m", "x"]);
        let taken = family.take(&ObjectId::parse(&made).unwrap());
        assert_eq!(paths(&taken), ["of-c"], "{kind}");
        let left: Vec<_> = taken.left_out.iter().map(|it| (it.path.as_path(), it.reason)).collect();
        assert_eq!(left, [(Path::new("module"), SkipReason::NestedRepository)], "{kind}");
        assert_eq!(read(&family.parent, "of-c").unwrap(), "c\n");
        let unborn = git(&["commit-tree", &tree, "-m", "no base"]);
        let refused = family.parent.take_in(&ObjectId::parse(&unborn).unwrap(), now()).unwrap_err();
        assert!(matches!(refused, WorkspaceError::Git(GitError::Missing(_))), "{refused}");
    }
}

/// For an ordinary user: root writes everywhere, and in an overlay the permissions are restored.
#[test]
fn a_read_only_directory_does_not_prevent_the_merge() {
    for (backing, kind) in KINDS {
        let family = Family::new(backing);
        let result =
            family.child("c", "echo a > a; echo c >> src/deep/down/file; echo z > z; rm ten");
        // In a work tree the owner's permissions are restored before anything is compared.
        act(&family.parent, "chmod 555 src/deep/down src/deep");
        assert_eq!(family.take(&result).diff.entries.len(), 4, "{kind}");
        assert_eq!(read(&family.parent, "src/deep/down/file").unwrap(), "deep\nc\n");
        assert_eq!(read(&family.parent, "ten"), None);
    }
}

#[test]
fn the_diff_of_a_result_can_be_limited_to_paths() {
    let family = Family::new(WorkspaceBackingChoice::Best);
    let result =
        family.child("c", "sed -i s/^9$/child/ ten; echo x >> README; echo y > 'dir with space/y'");
    let repository = family.spaces.repository();
    let base = repository.base_of(&result).unwrap();
    let shown = |paths: &[&str], max_bytes| {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        let what = PatchOptions { paths: &paths, binary: BinaryContent::Named, max_bytes };
        let (bytes, more) = repository.patch_of(&base, &result, what).unwrap();
        (String::from_utf8(bytes).unwrap(), more)
    };
    let (text, more) = shown(&["ten", "dir with space"], 10_000);
    assert!(text.contains("-9\n+child\n") && text.contains("dir with space/y"), "{text}");
    assert!(
        !text.contains("README") && !more,
        "only what was asked for, and not the parent's: {text}"
    );
    let (text, more) = shown(&["ten"], 40);
    assert!(text.len() <= 40 && more, "{text}");
}

#[test]
#[ignore = "a measurement"]
fn the_cost_depends_on_the_size_of_the_change() {
    let place = std::env::var("ADJUTANT_TEST_PLACES").unwrap_or_else(|_| "/dev/shm".to_owned());
    for (backing, kind) in KINDS {
        for count in [100_usize, 10_000] {
            let user = User::folder_in(TempDir::new_in(&place).unwrap()).initialised().filled();
            for number in 0..count {
                user.write(format!("f{}/{number}", number / 100), &format!("{number}\n"));
            }
            user.commit("filled");
            let spaces = open(&user, backing);
            let parent = spaces.make("run", "p", "1", None).unwrap();
            write(&parent, "f0/0", "parent\n");
            for changed in [3_usize, 99] {
                let mut all = Vec::new();
                for round in 0..9 {
                    let child = format!("c{changed}-{round}");
                    let child = spaces.make("run", &child, "2", Some(&parent)).unwrap();
                    for number in 1..=changed {
                        write(&child, &format!("f0/{number}"), &format!("{round}\n"));
                    }
                    let result = child.keep("work\n", now()).unwrap().commit.unwrap();
                    child.close().unwrap();
                    let begun = std::time::Instant::now();
                    let taken = parent.take_in(&result, now()).unwrap();
                    all.push(begun.elapsed());
                    assert_eq!((taken.diff.entries.len(), taken.conflicts), (changed, Vec::new()));
                }
                all.sort();
                let (least, middle, most) = (all[0], all[4], all[8]);
                println!(
                    "{kind}, {changed} of {count} files: {middle:.1?} ({least:.1?} to {most:.1?})"
                );
            }
        }
    }
}
