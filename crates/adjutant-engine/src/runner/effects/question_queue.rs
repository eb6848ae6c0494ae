//! The queue of questions to a person, which are asked one at a time.
//!
//! With two prompts on one terminal a person could answer the wrong one, and each blocks a thread.

use std::collections::VecDeque;

use crate::runner::effects::{ApproverQuestion, QuestionSubject};

/// Waiting questions, and whether one is being asked.
#[derive(Default)]
pub(crate) struct QuestionQueue {
    waiting: VecDeque<(ApproverQuestion, QuestionSubject)>,
    is_out: bool,
}

impl QuestionQueue {
    /// Adds a question.
    pub(crate) fn add(&mut self, question: ApproverQuestion, subject: QuestionSubject) {
        self.waiting.push_back((question, subject));
    }

    /// Marks the current question as answered.
    pub(crate) const fn mark_answered(&mut self) {
        self.is_out = false;
    }

    /// Returns the next question if none is being asked. Questions that are no longer open are dropped.
    pub(crate) fn next(
        &mut self,
        is_open: impl Fn(&QuestionSubject) -> bool,
    ) -> Option<(ApproverQuestion, QuestionSubject)> {
        if self.is_out {
            return None;
        }
        self.waiting.retain(|(_, subject)| is_open(subject));
        let next = self.waiting.pop_front();
        self.is_out = next.is_some();
        next
    }
}
