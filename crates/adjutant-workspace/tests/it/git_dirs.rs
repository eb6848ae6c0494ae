//! Git directories that are not called `.git`: agents reach neither their hooks nor their configuration.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use adjutant_workspace::space::{
    WorkspaceBacking, WorkspaceBackingChoice, WorkspaceOptions, Workspaces,
};
use adjutant_workspace::{
    ApplyError, FileChange, Git, MissingParents, NewCommit, ObjectId, PathError, Repository,
    ResultRef, Root, SkipReason, SkippedPath, layer_changes, with_link_targets,
};
use tempfile::TempDir;

use crate::git::{User, now, put};
use crate::overlay::helper;
use crate::space::{read, run, run_with};
use crate::{rel, word};

/// Content of the user's configuration, which no workspace may contain.
const SECRET: &str = "s3cr3t-t0ken";

/// A layout with the git directory inside the work tree.
struct Layout {
    name: &'static str,
    /// The path of the git directory in the work tree.
    git_dir: &'static str,
    make: fn(&User),
}

/// The git directory is named by an absolute path, by a relative path, and inside a directory of its own.
const LAYOUTS: [Layout; 3] = [
    Layout {
        name: "separate",
        git_dir: "gitdata",
        make: |user| {
            let path = user.path("gitdata");
            user.git([
                "init",
                "-q",
                "-b",
                "main",
                "--separate-git-dir",
                path.to_str().unwrap(),
                ".",
            ]);
        },
    },
    Layout {
        name: "pointer",
        git_dir: "meta/git data",
        make: |user| {
            user.git(["init", "-q", "-b", "main", "."]);
            fs::create_dir(user.path("meta")).unwrap();
            fs::rename(user.path(".git"), user.path("meta/git data")).unwrap();
            put(&user.path(".git"), "gitdir: meta/git data\n");
        },
    },
    Layout {
        name: "bare",
        git_dir: ".bare",
        make: |user| {
            user.git(["init", "-q", "-b", "main", "--bare", ".bare"]);
            put(&user.path(".git"), "gitdir: ./.bare\n");
            user.git(["config", "core.bare", "false"]);
        },
    },
];

impl Layout {
    /// A repository whose git directory names the surrounding work tree.
    fn user(&self) -> User {
        let user = User::folder_in(TempDir::new_in("/var/tmp").unwrap());
        (self.make)(&user);
        user.git(["config", "core.worktree", user.tree.to_str().unwrap()]);
        let remote = format!("https://me:{SECRET}@localhost/repo.git");
        user.git(["config", "remote.origin.url", &remote]);
        user.write("README", "one\n");
        user.write("src/lib.rs", "fn a() {}\n");
        user.git(["add", "README", "src"]);
        user.git(["commit", "-q", "-m", "first"]);
        user
    }

    /// The files of the git directory from which git would start a program.
    fn programs(&self, user: &User) -> BTreeMap<PathBuf, String> {
        let folder = user.path(self.git_dir);
        let hooks = fs::read_dir(folder.join("hooks")).unwrap().flatten().map(|it| it.path());
        let files = hooks.chain([folder.join("config"), folder.join("info/attributes")]);
        files.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect()
    }
}

/// Writes a file like a tool that works in the user's tree; returns the error, if any.
fn write_in_place(root: &Root, path: &str) -> Option<String> {
    let written = root
        .relative(path)
        .and_then(|path| root.file_target(&rel(""), &path, MissingParents::Create));
    let written = written.and_then(|place| {
        let before = place.read(1 << 20)?;
        place.replace(b"planted\n", before.as_ref(), OsStr::new(".new"))
    });
    written.err().map(|error| word(&error))
}

fn guarded_root(tree: &Path) -> Root {
    let mut root = Root::open(tree).unwrap();
    root.guard_git_dirs();
    root
}

