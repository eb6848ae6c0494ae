//! A repository in which every kind of git helper is planted: plain git runs them, our wrapper does not.

use adjutant_workspace::{
    ApplyError, BaseCheckouts, ConflictKind, DiffStatus, GitError, LineCounts, Worktrees,
};

use super::*;

/// The helpers that plain git must run, so that silence through the wrapper proves something.
const FIRES: [&str; 13] = [
    "hook-post-checkout",
    "hook-post-commit",
    "hook-pre-commit",
    "hook-reference-transaction",
    "hook-post-index-change",
    "fsmonitor",
    "clean",
    "smudge",
    "textconv",
    "external-diff",
    "merge-driver",
    "gpg",
    "included",
];

const HOOKS: [&str; 9] = [
    "post-checkout",
    "post-commit",
    "pre-commit",
    "reference-transaction",
    "post-index-change",
    "post-merge",
    "pre-merge-commit",
    "commit-msg",
    "fsmonitor-watchman",
];

struct Planted {
    user: User,
    fired: PathBuf,
}

impl Planted {
    /// A repository with two branches that change the same file, and nothing planted yet.
    fn new() -> Self {
        let user = User::new();
        let fired = user.outer.path().join("fired");
        fs::create_dir(&fired).unwrap();
        fs::create_dir(user.outer.path().join("helpers")).unwrap();
        let attributes = "* filter=evil diff=evil merge=evil\n";
        user.write(".gitattributes", attributes);
        user.commit("attributes");
        user.git(["checkout", "-q", "-b", "other"]);
        user.write("README", "other\ntwo\nthree\n");
        user.commit("other");
        user.git(["checkout", "-q", "main"]);
        user.write("README", "main\ntwo\nthree\n");
        user.commit("main");
        Self { user, fired }
    }

    fn helper(&self, name: &str, then: &str) -> String {
        let path = self.user.outer.path().join("helpers").join(name);
        let text = format!("#!/bin/sh\n: > '{}/{name}'\n{then}\n", self.fired.display());
        fs::write(&path, text).unwrap();
        make_executable(&path);
        path.to_str().unwrap().to_owned()
    }

    /// Plants all helpers; `also` goes into an included configuration file.
    fn plant(&self, also: &str) {
        let user = &self.user;
        for hook in HOOKS {
            let helper = self.helper(&format!("hook-{hook}"), "exit 0");
            let at = user.path(".git/hooks").join(hook);
            put(&at, &fs::read_to_string(helper).unwrap());
            make_executable(&at);
        }
        put(&user.path(".git/info/attributes"), "* filter=evil diff=evil merge=evil\n");
        let outer = user.outer.path().join("included");
        let settings = [
            ("core.fsmonitor", self.helper("fsmonitor", "exit 1")),
            ("filter.evil.clean", self.helper("clean", "cat")),
            ("filter.evil.smudge", self.helper("smudge", "cat")),
            ("filter.evil.required", "false".to_owned()),
            ("filter.process.process", self.helper("process", "exit 1")),
            ("diff.evil.textconv", self.helper("textconv", "cat \"$1\"")),
            ("diff.external", self.helper("external-diff", "exit 0")),
            ("merge.evil.driver", self.helper("merge-driver", "exit 1")),
            ("merge.default", "evil".to_owned()),
            ("gpg.program", self.helper("gpg", "exit 1")),
            ("commit.gpgSign", "true".to_owned()),
            ("log.showSignature", "true".to_owned()),
            ("core.pager", self.helper("pager", "cat")),
            ("core.editor", self.helper("editor", "exit 0")),
            ("core.sshCommand", self.helper("ssh", "exit 1")),
            ("core.askPass", self.helper("askpass", "exit 1")),
            ("core.alternateRefsCommand", self.helper("alternate", "exit 0")),
            ("credential.helper", self.helper("credential", "exit 0")),
            ("alias.rev-parse", format!("!{}", self.helper("alias", "exit 0"))),
            ("attr.tree", "HEAD".to_owned()),
            ("include.path", outer.to_str().unwrap().to_owned()),
        ];
        for (key, value) in &settings {
            user.git(["config", key, value]);
        }
        let helper = self.helper("included", "exit 1");
        put(&outer, &format!("[alias]\n\tincluded = !{helper}\n{also}"));
    }

    /// Adds a monitor and an external diff to the included file.
    fn plant_more(&self) {
        let helper = self.helper("included", "exit 1");
        self.plant(&format!("[core]\n\tfsmonitor = {helper}\n[diff]\n\texternal = {helper}\n"));
    }

