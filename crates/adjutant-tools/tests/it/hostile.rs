//! Trees and files made to hang, exhaust or escape the tools.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use adjutant_tools::ToolCaps;
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};
use serde_json::json;

use crate::Rig;

#[test]
fn pipes_devices_and_links_outwards_are_neither_read_nor_searched() {
    let rig = Rig::with(&[("a.txt", "outside or inside\n")]);
    mknodat(CWD, rig.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    rig.link("/dev/zero", "zero");
    rig.link("../secret", "escape");
    rig.link("loop-b", "loop-a");
    rig.link("loop-a", "loop-b");
    rig.link("..", "up");
    insta::assert_snapshot!(rig.read(json!({"path": "pipe"})), @"error: `pipe` is a named pipe, not a regular file");
    insta::assert_snapshot!(rig.read(json!({"path": "zero"})), @"error: `zero` is outside the workspace; give a path relative to its root");
    insta::assert_snapshot!(rig.read(json!({"path": "escape"})), @"error: `escape` is outside the workspace; give a path relative to its root");
    insta::assert_snapshot!(rig.read(json!({"path": "loop-a"})), @"error: `loop-a` leads into a loop of symbolic links");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "outside"})), @r"
    a.txt
    1:outside or inside
    [1 match in 1 file]
    ");
    let shown = rig.grep(json!({"pattern": "outside", "path": "up"}));
    assert!(shown.contains("is outside the workspace"), "{shown}");
}

#[test]
fn a_link_that_stays_inside_is_read() {
    let rig = Rig::with(&[("dir/a.txt", "inside")]);
    rig.link("dir/a.txt", "link");
    assert_eq!(rig.read(json!({"path": "link"})), "1\tinside\n");
    assert_eq!(rig.glob(json!({"pattern": "a.txt", "path": "dir/../dir"})), "dir/../dir/a.txt\n");
}

