//! Searching for definition files: the project's beneath its root, then the person's in their own folders.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use adjutant_workspace::{Dir, DirEntry, FileKind, OpenedFile, PathError, Root};

use super::definition::definition;
use super::{
    AgentRoster, DefinitionScope, FILE_BYTES, FileProblem, MAX_FILES, SCOPE_BYTES, SourceProduct,
    display_path, project_folders,
};
use crate::runner::panics::catch_panic;

/// What a search for agent or command files finds: a file to read, or one that cannot be read.
pub(crate) enum SearchFinding {
    /// A file with the right extension.
    File(DefinitionFile),
    /// A folder or file that cannot be read.
    Problem(FileProblem),
}

/// A definition file that was found, with its content.
pub(crate) struct DefinitionFile {
    /// The product whose format it has.
    pub(crate) product: SourceProduct,
    /// Whose file it is.
    pub(crate) scope: DefinitionScope,
    /// The path; relative to the project's root for a file of the project.
    pub(crate) file: String,
    /// The path relative to its product's folder.
    pub(crate) within: PathBuf,
    /// The content, or why it cannot be read.
    pub(crate) text: Result<String, String>,
    /// Whether the limits of its scope were used up before it. Only the first such file is reported.
    pub(crate) is_over_limit: bool,
}

