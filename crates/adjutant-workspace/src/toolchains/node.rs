//! The layouts of nvm, fnm and Volta, Node in a directory of its own, and npm's cache.

use std::path::{Path, PathBuf};

use super::found::ToolVersion;
use super::search::ToolchainSearch;
use super::table::RecognizedLayout;
use super::versions::{highest, matching, version};

/// The most aliases that lead from one to the next.
const MAX_ALIASES: usize = 8;

/// Recognizes nvm by an installed version: the default alias, or else the highest.
pub(super) fn recognize_nvm(search: &ToolchainSearch<'_>, base: &Path) -> Option<RecognizedLayout> {
    let versions = base.join("versions/node");
    let names = working_versions(search, &versions, "");
    let chosen = nvm_alias(search, base, &names);
    let chosen = chosen.or_else(|| highest(names.iter().map(String::as_str)).map(str::to_owned))?;
    node_layout(search, &versions.join(chosen))
}

/// Follows the files of nvm's aliases from `default` to an installed version.
fn nvm_alias(search: &ToolchainSearch<'_>, base: &Path, names: &[String]) -> Option<String> {
    let mut wanted = "default".to_owned();
    for _ in 0..MAX_ALIASES {
        if let Some(name) = matching(names, &wanted) {
            return Some(name.to_owned());
        }
        // The alias of the newest LTS release is a file named `*`.
        let is_path = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !wanted.split('/').all(is_path) {
            return None;
        }
        let text = search.text(&base.join("alias").join(&wanted))?;
        wanted = text.lines().next()?.trim().to_owned();
        if ["node", "stable"].contains(&wanted.as_str()) {
            return highest(names.iter().map(String::as_str)).map(str::to_owned);
        }
    }
    None
}

/// Recognizes fnm by an installed version: the default alias, or else the highest.
pub(super) fn recognize_fnm(search: &ToolchainSearch<'_>, base: &Path) -> Option<RecognizedLayout> {
    let versions = base.join("node-versions");
    // A link to `node-versions/v20.1.0/installation`.
    if let Some(layout) = node_layout(search, &base.join("aliases/default")) {
        return Some(layout);
    }
    let names = working_versions(search, &versions, "installation");
    let chosen = highest(names.iter().map(String::as_str))?;
    node_layout(search, &versions.join(chosen).join("installation"))
}

/// Recognizes Volta by an image of Node: the user's default, or else the highest.
pub(super) fn recognize_volta(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    let images = base.join("tools/image");
    let platform = search.json(&base.join("tools/user/platform.json")).unwrap_or_default();
    let chosen = |pointer: &str| platform.pointer(pointer).and_then(|it| it.as_str());
    let names = working_versions(search, &images.join("node"), "");
    let default = chosen("/node/runtime").and_then(|it| matching(&names, it));
    let node = default.or_else(|| highest(names.iter().map(String::as_str)))?;
    let mut layout = node_layout(search, &images.join("node").join(node))?;
    // Package managers that the user pinned come before the npm of Node.
    for (tool, pointer) in [("npm", "/node/npm"), ("pnpm", "/pnpm"), ("yarn", "/yarn")] {
        let Some(pinned) = chosen(pointer).and_then(version) else { continue };
        let directory = images.join(tool).join(&pinned);
        let Some(directory) = search.directory(&directory) else { continue };
        if search.is_program(&directory.join("bin").join(tool)) {
            layout.tools.retain(|it| it.name != tool);
            layout.tools.push(ToolVersion::new(tool, Some(pinned), &directory));
            layout.installed.insert(0, directory);
        }
    }
    Some(layout)
}

/// Recognizes a Node that was unpacked somewhere and is in the user's `PATH`.
pub(super) fn recognize_directory(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    // Version managers have rows of their own, which can be switched off.
    const MANAGED: [&str; 5] =
        ["/versions/node/", "/node-versions/", "/tools/image/", "/installs/", "/.volta/"];
    let text = base.to_string_lossy();
    let is_managed = MANAGED.iter().any(|it| text.contains(it));
    let is_node = base.join("include/node/node_version.h").is_file();
    if is_managed || !is_node || search.is_system(base) {
        return None;
    }
    node_layout(search, base)
}

/// Recognizes npm's cache.
pub(super) fn recognize_npm_cache(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    search.directory(&base.join("_cacache")).map(|_| RecognizedLayout::default())
}

/// Returns the version of Node that is installed in `prefix`, from its headers.
pub(super) fn header_version(search: &ToolchainSearch<'_>, prefix: &Path) -> Option<String> {
    let header = search.text(&prefix.join("include/node/node_version.h"))?;
    let number = |name: &str| {
        let define = format!("#define NODE_{name}_VERSION ");
        header.lines().find_map(|line| line.strip_prefix(&define))?.trim().parse::<u32>().ok()
    };
    let (major, minor, patch) = (number("MAJOR")?, number("MINOR")?, number("PATCH")?);
    Some(format!("{major}.{minor}.{patch}"))
}

/// Returns the tools of a Node that is installed in `directory`.
pub(super) fn node_tools(search: &ToolchainSearch<'_>, directory: &Path) -> Vec<ToolVersion> {
    if !search.is_program(&directory.join("bin/node")) {
        return Vec::new();
    }
    let named = directory.iter().rev().take(2).filter_map(|it| version(it.to_str()?)).next();
    let node = named.or_else(|| header_version(search, directory));
    let mut tools = vec![ToolVersion::new("node", node, directory)];
    tools.extend(npm_version(search, &directory.join("lib/node_modules/npm"), directory));
    tools
}

/// Returns the version of the npm in a package directory.
pub(super) fn npm_version(
    search: &ToolchainSearch<'_>,
    package: &Path,
    source: &Path,
) -> Option<ToolVersion> {
    let package = search.json(&package.join("package.json"))?;
    let number = package.get("version").and_then(|it| it.as_str()).and_then(version);
    Some(ToolVersion::new("npm", number, source))
}

fn node_layout(search: &ToolchainSearch<'_>, directory: &Path) -> Option<RecognizedLayout> {
    let directory = search.directory(directory)?;
    let tools = node_tools(search, &directory);
    let installed = vec![directory];
    (!tools.is_empty()).then(|| RecognizedLayout { installed, tools, linked: Vec::new() })
}

/// Returns the versions in a directory that contain a Node.
fn working_versions(search: &ToolchainSearch<'_>, versions: &Path, below: &str) -> Vec<String> {
    let node = |name: &str| -> PathBuf { versions.join(name).join(below).join("bin/node") };
    let mut names = search.names(versions);
    names.retain(|name| search.is_program(&node(name)));
    names
}
