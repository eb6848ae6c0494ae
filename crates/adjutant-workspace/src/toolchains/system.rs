//! The compilers and interpreters in the system's directories, which every sandbox shows.
//!
//! Nothing is granted for them; they are only listed, with a version where a link, a header or a directory tells it.

use std::path::{Path, PathBuf};

use super::found::{FoundToolchain, ToolVersion};
use super::node::{header_version, npm_version};
use super::search::ToolchainSearch;
use super::versions::{highest, numbers, version};

/// The name of the row. It cannot be switched off, because nothing is mounted for it.
pub const SYSTEM_TOOLCHAIN: &str = "system";

/// The directories that the sandbox has in `PATH`, in its order.
const BIN: [&str; 6] = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];

/// How the version of a system tool is found.
enum VersionSource {
    /// From the names that its links lead to, such as `python3.11`.
    Links,
    /// From the highest version among the names in a directory that start with a prefix.
    Names(&'static str, &'static str),
    /// From `bin/../include/node`.
    NodeHeader,
    /// From the package of npm.
    NpmPackage,
    /// From the file `VERSION` in Go's directory.
    GoVersion,
    /// From the file `release` in the directory of a JDK.
    JavaRelease,
}

/// The known tools.
static TOOLS: [(&str, VersionSource); 17] = [
    ("cargo", VersionSource::Links),
    ("clang", VersionSource::Links),
    ("cmake", VersionSource::Names("usr/share", "cmake-")),
    ("g++", VersionSource::Links),
    ("gcc", VersionSource::Links),
    ("go", VersionSource::GoVersion),
    ("java", VersionSource::JavaRelease),
    ("make", VersionSource::Links),
    ("mvn", VersionSource::Names("usr/share/maven/lib", "maven-core-")),
    ("ninja", VersionSource::Links),
    ("node", VersionSource::NodeHeader),
    ("npm", VersionSource::NpmPackage),
    ("perl", VersionSource::Names("usr/bin", "perl5.")),
    ("pkg-config", VersionSource::Links),
    ("python", VersionSource::Links),
    ("python3", VersionSource::Links),
    ("ruby", VersionSource::Links),
];

/// Lists the tools in the system's directories.
pub(super) fn find_system(search: &ToolchainSearch<'_>) -> Option<FoundToolchain> {
    let tools: Vec<ToolVersion> =
        TOOLS.iter().filter_map(|(name, source)| find_tool(search, name, source)).collect();
    (!tools.is_empty()).then(|| FoundToolchain {
        name: SYSTEM_TOOLCHAIN,
        tools,
        ..FoundToolchain::default()
    })
}

/// Returns whether the sandbox has this directory in `PATH` anyway.
pub(super) fn is_bin(search: &ToolchainSearch<'_>, real: &Path) -> bool {
    BIN.iter().any(|it| search.system(it).canonicalize().is_ok_and(|it| it == real))
}

fn find_tool(
    search: &ToolchainSearch<'_>,
    name: &str,
    source: &VersionSource,
) -> Option<ToolVersion> {
    let mut chains = BIN.iter().map(|bin| search.link_chain(&search.system(bin).join(name)));
    let chain = chains.find(|it| it.last().is_some_and(|it| search.is_program(it)))?;
    let bin = chain.first()?.parent()?.to_owned();
    let file = chain.last()?;
    let number = match source {
        VersionSource::Links => chain.iter().skip(1).find_map(|it| name_version(name, it)),
        VersionSource::Names(directory, prefix) => {
            let names = search.names(&search.system(directory));
            let versions: Vec<&str> =
                names.iter().filter_map(|it| tail_version(it, prefix)).collect();
            highest(versions.into_iter()).and_then(version)
        }
        VersionSource::NodeHeader => bin.parent().and_then(|it| header_version(search, it)),
        VersionSource::NpmPackage => {
            // `npm/bin/npm-cli.js`
            let package = file.parent()?.parent()?;
            npm_version(search, package, &bin).and_then(|it| it.version)
        }
        VersionSource::GoVersion => {
            let text = search.text(&file.parent()?.parent()?.join("VERSION"));
            text.and_then(|it| version(it.lines().next()?)).or_else(|| links_version(name, &chain))
        }
        VersionSource::JavaRelease => java_version(search, file),
    };
    Some(ToolVersion::new(name, number, bin))
}

fn links_version(name: &str, chain: &[PathBuf]) -> Option<String> {
    chain.iter().skip(1).find_map(|it| name_version(name, it))
}

/// Returns the version in the last component of a path that has one: `gcc-12`, `python3.11`, `llvm-14/bin/clang`.
fn name_version(tool: &str, path: &Path) -> Option<String> {
    let stem = tool.trim_end_matches(|it: char| it.is_ascii_digit());
    let file = path.file_name()?.to_str()?;
    let own = file.rsplit_once(stem).map(|(_, rest)| rest.trim_start_matches('-'));
    let own = own.and_then(version);
    // Debian's clang is a link into the directory of its LLVM.
    let parents = path.iter().rev().skip(1).filter_map(|it| it.to_str());
    let parent = || parents.filter_map(|it| it.strip_prefix("llvm-")).find_map(version);
    own.or_else(parent)
}

/// Returns the part of a name that is a version after a prefix, as in `maven-core-3.8.7.jar`.
fn tail_version<'name>(name: &'name str, prefix: &str) -> Option<&'name str> {
    // The prefix of perl ends within the version.
    let start = prefix.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.').len();
    let tail = name.strip_prefix(prefix).and_then(|_| name.get(start..))?;
    let end = tail.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(tail.len());
    let tail = tail[..end].trim_end_matches('.');
    (numbers(tail).len() > 1).then_some(tail)
}

fn java_version(search: &ToolchainSearch<'_>, program: &Path) -> Option<String> {
    let release = search.text(&program.parent()?.parent()?.join("release"))?;
    let line = release.lines().find_map(|it| it.strip_prefix("JAVA_VERSION="))?;
    version(line.trim_matches('"'))
}
