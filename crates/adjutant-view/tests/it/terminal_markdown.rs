//! Markdown for a terminal.

use adjutant_view::Palette;
use adjutant_view::layout::width;
use adjutant_view::terminal_markdown::render;
use proptest::prelude::*;

const DOCUMENT: &str = "\
## Subagents complete: 1/1

**Usage**: 12 tokens
**Session**: sess_1_a

> # Findings
> 1. The *parser* in `src/parse.rs` reads past the end of the buffer when the input has no newline.
> 2. See [the guide](docs/guide.md) and <https://localhost/a>.
>    - nested, with a long explanation that has to be wrapped
>
> ```rust
> fn main() {}   // a long line of code that is not wrapped because people copy it
> ```
>
> | file | lines |
> |---|---|
> | `a.rs` | 12 |

- [x] done
- [ ] open
---
The end.
";

#[test]
fn a_result_is_wrapped_and_its_blocks_are_set_off() {
    insta::assert_snapshot!(render(DOCUMENT, 50, Palette::Plain), @r"
    Subagents complete: 1/1

    Usage: 12 tokens
    Session: sess_1_a

    │ Findings
    │
    │ 1. The parser in `src/parse.rs` reads past the
    │    end of the buffer when the input has no
    │    newline.
    │ 2. See the guide (docs/guide.md) and
    │    https://localhost/a.
    │    • nested, with a long explanation that has to
    │      be wrapped
    │
    │     fn main() {}   // a long line of code that is not wrapped because people copy it
    │
    │ file    lines
    │ `a.rs`  12

    • [x] done
    • [ ] open

    ────────────────────────────────────────

    The end.
    ");
    insta::assert_snapshot!(render("# A\n\n**b** `c`\n", 50, Palette::Ansi).escape_debug(), @r"\u{1b}[1mA\u{1b}[0m\n\n\u{1b}[1mb\u{1b}[0m \u{1b}[36m`c`\u{1b}[0m\n");
}

#[test]
fn entities_cannot_bring_control_characters_back() {
    let text = render(
        "a &#27;[31m &#8238;b `&#27;` [x](&#27;y)\n\n    &#7; \u{1b}]0;t\u{7}\n",
        60,
        Palette::Plain,
    );
    assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
}

#[test]
fn an_image_within_a_link_hides_neither_address() {
    let text = render("[![alt](http://img)](http://evil) [a](http://b)\n", 80, Palette::Plain);
    assert_eq!(text, "alt (http://img) (http://evil) a (http://b)\n");
}

#[test]
fn tabs_in_code_reach_the_next_of_every_four_columns() {
    let text = render("```\nif a {\n\tb();\tc\n\t\td\n}\n```\n", 80, Palette::Plain);
    assert_eq!(text, "    if a {\n        b();    c\n            d\n    }\n");
}

#[test]
fn a_table_that_is_wider_than_the_screen_is_not_padded() {
    let rows = "| short | x |\n".repeat(2_000);
    let document = format!("| a | b |\n|---|---|\n| {} | y |\n{rows}", "w".repeat(20_000));
    let text = render(&document, 60, Palette::Plain);
    assert!(text.len() < 2 * document.len(), "{} from {}", text.len(), document.len());
    assert!(text.contains("\nshort | x\n"), "cells are still told apart");
}

fn documents() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[ a-zé漢\u{1b}\u{202e}]{0,30}",
        prop::sample::select(vec![
            "\n",
            "\n\n",
            "# ",
            "> ",
            "- ",
            "3. ",
            "```\n",
            "`",
            "**",
            "*",
            "| a | b |\n|---|---|\n",
            "&#27;",
            "[x](y)",
            "<b>",
            "    ",
            "---\n",
            "- [x] ",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn any_document_is_safe_and_fits(document in documents(), columns in 24_usize..120) {
        let text = render(&document, columns, Palette::Plain);
        prop_assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        for line in text.lines().filter(|line| !line.contains("    ")) {
            // Indents of deeply nested lists leave less than the narrowest column.
            let indent = line.chars().take_while(|it| matches!(it, ' ' | '│' | '•' | '.' | '0'..='9')).count();
            prop_assert!(width(line) <= columns.max(indent + 10), "{line:?}");
        }
    }

    #[test]
    fn the_output_is_not_larger_than_a_multiple_of_the_input(
        (mark, depth) in (prop::sample::select(vec![">", "> ", "- ", "1. ", "123456789. "]), 0_usize..2_000),
        start in documents(),
        (line, lines) in (prop::sample::select(vec!["a\n", "a\n\n", "|a|\n", "---\n", ">\n"]), 0_usize..500),
        palette in prop::sample::select(vec![Palette::Plain, Palette::Ansi]),
    ) {
        let document = format!("{}{start}{}", mark.repeat(depth), line.repeat(lines));
        let text = render(&document, 80, palette);
        prop_assert!(text.len() <= 100 * (document.len() + 10), "{} from {}", text.len(), document.len());
    }

    #[test]
    fn no_word_is_lost(words in prop::collection::vec("[a-z]{1,12}", 1..40), columns in 24_usize..120) {
        let document = words.join(" ");
        let text = render(&document, columns, Palette::Plain);
        prop_assert_eq!(text.split_whitespace().collect::<Vec<_>>(), words);
    }
}
