//! Which toolchains are found, in homes built from a few lines of text.
//!
//! A line of a home is `path*` for a program, `path/` for a directory, `path: text` for a file, `path -> target` for
//! a link, or `$NAME=value` for a variable of the environment. Paths begin with `home` or `system`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use adjutant_workspace::toolchains::{
    ToolchainLookup, find_toolchains, is_toolchain_name, summary_line, tool_list, toolchain_names,
    without_toolchains,
};
use insta::assert_snapshot;
use tempfile::TempDir;

mod exposure;

/// A home directory and a system, made of lines.
struct Machine {
    _outer: TempDir,
    root: PathBuf,
    lookup: ToolchainLookup,
}

impl Machine {
    fn new(lines: &str) -> Self {
        let outer = TempDir::new().unwrap();
        let root = outer.path().canonicalize().unwrap();
        for name in ["home", "system/usr/bin"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let lookup = ToolchainLookup {
            home: Some(root.join("home")),
            variables: BTreeMap::new(),
            system_root: root.join("system"),
        };
        let mut machine = Self { _outer: outer, root, lookup };
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            machine.add(line);
        }
        machine
    }

    fn add(&mut self, line: &str) {
        let shown = self.root.to_str().unwrap().to_owned();
        if let Some(variable) = line.strip_prefix('$') {
            let (name, value) = variable.split_once('=').unwrap();
            let value = value.replace("ROOT", &shown);
            self.lookup.variables.insert(name.to_owned(), value.into());
            return;
        }
        let end = line.find([':', '*', ' ']).unwrap_or(line.len());
        let path = self.root.join(&line[..end]);
        if line.ends_with('/') && !line.contains(" -> ") {
            return std::fs::create_dir_all(path).unwrap();
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some((_, target)) = line.split_once(" -> ") {
            return std::os::unix::fs::symlink(target.replace("ROOT", &shown), path).unwrap();
        }
        let text = line[end..].trim_start_matches(':').trim_start();
        let text = text.replace("\\n", "\n").replace("ROOT", &shown);
        std::fs::write(&path, text).unwrap();
        if line.ends_with('*') {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn found(&self) -> String {
        let mut text = String::new();
        let found = find_toolchains(&self.lookup);
        for it in &found {
            let tools = it.tools.iter().map(|tool| {
                let version = tool.version.as_deref().unwrap_or("?");
                format!("{} {version}", tool.name)
            });
            let tools: Vec<String> = tools.collect();
            let line = format!("{}: {}", it.name, tools.join(", "));
            writeln!(text, "{}", line.trim_end()).unwrap();
            let lists = [
                ("granted", &it.granted),
                ("cache", &it.caches),
                ("path", &it.path),
                ("filtered", &it.filtered),
            ];
            for (what, paths) in lists {
                for path in paths {
                    writeln!(text, "  {what} {}", self.shown(path)).unwrap();
                }
            }
            for (name, value) in &it.variables {
                let value = self.shown(Path::new(value));
                writeln!(text, "  {name}={value}").unwrap();
            }
        }
        if found.is_empty() { "nothing".to_owned() } else { text }
    }

    fn shown(&self, path: &Path) -> String {
        let text = path.to_str().unwrap();
        let home = text.replace(self.root.join("home").to_str().unwrap(), "~");
        home.replace(self.root.join("system").to_str().unwrap(), "SYSTEM")
            .replace(self.root.to_str().unwrap(), "ROOT")
    }
}

/// Returns what is found on a machine made of these lines.
fn check(lines: &str) -> String {
    Machine::new(lines).found()
}

#[test]
fn rustup_has_the_version_of_its_default_toolchain() {
    assert_snapshot!(check(r#"
        home/.rustup/settings.toml: version = "12"\ndefault_toolchain = "stable-x86_64-unknown-linux-gnu"\n
        home/.rustup/toolchains/stable-x86_64-unknown-linux-gnu/bin/cargo*
        home/.rustup/toolchains/stable-x86_64-unknown-linux-gnu/bin/rustc*
        home/.rustup/toolchains/stable-x86_64-unknown-linux-gnu/lib/rustlib/multirust-channel-manifest.toml: date = "x"\n\n[pkg.rust]\nversion = "1.95.0 (59807616e 2026-04-14)"\n
        home/.rustup/toolchains/1.80.0-x86_64-unknown-linux-gnu/bin/rustc*
        home/.cargo/bin/cargo*
        home/.cargo/config.toml: [registries]
        home/.cargo/credentials.toml: secret
    "#), @"
    rust: cargo 1.95.0, rustc 1.95.0
      granted ~/.rustup
      cache ~/.cargo
      path ~/.cargo/bin
      filtered ~/.cargo/config.toml
      RUSTUP_AUTO_INSTALL=0
      CARGO_NET_OFFLINE=true
    ");
}

#[test]
fn the_environment_chooses_another_rust_toolchain_at_other_paths() {
    assert_snapshot!(check(r#"
        $RUSTUP_HOME=ROOT/opt/rustup
        $CARGO_HOME=ROOT/opt/cargo
        $RUSTUP_TOOLCHAIN=1.80.0
        opt/rustup/settings.toml: default_toolchain = "stable"
        opt/rustup/toolchains/1.80.0-x86_64-unknown-linux-gnu/bin/rustc*
        opt/rustup/toolchains/1.80.0-x86_64-unknown-linux-gnu/bin/cargo*
        opt/cargo/bin/cargo*
    "#), @"
    rust: cargo 1.80.0, rustc 1.80.0
      granted ROOT/opt/rustup
      cache ROOT/opt/cargo
      path ROOT/opt/cargo/bin
      RUSTUP_HOME=ROOT/opt/rustup
      CARGO_HOME=ROOT/opt/cargo
      RUSTUP_TOOLCHAIN=1.80.0
      RUSTUP_AUTO_INSTALL=0
      CARGO_NET_OFFLINE=true
    ");
}

#[test]
fn a_linked_rust_toolchain_is_granted_too() {
    assert_snapshot!(check(r#"
        home/.rustup/settings.toml: default_toolchain = "mine"
        home/.rustup/toolchains/mine -> ROOT/src/rust/stage2
        home/.rustup/toolchains/gone -> ROOT/nowhere
        src/rust/stage2/bin/rustc*
        home/.cargo/
    "#), @"
    rust: rustc ?
      granted ~/.rustup
      granted ROOT/src/rust/stage2
      cache ~/.cargo
      path ROOT/src/rust/stage2/bin
      RUSTUP_AUTO_INSTALL=0
      CARGO_NET_OFFLINE=true
    ");
}

#[test]
fn cargo_without_rustup_gets_its_cache() {
    assert_snapshot!(check("
        home/.cargo/registry/
        system/usr/bin/cargo*
    "), @"
    cargo:
      cache ~/.cargo
      CARGO_NET_OFFLINE=true
    system: cargo ?
    ");
}

#[test]
fn pyenv_has_its_global_version() {
    assert_snapshot!(check("
        home/.pyenv/bin/pyenv*
        home/.pyenv/shims/python*
        home/.pyenv/version: 3.11\\n
        home/.pyenv/versions/3.11.7/bin/python*
        home/.pyenv/versions/3.9.1/bin/python*
        home/.pyenv/versions/3.12.0/bin/
        system/usr/bin/python3 -> python3.10
        system/usr/bin/python3.10*
    "), @"
    python (pyenv): python 3.11.7
      granted ~/.pyenv
      path ~/.pyenv/shims
      path ~/.pyenv/bin
      PYENV_ROOT=~/.pyenv
    system: python3 3.10
    ");
}

#[test]
fn uv_has_its_pythons_and_its_cache() {
    assert_snapshot!(check(r#"
        $XDG_CACHE_HOME=ROOT/cache
        home/.local/bin/uv*
        home/.config/uv/uv-receipt.json: {"install_prefix": "ROOT/home/.local", "version": "0.5.1"}
        home/.local/share/uv/python/cpython-3.12/bin/python*
        home/.local/share/uv/credentials/token: secret
        cache/uv/CACHEDIR.TAG: x
    "#), @"
    uv: uv 0.5.1
      granted ~/.local/bin
      granted ~/.local/share/uv/python
      cache ROOT/cache/uv
      path ~/.local/bin
      UV_CACHE_DIR=ROOT/cache/uv
      UV_LINK_MODE=copy
      UV_OFFLINE=1
      UV_PYTHON_DOWNLOADS=never
    ");
}

#[test]
fn uv_is_found_where_pip_and_pipx_install_it() {
    assert_snapshot!(check("
        home/.pyenv/bin/pyenv*
        home/.pyenv/versions/3.12.1/bin/python*
        home/.pyenv/versions/3.12.1/bin/uv*
        home/.pyenv/shims/uv*
        home/.cache/uv/
    "), @"
    python (pyenv):
      granted ~/.pyenv
      path ~/.pyenv/shims
      path ~/.pyenv/bin
      PYENV_ROOT=~/.pyenv
    uv: uv ?
      granted ~/.pyenv/shims
      cache ~/.cache/uv
      path ~/.pyenv/shims
      UV_LINK_MODE=copy
      UV_OFFLINE=1
      UV_PYTHON_DOWNLOADS=never
    ");
    assert_snapshot!(check("
        home/.local/share/pipx/venvs/uv/bin/uv*
        home/.local/bin/uv -> ROOT/home/.local/share/pipx/venvs/uv/bin/uv
    "), @"
    uv: uv ?
      granted ~/.local/bin
      granted ~/.local/share/pipx/venvs/uv/bin
      path ~/.local/bin
      UV_LINK_MODE=copy
      UV_OFFLINE=1
      UV_PYTHON_DOWNLOADS=never
    ");
}

#[test]
fn packages_of_pip_are_granted_without_the_rest_of_the_directory() {
    assert_snapshot!(check("
        home/.local/lib/python3.11/site-packages/
        home/.local/lib/python3.9/
        home/.local/bin/pytest*
        home/.local/share/keyrings/
    "), @"
    python (user packages):
      granted ~/.local/lib/python3.11
      granted ~/.local/bin
      path ~/.local/bin
    ");
}

#[test]
fn nvm_follows_its_aliases() {
    let versions = "
        home/.nvm/versions/node/v18.20.0/bin/node*
        home/.nvm/versions/node/v20.20.0/bin/node*
        home/.nvm/versions/node/v20.20.0/lib/node_modules/npm/package.json: {\"version\": \"10.8.2\"}
        home/.nvm/versions/node/v20.20.0/etc/npmrc: token
        home/.nvm/versions/node/v22.1.0/bin/node*
        home/.nvm/alias/lts/iron: v20.20.0
        home/.nvm/alias/loop: loop
    ";
    // A file named `*` cannot be written as a line.
    let with = |alias: &str| {
        let machine = Machine::new(versions);
        let lts = machine.root.join("home/.nvm/alias/lts");
        std::fs::write(lts.join("*"), "lts/iron\n").unwrap();
        std::fs::write(machine.root.join("home/.nvm/alias/default"), alias).unwrap();
        machine.found()
    };
    assert_snapshot!(with("lts/*\n"), @"
    node (nvm): node 20.20.0, npm 10.8.2
      granted ~/.nvm/versions/node/v20.20.0
      path ~/.nvm/versions/node/v20.20.0/bin
      filtered ~/.nvm/versions/node/v20.20.0/etc/npmrc
    ");
    for (alias, node) in [
        ("18", "v18.20.0"),
        ("node", "v22.1.0"),
        ("v20.20.0", "v20.20.0"),
        ("19", "v22.1.0"),
        ("loop", "v22.1.0"),
        ("../../../etc/passwd", "v22.1.0"),
        ("", "v22.1.0"),
    ] {
        assert!(with(alias).contains(&format!("path ~/.nvm/versions/node/{node}/bin")), "{alias}");
    }
}

#[test]
fn fnm_follows_its_default() {
    assert_snapshot!(check("
        home/.local/share/fnm/node-versions/v20.1.0/installation/bin/node*
        home/.local/share/fnm/node-versions/v22.1.0/installation/bin/node*
        home/.local/share/fnm/aliases/default -> ../node-versions/v20.1.0/installation
    "), @"
    node (fnm): node 20.1.0
      granted ~/.local/share/fnm/node-versions/v20.1.0/installation
      path ~/.local/share/fnm/node-versions/v20.1.0/installation/bin
    ");
}

#[test]
fn volta_is_used_without_its_shims() {
    assert_snapshot!(check(r#"
        home/.volta/bin/node*
        home/.volta/tools/user/platform.json: {"node": {"runtime": "20.1.0", "npm": null}, "yarn": "1.22.19"}
        home/.volta/tools/image/node/20.1.0/bin/node*
        home/.volta/tools/image/node/22.1.0/bin/node*
        home/.volta/tools/image/yarn/1.22.19/bin/yarn*
    "#), @"
    node (volta): node 20.1.0, yarn 1.22.19
      granted ~/.volta/tools/image/yarn/1.22.19
      granted ~/.volta/tools/image/node/20.1.0
      path ~/.volta/tools/image/yarn/1.22.19/bin
      path ~/.volta/tools/image/node/20.1.0/bin
    ");
}

#[test]
fn mise_has_the_configured_versions_and_otherwise_the_highest() {
    assert_snapshot!(check(r#"
        home/.config/mise/config.toml: [tools]\nnode = "20"\n\n[settings]\npython = "3.9"\n
        home/.local/share/mise/installs/node/20.1.0/bin/node*
        home/.local/share/mise/installs/node/22.1.0/bin/node*
        home/.local/share/mise/installs/node/20 -> ./20.1.0
        home/.local/share/mise/installs/python/3.11.7/bin/python*
        home/.local/share/mise/installs/python/3.9.1/bin/python*
        home/.local/share/mise/installs/python/latest -> ./3.11.7
        home/.local/share/mise/installs/broken/1.0/share/
    "#), @"
    mise: node 20.1.0, python 3.11.7
      granted ~/.local/share/mise/installs/node/20.1.0
      granted ~/.local/share/mise/installs/python/3.11.7
      path ~/.local/share/mise/installs/node/20.1.0/bin
      path ~/.local/share/mise/installs/python/3.11.7/bin
    ");
}

#[test]
fn asdf_has_the_versions_in_the_file_of_the_home_directory() {
    assert_snapshot!(check("
        home/.tool-versions: nodejs 20.1.0 18.0.0\\ngolang 1.22.0 # why\\n
        home/.asdf/shims/node*
        home/.asdf/installs/nodejs/20.1.0/bin/node*
        home/.asdf/installs/nodejs/22.1.0/bin/node*
        home/.asdf/installs/golang/1.22.0/go/bin/go*
    "), @"
    asdf: go 1.22.0, node 20.1.0
      granted ~/.asdf/installs/golang/1.22.0
      granted ~/.asdf/installs/nodejs/20.1.0
      path ~/.asdf/installs/nodejs/20.1.0/bin
      path ~/.asdf/installs/golang/1.22.0/go/bin
    ");
}

#[test]
fn node_in_a_directory_of_its_own_is_found_through_path() {
    assert_snapshot!(check("
        $PATH=ROOT/opt/node/bin:/nowhere
        opt/node/bin/node*
        opt/node/include/node/node_version.h: #define NODE_MAJOR_VERSION 22\\n#define NODE_MINOR_VERSION 1\\n#define NODE_PATCH_VERSION 0\\n
        home/.npm/_cacache/
    "), @"
    node (directory): node 22.1.0
      granted ROOT/opt/node/bin
      granted ROOT/opt/node/include/node
      path ROOT/opt/node/bin
    npm cache:
      cache ~/.npm
      npm_config_update_notifier=false
      npm_config_offline=true
    ");
}

#[test]
fn go_has_its_modules() {
    assert_snapshot!(check("
        system/usr/local/go/bin/go*
        system/usr/local/go/src/
        system/usr/local/go/VERSION: go1.22.1\\ntime 2024-03-05\\n
        home/go/bin/stringer*
        home/go/pkg/mod/
        home/.cache/go-build/README: x
    "), @"
    go: go 1.22.1
      granted ~/go/bin
      cache ~/go/pkg/mod
      cache ~/.cache/go-build
      path SYSTEM/usr/local/go/bin
      path ~/go/bin
      GOPROXY=off
      GOTOOLCHAIN=local
    ");
    assert_snapshot!(check("
        $GOPATH=ROOT/gopath
        home/sdk/go1.9.0/bin/go*
        home/sdk/go1.21.0/bin/go*
        home/sdk/go1.21.0/src/
        home/sdk/go1.21.0/VERSION: go1.21.0
        gopath/pkg/mod/cache/
        gopath/bin/
    "), @"
    go: go 1.21.0
      granted ~/sdk/go1.21.0
      granted ROOT/gopath/bin
      cache ROOT/gopath/pkg/mod
      path ~/sdk/go1.21.0/bin
      path ROOT/gopath/bin
      GOMODCACHE=ROOT/gopath/pkg/mod
      GOPROXY=off
      GOTOOLCHAIN=local
    ");
}

#[test]
fn go_of_debian_is_found_through_its_links() {
    assert_snapshot!(check("
        $PATH=ROOT/system/usr/bin
        system/usr/bin/go -> ../lib/go-1.19/bin/go
        system/usr/lib/go-1.19/bin/go*
        system/usr/lib/go-1.19/src/
        system/usr/lib/go-1.19/VERSION: go1.19.8
        home/go/pkg/mod/
    "), @"
    go: go 1.19.8
      cache ~/go/pkg/mod
      path SYSTEM/usr/lib/go-1.19/bin
      GOPROXY=off
      GOTOOLCHAIN=local
    system: go 1.19.8
    ");
}

#[test]
fn system_tools_are_listed_with_the_versions_that_files_tell() {
    assert_snapshot!(check(r#"
        system/usr/bin/gcc -> gcc-12
        system/usr/bin/gcc-12 -> x86_64-linux-gnu-gcc-12
        system/usr/bin/x86_64-linux-gnu-gcc-12*
        system/usr/bin/clang -> ../lib/llvm-14/bin/clang
        system/usr/lib/llvm-14/bin/clang*
        system/usr/bin/make*
        system/usr/bin/cmake*
        system/usr/share/cmake-3.25/
        system/usr/bin/perl*
        system/usr/bin/perl5.36.0*
        system/usr/bin/perl5.36-x86_64-linux-gnu*
        system/usr/bin/python3 -> python3.11
        system/usr/bin/python3.11*
        system/usr/bin/ruby -> /etc/alternatives/ruby
        system/etc/alternatives/ruby -> /usr/bin/ruby3.1
        system/usr/bin/ruby3.1*
        system/usr/bin/java -> /etc/alternatives/java
        system/etc/alternatives/java -> /usr/lib/jvm/java-17/bin/java
        system/usr/lib/jvm/java-17/bin/java*
        system/usr/lib/jvm/java-17/release: IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n
        system/usr/bin/node*
        system/usr/include/node/node_version.h: #define NODE_MAJOR_VERSION 20\n#define NODE_MINOR_VERSION 20\n#define NODE_PATCH_VERSION 2\n
        system/usr/bin/npm -> ../lib/node_modules/npm/bin/npm-cli.js
        system/usr/lib/node_modules/npm/bin/npm-cli.js*
        system/usr/lib/node_modules/npm/package.json: {"version": "10.8.2"}
        system/usr/bin/mvn*
        system/usr/share/maven/lib/maven-core-3.8.7.jar:
        system/usr/share/maven/lib/maven-core-3.x.jar:
        system/usr/bin/g++ -> g++-99
    "#), @"system: clang 14, cmake 3.25, gcc 12, java 17.0.15, make ?, mvn 3.8.7, node 20.20.2, npm 10.8.2, perl 5.36.0, python3 3.11, ruby 3.1");
}

#[test]
fn a_rust_toolchain_without_rustups_proxies_is_used_directly() {
    assert_snapshot!(check("
        home/.rustup/settings.toml: default_toolchain = '1.95.0'
        home/.rustup/toolchains/1.95.0-x/bin/rustc*
        home/.rustup/toolchains/1.95.0-x/bin/cargo*
        home/.cargo/bin/
    "), @"
    rust: cargo 1.95.0, rustc 1.95.0
      granted ~/.rustup
      cache ~/.cargo
      path ~/.cargo/bin
      path ~/.rustup/toolchains/1.95.0-x/bin
      RUSTUP_AUTO_INSTALL=0
      CARGO_NET_OFFLINE=true
    ");
}

#[test]
fn files_that_are_too_large_or_no_files_tell_nothing() {
    let machine = Machine::new(
        "
        home/.rustup/toolchains/stable-x/bin/rustc*
        home/.nvm/versions/node/v20.1.0/bin/node*
        home/.nvm/alias/
    ",
    );
    let home = machine.root.join("home");
    std::fs::write(home.join(".rustup/settings.toml"), "x".repeat(100_000)).unwrap();
    // Opening a pipe would wait for a writer.
    let pipe = home.join(".nvm/alias/default");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_snapshot!(machine.found(), @"
    rust:
      granted ~/.rustup
      RUSTUP_AUTO_INSTALL=0
      CARGO_NET_OFFLINE=true
    node (nvm): node 20.1.0
      granted ~/.nvm/versions/node/v20.1.0
      path ~/.nvm/versions/node/v20.1.0/bin
    ");
    let versions = home.join(".nvm/versions/node");
    for number in 0..2_000 {
        std::fs::create_dir(versions.join(format!("v1.0.{number}"))).unwrap();
    }
    assert!(!machine.found().contains("nvm"), "a directory with too many versions");
}

#[test]
fn a_moved_home_of_a_tool_is_told_by_its_variable() {
    assert_snapshot!(check("
        home/.rustup -> ROOT/data/rustup
        home/.cargo -> ROOT/data/cargo
        data/rustup/toolchains/stable-x/bin/rustc*
        data/cargo/bin/
        home/.npm -> ROOT/data/npm
        data/npm/_cacache/
    "), @"
    rust:
      granted ROOT/data/rustup
      cache ROOT/data/cargo
      path ROOT/data/cargo/bin
      RUSTUP_HOME=ROOT/data/rustup
      CARGO_HOME=ROOT/data/cargo
      RUSTUP_AUTO_INSTALL=0
      CARGO_NET_OFFLINE=true
    npm cache:
      cache ROOT/data/npm
      npm_config_cache=ROOT/data/npm
      npm_config_update_notifier=false
      npm_config_offline=true
    ");
}

#[test]
fn the_order_is_that_of_the_users_path() {
    let lines = "
        home/.nvm/versions/node/v20.20.0/bin/node*
        home/.volta/bin/
        home/.volta/tools/image/node/22.1.0/bin/node*
        home/.rustup/settings.toml: default_toolchain = \"1.95.0\"
        home/.rustup/toolchains/1.95.0-x/bin/rustc*
        home/.rustup/toolchains/1.95.0-x/bin/cargo*
        home/.cargo/bin/
        system/usr/bin/node*
        system/usr/bin/python3 -> python3.11
        system/usr/bin/python3.11*
    ";
    let summary = |path: &str| {
        let machine = Machine::new(&format!("{lines}\n$PATH={path}"));
        let found = find_toolchains(&machine.lookup);
        let names: Vec<&str> = found.iter().map(|it| it.name).collect();
        format!("{}\n{}", names.join(", "), summary_line(&found))
    };
    assert_snapshot!(summary("ROOT/home/.volta/bin:ROOT/home/.nvm/versions/node/v20.20.0/bin"), @"
    node (volta), node (nvm), rust, system
    Commands see: cargo 1.95, node 22.1, python3 3.11
    ");
    assert_snapshot!(summary("ROOT/home/.nvm/versions/node/v20.20.0/bin:ROOT/home/.volta/bin"), @"
    node (nvm), node (volta), rust, system
    Commands see: cargo 1.95, node 20.20, python3 3.11
    ");
    assert_snapshot!(summary(""), @"
    rust, node (nvm), node (volta), system
    Commands see: cargo 1.95, node 20.20, python3 3.11
    ");
}

#[test]
fn toolchains_are_switched_off_by_name() {
    let machine = Machine::new(
        "
        home/.nvm/versions/node/v20.20.0/bin/node*
        home/.volta/tools/image/node/22.1.0/bin/node*
        home/.npm/_cacache/
        system/usr/bin/make*
    ",
    );
    let left = |off: &[&str]| {
        let off: Vec<String> = off.iter().map(|it| (*it).to_owned()).collect();
        let found = without_toolchains(find_toolchains(&machine.lookup), &off);
        found.iter().map(|it| it.name).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(left(&[]), "node (nvm), node (volta), npm cache, system");
    assert_eq!(left(&["node (nvm)"]), "node (volta), npm cache, system");
    assert_eq!(left(&["node", "npm cache", "system"]), "system");
    assert!(is_toolchain_name("node") && is_toolchain_name("npm cache"));
    assert!(!is_toolchain_name("npm") && !is_toolchain_name("system"));
    assert!(toolchain_names().any(|it| it == "rust"));
}

#[test]
fn a_network_takes_only_the_offline_switches_away() {
    let machine = Machine::new(
        "
        $RUSTUP_TOOLCHAIN=stable
        home/.rustup/toolchains/stable-x/bin/rustc*
        home/.cargo/
    ",
    );
    let found = find_toolchains(&machine.lookup);
    let names = |network: bool| {
        found[0].environment(network).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(false), "RUSTUP_TOOLCHAIN RUSTUP_AUTO_INSTALL CARGO_NET_OFFLINE");
    assert_eq!(names(true), "RUSTUP_TOOLCHAIN RUSTUP_AUTO_INSTALL");
}

#[test]
fn the_list_has_full_versions_and_where_they_come_from() {
    let machine = Machine::new(
        "
        home/.nvm/versions/node/v20.20.0/bin/node*
        home/.npm/_cacache/
        system/usr/bin/node*
        system/usr/bin/make*
    ",
    );
    let found = find_toolchains(&machine.lookup);
    let lines: Vec<String> = tool_list(&found)
        .into_iter()
        .map(|(name, text)| format!("{name}: {}", machine.shown(Path::new(&text))))
        .collect();
    assert_snapshot!(lines.join("\n"), @"
    node (nvm): node 20.20.0 (~/.nvm/versions/node/v20.20.0)
    npm cache: ~/.npm
    system: make
    ");
    assert_snapshot!(summary_line(&found), @"Commands see: node 20.20, make");
    assert_snapshot!(summary_line(&[]), @"Commands see: no known compiler or interpreter");
}

#[test]
fn a_machine_without_a_home_has_the_system_only() {
    let mut machine = Machine::new("system/usr/bin/make*\nhome/.npm/_cacache/");
    machine.lookup.home = None;
    assert_snapshot!(machine.found(), @"system: make ?");
}
