//! The table of toolchains: one row of data for each.

use std::path::{Path, PathBuf};

use super::found::ToolVersion;
use super::search::ToolchainSearch;
use super::{go, node, python, rust, version_manager};

/// How one toolchain is recognized, and what commands need to use it.
pub(super) struct ToolchainRow {
    pub(super) name: &'static str,
    /// Where it may be installed. The first directory that `recognize` accepts is its base.
    pub(super) base: &'static KnownDirectory,
    pub(super) recognize: fn(&ToolchainSearch<'_>, &Path) -> Option<RecognizedLayout>,
    /// Mounted read-only.
    pub(super) granted: &'static [PathRule],
    /// Mounted with a private writable layer, because the tool writes there.
    pub(super) caches: &'static [PathRule],
    pub(super) path: &'static [PathRule],
    /// Directories of shims. They give the row its rank in `PATH` but are not used themselves.
    pub(super) shims: &'static [PathRule],
    pub(super) variables: &'static [(&'static str, &'static str)],
    /// Variables for commands without network.
    pub(super) offline: &'static [(&'static str, &'static str)],
    /// Variables that keep the user's own value.
    pub(super) kept_variables: &'static [&'static str],
    /// Text files that may contain tokens.
    pub(super) filtered: &'static [PathRule],
}

/// What a row's `recognize` found in its base.
#[derive(Default)]
pub(super) struct RecognizedLayout {
    /// The directories of the versions that commands use by default.
    pub(super) installed: Vec<PathBuf>,
    pub(super) tools: Vec<ToolVersion>,
    /// Directories outside the base that links in it lead to.
    pub(super) linked: Vec<PathBuf>,
}

/// A directory that a variable may name, or that is at a usual path.
pub(super) struct KnownDirectory {
    /// Names of which at least one is in every such directory, `*` at the end for any text. A variable could name any
    /// directory of the user; without such an entry it is not used.
    pub(super) markers: &'static [&'static str],
    /// The variable that tells the tool about another path than the last one below home.
    pub(super) variable: Option<&'static str>,
    pub(super) candidates: &'static [DirectoryCandidate],
}

