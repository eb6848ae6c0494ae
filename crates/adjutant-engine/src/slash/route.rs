//! Whom a command is handed to: by the person's word, the file's, the language of the task.

use std::collections::BTreeMap;
use std::fmt;

use crate::roster::{AgentRoster, UnknownAgent};

/// The language of a task that has none.
pub(super) const GENERAL: &str = "general";

/// Whom a command names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandRouting {
    /// `agent`: who does it when nobody else is named.
    pub agent: Option<String>,
    /// `routing.target_agent`: who does it in any language.
    pub target: Option<String>,
    /// `routing.language_based`; where it is false the languages do not count.
    pub by_language: Option<bool>,
    /// Who does it in a language.
    pub languages: BTreeMap<String, String>,
    /// `routing.default`: who does it in every other language.
    pub default: Option<String>,
}

/// The person's own routing, from their configuration: command, then language or `default`, then agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredRoutes(pub BTreeMap<String, BTreeMap<String, String>>);

/// Why an agent was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteReason {
    /// The person typed its name.
    Typed,
    /// The person's configuration says so.
    Configured,
    /// The task has this language.
    Language(String),
    /// The command says so.
    Named,
}

impl fmt::Display for RouteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed => f.write_str("your word"),
            Self::Configured => f.write_str("your configuration"),
            Self::Language(language) => write!(f, "its language {}", language.escape_debug()),
            Self::Named => f.write_str("the command"),
        }
    }
}

/// The agent a command is handed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRoute {
    /// Its name.
    pub agent: String,
    /// Why it.
    pub because: RouteReason,
    /// Whom it stands in for, because nobody of that name is described.
    pub instead_of: Option<String>,
}

/// Says that nobody whom a command names is described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("/{command} ({file}) is handed to `{}`, but {unknown}", unknown.name)]
pub struct RouteError {
    /// The command.
    pub command: String,
    /// Its file.
    pub file: String,
    /// Who was looked for.
    pub unknown: UnknownAgent,
}

impl CommandRouting {
    /// Says whether the command names anybody.
    #[must_use]
    pub fn names_someone(&self) -> bool {
        self.agent.is_some()
            || self.target.is_some()
            || self.default.is_some()
            || !self.languages.is_empty()
    }

    /// Returns whom the command names for a language, the best first.
    fn candidates(&self, language: &str) -> Vec<(&str, RouteReason)> {
        let by_language = self.by_language != Some(false);
        let special = self.languages.get(language).filter(|_| by_language);
        let special = special.map(|agent| (agent, RouteReason::Language(language.to_owned())));
        let others = [&self.default, &self.target, &self.agent].into_iter().flatten();
        let others = others.map(|agent| (agent, RouteReason::Named));
        special.into_iter().chain(others).map(|(agent, why)| (agent.as_str(), why)).collect()
    }
}

impl ConfiguredRoutes {
    /// Returns whom the person names for a command, the best first.
    fn candidates(&self, command: &str, language: &str) -> Vec<(&str, RouteReason)> {
        let own = self.0.get(command);
        let of = |key: &str| own.and_then(|own| own.get(key)).map(String::as_str);
        let agents = of(language).into_iter().chain(of("default"));
        agents.map(|agent| (agent, RouteReason::Configured)).collect()
    }
}

/// Finds the agent a command is handed to; `None` where it works itself.
///
/// The first name that is described counts; whoever was passed over is said.
pub(super) fn route(
    command: &super::SlashCommand,
    language: &str,
    typed: Option<&str>,
    routes: &ConfiguredRoutes,
    roster: &AgentRoster,
) -> Result<Option<AgentRoute>, RouteError> {
    let mut candidates: Vec<(&str, RouteReason)> = match typed {
        Some(agent) => vec![(agent, RouteReason::Typed)],
        None => routes.candidates(command.name(), language),
    };
    if candidates.is_empty() {
        candidates = command.routing.candidates(language);
    }
    let Some((wanted, _)) = candidates.first().cloned() else { return Ok(None) };
    let known = candidates.iter().find_map(|(agent, because)| {
        let found = roster.find(agent).ok().filter(|found| found.takes_tasks)?;
        Some((found.name.as_str().to_owned(), because.clone()))
    });
    match known {
        Some((agent, because)) => {
            let instead_of = (agent != wanted).then(|| wanted.to_owned());
            Ok(Some(AgentRoute { agent, because, instead_of }))
        }
        None => Err(RouteError {
            command: command.name().to_owned(),
            file: command.definition.file.clone(),
            unknown: match roster.find(wanted) {
                Err(unknown) => unknown,
                Ok(found) => {
                    UnknownAgent { name: found.name.to_string(), meant: None, known: Vec::new() }
                }
            },
        }),
    }
}
