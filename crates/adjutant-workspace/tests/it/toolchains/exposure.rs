//! What toolchains must not show: directories that many programs share, any directory that a variable names, and what
//! looks broken.

use std::path::{Path, PathBuf};

use adjutant_workspace::toolchains::find_toolchains;
use insta::assert_snapshot;

use super::{Machine, check};

#[test]
fn a_shared_prefix_is_not_granted_as_a_whole() {
    let lines = "
        home/.local/bin/node*
        home/.local/include/node/node_version.h: #define NODE_MAJOR_VERSION 20
        home/.local/lib/node_modules/npm/package.json: {}
        home/.local/share/keyrings/login.keyring: secret
        $PATH=ROOT/home/.local/bin
    ";
    let machine = Machine::new(lines);
    let found = find_toolchains(&machine.lookup);
    let granted = found.iter().flat_map(|it| it.granted.iter().chain(&it.caches));
    let granted: Vec<&Path> =
        granted.map(|it| it.strip_prefix(machine.root.join("home")).unwrap()).collect();
    let node = [".local/bin", ".local/lib/node_modules", ".local/include/node"];
    assert_eq!(granted, node.map(Path::new));
}

#[test]
fn a_variable_does_not_turn_any_directory_into_a_toolchain_or_cache() {
    for (variable, row) in [
        ("UV_CACHE_DIR", "home/.local/bin/uv*"),
        ("UV_TOOL_DIR", "home/.local/bin/uv*"),
        ("UV_PYTHON_INSTALL_DIR", "home/.local/bin/uv*"),
        ("CARGO_HOME", "home/.cargo/bin/cargo*"),
        ("GOMODCACHE", "home/sdk/go1.22.1/VERSION: go1.22.1"),
        ("GOBIN", "home/sdk/go1.22.1/VERSION: go1.22.1"),
        ("npm_config_cache", "home/.npm/_cacache/"),
    ] {
        let lines = format!(
            "{row}\nhome/sdk/go1.22.1/bin/go*\nhome/documents/letter: x\n${variable}=ROOT/home/documents"
        );
        let machine = Machine::new(&lines);
        let found = find_toolchains(&machine.lookup);
        let shown = found.iter().flat_map(|it| it.granted.iter().chain(&it.caches).chain(&it.path));
        let shown: Vec<&PathBuf> = shown.filter(|it| it.ends_with("documents")).collect();
        assert!(shown.is_empty(), "{variable}: {found:?}");
    }
}

#[test]
fn broken_toolchains_are_left_out() {
    let cases = [
        ("a home without anything", ""),
        ("a file where a directory is expected", "home/.rustup: x\nhome/.nvm: x\nhome/.pyenv: x"),
        (
            "no toolchain inside",
            "home/.rustup/toolchains/\nhome/.pyenv/versions/\nhome/.nvm/versions/node/",
        ),
        ("a compiler that cannot be executed", "home/.rustup/toolchains/stable/bin/rustc: x"),
        (
            "a dangling link",
            "home/.rustup -> ROOT/nowhere\nhome/.local/share/fnm/aliases/default -> gone",
        ),
        ("a link to itself", "home/.nvm -> .nvm"),
        ("a link to the home directory", "home/.npm -> .\nhome/_cacache/"),
        ("a link to the root", "home/.m2/repository -> /"),
        ("a directory that contains the home", "$npm_config_cache=ROOT\n_cacache/"),
        ("a directory of the kernel", "$npm_config_cache=/proc/self\n$CARGO_HOME=/dev"),
        ("a relative path", "$NVM_DIR=nvm"),
        ("an empty variable", "$NVM_DIR="),
        (
            "broken JSON without images",
            "home/.volta/tools/user/platform.json: {\nhome/.volta/tools/image/",
        ),
        ("go without a standard library", "home/go/bin/go*"),
        ("a directory in place of a program", "home/.local/bin/uv/"),
    ];
    for (what, lines) in cases {
        assert_eq!(check(lines), "nothing", "{what}");
    }
}

#[test]
fn a_variable_cannot_name_a_directory_of_another_user() {
    let machine = Machine::new(
        "
        $NVM_DIR=ROOT/nvm
        nvm/versions/node/v20.1.0/bin/node*
    ",
    );
    assert!(machine.found().contains("node 20.1.0"));
    // Only root can give a directory away; other users cannot make this case.
    if std::os::unix::fs::chown(machine.root.join("nvm"), Some(12_345), None).is_ok() {
        assert_eq!(machine.found(), "nothing");
    }
}

#[test]
fn maven_has_its_repository_and_not_its_settings() {
    assert_snapshot!(check("
        home/.m2/repository/
        home/.m2/settings.xml: password
    "), @"
    maven:
      cache ~/.m2/repository
    ");
}