/// Where a known directory may be.
pub(super) enum DirectoryCandidate {
    /// The value of a variable, and a path below it.
    Variable(&'static str, &'static str),
    /// A path below the home directory.
    Home(&'static str),
    /// The highest version among the directories with this prefix, in a directory below home.
    HomeVersions(&'static str, &'static str),
    /// A path below the system's root.
    System(&'static str),
    /// The directory whose `bin` contains the program, which is found in the user's `PATH`.
    OnPath(&'static str),
}

/// A path in a row of the toolchain table, and the directory it is relative to.
pub(super) enum PathRule {
    /// Below the base.
    Base(&'static str),
    /// Below each directory in [`RecognizedLayout::installed`].
    Installed(&'static str),
    /// Below another known directory.
    Known(&'static KnownDirectory, &'static str),
}

use DirectoryCandidate::{Home, HomeVersions, OnPath, System, Variable};
use PathRule::{Base, Installed, Known};

static RUSTUP_HOME: KnownDirectory = KnownDirectory {
    markers: &["toolchains"],
    variable: Some("RUSTUP_HOME"),
    candidates: &[Variable("RUSTUP_HOME", ""), Home(".rustup")],
};

static CARGO_HOME: KnownDirectory = KnownDirectory {
    markers: &["registry", "bin", "git"],
    variable: Some("CARGO_HOME"),
    candidates: &[Variable("CARGO_HOME", ""), Home(".cargo")],
};

static PYENV_ROOT: KnownDirectory = KnownDirectory {
    markers: &["versions"],
    variable: Some("PYENV_ROOT"),
    candidates: &[Variable("PYENV_ROOT", ""), Home(".pyenv")],
};

static UV_BIN: KnownDirectory = KnownDirectory {
    markers: &[],
    variable: None,
    candidates: &[
        Home(".local/bin"),
        Home(".cargo/bin"),
        // `pip install uv` with a Python of pyenv.
        Variable("PYENV_ROOT", "shims"),
        Home(".pyenv/shims"),
        System("usr/local/bin"),
        System("usr/bin"),
    ],
};

static UV_PYTHON: KnownDirectory = KnownDirectory {
    markers: &["cpython-*", "pypy-*", "graalpy-*"],
    variable: Some("UV_PYTHON_INSTALL_DIR"),
    candidates: &[
        Variable("UV_PYTHON_INSTALL_DIR", ""),
        Variable("XDG_DATA_HOME", "uv/python"),
        Home(".local/share/uv/python"),
    ],
};

static UV_TOOLS: KnownDirectory = KnownDirectory {
    markers: &[".lock"],
    variable: Some("UV_TOOL_DIR"),
    candidates: &[
        Variable("UV_TOOL_DIR", ""),
        Variable("XDG_DATA_HOME", "uv/tools"),
        Home(".local/share/uv/tools"),
    ],
};

static UV_CACHE: KnownDirectory = KnownDirectory {
    markers: &["CACHEDIR.TAG"],
    variable: Some("UV_CACHE_DIR"),
    candidates: &[
        Variable("UV_CACHE_DIR", ""),
        Variable("XDG_CACHE_HOME", "uv"),
        Home(".cache/uv"),
    ],
};

static USER_BASE: KnownDirectory = KnownDirectory {
    markers: &["lib", "bin"],
    variable: Some("PYTHONUSERBASE"),
    candidates: &[Variable("PYTHONUSERBASE", ""), Home(".local")],
};

static NVM_DIR: KnownDirectory = KnownDirectory {
    markers: &["versions"],
    variable: None,
    candidates: &[
        Variable("NVM_DIR", ""),
        Variable("XDG_CONFIG_HOME", "nvm"),
        Home(".nvm"),
        Home(".config/nvm"),
    ],
};

static FNM_DIR: KnownDirectory = KnownDirectory {
    markers: &["node-versions"],
    variable: None,
    candidates: &[
        Variable("FNM_DIR", ""),
        Variable("XDG_DATA_HOME", "fnm"),
        Home(".local/share/fnm"),
        Home(".fnm"),
    ],
};

static VOLTA_HOME: KnownDirectory = KnownDirectory {
    markers: &["tools"],
    variable: None,
    candidates: &[Variable("VOLTA_HOME", ""), Home(".volta")],
};

static MISE_DATA: KnownDirectory = KnownDirectory {
    markers: &["installs"],
    variable: None,
    candidates: &[
        Variable("MISE_DATA_DIR", ""),
        Variable("XDG_DATA_HOME", "mise"),
        Home(".local/share/mise"),
    ],
};

static ASDF_DATA: KnownDirectory = KnownDirectory {
    markers: &["installs"],
    variable: None,
    candidates: &[Variable("ASDF_DATA_DIR", ""), Home(".asdf")],
};

static NODE_ON_PATH: KnownDirectory =
    KnownDirectory { markers: &[], variable: None, candidates: &[OnPath("node")] };

static NPM_CACHE: KnownDirectory = KnownDirectory {
    markers: &["_cacache"],
    variable: Some("npm_config_cache"),
    candidates: &[Variable("npm_config_cache", ""), Home(".npm")],
};

static GOROOT: KnownDirectory = KnownDirectory {
    markers: &["VERSION"],
    variable: None,
    candidates: &[
        Variable("GOROOT", ""),
        OnPath("go"),
        System("usr/local/go"),
        HomeVersions("sdk", "go"),
        Home("go"),
        System("usr/lib/go"),
    ],
};

static GO_BIN: KnownDirectory = KnownDirectory {
    markers: &[],
    variable: None,
    candidates: &[Variable("GOPATH", "bin"), Home("go/bin")],
};

static GO_MODULES: KnownDirectory = KnownDirectory {
    markers: &["cache"],
    variable: Some("GOMODCACHE"),
    candidates: &[Variable("GOMODCACHE", ""), Variable("GOPATH", "pkg/mod"), Home("go/pkg/mod")],
};

static GO_BUILD_CACHE: KnownDirectory = KnownDirectory {
    markers: &["README", "trim.txt"],
    variable: Some("GOCACHE"),
    candidates: &[
        Variable("GOCACHE", ""),
        Variable("XDG_CACHE_HOME", "go-build"),
        Home(".cache/go-build"),
    ],
};

static MAVEN_REPOSITORY: KnownDirectory =
    KnownDirectory { markers: &[], variable: None, candidates: &[Home(".m2/repository")] };

/// A row without anything; the rows below name only what they have.
const NOTHING: ToolchainRow = ToolchainRow {
    name: "",
    base: &KnownDirectory { markers: &[], variable: None, candidates: &[] },
    recognize: |_, _| None,
    granted: &[],
    caches: &[],
    path: &[],
    shims: &[],
    variables: &[],
    offline: &[],
    kept_variables: &[],
    filtered: &[],
};

/// Every toolchain. Rows that are not in the user's `PATH` keep this order.
pub(super) static ROWS: [ToolchainRow; 14] = [
    ToolchainRow {
        name: "rust",
        base: &RUSTUP_HOME,
        recognize: rust::recognize_rustup,
        granted: &[Base("")],
        caches: &[Known(&CARGO_HOME, "")],
        // The toolchain itself where rustup's proxies are missing.
        path: &[Known(&CARGO_HOME, "bin"), Installed("bin")],
        // Without this, rustup tries to download a toolchain that a project names and that is not installed.
        variables: &[("RUSTUP_AUTO_INSTALL", "0")],
        offline: &[("CARGO_NET_OFFLINE", "true")],
        kept_variables: &["RUSTUP_TOOLCHAIN"],
        filtered: &[Known(&CARGO_HOME, "config.toml"), Known(&CARGO_HOME, "config")],
        ..NOTHING
    },
    ToolchainRow {
        name: "cargo",
        base: &CARGO_HOME,
        recognize: rust::recognize_cargo_alone,
        caches: &[Base("")],
        path: &[Base("bin")],
        offline: &[("CARGO_NET_OFFLINE", "true")],
        filtered: &[Base("config.toml"), Base("config")],
        ..NOTHING
    },
    ToolchainRow {
        name: "python (pyenv)",
        base: &PYENV_ROOT,
        recognize: python::recognize_pyenv,
        granted: &[Base("")],
        // The shims are scripts of pyenv; they run inside the sandbox and respect `.python-version`.
        path: &[Base("shims"), Base("bin")],
        kept_variables: &["PYENV_VERSION"],
        filtered: &[Installed("pip.conf")],
        ..NOTHING
    },
    ToolchainRow {
        name: "uv",
        base: &UV_BIN,
        recognize: python::recognize_uv,
        granted: &[Base(""), Known(&UV_PYTHON, ""), Known(&UV_TOOLS, "")],
        caches: &[Known(&UV_CACHE, "")],
        path: &[Base("")],
        // Hard links between the cache's overlay and the workspace are not possible.
        variables: &[("UV_LINK_MODE", "copy")],
        offline: &[("UV_OFFLINE", "1"), ("UV_PYTHON_DOWNLOADS", "never")],
        ..NOTHING
    },
    ToolchainRow {
        name: "python (user packages)",
        base: &USER_BASE,
        recognize: python::recognize_user_packages,
        granted: &[Installed(""), Base("bin")],
        path: &[Base("bin")],
        ..NOTHING
    },
    ToolchainRow {
        name: "node (nvm)",
        base: &NVM_DIR,
        recognize: node::recognize_nvm,
        granted: &[Installed("")],
        path: &[Installed("bin")],
        filtered: &[Installed("etc/npmrc")],
        ..NOTHING
    },
    ToolchainRow {
        name: "node (fnm)",
        base: &FNM_DIR,
        recognize: node::recognize_fnm,
        granted: &[Installed("")],
        path: &[Installed("bin")],
        filtered: &[Installed("etc/npmrc")],
        ..NOTHING
    },
    ToolchainRow {
        name: "node (volta)",
        base: &VOLTA_HOME,
        recognize: node::recognize_volta,
        granted: &[Installed("")],
        path: &[Installed("bin")],
        shims: &[Base("bin")],
        filtered: &[Installed("etc/npmrc")],
        ..NOTHING
    },
    ToolchainRow {
        name: "node (directory)",
        base: &NODE_ON_PATH,
        recognize: node::recognize_directory,
        // Only what belongs to Node: the directory may be a shared prefix such as `~/.local`.
        granted: &[Installed("bin"), Installed("lib/node_modules"), Installed("include/node")],
        path: &[Installed("bin")],
        filtered: &[Installed("etc/npmrc")],
        ..NOTHING
    },
    ToolchainRow {
        name: "mise",
        base: &MISE_DATA,
        recognize: version_manager::recognize_mise,
        granted: &[Installed("")],
        path: &[Installed("bin")],
        shims: &[Base("shims")],
        filtered: &[Installed("etc/npmrc")],
        ..NOTHING
    },
    ToolchainRow {
        name: "asdf",
        base: &ASDF_DATA,
        recognize: version_manager::recognize_asdf,
        granted: &[Installed("")],
        path: &[Installed("bin"), Installed("go/bin")],
        shims: &[Base("shims")],
        filtered: &[Installed("etc/npmrc")],
        ..NOTHING
    },
    ToolchainRow {
        name: "npm cache",
        base: &NPM_CACHE,
        recognize: node::recognize_npm_cache,
        caches: &[Base("")],
        variables: &[("npm_config_update_notifier", "false")],
        offline: &[("npm_config_offline", "true")],
        ..NOTHING
    },
    ToolchainRow {
        name: "go",
        base: &GOROOT,
        recognize: go::recognize_go,
        granted: &[Installed(""), Known(&GO_BIN, "")],
        // Without the build cache, every delegation compiles the standard library again.
        caches: &[Known(&GO_MODULES, ""), Known(&GO_BUILD_CACHE, "")],
        path: &[Installed("bin"), Known(&GO_BIN, "")],
        // Without `GOTOOLCHAIN`, go tries to download the version that a go.mod names.
        offline: &[("GOPROXY", "off"), ("GOTOOLCHAIN", "local")],
        ..NOTHING
    },
    ToolchainRow {
        name: "maven",
        base: &MAVEN_REPOSITORY,
        recognize: |_, _| Some(RecognizedLayout::default()),
        caches: &[Base("")],
        ..NOTHING
    },
];