#[test]
fn a_git_directory_of_any_name_is_not_written() {
    for layout in &LAYOUTS {
        let user = layout.user();
        let git_dir = layout.git_dir;
        symlink(git_dir, user.path("alias")).unwrap();
        fs::hard_link(user.path(git_dir).join("config"), user.path("hard")).unwrap();
        let before = layout.programs(&user);
        let root = guarded_root(&user.tree);
        for (path, why) in [
            (format!("{git_dir}/config"), "<InGitDir>"),
            (format!("{git_dir}/hooks/pre-commit"), "<InGitDir>"),
            (format!("{git_dir}/info/attributes"), "<InGitDir>"),
            (format!("{git_dir}/new/deeper/file"), "<InGitDir>"),
            (format!("./{git_dir}//config"), "<InGitDir>"),
            (user.path(git_dir).join("config").to_str().unwrap().to_owned(), "<InGitDir>"),
            (format!("src/../{git_dir}/config"), "<Outside>"),
            ("alias/hooks/pre-commit".to_owned(), "<SymbolicLink>"),
            (".GIT".to_owned(), "<InGitDir>"),
        ] {
            let refused = write_in_place(&root, &path);
            assert_eq!(refused.as_deref(), Some(why), "{}: {path}", layout.name);
        }
        assert!(!user.path(git_dir).join("new").exists(), "{}", layout.name);
        for path in ["src/lib.rs", "new/folder/file", "hard"] {
            assert_eq!(write_in_place(&root, path), None, "{}: {path}", layout.name);
        }
        assert_eq!(layout.programs(&user), before, "{}", layout.name);
    }
}

#[test]
fn a_renamed_parent_and_a_root_below_the_top_hide_no_git_directory() {
    for layout in &LAYOUTS {
        let user = layout.user();
        let root = guarded_root(&user.tree);
        fs::rename(user.path(layout.git_dir), user.path("src/moved")).unwrap();
        let refused = write_in_place(&root, "src/moved/config");
        assert_eq!(refused.as_deref(), Some("<InGitDir>"), "{}", layout.name);
        fs::rename(user.path("src/moved"), user.path(layout.git_dir)).unwrap();

        // The root is the git directory itself, a folder in it, or a folder beside it.
        let inside = guarded_root(&user.path(layout.git_dir));
        assert_eq!(write_in_place(&inside, "config").as_deref(), Some("<InGitDir>"));
        let hooks = guarded_root(&user.path(layout.git_dir).join("hooks"));
        assert_eq!(write_in_place(&hooks, "pre-commit").as_deref(), Some("<InGitDir>"));
        assert_eq!(write_in_place(&guarded_root(&user.path("src")), "new"), None);
    }
}

#[test]
fn work_trees_beside_and_inside_a_shared_git_directory_are_writable_and_the_git_directory_is_not() {
    let user = User::folder_in(TempDir::new_in("/var/tmp").unwrap());
    user.git(["init", "-q", "-b", "main", "--bare", ".bare"]);
    put(&user.path(".git"), "gitdir: ./.bare\n");
    let tree = user.git(["hash-object", "-t", "tree", "-w", "--stdin"]);
    let first = user.git(["commit-tree", "-m", "first", &tree]);
    user.git(["branch", "main", &first]);
    for place in ["main", ".bare/inside"] {
        let path = user.path(place);
        user.git([
            "worktree",
            "add",
            "-q",
            "-b",
            &format!("of-{}", place.len()),
            path.to_str().unwrap(),
        ]);
        assert_eq!(write_in_place(&guarded_root(&path), "src/new"), None, "{place}");
    }
    let root = guarded_root(&user.tree);
    assert_eq!(write_in_place(&root, "main/src/other"), None);
    for path in [".bare/config", ".bare/worktrees/main/config.worktree", ".bare/hooks/pre-commit"] {
        assert_eq!(write_in_place(&root, path).as_deref(), Some("<InGitDir>"), "{path}");
    }
    // From a linked work tree the common directory is guarded too, by any path.
    let linked = guarded_root(&user.path("main"));
    fs::rename(user.path(".bare/hooks"), user.path("main/hooks")).unwrap();
    assert_eq!(write_in_place(&linked, "hooks/pre-commit"), None, "a folder of no git directory");
    fs::rename(user.path(".bare"), user.path("main/below")).unwrap();
    assert_eq!(write_in_place(&linked, "below/config").as_deref(), Some("<InGitDir>"));
}

