//! The texts of a new task in `TODO.md` and `state.json`.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::number::TaskNumber;
use super::status::TaskStatus;

/// The priority of a task.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TaskPriority {
    /// Low.
    Low,
    /// Medium, the default.
    #[default]
    Medium,
    /// High.
    High,
    /// Critical.
    Critical,
}

impl TaskPriority {
    /// All priorities, lowest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns the word used in `state.json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// Returns the word used in `TODO.md`.
    const fn title(self) -> &'static str {
        match self {
            Self::Low => "Low",
            Self::Medium => "Medium",
            Self::High => "High",
            Self::Critical => "Critical",
        }
    }

    /// Parses a priority, ignoring case.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let word = text.trim().to_ascii_lowercase();
        Self::ALL.into_iter().find(|priority| priority.as_str() == word)
    }
}

impl fmt::Display for TaskPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The content of a new task; each text already fits on one line.
#[derive(Clone, Debug)]
pub(super) struct NewTaskText<'a> {
    pub(super) number: TaskNumber,
    pub(super) title: &'a str,
    pub(super) status: TaskStatus,
    pub(super) language: &'a str,
    pub(super) priority: TaskPriority,
    pub(super) effort: Option<String>,
    pub(super) description: Option<String>,
}

impl NewTaskText<'_> {
    /// Returns the entry of `TODO.md`.
    pub(super) fn entry(&self) -> String {
        let mut entry = format!(
            "### {}. {}\n- **Effort**: {}\n- **Status**: {}\n- **Priority**: {}\n- **Language**: {}\n\
             - **Blocking**: None\n- **Dependencies**: None\n",
            self.number,
            self.title,
            self.effort.as_deref().unwrap_or("TBD"),
            self.status.marker(),
            self.priority.title(),
            self.language
        );
        if let Some(description) = &self.description {
            entry += &format!("\n**Description**: {description}\n");
        }
        entry
    }

    /// Returns the object of `state.json`.
    pub(super) fn project(&self, now: &str) -> Map<String, Value> {
        let fields = json!({
            "project_number": self.number, "project_name": slug(self.title), "type": "task",
            "status": self.status, "language": self.language, "priority": self.priority,
            "created": now, "last_updated": now, "artifacts": [],
        });
        match fields {
            Value::Object(fields) => fields,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Map::new(),
        }
    }
}

/// The maximum length of a slug, which may become a directory name.
pub(super) const MAX_SLUG_CHARS: usize = 60;

/// Makes a slug from a title: lower-case words joined by `_`.
pub(super) fn slug(title: &str) -> String {
    let mut slug = String::new();
    for word in
        title.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
    {
        let word = word.to_lowercase();
        let more = word.chars().count() + usize::from(!slug.is_empty());
        if !slug.is_empty() && slug.chars().count() + more > MAX_SLUG_CHARS {
            break;
        }
        if !slug.is_empty() {
            slug.push('_');
        }
        slug.extend(word.chars().take(MAX_SLUG_CHARS));
    }
    if slug.is_empty() { "task".to_owned() } else { slug }
}

/// Returns whether a character controls a terminal or changes the text direction.
fn controls_terminal(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Puts a text on one line and removes characters that control a terminal.
pub(super) fn one_line(text: &str) -> String {
    let plain: String =
        text.chars().map(|letter| if controls_terminal(letter) { ' ' } else { letter }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Escapes a text for an entry, so that no line of it starts a heading, a fence or a comment.
pub(super) fn paragraphs(text: &str) -> Option<String> {
    let safe = |line: &str| {
        let line: String =
            line.chars().filter(|letter| !letter.is_control() || *letter == '\t').collect();
        let (body, line) = (line.trim_start(), line.trim_end());
        let is_structure =
            ["#", "```", "~~~", "<!--", "---"].iter().any(|mark| body.starts_with(mark));
        if is_structure { format!("\\{}", body.trim_end()) } else { line.to_owned() }
    };
    let text = text.trim().lines().map(safe).collect::<Vec<_>>().join("\n");
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_programs_are_words() {
        for (title, expected) in [
            ("Fix the Parser!", "fix_the_parser"),
            ("  a/b..c ", "a_b_c"),
            ("Größe ändern", "größe_ändern"),
            ("!!!", "task"),
        ] {
            assert_eq!(slug(title), expected);
        }
        let long = slug(&"word ".repeat(50));
        assert!(long.chars().count() <= MAX_SLUG_CHARS && long.ends_with("word"), "{long}");
        assert_eq!(slug(&"x".repeat(500)).len(), MAX_SLUG_CHARS);
    }

    #[test]
    fn a_description_begins_nothing_of_its_own() {
        let text = paragraphs("a\n### 9. b\n  ```\n<!-- c\n---\n\nd\u{1b}[31m\r\n").unwrap();
        assert_eq!(text, "a\n\\### 9. b\n\\```\n\\<!-- c\n\\---\n\nd[31m");
        assert_eq!(paragraphs(" \n "), None);
    }
}
