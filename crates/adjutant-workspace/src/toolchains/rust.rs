//! The layouts of rustup, and of cargo without rustup.

use std::path::{Path, PathBuf};

use super::found::ToolVersion;
use super::search::{ToolchainSearch, bounded_text};
use super::table::RecognizedLayout;
use super::versions::{numbers, version};

/// The largest channel manifest that is read; they have about 1 MB.
const MAX_MANIFEST_BYTES: u64 = 8 << 20;

/// Recognizes rustup's home by at least one toolchain with a compiler.
pub(super) fn recognize_rustup(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    let toolchains = base.join("toolchains");
    let names = search.names(&toolchains);
    let working: Vec<(&str, PathBuf)> = names
        .iter()
        .filter_map(|name| Some((name.as_str(), toolchain(search, &toolchains.join(name))?)))
        .collect();
    // Toolchains that the user linked, and the one at the path in `RUSTUP_TOOLCHAIN`.
    let mut linked: Vec<PathBuf> = working.iter().map(|(_, real)| real.clone()).collect();
    let wanted = wanted_toolchain(search, base);
    let chosen = match &wanted {
        Some(path) if path.starts_with('/') => {
            let real = search.named_directory(Path::new(path));
            let real = real.and_then(|it| toolchain(search, &it));
            linked.extend(real.clone());
            real.map(|it| ("", it))
        }
        // `stable` means `stable-x86_64-unknown-linux-gnu`.
        Some(name) => {
            let full = format!("{name}-");
            let exact = working.iter().find(|(it, _)| it == name);
            exact.or_else(|| working.iter().find(|(it, _)| it.starts_with(&full))).cloned()
        }
        None => None,
    };
    if linked.is_empty() {
        return None;
    }
    linked.retain(|it| !it.starts_with(base));
    let has_proxy = cargo_programs(search).any(|it| search.is_program(&it));
    let installed = chosen.iter().filter(|_| !has_proxy).map(|(_, real)| real.clone()).collect();
    let tools = match chosen {
        Some((name, real)) => {
            let version = toolchain_version(name, &real);
            let named = |tool: &str| ToolVersion::new(tool, version.clone(), &real);
            let programs = ["cargo", "rustc"].into_iter();
            programs.filter(|it| search.is_program(&real.join("bin").join(it))).map(named).collect()
        }
        // A project's rust-toolchain file can still choose one.
        None => Vec::new(),
    };
    Some(RecognizedLayout { installed, tools, linked })
}

/// Returns where cargo is if it is rustup's proxy or the system's own.
fn cargo_programs(search: &ToolchainSearch<'_>) -> impl Iterator<Item = PathBuf> {
    let variable = search.variable("CARGO_HOME").map(PathBuf::from);
    let home = variable.or_else(|| search.home().map(|home| home.join(".cargo")));
    let system = ["usr/local/bin/cargo", "usr/bin/cargo"].map(|it| search.system(it));
    home.map(|it| it.join("bin/cargo")).into_iter().chain(system)
}

/// Recognizes cargo's home on a machine without rustup, if there is a cargo.
pub(super) fn recognize_cargo_alone(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    let rustup = search.variable("RUSTUP_HOME").map(PathBuf::from);
    let rustup = rustup.into_iter().chain(search.home().map(|home| home.join(".rustup")));
    if rustup
        .filter_map(|it| search.directory(&it))
        .any(|it| recognize_rustup(search, &it).is_some())
    {
        return None;
    }
    let own = base.join("bin/cargo");
    if search.is_program(&own) {
        let tools = vec![ToolVersion::new("cargo", None, base.join("bin"))];
        return Some(RecognizedLayout { tools, ..RecognizedLayout::default() });
    }
    // The system's row lists its cargo; here only the cache is needed.
    cargo_programs(search).any(|it| search.is_program(&it)).then(RecognizedLayout::default)
}

/// Returns the directory of a toolchain without links, if it has a compiler.
fn toolchain(search: &ToolchainSearch<'_>, path: &Path) -> Option<PathBuf> {
    search.directory(path).filter(|real| search.is_program(&real.join("bin/rustc")))
}

/// Returns the default toolchain as rustup chooses it.
fn wanted_toolchain(search: &ToolchainSearch<'_>, base: &Path) -> Option<String> {
    if let Some(name) = search.variable("RUSTUP_TOOLCHAIN").and_then(|it| it.to_str()) {
        return Some(name.to_owned());
    }
    let settings = search.text(&base.join("settings.toml"))?;
    let line = settings.lines().find_map(|it| it.trim().strip_prefix("default_toolchain"))?;
    let value = line.trim_start().strip_prefix('=')?.trim();
    Some(value.trim_matches(['"', '\'']).to_owned())
}

/// Returns the version from the name of the toolchain, or else from the manifest of its channel.
fn toolchain_version(name: &str, directory: &Path) -> Option<String> {
    let first = name.split('-').next().unwrap_or_default();
    // `1.95` is a channel, of which the manifest knows the patch version.
    if numbers(first).len() == 3 {
        return version(first);
    }
    let manifest = directory.join("lib/rustlib/multirust-channel-manifest.toml");
    let manifest = bounded_text(&manifest, MAX_MANIFEST_BYTES)?;
    let (_, package) = manifest.split_once("\n[pkg.rust]\n")?;
    let line = package.lines().next()?.strip_prefix("version = \"")?;
    version(line.split([' ', '"']).next()?)
}
