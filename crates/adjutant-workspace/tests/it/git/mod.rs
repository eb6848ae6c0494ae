//! Tests of everything that uses git, on real repositories.

mod apply;
mod bases;
mod claims;
mod hostile;
mod ignore;
mod journals;
mod kills;
mod matrix;
mod merge;
mod program;
mod random;
mod rehearse;
mod speed;
mod storing;
mod vertical;
mod worktree;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use adjutant_workspace::sandbox::NetworkAccess;
use adjutant_workspace::space::{WorkspaceBackingChoice, WorkspaceOptions, Workspaces};
use adjutant_workspace::{
    CreatedCommit, FileChange, Git, NewCommit, ObjectId, RelPath, Repository, ResultRef, Root,
    layer_changes,
};
use tempfile::TempDir;

/// The date of all commits in these tests.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn spaces_of(tree: &Path, state: &Path) -> Workspaces {
    let helper = crate::overlay::helper();
    let (backing, network) = (WorkspaceBackingChoice::Worktree, NetworkAccess::Off);
    let options = WorkspaceOptions { backing, network, ..WorkspaceOptions::new(helper) };
    Workspaces::open(tree, state, options).unwrap()
}

fn find_git() -> Git {
    Git::find(&std::env::var_os("PATH").unwrap()).unwrap()
}

/// A user's repository, worked on with plain git, and a state directory next to it.
pub(crate) struct User {
    pub(crate) outer: TempDir,
    pub(crate) tree: PathBuf,
}

impl User {
    /// A directory that is not a repository yet.
    pub(crate) fn bare_folder() -> Self {
        Self::folder_in(TempDir::new().unwrap())
    }

    pub(crate) fn folder_in(outer: TempDir) -> Self {
        let tree = outer.path().join("user tree");
        fs::create_dir(&tree).unwrap();
        fs::create_dir(outer.path().join("home")).unwrap();
        Self { outer, tree: tree.canonicalize().unwrap() }
    }

    /// A repository without commits.
    pub(crate) fn unborn() -> Self {
        Self::bare_folder().initialised()
    }

