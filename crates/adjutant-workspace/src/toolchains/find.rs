//! Finds toolchains: applies each row of the table to this machine.
//!
//! Start at [`find_toolchains`]. The order of the result is that of the user's `PATH`, the system's tools last.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::found::FoundToolchain;
use super::search::{ToolchainLookup, ToolchainSearch};
use super::system;
use super::table::{DirectoryCandidate, KnownDirectory, PathRule, ROWS, ToolchainRow};
use super::versions::highest;

/// Returns the toolchains that are installed here. Runs nothing, and leaves out what looks broken.
///
/// Toolchains come in the order of their directories in the user's `PATH`. Those that are not in it follow, then the
/// system's tools.
#[must_use]
pub fn find_toolchains(lookup: &ToolchainLookup) -> Vec<FoundToolchain> {
    let search = ToolchainSearch::new(lookup);
    let mut found: Vec<(usize, FoundToolchain)> =
        ROWS.iter().filter_map(|row| find_row(&search, row)).collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, it)| it).chain(system::find_system(&search)).collect()
}

/// Returns the names by which toolchains can be switched off.
pub fn toolchain_names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Returns whether a name switches off at least one toolchain. `node` means every row that begins with it.
#[must_use]
pub fn is_toolchain_name(name: &str) -> bool {
    toolchain_names().any(|row| is_named(row, name))
}

/// Returns the toolchains without those that are switched off by name. The system's tools always stay.
#[must_use]
pub fn without_toolchains(mut found: Vec<FoundToolchain>, off: &[String]) -> Vec<FoundToolchain> {
    found.retain(|it| {
        !off.iter().any(|name| is_named(it.name, name)) || it.name == system::SYSTEM_TOOLCHAIN
    });
    found
}

fn is_named(row: &str, name: &str) -> bool {
    let family = row.split_once(" (").map_or(row, |(family, _)| family);
    row == name || family == name
}

/// Applies one row. Returns the toolchain with its rank in `PATH`.
fn find_row(
    search: &ToolchainSearch<'_>,
    row: &'static ToolchainRow,
) -> Option<(usize, FoundToolchain)> {
    let (base, layout) = candidates(search, row.base)
        .find_map(|base| (row.recognize)(search, &base).map(|layout| (base, layout)))?;
    let paths = |rules: &[PathRule]| -> Vec<PathBuf> {
        rules.iter().flat_map(|rule| rule_paths(search, rule, &base, &layout.installed)).collect()
    };
    let directories = |rules: &[PathRule]| -> Vec<PathBuf> {
        let found = paths(rules).into_iter().filter_map(|it| search.shown_directory(&it)).collect();
        without_repeats(found)
    };
    let mut granted = directories(row.granted);
    granted.extend(layout.linked.iter().filter_map(|it| search.shown_directory(it)));
    granted.retain(|it| !search.is_system(it));
    let mut path = directories(row.path);
    // `PATH` cannot contain a path with a colon; the system's own directories follow anyway.
    path.retain(|it| {
        !it.as_os_str().as_encoded_bytes().contains(&b':') && !system::is_bin(search, it)
    });
    path.sort_by_key(|it| rank(search, it));
    let rank = path.iter().chain(&directories(row.shims)).map(|it| rank(search, it)).min();
    let found = FoundToolchain {
        name: row.name,
        tools: layout.tools,
        granted: without_nested(granted),
        caches: directories(row.caches),
        path,
        variables: variables(search, row, &base),
        offline: row.offline.iter().map(|(name, _)| *name).collect(),
        filtered: paths(row.filtered).into_iter().filter(|it| it.is_file()).collect(),
    };
    Some((rank.unwrap_or(usize::MAX), found))
}

