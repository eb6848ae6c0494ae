//! DESIGN §5 Injection: shown text can neither control a terminal nor hide characters.

use adjutant_view::sanitize::{block, collapsed, label, line};
use proptest::prelude::*;

use crate::history::HOSTILE;

#[test]
fn control_bidi_and_invisible_characters_are_shown_by_number() {
    assert_eq!(line(HOSTILE), "a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200B⟩⏎### [fake] ✓⟨U+0007⟩ ⟨U+009B⟩31m");
}

#[test]
fn a_block_keeps_lines_and_tabs_but_no_carriage_return() {
    assert_eq!(block("a\r\n\tb\rc\u{2028}d"), "a\n\tb⟨U+000D⟩c⟨U+2028⟩d");
}

#[test]
fn text_of_any_script_and_emoji_stay_as_they_are() {
    for text in ["naïve", "日本語", "می‌خواهم", "👩‍🔬 ⚠️ ✓", "क्‍ष"]
    {
        assert_eq!(line(text), text);
    }
}

#[test]
fn joiners_and_selectors_among_ascii_are_shown() {
    assert_eq!(line("pass\u{200d}word\u{fe0f}"), "pass⟨U+200D⟩word⟨U+FE0F⟩");
}

#[test]
fn a_label_cannot_close_its_bracket() {
    assert_eq!(label("x] ✓ complete ["), "x) ✓ complete (");
}

#[test]
fn white_space_collapses_to_single_spaces() {
    assert_eq!(collapsed("  a \n\n b\tc  "), "a b c");
}

proptest! {
    #[test]
    fn nothing_that_acts_on_a_terminal_survives(text in any::<String>()) {
        prop_assert!(!line(&text).chars().any(char::is_control));
        prop_assert!(!block(&text).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
    }

    #[test]
    fn safe_text_is_left_alone(text in "[ -~äöü日本]*") {
        prop_assert_eq!(line(&text), text.as_str());
    }
}
