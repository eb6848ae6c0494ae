//! Note: one line, kept.

use adjutant_tools::{ToolCaps, ToolName};
use serde_json::json;

use crate::{Rig, shown};

#[test]
fn requirement_45_a_note_is_confirmed_and_kept_as_one_line() {
    let output = Rig::new()
        .output(ToolName::Note, &json!({"content": " first\r\n\n  second\u{2028}third "}));
    assert_eq!(shown(&output), "Noted.");
    assert_eq!(output.notes.as_deref(), Some("first second third"));
}

#[test]
fn a_blank_note_is_an_error_and_keeps_nothing() {
    let output = Rig::new().output(ToolName::Note, &json!({"content": " \n "}));
    assert_eq!(shown(&output), "error: `content` is blank; write what is worth keeping");
    assert_eq!(output.notes, None);
}

#[test]
fn a_long_note_is_truncated_between_characters_with_a_notice() {
    let rig = Rig::with_caps(ToolCaps { note_bytes: 5, ..ToolCaps::default() });
    let output = rig.output(ToolName::Note, &json!({"content": "äöüäöü"}));
    assert_eq!(shown(&output), "Noted. [cut after 5 bytes of 12]");
    assert_eq!(output.notes.as_deref(), Some("äö"));
}

#[test]
fn a_secret_in_a_note_is_masked() {
    let content = "the key is own-key-of-the-engine, keep it";
    let output = Rig::new().output(ToolName::Note, &json!({"content": content}));
    assert_eq!(output.notes.as_deref(), Some("the key is [masked:own-key], keep it"));
}
