//! Integration tests of `adjutant-tools`.

#![expect(clippy::unwrap_used, reason = "a test that cannot build its tree has failed")]

mod args;
mod context;
mod custom_tools;
mod glob;
mod grep;
mod hostile;
mod mask;
mod note;
mod read;
mod run;
mod web;
mod write;

use std::path::{Path, PathBuf};

use adjutant_tools::{Masker, ToolCallResult, ToolCaps, ToolName, Toolbox};
use adjutant_workspace::Root;
use serde_json::Value;
use tempfile::TempDir;

/// A workspace with tools, and a secret next to it that nothing may reach.
struct Rig {
    outer: TempDir,
    toolbox: Toolbox,
}

impl Rig {
    fn new() -> Self {
        Self::with_caps(ToolCaps::default())
    }

    fn with_caps(caps: ToolCaps) -> Self {
        let outer = TempDir::new().unwrap();
        std::fs::create_dir(outer.path().join("root")).unwrap();
        std::fs::write(outer.path().join("secret"), "outside").unwrap();
        let root = Root::open(outer.path().join("root")).unwrap();
        let toolbox = Toolbox::new(root, caps).with_masker(Masker::new(["own-key-of-the-engine"]));
        Self { outer, toolbox }
    }

    /// Makes a workspace with these files.
    fn with(files: &[(&str, &str)]) -> Self {
        let rig = Self::new();
        for (path, text) in files {
            rig.write(path, text);
        }
        rig
    }

    fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.outer.path().join("root").join(relative)
    }

    fn write(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, relative: &str) {
        std::os::unix::fs::symlink(target, self.path(relative)).unwrap();
    }

    #[must_use]
    fn output(&self, tool: ToolName, arguments: &Value) -> ToolCallResult {
        self.toolbox.call(tool, arguments, &|| false)
    }

    #[must_use]
    fn call(&self, tool: ToolName, arguments: Value) -> String {
        shown(&self.output(tool, &arguments))
    }

    #[must_use]
    fn read(&self, arguments: Value) -> String {
        self.call(ToolName::Read, arguments)
    }

    #[must_use]
    fn grep(&self, arguments: Value) -> String {
        self.call(ToolName::Grep, arguments)
    }

    #[must_use]
    fn glob(&self, arguments: Value) -> String {
        self.call(ToolName::Glob, arguments)
    }
}

fn shown(output: &ToolCallResult) -> String {
    format!("{}{}", if output.is_error { "error: " } else { "" }, output.text)
}
