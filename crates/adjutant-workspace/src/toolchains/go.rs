//! Recognizing the directory of a Go installation.

use std::path::Path;

use super::found::ToolVersion;
use super::search::ToolchainSearch;
use super::table::RecognizedLayout;
use super::versions::version;

/// Recognizes a directory with the go command, its version and its standard library.
pub(super) fn recognize_go(search: &ToolchainSearch<'_>, base: &Path) -> Option<RecognizedLayout> {
    // Version managers have rows of their own, which can be switched off.
    let is_managed = base.to_string_lossy().contains("/installs/");
    if is_managed || !search.is_program(&base.join("bin/go")) || !base.join("src").is_dir() {
        return None;
    }
    // `go1.22.1`, and the time on a second line.
    let text = search.text(&base.join("VERSION"))?;
    let number = text.lines().next().and_then(version);
    let tools = vec![ToolVersion::new("go", number, base)];
    let installed = vec![base.to_owned()];
    Some(RecognizedLayout { installed, tools, linked: Vec::new() })
}
