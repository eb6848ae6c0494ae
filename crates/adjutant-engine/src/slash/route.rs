//! Choosing the agent that a command delegates to: by `--agent`, the configuration, the task's language, or the
//! command's file.

use std::collections::BTreeMap;
use std::fmt;

use crate::roster::{AgentRoster, UnknownAgent};

/// The language to use if neither task nor command has one.
pub(super) const GENERAL: &str = "general";

/// The agents that a command's file names, by language; used if neither `--agent` nor the configuration names
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandFileRoutes {
    /// `agent`: used if no other key names an agent.
    pub agent: Option<String>,
    /// `routing.target_agent`: the agent for any language.
    pub target: Option<String>,
    /// `routing.language_based`; `false` ignores `languages`.
    pub by_language: Option<bool>,
    /// The agents for particular languages.
    pub languages: BTreeMap<String, String>,
    /// `routing.default`: the agent for other languages.
    pub default: Option<String>,
}

/// The agents that `[routing.COMMAND]` in the person's configuration names: by command, then by language or
/// `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredRoutes(pub BTreeMap<String, BTreeMap<String, String>>);

/// Why an agent was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteReason {
    /// The person named it with `--agent`.
    Typed,
    /// The person's configuration names it.
    Configured,
    /// The command names it for the task's language.
    Language(String),
    /// The command names it for any language.
    Named,
}

impl fmt::Display for RouteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed => f.write_str("--agent"),
            Self::Configured => f.write_str("your configuration"),
            Self::Language(language) => write!(f, "its language {}", language.escape_debug()),
            Self::Named => f.write_str("the command"),
        }
    }
}

/// The agent a command delegates to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRoute {
    /// Its name.
    pub agent: String,
    /// Why it was chosen.
    pub because: RouteReason,
    /// The preferred agent, which does not exist.
    pub instead_of: Option<String>,
}

/// None of the agents that a command names exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("/{command} ({file}) delegates to `{}`, but {unknown}", unknown.name)]
pub struct RouteError {
    /// The command.
    pub command: String,
    /// Its file.
    pub file: String,
    /// The preferred agent.
    pub unknown: UnknownAgent,
}

impl CommandFileRoutes {
    /// Returns whether the command names any agent.
    #[must_use]
    pub fn names_someone(&self) -> bool {
        self.agent.is_some()
            || self.target.is_some()
            || self.default.is_some()
            || !self.languages.is_empty()
    }

    /// Returns the agents that the command names for a language, best first.
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
    /// Returns the agents that the configuration names for a command, best first.
    fn candidates(&self, command: &str, language: &str) -> Vec<(&str, RouteReason)> {
        let own = self.0.get(command);
        let of = |key: &str| own.and_then(|own| own.get(key)).map(String::as_str);
        let agents = of(language).into_iter().chain(of("default"));
        agents.map(|agent| (agent, RouteReason::Configured)).collect()
    }
}

/// Chooses the agent a command delegates to. Returns `None` if it names no agent.
///
/// The first candidate that exists is chosen; the result names the preferred one if that is another.
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
