//! Questions to a person, put one after the other.
//!
//! Two on one screen could be answered the wrong way round, and each one that waits would hold a
//! thread that tools need. So only one is out; the others wait here.

use std::collections::VecDeque;

use crate::runner::effects::{ApproverQuestion, QuestionSubject};

/// Questions that wait, and whether one is out.
#[derive(Default)]
pub(crate) struct QuestionQueue {
    waiting: VecDeque<(ApproverQuestion, QuestionSubject)>,
    is_out: bool,
}

impl QuestionQueue {
    /// Takes a question in.
    pub(crate) fn add(&mut self, question: ApproverQuestion, subject: QuestionSubject) {
        self.waiting.push_back((question, subject));
    }

    /// Notes that the one that was out has been answered.
    pub(crate) const fn answered(&mut self) {
        self.is_out = false;
    }

    /// Returns the next question when none is out, passing over those that nobody needs answered.
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
