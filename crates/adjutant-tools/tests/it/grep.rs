//! Grep: matches, filters, ignore rules and caps.

use adjutant_tools::{ToolCaps, ToolName};
use serde_json::json;

use crate::Rig;

fn project() -> Rig {
    Rig::with(&[
        (".gitignore", "/target\n*.log\n!keep.log\n"),
        (".github/ci.yml", "run: find me\n"),
        ("README.md", "# Title\nFind me here.\n"),
        ("src/a.rs", "one\ntwo\nfind me\nfour\nfive\nsix\nfind me twice\n"),
        ("src/deep/b.rs", "nothing\n"),
        ("target/out.rs", "find me\n"),
        ("noise.log", "find me\n"),
        ("keep.log", "find me\n"),
        (".git/config", "find me\n"),
    ])
}

#[test]
fn matches_are_sorted_by_path_with_line_numbers() {
    insta::assert_snapshot!(project().grep(json!({"pattern": "find me"})), @r"
    keep.log
    1:find me

    src/a.rs
    3:find me
    7:find me twice
    [3 matches in 2 files]
    ");
}

#[test]
fn context_case_and_filter_arguments_have_several_spellings() {
    let rig = project();
    let arguments =
        json!({"pattern": "FIND ME", "-i": "true", "context": "1", "glob": "*.{rs,md}"});
    insta::assert_snapshot!(rig.grep(arguments), @r"
    README.md
    1-# Title
    2:Find me here.

    src/a.rs
    2-two
    3:find me
    4-four
    --
    6-six
    7:find me twice
    [3 matches in 2 files]
    ");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "me", "glob": "!*.rs", "output": "files"})), @r"
    README.md
    keep.log
    ");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "find", "output": "count"})), @r"
    keep.log:1
    src/a.rs:2
    ");
}

#[test]
fn a_named_file_or_directory_is_searched_even_when_ignored() {
    let rig = project();
    let files = |path: &str| rig.grep(json!({"pattern": "find", "path": path, "output": "files"}));
    assert_eq!(files("noise.log"), "noise.log\n");
    assert_eq!(files("target"), "target/out.rs\n");
    assert_eq!(files("src"), "src/a.rs\n");
    assert_eq!(files(".github"), ".github/ci.yml\n");
    let hidden = json!({"pattern": "find", "glob": ".github/**", "output": "files"});
    assert_eq!(rig.grep(hidden), ".github/ci.yml\n");
}

#[test]
fn nested_rules_negation_and_exclude_files_apply() {
    let rig = Rig::with(&[
        (".git/info/exclude", "private\n"),
        (".gitignore", "*.tmp\n"),
        ("private", "x\n"),
        ("a.tmp", "x\n"),
        ("sub/.gitignore", "!b.tmp\n/only\n"),
        ("sub/b.tmp", "x\n"),
        ("sub/only", "x\n"),
        ("sub/deeper/only", "x\n"),
        ("sub/.ignore", "deeper/skip\n"),
        ("sub/deeper/skip", "x\n"),
        ("inner/.git/HEAD", "x\n"),
        ("inner/c.tmp", "x\n"),
    ]);
    let files = json!({"pattern": "x", "output": "files"});
    insta::assert_snapshot!(rig.grep(files), @r"
    inner/c.tmp
    sub/b.tmp
    sub/deeper/only
    ");
    let below = json!({"pattern": "x", "output": "files", "path": "sub/deeper"});
    assert_eq!(rig.grep(below), "sub/deeper/only\n");
}

#[test]
fn a_search_continues_where_it_was_cut() {
    let rig = Rig::with_caps(ToolCaps { grep_matches: 3, ..ToolCaps::default() });
    rig.write("a", "x1\n-\nx2\n-\n");
    rig.write("b", "x3\nx4\nx5\n");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x", "after": 1, "offset": 2, "limit": 2})), @r"
    a
    3:x2
    4--

    b
    1:x3
    [more matches exist than are shown; continue with `offset` 4, or narrow `pattern`, `path` or `glob`]
    ");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x", "before": 1, "offset": 4})), @r"
    b
    2:x4
    3:x5
    [2 matches in 1 file]
    ");
    let files = json!({"pattern": "x", "output": "files", "offset": 2});
    assert_eq!(rig.grep(files), "b\n");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x", "offset": 9})), @r"
    No matches in 2 files searched.
    [`offset` is beyond the last of 5]
    ");
}