    fn fired(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.fired).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn forget(&self) {
        for name in self.fired() {
            fs::remove_file(self.fired.join(name)).unwrap();
        }
    }
}

/// Runs plain git on a copy.
fn plain_git(planted: &Planted) {
    let user = &planted.user;
    user.write("README", "plain\n");
    let commands: [&[&str]; 13] = [
        &["included"],
        &["status"],
        &["diff"],
        &["config", "--unset", "diff.external"],
        &["diff"],
        &["add", "-A"],
        &["commit", "-m", "signed"],
        &["-c", "commit.gpgSign=false", "commit", "-m", "plain"],
        &["checkout", "-q", "-f", "other"],
        &["checkout", "-q", "-f", "main"],
        &["-c", "commit.gpgSign=false", "merge", "other"],
        &["merge", "--abort"],
        &["worktree", "list"],
    ];
    for command in commands {
        user.try_git(command);
    }
}

#[test]
fn no_planted_helper_runs() {
    let planted = Planted::new();
    planted.plant("");
    plain_git(&planted);
    let fired = planted.fired();
    for name in FIRES {
        assert!(fired.contains(&name.to_owned()), "{name} never fires with plain git: {fired:?}");
    }
    planted.plant_more();
    let user = &planted.user;
    // Files with changed timestamps, so that every filter has a reason to run.
    user.write("README", "dirty\n");
    user.write("untracked", "new\n");
    fs::write(user.path("src/lib.rs"), user.read("src/lib.rs")).unwrap();
    user.git(["config", "core.worktree", user.outer.path().to_str().unwrap()]);
    planted.forget();

    let repository = user.open();
    assert_eq!(repository.work_tree(), user.tree, "core.worktree is not believed");
    let snapshot = repository.capture(now()).unwrap();
    repository.ignored().unwrap();
    let bases = BaseCheckouts::open(&repository).unwrap();
    drop(bases.lease(&snapshot.head_tree).unwrap());
    drop(bases.lease(&snapshot.tree).unwrap());

    put(&user.upper().join("README"), "child\n");
    let upper = user.upper();
    let made = user.commit_layer(&repository, &snapshot.commit, &upper, &child("h")).unwrap();
    repository.diff(&snapshot.commit, &made.commit).unwrap();
    repository.patch(&snapshot.commit, &made.commit, 1 << 20).unwrap();
    let other = repository.resolve("refs/heads/other").unwrap().unwrap();
    let preview = repository.preview(&made.commit, &other).unwrap();
    assert_eq!(preview.conflicts[0].kind, ConflictKind::BothModified);

    let applied = repository.apply(&made.commit, now()).unwrap();
    assert_eq!(user.read("README"), "child\n");
    repository.undo(&applied.name).unwrap();
    assert_eq!(user.read("README"), "dirty\n");

    let spaces = user.spaces();
    let space = spaces.make("run", "t", "1", None).unwrap();
    put(&space.directory().join("work"), "x\n");
    assert!(space.keep("work\n", now()).unwrap().commit.is_some());
    drop(space);
    assert_eq!(spaces.sweep(&|_| false, now()).unwrap().len(), 1);

    repository.branch(&child("h")).unwrap();
    repository.results().unwrap();
    repository.discard(&child("h"), &made.commit).unwrap();
    assert_eq!(planted.fired(), Vec::<String>::new());
}

#[test]
fn attributes_and_nested_repositories_of_a_child_run_no_helper() {
    let planted = Planted::new();
    planted.plant_more();
    planted.forget();
    let user = &planted.user;
    // A nested repository whose monitor would run if git examined it.
    user.try_git(["init", "-q", "nested"]);
    let monitor = planted.helper("nested-monitor", "exit 1");
    user.try_git(["-C", "nested", "config", "core.fsmonitor", &monitor]);
    put(&user.path("nested/file"), "x\n");
    planted.forget();
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    put(&user.upper().join(".gitattributes"), "* filter=evil diff=evil merge=evil text eol=crlf\n");
    put(&user.upper().join("src/.gitattributes"), "* ident working-tree-encoding=UTF-16\n");
    put(&user.upper().join("src/lib.rs"), "$Id$\n");
    let made =
        user.commit_layer(&repository, &snapshot.commit, &user.upper(), &child("a")).unwrap();
    let worktrees = Worktrees::open(&repository).unwrap();
    let tree = worktrees.create(&child("b"), &made.commit).unwrap();
    assert_eq!(fs::read_to_string(tree.path().join("src/lib.rs")).unwrap(), "$Id$\n");
    assert!(tree.is_clean().unwrap());
    repository.apply(&made.commit, now()).unwrap();
    assert_eq!(planted.fired(), Vec::<String>::new());
}

