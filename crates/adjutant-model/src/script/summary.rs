//! What a script was understood to be, for people and for `--json`.

use std::fmt;

use adjutant_core::{ModelSpec, Price};
use serde::Serialize;

use super::entry::{Ending, Times};
use super::select::Index;

/// What a script holds; shown as one line per fact.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScriptSummary {
    /// The model's name.
    pub name: String,
    /// The number of `[[turn]]` entries.
    pub turns: usize,
    /// How many of them end in an error or a panic.
    pub failing: usize,
    /// The agents it names, sorted; entries without one fit every agent.
    pub agents: Vec<String>,
    /// The labels it names, sorted; entries without one fit every label.
    pub labels: Vec<String>,
    /// Whether some entry repeats for ever.
    pub endless: bool,
    /// Tokens the window holds.
    pub window: u64,
    /// The most output tokens per call.
    pub max_output: u64,
    /// What it charges per million tokens; `None` when it is unpriced.
    pub price: Option<Price>,
}

impl ScriptSummary {
    pub(crate) fn new(spec: &ModelSpec, index: &Index) -> Self {
        let entries = index.entries();
        let failing = entries.iter().filter(|entry| match &entry.ending {
            Ending::Error(_) | Ending::Panic => true,
            Ending::Reply { .. } => false,
        });
        Self {
            name: spec.name.clone(),
            turns: entries.len(),
            failing: failing.count(),
            agents: index.agents().map(str::to_owned).collect(),
            labels: index.labels().map(str::to_owned).collect(),
            endless: entries.iter().any(|entry| entry.times == Times::Forever),
            window: spec.window,
            max_output: spec.max_output,
            price: spec.price,
        }
    }
}

impl fmt::Display for ScriptSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        write!(f, "  turns   {}", self.turns)?;
        if self.failing > 0 {
            write!(f, ", {} of them failing", self.failing)?;
        }
        writeln!(f, "{}", if self.endless { ", some for ever" } else { "" })?;
        writeln!(f, "  agents  {}", listed(&self.agents))?;
        writeln!(f, "  labels  {}", listed(&self.labels))?;
        writeln!(f, "  window  {} tokens, answers up to {}", self.window, self.max_output)?;
        match self.price {
            Some(price) => {
                write!(f, "  price   {} USD per million in, {} out", price.input, price.output)
            }
            None => write!(f, "  price   none: only token caps bound it"),
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "any".to_owned() } else { names.join(", ") }
}
