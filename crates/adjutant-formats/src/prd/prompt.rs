//! The prompt for the agent of a story.

use super::story::Story;

/// Returns the prompt of a story from its own fields; it says nothing about delegation.
#[must_use]
pub fn story_prompt(story: &Story) -> String {
    let mut text = format!("Story {}: {}\n", story.id, story.title.trim());
    let description = story.description.trim();
    if !description.is_empty() && description != story.title.trim() {
        text += &format!("\n{description}\n");
    }
    list(&mut text, "Acceptance criteria:", &story.acceptance_criteria);
    list(&mut text, "Files this story is about:", &story.file_scope);
    if let Some(notes) = &story.notes {
        text += &format!("\nNotes:\n{}\n", notes.trim());
    }
    text
}

fn list(text: &mut String, heading: &str, items: &[String]) {
    let items: Vec<&str> =
        items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()).collect();
    if items.is_empty() {
        return;
    }
    *text += &format!("\n{heading}\n");
    for item in items {
        // Indents the further lines of an item below its first.
        *text += &format!("- {}\n", item.replace('\n', "\n  "));
    }
}
