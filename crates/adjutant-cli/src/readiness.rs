//! The last sentence of `adjutant doctor`: what this machine is ready for, what not and why, and what to type next.
//!
//! Start at [`Readiness::of`].

use serde_json::{Value, json};

use crate::hints::completed;

/// A first delegation, short enough for a narrow terminal.
pub(crate) const FIRST_DELEGATION: &str = "adjutant delegate -t try='What is here?'";

/// What `doctor` found, as far as it decides what can be done. `Err` says what is missing.
pub(crate) struct DoctorChecks {
    /// Whether runs can be recorded and files be read.
    pub(crate) records: Result<(), String>,
    /// Whether the configuration files can be read, without which no run starts.
    pub(crate) configuration: Result<(), String>,
    /// The model that is used if none is named.
    pub(crate) model: Result<String, String>,
    /// Whether agents can have workspaces.
    pub(crate) workspaces: Result<(), String>,
    /// Whether agents can run commands.
    pub(crate) commands: Result<(), String>,
}

/// What can be done on this machine, and what not.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    ready: Vec<String>,
    not_ready: Vec<(&'static str, String)>,
    next: String,
}

impl Readiness {
    /// Judges what can be done. If several things are missing for one purpose, only the first is reported.
    pub(crate) fn of(abilities: DoctorChecks) -> Self {
        let DoctorChecks { records, configuration, model, workspaces, commands } = abilities;
        let has_records = records.is_ok();
        let next = if has_records && model.is_ok() { FIRST_DELEGATION } else { "adjutant init" };
        let next =
            if configuration.is_ok() { next } else { "adjutant doctor, once that is corrected" };
        let next = if has_records { next } else { "adjutant doctor --home DIR" };
        let model = configuration.and(model);
        let mut found =
            Self { ready: Vec::new(), not_ready: Vec::new(), next: completed_command(next) };
        let readers = records.clone().and(model);
        found.add("demo", records);
        let can_read = readers.is_ok();
        match readers {
            Ok(model) => found.ready.push(format!("reading subagents with {model}")),
            Err(why) => found.not_ready.push(("subagents", why)),
        }
        // Problems with git and the sandbox are reported even without a model: they take longer to correct.
        match workspaces {
            Ok(()) if can_read => found.ready.push("writing subagents".to_owned()),
            Ok(()) => {}
            Err(why) => found.not_ready.push(("writing subagents", why)),
        }
        if let Err(why) = commands {
            found.not_ready.push(("commands of writing subagents", why));
        }
        found
    }

    fn add(&mut self, what: &'static str, found: Result<(), String>) {
        match found {
            Ok(()) => self.ready.push(what.to_owned()),
            Err(why) => self.not_ready.push((what, why)),
        }
    }

    /// Returns the sentence.
    pub(crate) fn sentence(&self) -> String {
        let mut parts = Vec::new();
        if !self.ready.is_empty() {
            parts.push(format!("Ready: {}.", self.ready.join(", ")));
        }
        if !self.not_ready.is_empty() {
            let each = self.not_ready.iter().map(|(what, why)| format!("{what} ({why})"));
            parts.push(format!("Not ready: {}.", each.collect::<Vec<_>>().join(", ")));
        }
        parts.push(format!("Next: {}", self.next));
        parts.join(" ")
    }

    /// Adds the sentence's parts to the JSON of `doctor`.
    pub(crate) fn add_to(&self, json: &mut Value) {
        let not_ready =
            self.not_ready.iter().map(|(what, why)| json!({ "what": what, "why": why }));
        json["ready"] = json!(self.ready);
        json["not_ready"] = not_ready.collect();
        json["next"] = json!(self.next);
    }
}

/// Returns a command with the `--home` that was typed.
fn completed_command(command: &str) -> String {
    completed(&format!("`{command}`")).trim_matches('`').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{DoctorChecks, Readiness};

    fn abilities() -> DoctorChecks {
        DoctorChecks {
            records: Ok(()),
            configuration: Ok(()),
            model: Ok("anthropic/claude-haiku-4-5".into()),
            workspaces: Ok(()),
            commands: Ok(()),
        }
    }

    fn missing<T>(why: &str) -> Result<T, String> {
        Err(why.to_owned())
    }

    #[test]
    fn the_sentence_names_what_is_ready_what_is_not_and_the_next_command() {
        let sentences = [
            abilities(),
            DoctorChecks {
                commands: missing("user namespaces are not allowed here"),
                ..abilities()
            },
            DoctorChecks { workspaces: missing("git is not installed"), ..abilities() },
            DoctorChecks { model: missing("no model is chosen"), ..abilities() },
            DoctorChecks { records: missing("/state is read-only"), ..abilities() },
            DoctorChecks { configuration: missing("config.toml:2:1: expected `=`"), ..abilities() },
            DoctorChecks {
                model: missing("no model is chosen"),
                workspaces: missing("git is not installed"),
                commands: missing("user namespaces are not allowed here"),
                ..abilities()
            },
        ]
        .map(|it| Readiness::of(it).sentence());
        insta::assert_snapshot!(sentences.join("\n"), @"
        Ready: demo, reading subagents with anthropic/claude-haiku-4-5, writing subagents. Next: adjutant delegate -t try='What is here?'
        Ready: demo, reading subagents with anthropic/claude-haiku-4-5, writing subagents. Not ready: commands of writing subagents (user namespaces are not allowed here). Next: adjutant delegate -t try='What is here?'
        Ready: demo, reading subagents with anthropic/claude-haiku-4-5. Not ready: writing subagents (git is not installed). Next: adjutant delegate -t try='What is here?'
        Ready: demo. Not ready: subagents (no model is chosen). Next: adjutant init
        Not ready: demo (/state is read-only), subagents (/state is read-only). Next: adjutant doctor --home DIR
        Ready: demo. Not ready: subagents (config.toml:2:1: expected `=`). Next: adjutant doctor, once that is corrected
        Ready: demo. Not ready: subagents (no model is chosen), writing subagents (git is not installed), commands of writing subagents (user namespaces are not allowed here). Next: adjutant init
        ");
    }
}