#[test]
fn names_with_newlines_and_bad_bytes_stay_on_one_line() {
    let rig = Rig::with(&[("new\nline", "x\n"), ("tab\there", "x\n")]);
    rig.write(OsStr::from_bytes(b"bad\xff"), "x\n");
    insta::assert_snapshot!(rig.glob(json!({"pattern": "*"})), @r#"
    "bad\xff"
    "new\nline"
    "tab\there"
    "#);
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x", "output": "files"})), @r#"
    "bad\xff"
    "new\nline"
    "tab\there"
    "#);
    assert_eq!(rig.read(json!({"path": "new\nline"})), "1\tx\n");
}

#[test]
fn ten_megabytes_on_one_line_are_cut() {
    let rig = Rig::with(&[("min.js", &"x".repeat(10_000_000)), ("two", "x\ny")]);
    let shown = rig.read(json!({"path": "min.js"}));
    assert!(shown.len() < 2100, "{} bytes", shown.len());
    assert!(shown.ends_with("x…\n[cut after 2000 characters: line 1]"));
    let shown = rig.grep(json!({"pattern": "x+$", "path": "min.js"}));
    assert!(shown.contains("… [part of 10000000 bytes]"), "{}", shown.len());
    assert!(shown.len() < 600, "{} bytes", shown.len());
}

#[test]
fn searching_twenty_thousand_files_reports_the_reached_limits() {
    let rig = Rig::with_caps(ToolCaps { visited_entries: 15_000, ..ToolCaps::default() });
    for index in 0..20_000 {
        std::fs::write(rig.path(format!("f{index:05}")), "x\n").unwrap();
    }
    let shown = rig.glob(json!({"pattern": "*"}));
    let remarks: Vec<_> = shown.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(
        remarks,
        [
            "[first 1000 paths, more match; narrow `pattern` or `path`]",
            "[incomplete: only 15000 entries were visited; narrow `path`]"
        ]
    );
    let shown = rig.grep(json!({"pattern": "absent"}));
    insta::assert_snapshot!(shown, @r"
    No matches in 15000 files searched.
    [incomplete: only 15000 entries were visited; narrow `path`]
    ");
}

#[test]
fn two_thousand_levels_with_side_branches_are_walked_with_few_handles() {
    let rig = Rig::new();
    let mut handle = openat(CWD, rig.path(""), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..2000 {
        mkdirat(&handle, "d", Mode::RWXU).unwrap();
        // Visited after `d`, on the way back, when the handle has long been closed.
        let flags = OFlags::CREATE | OFlags::WRONLY;
        openat(&handle, "z", flags, Mode::RWXU).unwrap();
        handle = openat(&handle, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    drop(handle);
    let shown = rig.glob(json!({"pattern": "/d/d/z"}));
    assert_eq!(shown, "d/d/z\n");
    let shown = rig.grep(json!({"pattern": "absent"}));
    assert_eq!(shown, "No matches in 2000 files searched.");
}

#[test]
fn a_path_that_is_too_long_ends_the_descent_and_is_reported() {
    let rig = Rig::new();
    let name = "n".repeat(250);
    let mut handle = openat(CWD, rig.path(""), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..70 {
        mkdirat(&handle, &*name, Mode::RWXU).unwrap();
        handle = openat(&handle, &*name, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    insta::assert_snapshot!(rig.glob(json!({"pattern": "x"})), @r"
    No paths match.
    [1 path too long to follow]
    ");
}

#[test]
fn unreadable_files_are_counted() {
    let rig = Rig::with(&[("locked/a", "x\n"), ("closed", "x\n"), ("open", "x\n")]);
    for name in ["locked", "closed"] {
        let none = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(rig.path(name), none).unwrap();
    }
    let shown = rig.grep(json!({"pattern": "x", "output": "files"}));
    let read = rig.read(json!({"path": "closed"}));
    std::fs::set_permissions(rig.path("locked"), std::fs::Permissions::from_mode(0o700)).unwrap();
    // Root reads everything; for other users the result says what was left out.
    if rustix::process::geteuid().is_root() {
        assert_eq!(shown, "closed\nlocked/a\nopen\n");
    } else {
        let left_out = "[1 file could not be searched]\n[1 directory could not be read]";
        assert_eq!(shown, format!("open\n{left_out}"));
        assert_eq!(read, "error: permission to open `closed` was denied");
    }
}

#[test]
fn hostile_ignore_files_neither_crash_nor_silence_the_search() {
    let rig = Rig::with(&[("a.txt", "x\n"), ("b.txt", "x\n")]);
    let bomb = format!("{}\n{}\nb.txt\n[\n!\n/\n\\\n", "{".repeat(100_000), "{a,".repeat(300));
    rig.write(".gitignore", bomb);
    insta::assert_snapshot!(rig.grep(json!({"pattern": "x", "output": "files"})), @r"
    a.txt
    [1 ignore file could not be applied in full]
    ");
    std::fs::remove_file(rig.path(".gitignore")).unwrap();
    mknodat(CWD, rig.path(".gitignore"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert_eq!(rig.grep(json!({"pattern": "x", "output": "files"})), "a.txt\nb.txt\n");
}

#[test]
fn tools_do_not_panic_after_the_root_was_removed() {
    let rig = Rig::with(&[("a.txt", "x\n")]);
    std::fs::remove_dir_all(rig.path("")).unwrap();
    let shown = rig.read(json!({"path": "a.txt"}));
    assert_eq!(shown, "error: `a.txt` does not exist; find paths with Glob");
    let _ = rig.glob(json!({"pattern": "*"}));
}

#[test]
fn a_file_of_many_gigabytes_is_neither_loaded_nor_counted_to_its_end() {
    let rig = Rig::new();
    rig.write("sparse", "first\n".repeat(3000));
    let file = std::fs::OpenOptions::new().write(true).open(rig.path("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let shown = rig.read(json!({"path": "sparse", "limit": 1}));
    insta::assert_snapshot!(shown, @r"
    1	first
    [lines 1–1 of at least 3000; continue with offset 2]
    ");
    insta::assert_snapshot!(rig.grep(json!({"pattern": "last"})), @r"
    No matches in 1 file searched.
    [1 binary file skipped]
    ");
}

#[test]
fn calls_may_run_on_many_threads_at_once() {
    let rig = Rig::with(&[("a.txt", "x\n")]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(rig.read(json!({"path": "a.txt"})), "1\tx\n"));
        }
    });
}