/// Attributes that change what git writes, stores, shows or merges without naming a program.
const CONVERTING: &str = "[attr]evil text eol=crlf ident\n\
    * evil conflict-marker-size=3\n\
    encoded working-tree-encoding=UTF-16\n\
    lines merge=union\n\
    unmergeable -merge\n\
    hidden binary\n";

/// Files for [`CONVERTING`].
const CONVERTED: [&str; 6] = ["plain", "encoded", "lines", "unmergeable", "hidden", "deep/plain"];

#[test]
fn attributes_change_no_content_and_no_merge() {
    let user = User::new();
    for name in CONVERTED {
        user.write(name, "$Id$\n1\n2\n3\n");
    }
    user.commit("files");
    user.write(".gitattributes", CONVERTING);
    user.write("deep/.gitattributes", "* text eol=crlf ident\n");
    // The other files are not added again, because plain git would convert them.
    user.git(["add", ".gitattributes", "deep/.gitattributes"]);
    user.git(["commit", "-q", "-m", "attributes"]);
    put(&user.path(".git/info/attributes"), CONVERTING);

    // Plain git uses them, so that unconverted content below proves something.
    let plain = user.outer.path().join("plain");
    user.git(["worktree", "add", "-q", "--detach", plain.to_str().unwrap()]);
    let converted = fs::read_to_string(plain.join("deep/plain")).unwrap();
    assert!(converted.starts_with("$Id: ") && converted.contains("\r\n"), "{converted:?}");
    assert!(fs::read_to_string(plain.join("encoded")).is_err(), "UTF-16 was expected");

    let repository = user.open();
    for name in CONVERTED {
        // Rewritten, so that git has to compare the content.
        fs::write(user.path(name), user.read(name)).unwrap();
    }
    let snapshot = repository.capture(now()).unwrap();
    assert_eq!(snapshot.changes, [], "the content on disk is what git stores");
    let bases = BaseCheckouts::open(&repository).unwrap();
    let lease = bases.lease(&snapshot.tree).unwrap();
    let worktrees = Worktrees::open(&repository).unwrap();
    let worktree = worktrees.create(&child("w"), &snapshot.commit).unwrap();
    for folder in [lease.path(), worktree.path()] {
        for name in CONVERTED {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(text, "$Id$\n1\n2\n3\n", "{}", folder.join(name).display());
        }
    }
    assert!(worktree.is_clean().unwrap());
    drop(lease);

    for name in CONVERTED {
        put(&user.upper().join(name), "$Id$\r\n1\n2\nchild\n");
    }
    let upper = user.upper();
    let made = user.commit_layer(&repository, &snapshot.commit, &upper, &child("c")).unwrap();
    let files = user.files(&made.tree);
    let diff = repository.diff(&snapshot.commit, &made.commit).unwrap();
    assert_eq!(diff.entries.len(), CONVERTED.len());
    for entry in &diff.entries {
        let name = entry.path.to_str().unwrap();
        assert_eq!(files[name], "100644 $Id$\r\n1\n2\nchild\n", "{name}");
        assert_eq!(entry.status, DiffStatus::Modified, "{name}");
        assert_eq!(entry.lines, Some(LineCounts { added: 2, removed: 2 }), "{name}");
    }
    let (patch, _) = repository.patch(&snapshot.commit, &made.commit, 1 << 20).unwrap();
    let patch = String::from_utf8_lossy(&patch);
    assert_eq!(patch.matches("\n+child\n").count(), CONVERTED.len(), "{patch}");

    let commit_of = |name: &str, text: &str| {
        let upper = user.outer.path().join(name);
        CONVERTED.iter().for_each(|file| put(&upper.join(file), text));
        user.commit_layer(&repository, &snapshot.commit, &upper, &child(name)).unwrap().commit
    };
    let above = commit_of("above", "above\n$Id$\n1\n2\n3\n");
    let below = commit_of("below", "$Id$\n1\n2\n3\nbelow\n");
    let again = commit_of("again", "$Id$\n1\n2\n3\nagain\n");
    let preview = repository.preview(&below, &above).unwrap();
    assert_eq!(preview.conflicts, []);
    let merged = user.files(&preview.tree);
    for name in CONVERTED {
        assert_eq!(merged[name], "100644 above\n$Id$\n1\n2\n3\nbelow\n", "{name}");
    }
    let preview = repository.preview(&below, &again).unwrap();
    assert_eq!(preview.conflicts.len(), CONVERTED.len(), "{:?}", preview.conflicts);
    assert!(preview.conflicts.iter().all(|it| it.kind == ConflictKind::BothModified));
    let merged = user.files(&preview.tree);
    assert!(CONVERTED.iter().all(|name| merged[*name].contains("\n<<<<<<< ")), "{merged:?}");

    repository.apply(&below, now()).unwrap();
    for name in CONVERTED {
        assert_eq!(user.read(name), "$Id$\n1\n2\n3\nbelow\n", "{name}");
    }
}

