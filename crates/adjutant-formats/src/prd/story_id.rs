//! The rules for story ids, which become parts of branch and file names.

/// The maximum length of a story id, in characters.
const MAX_CHARS: usize = 64;

/// The maximum length of a child's id, which is its parent's id with a number appended at each level.
const MAX_CHILD_CHARS: usize = 128;

/// The kind of story that an id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoryIdKind {
    /// A story of the PRD.
    Story,
    /// A child of a story.
    Child,
}

/// Returns what is wrong with an id; `None` if it is valid in branch and file names.
pub(super) fn fault(id: &str, whose: StoryIdKind) -> Option<String> {
    let max = match whose {
        StoryIdKind::Story => MAX_CHARS,
        StoryIdKind::Child => MAX_CHILD_CHARS,
    };
    let chars = id.chars().count();
    if id.is_empty() {
        return Some("is empty".to_owned());
    }
    if chars > max {
        return Some(format!("has {chars} characters, the most is {max}"));
    }
    if id.starts_with(['.', '-']) {
        return Some(
            "starts with `.` or `-`, which is not allowed at the start of a name".to_owned(),
        );
    }
    let letter = id.chars().find(|letter| !may_stand(*letter))?;
    Some(match letter {
        ' ' => "contains a space, which is not allowed in a name".to_owned(),
        '/' | '\\' => format!("contains `{letter}`, which is not allowed in a name"),
        letter => format!("contains {}, which is not allowed in a name", letter.escape_unicode()),
    })
}

fn may_stand(letter: char) -> bool {
    let is_hidden = matches!(letter,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !(letter.is_control() || letter.is_whitespace() || is_hidden || letter == '/' || letter == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_may_stand_in_a_name() {
        for id in ["US-001", "ü-1", "a.b_c:d", &"x".repeat(64)] {
            assert_eq!(fault(id, StoryIdKind::Story), None, "{id}");
        }
        for (id, why) in [
            ("", "is empty"),
            ("a b", "contains a space"),
            ("a/b", "contains `/`"),
            ("a\\b", "contains `\\`"),
            ("..", "starts with"),
            ("-x", "starts with"),
            ("a\nb", "contains \\u{a}"),
            ("a\u{202e}b", "contains \\u{202e}"),
            (&"x".repeat(65), "has 65 characters, the most is 64"),
        ] {
            let said = fault(id, StoryIdKind::Story).unwrap();
            assert!(said.starts_with(why), "{id:?}: {said}");
        }
        assert_eq!(fault(&"x".repeat(128), StoryIdKind::Child), None);
        assert!(fault(&"x".repeat(129), StoryIdKind::Child).is_some());
    }
}
