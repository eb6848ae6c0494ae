//! The layouts of pyenv, uv and packages that pip installed for the user.

use std::path::{Path, PathBuf};

use super::found::ToolVersion;
use super::search::ToolchainSearch;
use super::table::RecognizedLayout;
use super::versions::{matching, version};

/// Recognizes pyenv by at least one installed version.
pub(super) fn recognize_pyenv(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    let versions = base.join("versions");
    let mut names = search.names(&versions);
    let python =
        |name: &String| search.directory(&versions.join(name)).filter(|it| has_python(search, it));
    names.retain(|name| python(name).is_some());
    if names.is_empty() || !search.is_program(&base.join("bin/pyenv")) {
        return None;
    }
    let mut linked: Vec<PathBuf> = names.iter().filter_map(python).collect();
    linked.retain(|it| !it.starts_with(base));
    // The first of several versions provides `python`; `system` means the system's Python, not one of pyenv's.
    let wanted = search.variable("PYENV_VERSION").and_then(|it| it.to_str().map(str::to_owned));
    let wanted = wanted.or_else(|| search.text(&base.join("version")));
    let wanted =
        wanted.as_deref().and_then(|it| it.split([':', '\n', ' ']).find(|it| !it.is_empty()));
    let chosen = wanted.and_then(|wanted| matching(&names, wanted.trim()));
    let tool = |name: &str| ToolVersion::new("python", version(name), versions.join(name));
    let tools = chosen.map(tool).into_iter().collect();
    let installed = names.iter().map(|name| versions.join(name)).collect();
    Some(RecognizedLayout { installed, tools, linked })
}

/// Recognizes the directory that contains uv.
pub(super) fn recognize_uv(search: &ToolchainSearch<'_>, base: &Path) -> Option<RecognizedLayout> {
    if !search.is_program(&base.join("uv")) {
        return None;
    }
    // Written by uv's installer, for the uv it installed.
    let receipt = search.home().map(|home| home.join(".config/uv/uv-receipt.json"));
    let receipt = receipt.and_then(|it| search.json(&it));
    let receipt = receipt.filter(|it| {
        let prefix = it.get("install_prefix").and_then(|it| it.as_str()).map(Path::new);
        prefix.is_some_and(|it| search.directory(it).is_some_and(|it| base.starts_with(it)))
    });
    let version = receipt.and_then(|it| version(it.get("version")?.as_str()?));
    let tools = vec![ToolVersion::new("uv", version, base)];
    // pipx keeps the program in a directory of its own and links to it.
    let real = base.join("uv").canonicalize().ok();
    let mut linked: Vec<PathBuf> =
        real.iter().filter_map(|it| it.parent()).map(Path::to_owned).collect();
    linked.retain(|it| it != base);
    Some(RecognizedLayout { tools, linked, ..RecognizedLayout::default() })
}

/// Recognizes packages that `pip install --user` installed.
pub(super) fn recognize_user_packages(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    let lib = base.join("lib");
    let names = search.names(&lib).into_iter().filter(|it| it.starts_with("python3"));
    let installed: Vec<PathBuf> = names
        .map(|it| lib.join(it))
        .filter(|it| search.directory(&it.join("site-packages")).is_some())
        .collect();
    (!installed.is_empty()).then(|| RecognizedLayout { installed, ..RecognizedLayout::default() })
}

fn has_python(search: &ToolchainSearch<'_>, directory: &Path) -> bool {
    search.is_program(&directory.join("bin/python"))
}