#[test]
fn a_missing_object_is_not_fetched() {
    let planted = Planted::new();
    let user = &planted.user;
    let upload = planted.helper("upload-pack", "exit 1");
    let other = User::new();
    user.git(["config", "core.repositoryFormatVersion", "1"]);
    user.git(["config", "extensions.partialClone", "origin"]);
    user.git(["config", "remote.origin.url", other.tree.to_str().unwrap()]);
    user.git(["config", "remote.origin.promisor", "true"]);
    user.git(["config", "remote.origin.uploadPack", &upload]);
    let missing = ObjectId::parse(&"1".repeat(40)).unwrap();
    assert!(!user.try_git(["cat-file", "-e", missing.as_str()]).status.success());
    assert_eq!(planted.fired(), ["upload-pack"], "plain git tries to fetch it");
    planted.forget();

    let repository = user.open();
    let head = user.id("HEAD");
    assert_eq!(repository.resolve(&format!("{missing}^{{commit}}")).unwrap(), None);
    assert!(repository.existing_commits(std::slice::from_ref(&missing)).unwrap().is_empty());
    assert!(repository.diff(&head, &missing).is_err());
    assert!(repository.preview(&head, &missing).is_err());
    assert!(repository.merged_in_head(std::slice::from_ref(&missing)).is_err());
    assert_eq!(planted.fired(), Vec::<String>::new());
}

#[test]
fn a_dot_git_that_is_a_link_or_leads_to_another_repository_is_refused() {
    let victim = User::new();
    let open = |user: &User| Repository::open(&find_git(), &user.tree, &user.state());

    let user = User::bare_folder();
    link(victim.path(".git").to_str().unwrap(), &user.path(".git"));
    assert!(matches!(open(&user), Err(GitError::Untrusted { .. })));

    let linked = victim.outer.path().join("linked");
    victim.git(["worktree", "add", "-q", linked.to_str().unwrap()]);
    let pointers = [
        format!("gitdir: {}\n", victim.path(".git").display()),
        format!("gitdir: {}\n", victim.path(".git/worktrees/linked").display()),
        "gitdir: /nonexistent\n".to_owned(),
        "gitdir: \n".to_owned(),
        "something else\n".to_owned(),
        format!("gitdir: {}\n", "x/".repeat(10_000)),
    ];
    for pointer in pointers {
        let user = User::bare_folder();
        user.write(".git", &pointer);
        let refused = open(&user);
        assert!(
            matches!(refused, Err(GitError::Untrusted { .. } | GitError::Foreign { .. })),
            "{pointer}: {refused:?}"
        );
    }

    let user = User::bare_folder();
    let _socket = std::os::unix::net::UnixListener::bind(user.path(".git")).unwrap();
    assert!(matches!(open(&user), Err(GitError::Untrusted { .. })));

    let user = User::bare_folder();
    fs::create_dir(user.path(".git")).unwrap();
    assert!(matches!(open(&user), Err(GitError::NotARepository { .. })));
}

#[test]
fn a_dot_git_that_is_replaced_after_opening_causes_an_error_or_is_ignored() {
    let user = User::new();
    let repository = user.open();
    let victim = User::new();
    let before = victim.untouched();
    fs::rename(user.path(".git"), user.outer.path().join("moved away")).unwrap();
    link(victim.path(".git").to_str().unwrap(), &user.path(".git"));
    // In any case the files, index and references of the other repository stay unchanged.
    let _ = repository.capture(now());
    assert_eq!(victim.untouched(), before);
}

#[test]
fn directories_that_became_links_are_not_followed_when_capturing() {
    let user = User::new();
    let outside = user.outer.path().join("outside");
    put(&outside.join("lib.rs"), "secret\n");
    fs::remove_dir_all(user.path("src")).unwrap();
    link(outside.to_str().unwrap(), &user.path("src"));
    let snapshot = user.open().capture(now()).unwrap();
    let files = user.files(&snapshot.tree);
    assert!(files["src"].starts_with("120000 "), "{files:?}");
    assert!(!files.keys().any(|path| path.starts_with("src/")), "{files:?}");
    let error = user.open().apply(&snapshot.commit, now());
    assert!(!matches!(error, Err(ApplyError::Git(_))), "{error:?}");
}