/// Returns the existing directories that a known directory may be, most specific first.
fn candidates<'search>(
    search: &'search ToolchainSearch<'_>,
    known: &'static KnownDirectory,
) -> impl Iterator<Item = PathBuf> + 'search {
    known.candidates.iter().flat_map(|candidate| match candidate {
        DirectoryCandidate::Variable(name, below) => {
            let path = search.variable(name).map(|value| Path::new(value).join(below));
            let path = path.and_then(|it| search.named_directory(&it));
            path.filter(|it| has_marker(search, known, it)).into_iter().collect::<Vec<_>>()
        }
        DirectoryCandidate::Home(below) => {
            let path = search.home().map(|home| home.join(below));
            path.and_then(|it| search.directory(&it)).into_iter().collect()
        }
        DirectoryCandidate::HomeVersions(below, prefix) => {
            let Some(parent) = search.home().map(|home| home.join(below)) else {
                return Vec::new();
            };
            let names = search.names(&parent);
            let versions = names.iter().map(String::as_str).filter(|it| it.starts_with(prefix));
            let path = highest(versions).map(|it| parent.join(it));
            path.and_then(|it| search.directory(&it)).into_iter().collect()
        }
        DirectoryCandidate::System(below) => {
            search.directory(&search.system(below)).into_iter().collect()
        }
        DirectoryCandidate::OnPath(program) => {
            let programs = search.path().iter().map(|it| it.join(program));
            let programs = programs.filter(|it| search.is_program(it));
            let programs = programs.filter_map(|it| it.canonicalize().ok());
            let parents = programs.filter_map(|it| Some(it.parent()?.parent()?.to_owned()));
            parents.filter_map(|it| search.named_directory(&it)).collect()
        }
    })
}

/// Says whether a directory that a variable names looks like what it should be.
fn has_marker(search: &ToolchainSearch<'_>, known: &KnownDirectory, directory: &Path) -> bool {
    let is_there = |marker: &&str| match marker.strip_suffix('*') {
        Some(start) => search.names(directory).iter().any(|name| name.starts_with(start)),
        None => directory.join(marker).exists(),
    };
    known.markers.is_empty() || known.markers.iter().any(is_there)
}

fn rule_paths(
    search: &ToolchainSearch<'_>,
    rule: &PathRule,
    base: &Path,
    installed: &[PathBuf],
) -> Vec<PathBuf> {
    match rule {
        PathRule::Base(below) => vec![base.join(below)],
        PathRule::Installed(below) => installed.iter().map(|it| it.join(below)).collect(),
        PathRule::Known(known, below) => {
            candidates(search, known).next().map(|it| it.join(below)).into_iter().collect()
        }
    }
}

/// Returns the variables of a row: where its directories are if that is not the usual path, then its own.
fn variables(
    search: &ToolchainSearch<'_>,
    row: &'static ToolchainRow,
    base: &Path,
) -> Vec<(String, OsString)> {
    let mut set: Vec<(String, OsString)> = Vec::new();
    let mut tell = |known: &KnownDirectory, real: &Path| {
        let Some(variable) = known.variable else { return };
        let is_set = set.iter().any(|(name, _)| name == variable);
        if !is_set && (!is_usual(search, known, real) || ALWAYS_TOLD.contains(&variable)) {
            set.push((variable.to_owned(), real.as_os_str().to_owned()));
        }
    };
    tell(row.base, base);
    for rule in row.granted.iter().chain(row.caches).chain(row.path) {
        if let PathRule::Known(known, _) = rule
            && let Some(real) = candidates(search, known).next()
        {
            tell(known, &real);
        }
    }
    let kept = row.kept_variables.iter();
    set.extend(kept.filter_map(|name| Some(((*name).to_owned(), search.variable(name)?.clone()))));
    let own = row.variables.iter().chain(row.offline);
    set.extend(own.map(|(name, value)| ((*name).to_owned(), OsString::from(value))));
    set
}

/// Variables that are set even for the usual path, because scripts of the tool read them.
const ALWAYS_TOLD: [&str; 1] = ["PYENV_ROOT"];

/// Returns whether a tool finds this directory without being told: it is at its usual path below home.
fn is_usual(search: &ToolchainSearch<'_>, known: &KnownDirectory, real: &Path) -> bool {
    known.candidates.iter().any(|candidate| match candidate {
        DirectoryCandidate::Home(below) => search.home().is_some_and(|it| it.join(below) == real),
        DirectoryCandidate::Variable(..)
        | DirectoryCandidate::HomeVersions(..)
        | DirectoryCandidate::System(_)
        | DirectoryCandidate::OnPath(_) => false,
    })
}

/// Returns the position of a directory in the user's `PATH`.
fn rank(search: &ToolchainSearch<'_>, directory: &Path) -> usize {
    search.path().iter().position(|it| it == directory).unwrap_or(usize::MAX)
}

fn without_repeats(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = Vec::new();
    paths.retain(|it| {
        let is_new = !seen.contains(it);
        seen.push(it.clone());
        is_new
    });
    paths
}

/// Removes directories that lie in another one of the list.
fn without_nested(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let paths = without_repeats(paths);
    let is_nested = |path: &PathBuf| paths.iter().any(|it| it != path && path.starts_with(it));
    paths.iter().filter(|it| !is_nested(it)).cloned().collect()
}
