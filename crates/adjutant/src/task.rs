//! A task for a subagent.

use std::time::Duration;

use adjutant_core::schema::TaskSpec;

use crate::Error;

/// A task for one subagent: a label, what to do, and what it may need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    label: String,
    prompt: String,
    context: Vec<String>,
    model: Option<String>,
    timeout: Option<Duration>,
}

impl Task {
    /// Returns a task. The label has 1 to 32 characters and need not be unique.
    pub fn new(label: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            prompt: prompt.into(),
            context: Vec::new(),
            model: None,
            timeout: None,
        }
    }

    /// Adds a file below the root whose content the agent gets with its task.
    #[must_use]
    pub fn context(mut self, path: impl Into<String>) -> Self {
        self.context.push(path.into());
        self
    }

    /// Uses another model than the default, written `provider/model`.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Limits its time, in whole seconds: a part of a second counts as one. A longer time than the policy allows is
    /// shortened. Zero is an error when the task is delegated.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    pub(crate) fn into_spec(self) -> Result<TaskSpec, Error> {
        let spec = TaskSpec::new(&self.label, &self.prompt)
            .map_err(|source| Error::Label { label: self.label, source })?;
        // Zero seconds count as no timeout at all in a task file.
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::ZeroTimeout { label: spec.label.to_string() });
        }
        let seconds = |it: Duration| it.as_secs() + u64::from(it.subsec_nanos() > 0);
        Ok(TaskSpec {
            context: self.context,
            model: self.model,
            timeout_s: self.timeout.map(seconds),
            ..spec
        })
    }
}