#[test]
fn limits_on_matches_and_bytes_are_reported() {
    let rig = Rig::with_caps(ToolCaps { grep_matches: 3, search_bytes: 60, ..ToolCaps::default() });
    rig.write("a", "x1\nx2\n");
    rig.write("b", "x3\nx4\nx5\n");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x", "context": 0})), @r"
    a
    1:x1
    2:x2

    b
    1:x3
    [more matches exist than are shown; continue with `offset` 4, or narrow `pattern`, `path` or `glob`]
    ");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x", "limit": 1, "output": "files"})), @r"
    a
    [more files exist than are shown; continue with `offset` 2, or narrow `pattern`, `path` or `glob`]
    ");
    rig.write("a", "x and much more text\n".repeat(3));
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x"})), @r"
    a
    1:x and much more text
    2:x and much more text
    [more matches exist than are shown; continue with `offset` 3, or narrow `pattern`, `path` or `glob`]
    ");
}

#[test]
fn exactly_as_many_matches_as_the_limit_are_complete() {
    let rig = Rig::with(&[("a", "x\nx\ny\n")]);
    let shown = rig.grep(json!({"pattern": "x", "limit": 2, "context": 1}));
    insta::assert_snapshot!(shown, @r"
    a
    1:x
    2:x
    3-y
    [2 matches in 1 file]
    ");
}

#[test]
fn no_matches_and_binary_files_are_reported() {
    let rig = Rig::with(&[("a.txt", "text\n"), ("b.bin", "text\0text\n")]);
    insta::assert_snapshot!(rig.grep(json!({"pattern": "absent"})), @r"
    No matches in 2 files searched.
    [1 binary file skipped]
    ");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "text", "path": "b.bin"})), @r"
    No matches in 1 file searched.
    [1 binary file skipped]
    ");
}

#[test]
fn an_invalid_expression_is_explained() {
    let rig = Rig::new();
    let shown = rig.grep(json!({"pattern": "a(b"}));
    assert!(shown.starts_with("error: `pattern` is not a valid regular expression"), "{shown}");
    assert!(shown.contains("unclosed group"), "{shown}");
    let shown = rig.grep(json!({"pattern": "(\\w{1000}){1000}"}));
    assert!(shown.starts_with("error: `pattern` is not a valid"), "{shown}");
}

#[test]
fn the_end_of_line_anchor_matches_before_crlf() {
    let rig = Rig::with(&[("a.txt", "word\r\nword more\r\n")]);
    insta::assert_snapshot!(rig.grep(json!({"pattern": "word$"})), @r"
    a.txt
    1:word
    [1 match in 1 file]
    ");
}

#[test]
fn a_long_line_is_shown_around_its_match() {
    let rig = Rig::with_caps(ToolCaps { grep_line_chars: 20, ..ToolCaps::default() });
    rig.write("a.js", format!("{}needle{}", "a".repeat(100_000), "b".repeat(100_000)));
    insta::assert_snapshot!(rig.grep(json!({"pattern": "needle"})), @r"
    a.js
    1:…aaaaaneedlebbbbbbbbb… [part of 200006 bytes]
    [1 match in 1 file]
    ");
}

#[test]
fn files_with_shown_matches_are_listed_as_touched() {
    let output = project().output(ToolName::Grep, &json!({"pattern": "find me"}));
    assert_eq!(output.touched, ["keep.log", "src/a.rs"]);
}

#[test]
fn single_lines_of_a_private_key_are_masked() {
    let body = "MIIEowIBAAKCAQEAtest0123456789abcdefABCDEF+/0123456789abcdef0123";
    let text =
        format!("MIIplain\n-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    let rig = Rig::with(&[("key.pem", &text), ("data.txt", &format!("{body}\n"))]);
    insta::assert_snapshot!(rig.grep(json!({"pattern": "MII"})), @r"
    data.txt
    1:MIIEowIBAAKCAQEAtest0123456789abcdefABCDEF+/0123456789abcdef0123

    key.pem
    1:MIIplain
    3:[masked:private-key]
    [3 matches in 2 files]
    ");
}

#[test]
fn a_search_told_to_stop_returns_what_it_has() {
    let rig = project();
    let checks = std::cell::Cell::new(0);
    let stop = || {
        checks.set(checks.get() + 1);
        checks.get() > 12
    };
    let output = rig.toolbox.call(ToolName::Grep, &json!({"pattern": "find"}), &stop);
    insta::assert_snapshot!(output.text, @r"
    keep.log
    1:find me
    [1 match in 1 file]
    [stopped after 8 entries: out of time or cancelled; narrow `path`]
    ");
}
