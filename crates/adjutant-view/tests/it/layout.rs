//! Layout counts terminal columns.

use adjutant_view::layout::{
    ascii, bracketed, columns, cut, excerpt, fit, fit_ends, pad_right, width, wrap_lines,
};
use proptest::prelude::*;

#[test]
fn a_cut_counts_columns_and_ends_in_an_ellipsis() {
    for (text, max, expected) in [
        ("", 3, ""),
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("日本語", 1, "…"),
        ("日本語", 0, ""),
        ("⚠️⚠️", 3, "⚠️…"),
    ] {
        assert_eq!(cut(text, max), expected, "{text} in {max}");
    }
}

#[test]
fn a_cut_in_the_middle_keeps_the_attempt_and_the_cause() {
    let text = format!("cannot write {}: No space left on device", "/home/of/a/person".repeat(20));
    let shown = fit_ends(&text, 60);
    assert_eq!(width(&shown), 60, "{shown}");
    assert!(shown.starts_with("cannot write /home"), "{shown}");
    assert!(shown.contains('…') && shown.ends_with("No space left on device"), "{shown}");
    assert_eq!(fit_ends("short: No space left", 60), "short: No space left");
}

#[test]
fn an_excerpt_counts_characters() {
    assert_eq!(excerpt("scan for vulnerabilities", 18), "scan for vulnerab…");
    assert_eq!(excerpt("exactly 18 charact", 18), "exactly 18 charact");
}

#[test]
fn a_label_of_ten_kilobytes_is_cut_like_any_other() {
    for text in [
        "x".repeat(10_240),
        "\u{301}".repeat(10_240),
        "\u{202e}".repeat(10_240),
        "語".repeat(5_000),
    ] {
        let shown = bracketed(&text, 20);
        assert!(width(&shown) <= 20, "{shown}");
        assert!(shown.len() < 400, "{}", shown.len());
    }
}

#[test]
fn a_terminal_without_utf_8_gets_a_character_of_the_same_width_for_each_of_ours() {
    let marks = "→✓✗⊘⚠■◌·–—…⟨⟩⏎│─├└█▒░▼▶›↑↓←•×≤≥−";
    let plain = ascii(marks);
    assert!(plain.is_ascii() && !plain.contains('?'), "{plain}");
    assert_eq!(width(&plain), width(marks));
    assert_eq!(ascii("• 3 × 4 ≤ 12 é 日"), "* 3 x 4 < 12 ? ??");
}

#[test]
fn columns_align_by_display_width() {
    let rows = [["日本", "1"], ["abcde", "200"], ["é", "3"]];
    let rows: Vec<Vec<String>> = rows.map(|row| row.map(String::from).to_vec()).to_vec();
    insta::assert_snapshot!(columns(&rows, &[1]), @r"
    日本     1
    abcde  200
    é        3
    ");
}

#[test]
fn a_wrapped_message_keeps_paths_and_commands_whole() {
    let text = "Edit /var/tmp/worktrees/of-a-very-long-name/index.html, then `adjutant merge --resolve footer \
                --continue` merges it; `adjutant merge --resolve footer --abort` drops it.";
    insta::assert_snapshot!(wrap_lines(text, 50), @"
    Edit
      /var/tmp/worktrees/of-a-very-long-name/index.html,
      then
      `adjutant merge --resolve footer --continue`
      merges it;
      `adjutant merge --resolve footer --abort` drops
      it.
    ");
}

proptest! {
    #[test]
    fn nothing_is_wider_than_asked(text in any::<String>(), max in 0_usize..40) {
        prop_assert!(width(&fit(&text, max)) <= max);
        prop_assert!(width(&fit_ends(&text, max)) <= max);
    }

    #[test]
    fn padding_reaches_the_column(text in "[a-z日本]{0,8}") {
        prop_assert_eq!(width(&pad_right(&text, 20)), 20);
    }
}
