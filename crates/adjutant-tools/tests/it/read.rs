//! Read: pages, limits and their messages.

use adjutant_tools::{ToolCaps, ToolName};
use serde_json::json;

use crate::Rig;

#[test]
fn a_file_is_shown_with_line_numbers() {
    let rig = Rig::with(&[("src/a.rs", "fn main() {\n    run();\n}\n")]);
    insta::assert_snapshot!(rig.read(json!({"path": "src/a.rs"})), @r"
    1	fn main() {
    2	    run();
    3	}
    ");
    let output = rig.output(ToolName::Read, &json!({"path": "src/a.rs"}));
    assert_eq!(output.touched, ["src/a.rs"]);
}

#[test]
fn an_absolute_path_below_the_root_is_understood() {
    let rig = Rig::with(&[("a.txt", "inside")]);
    assert_eq!(rig.read(json!({"file_path": rig.path("a.txt")})), "1\tinside\n");
}

#[test]
fn a_partial_read_says_how_to_continue() {
    let text: String = (1..=10).map(|number| format!("line {number}\n")).collect();
    let rig = Rig::with(&[("a.txt", &text)]);
    insta::assert_snapshot!(rig.read(json!({"path": "a.txt", "offset": 4, "limit": "2"})), @r"
    4	line 4
    5	line 5
    [lines 4–5 of 10; continue with offset 6]
    ");
    insta::assert_snapshot!(rig.read(json!({"path": "a.txt", "offset": 9})), @r"
    9	line 9
    10	line 10
    [lines 9–10 of 10]
    ");
    insta::assert_snapshot!(rig.read(json!({"path": "a.txt", "offset": 11})),
        @"error: offset 11 is past the end, line 10");
}

#[test]
fn an_endless_line_is_read_only_up_to_the_limit() {
    let rig = Rig::with(&[]);
    let text = format!("first\n{}", "word ".repeat(4_000));
    for (name, line_mib) in [("16", 16), ("17", 17), ("2048", 2 << 10), ("1048576", 1 << 20)] {
        rig.write(name, &text);
        let file = std::fs::OpenOptions::new().write(true).open(rig.path(name)).unwrap();
        // A sparse file without a line end, half a MiB smaller than its name says.
        file.set_len((line_mib << 20) - (1 << 19)).unwrap();
        let started = std::time::Instant::now();
        let shown = rig.read(json!({"path": name}));
        let beyond = rig.read(json!({"path": name, "offset": 3}));
        // 1 TiB took 30 s and showed nothing; reading 16 MiB takes milliseconds.
        assert!(started.elapsed() < std::time::Duration::from_secs(3), "{:?}", started.elapsed());
        assert!(shown.starts_with("1\tfirst\n2\tword word"), "{name}");
        let remarks: Vec<_> = shown.lines().filter(|line| line.starts_with('[')).collect();
        let cut = "[cut after 2000 characters: line 2]";
        if line_mib == 16 {
            assert_eq!(remarks, [cut], "{name}");
            assert_eq!(beyond, "error: offset 3 is past the end, line 2");
        } else {
            let longer = "[line 2 is longer than 16 MiB; nothing after it is read]";
            assert_eq!(remarks, [longer, cut], "{name}");
            let expected = "error: offset 3 is not reached: line 2 is longer than 16 MiB; nothing after it is read";
            assert_eq!(beyond, expected, "{name}");
        }
    }
}

#[test]
fn the_line_cap_is_two_thousand() {
    let text: String = (1..=5321).map(|number| format!("{number}\n")).collect();
    let rig = Rig::with(&[("a.txt", &text)]);
    let shown = rig.read(json!({"path": "a.txt", "limit": 9999}));
    assert!(shown.ends_with("2000\t2000\n[lines 1–2000 of 5321; continue with offset 2001]"));
}

#[test]
fn the_byte_cap_cuts_between_lines_and_shows_at_least_one() {
    let rig = Rig::with_caps(ToolCaps { read_bytes: 20, ..ToolCaps::default() });
    rig.write("a.txt", "0123456789\n0123456789\n0123456789\n");
    insta::assert_snapshot!(rig.read(json!({"path": "a.txt"})), @r"
    1	0123456789
    [lines 1–1 of 3 (20 byte limit); continue with offset 2]
    ");
    rig.write("b.txt", "a single line that is longer than the cap");
    insta::assert_snapshot!(rig.read(json!({"path": "b.txt"})), @"1	a single line that is longer than the cap");
}

#[test]
fn a_long_line_is_truncated_and_named() {
    let rig = Rig::with_caps(ToolCaps { line_chars: 5, ..ToolCaps::default() });
    rig.write("a.txt", "short\näöüäöüäöü\nexact");
    insta::assert_snapshot!(rig.read(json!({"path": "a.txt"})), @r"
    1	short
    2	äöüäö…
    3	exact
    [cut after 5 characters: line 2]
    ");
}

#[test]
fn crlf_invalid_bytes_binary_and_empty_files_are_reported() {
    let rig = Rig::new();
    rig.write("crlf", "a\r\nb\r\nc\n");
    rig.write("bad", b"a\xffb\n");
    rig.write("binary", b"ELF\0\x01");
    rig.write("empty", "");
    insta::assert_snapshot!(rig.read(json!({"path": "crlf"})), @r"
    1	a
    2	b
    3	c
    [2 of the lines shown end in CRLF]
    ");
    insta::assert_snapshot!(rig.read(json!({"path": "bad"})), @r"
    1	a�b
    [invalid UTF-8 was replaced by U+FFFD]
    ");
    insta::assert_snapshot!(rig.read(json!({"path": "binary"})), @"error: binary file of 5 bytes, not shown");
    insta::assert_snapshot!(rig.read(json!({"path": "empty"})), @"[the file is empty]");
}

#[test]
fn a_path_that_cannot_be_read_is_answered_with_advice() {
    let rig = Rig::with(&[("src/a.rs", "")]);
    insta::assert_snapshot!(rig.read(json!({"path": "nope.rs"})), @"error: `nope.rs` does not exist; find paths with Glob");
    insta::assert_snapshot!(rig.read(json!({"path": "src"})), @"error: `src` is a directory; list it with Glob, path `src`, pattern `/*`");
    insta::assert_snapshot!(rig.read(json!({"path": "../secret"})), @"error: `../secret` is outside the workspace; give a path relative to its root");
    insta::assert_snapshot!(rig.read(json!({"path": "/etc/passwd"})), @"error: `/etc/passwd` is outside the workspace; give a path relative to its root");
}

#[test]
fn a_secret_at_the_truncation_point_is_masked() {
    let rig = Rig::with_caps(ToolCaps { line_chars: 20, ..ToolCaps::default() });
    let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
    rig.write("a.txt", format!("x = 12345678 {token} end of the line"));
    let shown = rig.read(json!({"path": "a.txt"}));
    assert!(!shown.contains("ghp_"), "{shown}");
}

#[test]
fn a_private_key_stays_hidden_from_any_offset() {
    let body = "MIIEowIBAAKCAQEAtest0123456789abcdefABCDEF+/0123456789abcdef0123\n".repeat(5);
    let text = format!(
        "# key\n-----BEGIN RSA PRIVATE KEY-----\n{body}-----END RSA PRIVATE KEY-----\nafter\n"
    );
    let rig = Rig::with(&[("key.pem", &text)]);
    insta::assert_snapshot!(rig.read(json!({"path": "key.pem"})), @r"
    1	# key
    2	-----BEGIN RSA PRIVATE KEY-----
    3	[masked:private-key]
    8	-----END RSA PRIVATE KEY-----
    9	after
    ");
    for offset in 1..=8 {
        for limit in 1..=8 {
            let shown = rig.read(json!({"path": "key.pem", "offset": offset, "limit": limit}));
            assert!(!shown.contains("MII"), "offset {offset}, limit {limit}: {shown}");
        }
    }
}

#[test]
fn a_stopped_call_reports_that_it_was_stopped() {
    let rig = Rig::with(&[("a.txt", &"x\n".repeat(200_000))]);
    let checks = std::cell::Cell::new(0);
    let stop = || {
        checks.set(checks.get() + 1);
        checks.get() > 1
    };
    let arguments = json!({"path": "a.txt", "offset": 150_000});
    let output = rig.toolbox.call(ToolName::Read, &arguments, &stop);
    assert!(output.is_error);
    assert!(output.text.ends_with("out of time or cancelled]"), "{}", output.text);
}