impl DefinitionFile {
    /// Returns the file name without its extension.
    pub(crate) fn stem(&self) -> String {
        self.within.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Parses the content with `make`. A panic in `make` becomes an error.
    pub(crate) fn read<T>(
        &self,
        make: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        let text = self.text.as_deref().map_err(Clone::clone)?;
        catch_panic(|| make(text))
            .unwrap_or_else(|crash| Err(format!("parsing it failed: {}", crash.message)))
    }

    /// Returns the problem to report for this file.
    pub(crate) fn problem(&self, reason: String) -> FileProblem {
        FileProblem { file: self.file.clone(), scope: self.scope, reason }
    }
}

/// Returns whether subfolders of a product's folder are searched too.
pub(crate) type SearchesSubfolders = fn(SourceProduct) -> bool;

/// The deepest level of subfolders that is searched. Inclusive.
const MAX_DEPTH: usize = 6;
/// The most entries of one folder that are read.
const MAX_ENTRIES: usize = 2_000;

/// The person's own folders of definitions, by product.
#[derive(Clone, Debug, Default)]
pub struct UserFolders(pub Vec<(SourceProduct, PathBuf)>);

/// Finds all agent definitions, first in the project, then in the person's folders.
pub fn find_agents(root: &Path, user: &UserFolders) -> Result<AgentRoster, PathError> {
    let mut roster = AgentRoster::default();
    let nests = |product| matches!(product, SourceProduct::Claude | SourceProduct::Opencode);
    search_folders(root, &project_folders(), user, nests, &mut |find| match find {
        SearchFinding::Problem(problem) => roster.problems.push(problem),
        SearchFinding::File(leaf) => {
            let stem = leaf.stem();
            let (product, scope) = (leaf.product, leaf.scope);
            match leaf.read(|text| definition(product, scope, &leaf.file, &stem, text)) {
                Ok(definition) => roster.add(definition),
                Err(reason) => {
                    if !leaf.is_over_limit {
                        roster.problems.push(leaf.problem(reason));
                    }
                    if leaf.scope == DefinitionScope::User {
                        roster.withdraw(&stem, &leaf.file);
                    }
                }
            }
        }
    })?;
    Ok(roster)
}

/// Searches a project's folders, then the person's, and passes each finding to `tell`.
pub(crate) fn search_folders(
    root: &Path,
    project: &[(SourceProduct, &'static str)],
    user: &UserFolders,
    nests: SearchesSubfolders,
    tell: &mut dyn FnMut(SearchFinding),
) -> Result<(), PathError> {
    let root = Root::open(root)?;
    let mut left = ReadAllowance::default();
    let real = |path: &Path| fs::canonicalize(path).ok();
    let theirs: Vec<PathBuf> = user.0.iter().filter_map(|(_, path)| real(path)).collect();
    for &(product, folder) in project {
        // If the project is the home directory, its folders are the person's and are searched below.
        if real(&root.path().join(folder)).is_some_and(|path| theirs.contains(&path)) {
            continue;
        }
        let scope = DefinitionScope::Project;
        DefinitionFolder { root: &root, product, scope, folder, nests }.open(&mut left, tell);
    }
    left = ReadAllowance::default();
    for (product, folder) in &user.0 {
        match Root::open(folder) {
            Ok(root) => {
                let (product, scope) = (*product, DefinitionScope::User);
                DefinitionFolder { root: &root, product, scope, folder: ".", nests }
                    .open(&mut left, tell);
            }
            Err(PathError::NotFound) => {}
            Err(error) => tell(SearchFinding::Problem(FileProblem {
                file: display_path(folder),
                scope: DefinitionScope::User,
                reason: error.to_string(),
            })),
        }
    }
    Ok(())
}

/// The files and bytes that may still be read in one scope.
struct ReadAllowance {
    files: usize,
    bytes: u64,
}

impl Default for ReadAllowance {
    fn default() -> Self {
        Self { files: MAX_FILES, bytes: SCOPE_BYTES }
    }
}

impl ReadAllowance {
    /// Subtracts one file of that size, or returns why it is not read.
    fn take(&mut self, bytes: u64) -> Result<(), String> {
        let files = self.files.checked_sub(1).ok_or_else(|| {
            format!("it is one of more than {MAX_FILES} files; the rest is not read")
        });
        let bytes = self.bytes.checked_sub(bytes).ok_or_else(|| {
            let most = SCOPE_BYTES >> 20;
            format!("with it the files have more than {most} MiB; the rest is not read")
        });
        let taken = files.and_then(|files| Ok((files, bytes?)));
        // After the first file over the limit no smaller file is read either; which ones would depend on the order.
        let (files, bytes) = taken.clone().unwrap_or((0, 0));
        (self.files, self.bytes) = (files, bytes);
        taken.map(drop)
    }

    const fn is_used_up(&self) -> bool {
        self.files == 0 && self.bytes == 0
    }
}

/// A folder of definitions to search.
struct DefinitionFolder<'a> {
    root: &'a Root,
    product: SourceProduct,
    scope: DefinitionScope,
    folder: &'static str,
    nests: SearchesSubfolders,
}

impl DefinitionFolder<'_> {
    fn open(&self, left: &mut ReadAllowance, tell: &mut dyn FnMut(SearchFinding)) {
        let folder = self.folder;
        let opened = self.root.relative(folder).and_then(|path| self.root.open_dir(&path));
        match opened {
            Ok(dir) => self.walk(&dir, Path::new(folder), 0, left, tell),
            Err(PathError::NotFound) => {}
            Err(error) => self.complain(Path::new(folder), error.to_string(), tell),
        }
    }

    fn walk(
        &self,
        dir: &Dir,
        path: &Path,
        depth: usize,
        left: &mut ReadAllowance,
        tell: &mut dyn FnMut(SearchFinding),
    ) {
        let listing = match dir.list(MAX_ENTRIES) {
            Ok(listing) => listing,
            Err(error) => return self.complain(path, error.to_string(), tell),
        };
        if listing.truncated {
            let reason =
                format!("it holds more than {MAX_ENTRIES} entries; the rest is not looked at");
            self.complain(path, reason, tell);
        }
        for entry in &listing.entries {
            let at = path.join(&entry.name);
            if entry.kind == FileKind::Directory {
                self.descend(dir, entry, &at, depth, left, tell);
            } else if self.is_definition(&entry.name) {
                self.take(dir, entry, &at, left, tell);
            }
        }
    }

    fn descend(
        &self,
        dir: &Dir,
        entry: &DirEntry,
        at: &Path,
        depth: usize,
        left: &mut ReadAllowance,
        tell: &mut dyn FnMut(SearchFinding),
    ) {
        if !(self.nests)(self.product) || entry.name.as_encoded_bytes().starts_with(b".") {
            return;
        }
        if depth == MAX_DEPTH {
            return self.complain(at, format!("it lies more than {MAX_DEPTH} folders deep"), tell);
        }
        match dir.open_dir(&entry.name) {
            Ok(inner) => self.walk(&inner, at, depth + 1, left, tell),
            Err(error) => self.complain(at, error.to_string(), tell),
        }
    }

    fn is_definition(&self, name: &OsStr) -> bool {
        let wanted = if self.product == SourceProduct::Codex { "toml" } else { "md" };
        let path = Path::new(name);
        path.extension().is_some_and(|extension| extension == wanted)
            && !name.as_encoded_bytes().starts_with(b".")
    }

    fn take(
        &self,
        dir: &Dir,
        entry: &DirEntry,
        at: &Path,
        left: &mut ReadAllowance,
        tell: &mut dyn FnMut(SearchFinding),
    ) {
        let opened = match (entry.kind, self.scope) {
            // A person's own links may lead anywhere, for example to a dotfiles repository.
            (FileKind::Symlink, DefinitionScope::User) => follow(&self.root.path().join(at)),
            (FileKind::Symlink, DefinitionScope::Project | DefinitionScope::BuiltIn) => {
                self.root.relative(at).and_then(|path| self.root.open_file(&path))
            }
            (_, _) => dir.open_file(&entry.name),
        };
        let is_over_limit = left.is_used_up();
        // A file over its own size limit is not read, so its bytes do not count.
        let size = opened.as_ref().map_or(0, |opened| opened.len);
        let taken = left.take(if size > FILE_BYTES { 0 } else { size });
        let opened = taken.and_then(|()| opened.map_err(|error| link_out(&error)));
        tell(SearchFinding::File(DefinitionFile {
            product: self.product,
            scope: self.scope,
            file: self.display_path(at),
            within: at.strip_prefix(self.folder).unwrap_or(at).to_owned(),
            text: opened.and_then(text),
            is_over_limit,
        }));
    }

    fn complain(&self, at: &Path, reason: String, tell: &mut dyn FnMut(SearchFinding)) {
        tell(SearchFinding::Problem(FileProblem {
            file: self.display_path(at),
            scope: self.scope,
            reason,
        }));
    }

    /// Returns the path to show: relative for a project's file, absolute for a person's.
    fn display_path(&self, at: &Path) -> String {
        match self.scope {
            DefinitionScope::Project | DefinitionScope::BuiltIn => display_path(at),
            DefinitionScope::User => {
                display_path(&self.root.path().join(at.strip_prefix(".").unwrap_or(at)))
            }
        }
    }
}

fn link_out(error: &PathError) -> String {
    if matches!(error, PathError::Outside) {
        return "it is a link that leads out of the project".to_owned();
    }
    error.to_string()
}

fn follow(link: &Path) -> Result<OpenedFile, PathError> {
    let real = fs::canonicalize(link).map_err(PathError::Io)?;
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(PathError::NotFound);
    };
    let root = Root::open(folder)?;
    root.relative(Path::new(name)).and_then(|path| root.open_file(&path))
}

fn text(opened: OpenedFile) -> Result<String, String> {
    let too_large = || format!("it is larger than {} KiB", FILE_BYTES >> 10);
    if opened.len > FILE_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, to notice a file that has grown since its size was read.
    let read = opened.file.take(FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(too_large());
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}