    /// A repository in memory if the machine offers that: a kill loses nothing that the kernel has.
    fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let outer = TempDir::new_in(memory).or_else(|_| TempDir::new()).unwrap();
        Self::folder_in(outer).initialised().filled()
    }

    pub(crate) fn initialised(self) -> Self {
        let user = self;
        user.git(["init", "-q", "-b", "main", "."]);
        user.git(["config", "gc.auto", "0"]);
        user
    }

    /// A repository with one commit of a few files.
    pub(crate) fn new() -> Self {
        Self::unborn().filled()
    }

    pub(crate) fn filled(self) -> Self {
        let user = self;
        user.write("README", "one\ntwo\nthree\n");
        user.write("src/lib.rs", "fn a() {}\n");
        user.write("src/deep/down/file", "deep\n");
        user.write(".gitignore", "target/\n*.log\n");
        user.commit("first");
        user
    }

    pub(crate) fn command(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        let mut command = Command::new("git");
        command
            .current_dir(&self.tree)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.outer.path().join("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "U")
            .env("GIT_AUTHOR_EMAIL", "u@localhost")
            .env("GIT_COMMITTER_NAME", "U")
            .env("GIT_COMMITTER_EMAIL", "u@localhost")
            .args(arguments);
        command
    }

    pub(crate) fn try_git(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs plain git as the user would; it must succeed.
    pub(crate) fn git(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
        let output = self.try_git(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    pub(crate) fn commit(&self, message: &str) -> ObjectId {
        self.git(["add", "-A"]);
        self.git(["commit", "-q", "--allow-empty", "-m", message]);
        self.id("HEAD")
    }

    /// Commits everything, even what a sparse checkout excludes.
    fn commit_with_sparse(&self) -> ObjectId {
        self.git(["add", "-A", "--sparse"]);
        self.git(["commit", "-q", "-m", "sparse"]);
        self.id("HEAD")
    }

    pub(crate) fn id(&self, name: &str) -> ObjectId {
        ObjectId::parse(&self.git(["rev-parse", "--verify", name])).unwrap()
    }

    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.tree.join(relative)
    }

    pub(crate) fn write(&self, relative: impl AsRef<Path>, text: &str) {
        put(&self.path(relative), text);
    }

    pub(crate) fn read(&self, relative: impl AsRef<Path>) -> String {
        fs::read_to_string(self.path(relative)).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.outer.path().join("state")
    }

    fn open(&self) -> Repository {
        Repository::open(&find_git(), &self.tree, &self.state()).unwrap()
    }

    /// The workspaces that are work trees of this repository.
    fn spaces(&self) -> Workspaces {
        spaces_of(&self.tree, &self.state())
    }

    /// The files of a tree with their contents, as plain git reports them.
    pub(crate) fn files(&self, tree: &ObjectId) -> BTreeMap<String, String> {
        let listed = self.git(["ls-tree", "-r", "-z", tree.as_str()]);
        let entries: Vec<(&str, &str)> =
            listed.split('\0').filter_map(|entry| entry.split_once('\t')).collect();
        let ids: String = entries.iter().map(|(info, _)| format!("{}\n", &info[12..])).collect();
        let mut shown = self.shown(&ids).into_iter();
        entries
            .into_iter()
            .map(|(info, path)| {
                let content = shown.next().unwrap();
                let content =
                    if &info[7..11] == "blob" { content } else { info[7..13].trim().to_owned() };
                (path.to_owned(), format!("{} {content}", &info[..6]))
            })
            .collect()
    }

    /// The contents of objects, one process for all of them; empty for those that are not here.
    fn shown(&self, ids: &str) -> Vec<String> {
        let input = self.outer.path().join("ids");
        fs::write(&input, ids).unwrap();
        let mut command = self.command(["cat-file", "--batch"]);
        let output = command.stdin(fs::File::open(input).unwrap()).output().unwrap();
        let (mut rest, mut all) = (output.stdout.as_slice(), Vec::new());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            rest = &rest[end + 1..];
            let Some(len) = head.split(' ').nth(2).and_then(|text| text.parse::<usize>().ok())
            else {
                all.push(String::new());
                continue;
            };
            all.push(String::from_utf8_lossy(&rest[..len]).into_owned());
            rest = &rest[len + 1..];
        }
        all
    }

    /// Everything of the user that must not change: status, index, stash, references, config.
    pub(crate) fn untouched(&self) -> Vec<String> {
        let others = self.git(["for-each-ref", "--format=%(refname) %(objectname)"]);
        let others = others.lines().filter(|line| !line.starts_with("refs/adjutant/"));
        let others = others.collect::<Vec<_>>().join("\n");
        vec![
            self.git(["--no-optional-locks", "status", "--porcelain=v2", "--branch"]),
            self.git(["ls-files", "--stage", "--debug"]),
            String::from_utf8_lossy(&self.try_git(["stash", "list"]).stdout).into_owned(),
            others,
            self.git(["config", "--local", "--list"]),
        ]
    }

    /// Commits the whole of an upper layer onto `base`.
    fn commit_layer(
        &self,
        repository: &Repository,
        base: &ObjectId,
        upper: &Path,
        reference: &ResultRef,
    ) -> Option<CreatedCommit> {
        let root = Root::open(upper).unwrap();
        let (changes, _) = layer_changes(&root).unwrap();
        let commit = work(base, &root, &changes);
        repository.commit(commit, reference, None).unwrap()
    }

    /// An empty upper layer.
    fn upper(&self) -> PathBuf {
        let path = self.outer.path().join("upper");
        fs::create_dir_all(&path).unwrap();
        path
    }
}

fn work<'a>(base: &'a ObjectId, root: &'a Root, changes: &'a [FileChange]) -> NewCommit<'a> {
    NewCommit { base: Some(base), root, changes, message: "work\n", at: now() }
}

pub(crate) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Makes a file executable, as a copy that another process writes: a descriptor that this process had open for
/// writing may still be open in a child that another thread is forking, and then the file cannot be executed.
fn make_executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = path.with_extension("copy");
    let copied = Command::new("cp").arg("-p").args([path, &copy]).status().unwrap();
    assert!(copied.success(), "{}", path.display());
    fs::rename(copy, path).unwrap();
}

fn link(target: &str, at: &Path) {
    symlink(target, at).unwrap();
}

fn rel(path: &str) -> RelPath {
    RelPath::new(path).unwrap()
}

fn child(name: &str) -> ResultRef {
    ResultRef::new("run", name).unwrap()
}

/// The files below a directory with their contents and types, without `.git`.
pub(crate) fn on_disk(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name() == Some(OsStr::new(".git")) {
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                open.push(path);
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(name, format!("120000 {}", target.display()));
            } else {
                let executable = metadata.permissions().mode() & 0o100 != 0;
                let mode = if executable { "100755" } else { "100644" };
                let bytes = fs::read(&path).unwrap();
                found.insert(name, format!("{mode} {}", String::from_utf8_lossy(&bytes)));
            }
        }
    }
    found
}