#[test]
fn the_git_directory_of_a_submodule_is_guarded_from_both_trees() {
    let layout = &LAYOUTS[0];
    let (user, inner) = (layout.user(), User::new());
    let inner = inner.tree.to_str().unwrap();
    user.git(["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "sub"]);
    assert!(user.path("gitdata/modules/sub/config").is_file());
    let outer = guarded_root(&user.tree);
    let planted = write_in_place(&outer, "gitdata/modules/sub/config");
    assert_eq!(planted.as_deref(), Some("<InGitDir>"));
    assert_eq!(write_in_place(&guarded_root(&user.path("sub")), "file"), None);
    // The outer git directory, moved into the submodule's own tree.
    let sub = guarded_root(&user.path("sub"));
    fs::rename(user.path("gitdata"), user.path("sub/gitdata")).unwrap();
    let planted = write_in_place(&sub, "sub/gitdata/config");
    assert_eq!(planted, None, "another path");
    let planted = write_in_place(&sub, "gitdata/modules/sub/config");
    assert_eq!(planted.as_deref(), Some("<InGitDir>"));
}

#[test]
fn every_write_is_refused_while_the_git_directory_cannot_be_resolved() {
    for (what, text) in [
        ("dangling", "gitdir: nowhere\n"),
        ("empty", ""),
        ("nonsense", "something else\n"),
        ("file", "gitdir: README\n"),
    ] {
        let user = User::bare_folder();
        user.write("README", "x\n");
        put(&user.path(".git"), text);
        let refused = write_in_place(&guarded_root(&user.tree), "src/new");
        assert_eq!(refused.as_deref(), Some("<GitDirUnknown>"), "{what}");
        assert!(!user.path("src").exists(), "{what}");
    }
    let user = User::bare_folder();
    symlink("nowhere", user.path(".git")).unwrap();
    let refused = write_in_place(&guarded_root(&user.tree), "new");
    assert_eq!(refused.as_deref(), Some("<GitDirUnknown>"));
    // A link to a git directory elsewhere is guarded where it leads.
    let user = User::new();
    fs::rename(user.path(".git"), user.path("real")).unwrap();
    symlink("real", user.path(".git")).unwrap();
    let root = guarded_root(&user.tree);
    assert_eq!(write_in_place(&root, "real/config").as_deref(), Some("<InGitDir>"));
    assert_eq!(write_in_place(&root, "src/new"), None);
}

#[test]
fn a_directory_that_looks_like_a_git_directory_is_neither_written_nor_created() {
    let user = User::new();
    user.git(["init", "-q", "--bare", "fixture.git"]);
    let root = guarded_root(&user.tree);
    for path in ["fixture.git/config", "fixture.git/hooks/pre-commit", "fixture.git/objects/x"] {
        assert_eq!(write_in_place(&root, path).as_deref(), Some("<InGitDir>"), "{path}");
    }
    // The part that would complete a git directory is refused, whichever it is.
    for order in [
        ["made/config", "made/objects/a", "made/refs/a", "made/HEAD"],
        ["made/config", "made/HEAD", "made/refs/a", "made/objects/a/b"],
        ["made/config", "made/objects/a", "made/refs/a", "made/head"],
        ["made/config", "made/x", "made/commondir", "made/HEAD"],
        ["made/config", "made/x", "made/HEAD", "made/commondir"],
    ] {
        let [before @ .., last] = order;
        for path in before {
            assert_eq!(write_in_place(&root, path), None, "{order:?}: {path}");
        }
        let refused = write_in_place(&root, last);
        assert_eq!(refused.as_deref(), Some("<InGitDir>"), "{order:?}");
        fs::remove_dir_all(user.path("made")).unwrap();
    }
}

fn options(backing: WorkspaceBackingChoice, include: &[&str]) -> WorkspaceOptions {
    WorkspaceOptions {
        backing,
        include_ignored: include.iter().map(PathBuf::from).collect(),
        ..WorkspaceOptions::new(helper())
    }
}

fn spaces(user: &User, backing: WorkspaceBackingChoice, include: &[&str]) -> Workspaces {
    let state = user.outer.path().join("state");
    Workspaces::open(&user.tree, &state, options(backing, include)).unwrap()
}

const KINDS: [(WorkspaceBackingChoice, WorkspaceBacking); 2] = [
    (WorkspaceBackingChoice::Overlay, WorkspaceBacking::Overlay),
    (WorkspaceBackingChoice::Worktree, WorkspaceBacking::Worktree),
];

#[test]
fn a_workspace_and_its_result_contain_nothing_of_the_git_directory() {
    for (backing, kind) in KINDS {
        for layout in &LAYOUTS {
            let (what, git_dir) = (format!("{kind} {}", layout.name), layout.git_dir);
            let user = layout.user();
            symlink(git_dir, user.path("alias")).unwrap();
            let before = layout.programs(&user);
            let spaces = spaces(&user, backing, &[]);
            let space = spaces.make("run", "child", "1", None).unwrap();
            assert_eq!(read(&space, &format!("{git_dir}/config")), None, "{what}");
            let script = format!(
                "grep -rs {SECRET} . '{}'; git config --list; cat alias/config; git log --oneline; \
                 for at in '{git_dir}' '{}' alias; do mkdir -p \"$at/hooks\"; \
                 echo evil > \"$at/hooks/pre-commit\"; echo evil > \"$at/config\"; done; \
                 echo work > src/new; exit 0",
                user.tree.display(),
                git_dir.to_uppercase(),
            );
            let (_, said) = run(&space, &script);
            assert!(!said.contains(SECRET), "{what}: {said}");
            assert!(said.contains("State of the working tree") || said.contains("first"), "{said}");
            let kept = space.keep("work\n", now()).unwrap();
            let commit = kept.commit.unwrap();
            let paths: Vec<String> = user.files(&commit).into_keys().collect();
            assert_eq!(paths, ["README", "alias", "src/lib.rs", "src/new"], "{what}");
            let is_named = kept.skipped.iter().any(|it| {
                it.path == Path::new(git_dir) && it.reason == SkipReason::NestedRepository
            });
            assert!(is_named, "{what}: {:?}", kept.skipped);
            space.close().unwrap();

            let repository = spaces.repository();
            let applied = repository.apply(&commit, now()).unwrap();
            assert_eq!(user.read("src/new"), "work\n", "{what}");
            assert_eq!(layout.programs(&user), before, "{what}");
            repository.undo(&applied.name).unwrap();
            assert!(!user.path("src/new").exists(), "{what}");
            assert_eq!(layout.programs(&user), before, "{what}");
        }
    }
}

/// A commit on HEAD that was created with plain git.
fn planted(user: &User, repository: &Repository, path: &str) -> ObjectId {
    let (upper, head) = (user.outer.path().join("upper"), repository.head().unwrap().unwrap());
    let _ = fs::remove_dir_all(&upper);
    put(&upper.join("file"), "planted\n");
    let root = Root::open(&upper).unwrap();
    let (changes, _) = layer_changes(&root).unwrap();
    let commit = NewCommit {
        base: Some(&head),
        root: &root,
        changes: &changes,
        message: "work\n",
        at: now(),
    };
    let reference = ResultRef::new("run", "planted").unwrap();
    let made = repository.commit(commit, &reference, None).unwrap().unwrap();
    assert!(matches!(changes[..], [FileChange::Written(_)]));
    let blob = user.git(["rev-parse", &format!("{}:file", made.commit)]);
    let index = user.outer.path().join("planted.index");
    let git = |arguments: &[&str]| {
        let output = user.command(arguments).env("GIT_INDEX_FILE", &index).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["read-tree", head.as_str()]);
    git(&["update-index", "--add", "--cacheinfo", &format!("100755,{blob},{path}")]);
    let tree = git(&["write-tree"]);
    repository.discard(&reference, &made.commit).unwrap();
    ObjectId::parse(&git(&["commit-tree", "-p", head.as_str(), "-m", "planted", &tree])).unwrap()
}

#[test]
fn a_result_with_files_in_the_git_directory_is_refused_as_a_whole() {
    for layout in &LAYOUTS {
        let user = layout.user();
        let state = user.outer.path().join("state");
        let git = Git::find(&std::env::var_os("PATH").unwrap()).unwrap();
        let repository = Repository::open(&git, &user.tree, &state).unwrap();
        let before = layout.programs(&user);
        let paths = ["hooks/pre-commit", "config", "new/file"];
        for path in paths.map(|path| format!("{}/{path}", layout.git_dir)) {
            let result = planted(&user, &repository, &path);
            let refused = repository.apply(&result, now()).unwrap_err();
            let ApplyError::Stuck { source: PathError::InGitDir, .. } = refused else {
                panic!("{}: {refused:?}", layout.name)
            };
            let rehearsed = repository.rehearse(&[result], now()).unwrap();
            assert!(matches!(rehearsed[..], [Err(ApplyError::Stuck { .. })]), "{}", layout.name);
        }
        assert_eq!(layout.programs(&user), before, "{}", layout.name);
        assert!(!user.path(layout.git_dir).join("new").exists(), "{}", layout.name);
    }
}

#[test]
fn included_ignored_directories_are_copied_without_the_git_directory_in_them() {
    let layout = &LAYOUTS[1];
    for (backing, kind) in KINDS {
        let user = layout.user();
        user.write(".gitignore", "meta/\n");
        user.write("meta/cache", "warm\n");
        let open = spaces(&user, backing, &["meta"]);
        let space = open.make("run", "child", "1", None).unwrap();
        assert_eq!(read(&space, "meta/cache").as_deref(), Some("warm\n"), "{kind}");
        assert_eq!(read(&space, "meta/git data/config"), None, "{kind}");
        let refused = spaces(&user, backing, &["meta/git data"]).make("run", "other", "1", None);
        assert!(refused.is_err(), "{kind}");
    }
}

#[test]
fn tracked_fixtures_that_look_like_git_directories_stay_and_untracked_ones_are_left_out() {
    for (backing, kind) in KINDS {
        let user = User::folder_in(TempDir::new_in("/var/tmp").unwrap()).initialised().filled();
        for (folder, text) in [("tracked.git", "fixture\n"), ("untracked.git", SECRET)] {
            for name in ["HEAD", "objects/keep", "refs/keep", "config"] {
                user.write(format!("{folder}/{name}"), text);
            }
        }
        user.git(["add", "tracked.git"]);
        user.git(["commit", "-q", "-m", "fixture"]);
        user.write("tracked.git/config", "changed\n");
        let open = spaces(&user, backing, &[]);
        let space = open.make("run", "child", "1", None).unwrap();
        assert_eq!(read(&space, "tracked.git/config").as_deref(), Some("changed\n"), "{kind}");
        assert_eq!(read(&space, "untracked.git/config"), None, "{kind}");
        assert!(
            space.record().remarks.iter().any(|it| it.contains("untracked.git")),
            "{kind}: {:?}",
            space.record().remarks
        );
        // Such a directory made by an agent is part of its work, and the review reports it.
        run(
            &space,
            "mkdir -p made.git/objects made.git/refs; for f in HEAD objects/a refs/a config; do \
             echo x > made.git/$f; done; echo y > tracked.git/config",
        );
        let kept = space.keep("work\n", now()).unwrap();
        let commit = kept.commit.unwrap();
        assert!(user.files(&commit).contains_key("made.git/config"), "{kind}");
        let [Ok(rehearsed)] = &open.repository().rehearse(&[commit], now()).unwrap()[..] else {
            panic!("{kind}: it merges")
        };
        let flagged = open.repository().git_like(&rehearsed.diff);
        assert_eq!(flagged, [Path::new("made.git"), Path::new("tracked.git")], "{kind}");
        space.close().unwrap();
    }
}

/// Opens workspaces that exclude the user's configuration and the target of a link in it.
fn closed_spaces(user: &User, backing: WorkspaceBackingChoice, include: &[&str]) -> Workspaces {
    let options = WorkspaceOptions {
        closed: with_link_targets(&user.path(".config/adjutant")),
        ..options(backing, include)
    };
    Workspaces::open(&user.tree, &user.outer.path().join("state"), options).unwrap()
}

#[test]
fn the_configuration_directory_is_never_part_of_a_workspace_or_a_result() {
    for (backing, kind) in KINDS {
        let user = User::folder_in(TempDir::new_in("/var/tmp").unwrap()).initialised().filled();
        let config = format!("token = \"{SECRET}\"\n");
        user.write(".config/adjutant/config.toml", &config);
        user.write("dotfiles/models.toml", &config);
        symlink("../../dotfiles/models.toml", user.path(".config/adjutant/models.toml")).unwrap();
        user.write(".config/other", "other\n");
        user.write(".gitignore", "cache/\n");
        user.write("cache/file", "warm\n");
        fs::hard_link(user.path("dotfiles/models.toml"), user.path("cache/hard")).unwrap();
        let open = closed_spaces(&user, backing, &["cache"]);
        let space = open.make("run", "child", "1", None).unwrap();
        assert_eq!(read(&space, ".config/other").as_deref(), Some("other\n"), "{kind}");
        let (_, said) = run(
            &space,
            "grep -rs s3cr3t .; mkdir -p .config/adjutant/agents dotfiles; \
             for at in .config/adjutant/config.toml .config/adjutant/agents/a.md dotfiles/models.toml src/new; do \
             echo planted > $at; done; exit 0",
        );
        assert!(!said.contains(SECRET), "{kind}: {said}");
        let kept = space.keep("work\n", now()).unwrap();
        let commit = kept.commit.unwrap();
        let files = user.files(&commit);
        assert!(files.contains_key("src/new"), "{kind}");
        assert!(
            !files.keys().any(|it| it.contains("adjutant") || it.contains("dotfiles")),
            "{kind}"
        );
        for path in [".config/adjutant", "dotfiles/models.toml"] {
            let is_named =
                |it: &SkippedPath| it.path == Path::new(path) && it.reason == SkipReason::Reserved;
            assert!(kept.skipped.iter().any(is_named), "{kind}: {:?}", kept.skipped);
        }
        space.close().unwrap();
        open.repository().apply(&commit, now()).unwrap();
        assert_eq!(user.read("src/new"), "planted\n", "{kind}");
        assert_eq!(user.read(".config/adjutant/config.toml"), config, "{kind}");
        assert_eq!(user.read("dotfiles/models.toml"), config, "{kind}");
    }
}

#[test]
fn a_result_with_files_in_the_configuration_directory_is_refused_as_a_whole() {
    for exists in [true, false] {
        let user = User::new();
        if exists {
            user.write(".config/adjutant/config.toml", "mine\n");
        }
        let git = Git::find(&std::env::var_os("PATH").unwrap()).unwrap();
        let repository =
            Repository::open(&git, &user.tree, &user.outer.path().join("state")).unwrap();
        let repository = repository.with_protected(&[user.path(".config/adjutant")]);
        for path in [".config/adjutant/config.toml", ".config/adjutant/agents/a.md"] {
            let result = planted(&user, &repository, path);
            let refused = repository.apply(&result, now()).unwrap_err();
            let ApplyError::Stuck { source: PathError::Protected, .. } = refused else {
                panic!("{path}: {refused:?}")
            };
            let rehearsed = repository.rehearse(&[result], now()).unwrap();
            assert!(matches!(rehearsed[..], [Err(ApplyError::Stuck { .. })]), "{path}");
        }
        let found = fs::read_to_string(user.path(".config/adjutant/config.toml")).ok();
        assert_eq!(found.as_deref(), exists.then_some("mine\n"));
    }
}

#[test]
fn a_grant_around_the_git_directory_does_not_show_it() {
    for (backing, kind) in KINDS {
        let user = User::folder_in(TempDir::new_in("/var/tmp").unwrap());
        let grant = user.outer.path().join("gitdirs");
        put(&grant.join("notes"), "notes\n");
        let git_dir = grant.join("x").to_str().unwrap().to_owned();
        user.git(["init", "-q", "-b", "main", "--separate-git-dir", &git_dir, "."]);
        user.git([
            "config",
            "remote.origin.url",
            &format!("https://me:{SECRET}@localhost/repo.git"),
        ]);
        user.git(["config", "core.worktree", user.tree.to_str().unwrap()]);
        let user = user.filled();
        let space = spaces(&user, backing, &[]).make("run", "child", "1", None).unwrap();
        let look = format!("cd {} && cat notes; cat x/config; exit 0", grant.display());
        let (_, said) = run_with(&space, &look, vec![grant.clone()]);
        assert!(said.contains("notes") && !said.contains(SECRET), "{kind}: {said}");
        space.close().unwrap();
    }
}

#[test]
fn the_target_of_a_protected_link_cannot_be_opened_and_a_read_only_directory_cannot_be_written() {
    let user = User::new();
    user.write("dotfiles/config.toml", "mine\n");
    user.write("dotfiles/other", "other\n");
    user.write(".claude/agents/a.md", "agent\n");
    fs::create_dir_all(user.path(".config/adjutant")).unwrap();
    symlink("../../dotfiles/config.toml", user.path(".config/adjutant/config.toml")).unwrap();
    let mut root = Root::open(&user.tree).unwrap();
    with_link_targets(&user.path(".config/adjutant")).iter().for_each(|path| root.protect(path));
    for folder in [".claude/agents", ".claude/commands"] {
        root.make_read_only(&user.path(folder));
    }
    for (path, why) in [
        ("dotfiles/config.toml", Some("<Protected>")),
        (".config/adjutant/new", Some("<Protected>")),
        ("dotfiles/other", None),
        (".claude/agents/a.md", Some("<Protected>")),
        (".claude/agents/deep/b.md", Some("<Protected>")),
        (".claude/commands/c.md", Some("<Protected>")),
        (".claude/settings", None),
    ] {
        assert_eq!(write_in_place(&root, path).as_deref(), why, "{path}");
    }
    let opened = |path: &str| root.open_file(&rel(path)).err().map(|error| word(&error));
    assert_eq!(opened("dotfiles/config.toml").as_deref(), Some("<Protected>"));
    assert_eq!(opened(".claude/agents/a.md"), None);
    assert_eq!(user.read("dotfiles/config.toml"), "mine\n");
    assert!(!user.path(".claude/commands/c.md").exists());
}
