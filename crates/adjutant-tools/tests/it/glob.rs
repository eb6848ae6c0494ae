//! Glob: patterns, order and caps.

use adjutant_tools::ToolCaps;
use serde_json::json;

use crate::Rig;

fn project() -> Rig {
    let rig = Rig::with(&[
        (".gitignore", "target/\n"),
        (".env", ""),
        ("Cargo.toml", ""),
        ("a-b/x.rs", ""),
        ("a/x.rs", ""),
        ("a/deep/y.rs", ""),
        ("target/z.rs", ""),
    ]);
    rig.link("a", "link");
    rig
}

#[test]
fn a_pattern_without_a_slash_matches_names_at_any_depth() {
    insta::assert_snapshot!(project().glob(json!({"pattern": "*.rs"})), @r"
    a/deep/y.rs
    a/x.rs
    a-b/x.rs
    ");
}

#[test]
fn a_pattern_with_a_slash_matches_whole_paths() {
    let rig = project();
    insta::assert_snapshot!(rig.glob(json!({"pattern": "a/*.rs"})), @"a/x.rs");
    insta::assert_snapshot!(rig.glob(json!({"pattern": "a/**/*.rs"})), @r"
    a/deep/y.rs
    a/x.rs
    ");
    insta::assert_snapshot!(rig.glob(json!({"pattern": "/*"})), @r"
    Cargo.toml
    a/
    a-b/
    link
    ");
    insta::assert_snapshot!(rig.glob(json!({"pattern": "**/deep/"})), @"a/deep/");
}

#[test]
fn a_pattern_may_be_relative_to_the_path_or_to_the_root() {
    let rig = project();
    let root = rig.path("").display().to_string();
    for (pattern, path) in [
        ("*.rs".to_owned(), "a/deep"),
        ("y.rs".to_owned(), "a"),
        ("deep/*.rs".to_owned(), "a"),
        ("a/deep/*.rs".to_owned(), "a"),
        (format!("{root}a/deep/*"), ""),
        ("./a/deep/*".to_owned(), "."),
    ] {
        let shown = rig.glob(json!({"pattern": pattern, "path": path}));
        assert_eq!(shown, "a/deep/y.rs\n", "{pattern} in {path:?}");
    }
}

#[test]
fn hidden_names_are_found_when_the_pattern_names_them() {
    let rig = project();
    insta::assert_snapshot!(rig.glob(json!({"pattern": ".env*"})), @".env");
    insta::assert_snapshot!(rig.glob(json!({"pattern": "*env*"})), @"No paths match.");
}

#[test]
fn a_reached_limit_is_reported() {
    let rig = project();
    insta::assert_snapshot!(rig.glob(json!({"pattern": "*.rs", "limit": 2})), @r"
    a/deep/y.rs
    a/x.rs
    [first 2 paths, more match; narrow `pattern` or `path`]
    ");
    let rig = Rig::with_caps(ToolCaps { visited_entries: 3, ..ToolCaps::default() });
    for name in ["a", "b", "c", "d"] {
        rig.write(name, "");
    }
    let shown = rig.glob(json!({"pattern": "*"}));
    assert!(shown.ends_with("[incomplete: only 3 entries were visited; narrow `path`]"), "{shown}");
}

#[test]
fn an_invalid_pattern_is_explained() {
    let rig = Rig::new();
    insta::assert_snapshot!(rig.glob(json!({"pattern": "a[b"})), @"error: `pattern` is not a valid glob pattern: unclosed character class; missing ']': a[b");
    let shown = rig.glob(json!({"pattern": "{".repeat(900)}));
    assert!(shown.starts_with("error: `pattern` is not a valid glob pattern: too long"), "{shown}");
}

#[test]
fn a_path_that_is_not_a_directory_is_explained() {
    let rig = project();
    insta::assert_snapshot!(rig.glob(json!({"pattern": "*", "path": "Cargo.toml"})), @"error: `Cargo.toml` is not a directory");
    insta::assert_snapshot!(rig.glob(json!({"pattern": "*", "path": ".."})), @"error: `..` is outside the workspace; give a path relative to its root");
}
