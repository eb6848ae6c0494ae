//! The prompt about a call: shows the question and performs what the person chooses.

use adjutant_core::tree::WHOLE_RUN;
use adjutant_core::{RunId, Usd};
use adjutant_engine::{ApproverAnswer, RegistryHandle, question_id};
use adjutant_view::Palette;
use adjutant_view::approval::ApprovalQuestion;
use adjutant_view::palette::TextStyle;

use crate::live;

use super::SAID_NO;
use super::answers::PromptOnScreen;
use super::choice::{PromptChoice, help, one_line_help, parse_amount, prompt};
use super::program::page;
use super::task_editor::{EditEnd, TaskEditor};
use super::terminal::{Terminal, TypedLine};

/// The question about one call on the terminal.
pub(super) struct CallPrompt<'a> {
    terminal: &'a Terminal,
    run: RunId,
    question: ApprovalQuestion,
    registry: &'a RegistryHandle,
    /// Edits the tasks; `None` if they are not the person's own.
    editor: Option<&'a TaskEditor>,
    palette: Palette,
}

impl<'a> CallPrompt<'a> {
    pub(super) fn new(
        terminal: &'a Terminal,
        run: RunId,
        question: ApprovalQuestion,
        registry: &'a RegistryHandle,
        editor: Option<&'a TaskEditor>,
    ) -> Self {
        // Agents of the run delegate too; only the call of the root itself was typed by the person.
        let is_own = question
            .grants()
            .iter()
            .all(|grant| grant.parent == run.root_session() && grant.call != WHOLE_RUN);
        let (editor, palette) = (editor.filter(|_| is_own), live::palette(true));
        Self { terminal, run, question, registry, editor, palette }
    }

    /// Asks until the question is answered, here or in another terminal.
    pub(super) fn ask(&self) -> ApproverAnswer {
        let hash = self.question.hash().unwrap_or_default();
        let on_screen = PromptOnScreen::show(self.terminal, hash);
        // Without it the question can be answered only here.
        let is_registered = self.registry.open_prompt_question(self.run, hash).is_ok();
        self.show();
        let answer = loop {
            self.terminal.print(&self.palette.paint(TextStyle::Strong, prompt(self.can_edit())));
            let answer = match self.terminal.wait_for_line(|| on_screen.is_answered()) {
                TypedLine::Line(line) => self.perform(&PromptChoice::parse(&line), &on_screen),
                TypedLine::Interrupted => None,
            };
            // The first answer counts, also if the person was in the editor meanwhile.
            if on_screen.is_answered() {
                break ApproverAnswer::Later;
            }
            if let Some(answer) = answer {
                break answer;
            }
        };
        if is_registered {
            self.registry.close_question(&question_id(hash));
        }
        answer
    }

    const fn can_edit(&self) -> bool {
        self.editor.is_some()
    }

    fn show(&self) {
        let text = self.question.text(self.terminal.width());
        let (heading, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let heading = self.palette.paint(TextStyle::Strong, heading);
        self.terminal.print(&format!("{heading}\n{rest}\n"));
    }

    /// Performs a choice. Returns the answer, or `None` if the person is to be asked again.
    fn perform(&self, choice: &PromptChoice, on_screen: &PromptOnScreen) -> Option<ApproverAnswer> {
        match choice {
            PromptChoice::Yes => return Some(ApproverAnswer::Yes),
            PromptChoice::No => return Some(ApproverAnswer::No(SAID_NO.to_owned())),
            PromptChoice::UpTo(amount) => return self.allow(*amount),
            PromptChoice::AskAmount => return self.ask_amount(on_screen),
            PromptChoice::Edit if self.can_edit() => return self.edit(on_screen),
            PromptChoice::ShowAll => {
                page(self.terminal, &self.question.full_text(self.terminal.width()));
            }
            PromptChoice::Help => self.terminal.print(&help(self.can_edit())),
            PromptChoice::Edit | PromptChoice::Unknown => {
                self.terminal.print(one_line_help(self.can_edit()));
            }
        }
        None
    }

    fn ask_amount(&self, on_screen: &PromptOnScreen) -> Option<ApproverAnswer> {
        self.terminal.print("Further calls up to how many dollars? ");
        let TypedLine::Line(line) = self.terminal.wait_for_line(|| on_screen.is_answered()) else {
            return None;
        };
        if line.trim().is_empty() {
            return None;
        }
        let Some(amount) = parse_amount(&line) else {
            self.terminal.print("Type an amount above zero, such as 2.00.\n");
            return None;
        };
        self.allow(amount)
    }

    /// Says yes to this call and to further ones, unless the amount can never cover one.
    fn allow(&self, amount: Usd) -> Option<ApproverAnswer> {
        if self.question.worst_usd().is_none() {
            self.terminal.print(
                "The model has no known price, so no amount\nbounds further calls. Type y for this call.\n",
            );
            return None;
        }
        if let Some(note) = self.question.amount_note(amount) {
            self.terminal.print(&format!("{note}\n"));
        }
        Some(ApproverAnswer::YesUpTo(amount))
    }

    fn edit(&self, on_screen: &PromptOnScreen) -> Option<ApproverAnswer> {
        let editor = self.editor?;
        match editor.edit(self.terminal, &|| on_screen.is_answered()) {
            EditEnd::Edited => Some(ApproverAnswer::No(EDITED.to_owned())),
            EditEnd::Unchanged => None,
        }
    }
}

/// The reason of the denial of a call whose tasks were edited.
const EDITED: &str =
    "the person at the terminal edited the tasks and is asked about the edited ones";
