//! How built-in agents are told to work. A sentence that needs a tool is shown only to agents that hold it.

use adjutant_core::ToolSet;
use adjutant_core::write::{EDIT, RUN, WRITE};

/// A sentence about how to work, and the tools of which the agent must hold one to be told it; none: all agents are.
type MethodSentence = (&'static [&'static str], &'static str);

const READS: &[&str] = &["Read", "Grep", "Glob"];

const READER: [MethodSentence; 5] = [
    (
        &["Grep", "Glob"],
        "Search wide first, then narrow: find the places, then read only those that matter.",
    ),
    (READS, "Ask for several reads in one answer when they do not depend on each other."),
    (READS, "Cite path and line for what you say about a file."),
    (&[], "Keep what you saw apart from what you infer."),
    (&[], "Stop when the question is answered."),
];

const WRITER: [MethodSentence; 6] = [
    (&[RUN], "Reproduce the problem first, with a command or a test that fails."),
    (&[EDIT, WRITE], "Make the smallest change that does the task."),
    (&[RUN], "Run the tests that cover your change."),
    (&["Read", RUN], "Read your changes back before you end."),
    (&[EDIT, WRITE, RUN], "Leave no temporary files behind."),
    (&[], "Report what you checked and what you did not."),
];

const LEAD: [&str; 4] = [
    "Delegate only what is independent of the rest.",
    "Write briefs that stand alone: the goal, where to look, what to return. A subagent sees nothing else of your work.",
    "Compare reports with their receipts, which say what a subagent really read and changed.",
    "Resolve contradictions between reports by looking yourself before you conclude.",
];

/// Returns the working method of a subagent with `tools`.
pub(crate) fn of_subagent(tools: &ToolSet) -> String {
    let writes = [EDIT, WRITE, RUN].iter().any(|tool| tools.contains(tool));
    let sentences: &[MethodSentence] = if writes { &WRITER } else { &READER };
    let is_shown =
        |needs: &[&str]| needs.is_empty() || needs.iter().any(|tool| tools.contains(tool));
    let shown = sentences.iter().filter(|(needs, _)| is_shown(needs));
    list(shown.map(|(_, sentence)| *sentence))
}

/// Returns the working method of a root agent that delegates.
pub(crate) fn of_lead() -> String {
    list(LEAD.into_iter())
}

fn list(sentences: impl Iterator<Item = &'static str>) -> String {
    let lines: String = sentences.map(|sentence| format!("\n- {sentence}")).collect();
    format!("How to work:{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_told_how_to_search_and_report() {
        let reader = of_subagent(&ToolSet::new(["Read", "Grep", "Glob", "Note"]));
        insta::assert_snapshot!(reader, @"
        How to work:
        - Search wide first, then narrow: find the places, then read only those that matter.
        - Ask for several reads in one answer when they do not depend on each other.
        - Cite path and line for what you say about a file.
        - Keep what you saw apart from what you infer.
        - Stop when the question is answered.
        ");
    }

    #[test]
    fn a_writer_is_told_how_to_change_and_check() {
        let writer = of_subagent(&ToolSet::new(["Read", "Grep", "Edit", "Write", "Run"]));
        insta::assert_snapshot!(writer, @"
        How to work:
        - Reproduce the problem first, with a command or a test that fails.
        - Make the smallest change that does the task.
        - Run the tests that cover your change.
        - Read your changes back before you end.
        - Leave no temporary files behind.
        - Report what you checked and what you did not.
        ");
    }

    #[test]
    fn sentences_that_need_a_tool_are_left_out_without_it() {
        insta::assert_snapshot!(of_subagent(&ToolSet::new(["Read", "Edit"])), @"
        How to work:
        - Make the smallest change that does the task.
        - Read your changes back before you end.
        - Leave no temporary files behind.
        - Report what you checked and what you did not.
        ");
        insta::assert_snapshot!(of_subagent(&ToolSet::new(["WebFetch"])), @"
        How to work:
        - Keep what you saw apart from what you infer.
        - Stop when the question is answered.
        ");
    }

    #[test]
    fn a_lead_is_told_how_to_delegate_and_compare() {
        insta::assert_snapshot!(of_lead(), @"
        How to work:
        - Delegate only what is independent of the rest.
        - Write briefs that stand alone: the goal, where to look, what to return. A subagent sees nothing else of your work.
        - Compare reports with their receipts, which say what a subagent really read and changed.
        - Resolve contradictions between reports by looking yourself before you conclude.
        ");
    }
}
