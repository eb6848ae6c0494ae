//! Layers of settings over a preset: where each value comes from, and which sources may change it.
//!
//! A person may set any key, except `max_depth` above 3. Project files, models and PRDs may only
//! tighten a value, by the key's [`TighteningRule`]. Start at [`LayeredPolicy::set`].
//!
//! A [`LayeredPolicy`] is a policy with the [`PolicySource`] of each value; [`SourceTrust`] says
//! whether a source is a person or untrusted content. [`PolicyError`] says why one setting was
//! rejected.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::key::{PolicyKey, TighteningRule};
use super::preset::WRITER_OUTPUT_TOKENS;
use super::{HARD_MAX_DEPTH, Operation, Policy, Preset, WorkspaceSharing};
use adjutant_formats::nearest;

/// How far a source of settings is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceTrust {
    /// A person's own setting: it may loosen limits.
    Person,
    /// Content of a repository or of a model: it may only tighten limits.
    Content,
}

/// Where a policy setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicySource {
    /// The preset itself.
    Preset(Preset),
    /// The user's own configuration file.
    UserConfig,
    /// The project's configuration file.
    ProjectConfig,
    /// An environment variable.
    Environment(String),
    /// A flag on the command line, or input a person wrote.
    Flag(String),
    /// A model's tool call, a PRD or other content; the text describes it.
    Content(String),
}

impl PolicySource {
    /// Returns how far this source is trusted.
    #[must_use]
    pub const fn trust(&self) -> SourceTrust {
        match self {
            Self::Preset(_) | Self::UserConfig | Self::Environment(_) | Self::Flag(_) => {
                SourceTrust::Person
            }
            Self::ProjectConfig | Self::Content(_) => SourceTrust::Content,
        }
    }
}

impl fmt::Display for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(preset) => write!(f, "preset {preset}"),
            Self::UserConfig => f.write_str("user config"),
            Self::ProjectConfig => f.write_str("project config"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
            Self::Content(origin) => f.write_str(origin),
        }
    }
}

/// Why a setting was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is no such key.
    #[error("unknown policy key `{name}`{}", did_you_mean(.nearest))]
    UnknownKey {
        /// The text or value in the setting.
        name: String,
        /// The most similar key.
        nearest: Option<&'static str>,
    },
    /// There is no such preset.
    #[error(
        "unknown preset `{name}`; known are scout (forge), command (opencode), story (claude-loop)"
    )]
    UnknownPreset {
        /// The text or value in the setting.
        name: String,
    },
    /// There is no such tool.
    #[error("tools: unknown tool `{name}`")]
    UnknownTool {
        /// The text or value in the setting.
        name: String,
    },
    /// The value has the wrong type.
    #[error("{}: {value} is not {expected}", key.name())]
    WrongType {
        /// The key.
        key: PolicyKey,
        /// The text or value in the setting.
        value: String,
        /// What the key expects.
        expected: &'static str,
    },
    /// The value is below zero.
    #[error("{}: {value} is negative", key.name())]
    Negative {
        /// The key.
        key: PolicyKey,
        /// The text or value in the setting.
        value: String,
    },
    /// The value is zero.
    #[error("{}: 0 is not allowed, the least is {}", key.name(), lowest_value_text(*key))]
    Zero {
        /// The key.
        key: PolicyKey,
    },
    /// The depth is above the hard maximum.
    #[error("max_depth: {depth} exceeds the hard maximum {HARD_MAX_DEPTH}")]
    TooDeep {
        /// The text or value in the setting.
        depth: u64,
    },
    /// An untrusted source would loosen the policy.
    #[error("{}: {origin} may not change {current} to {attempted}, it {}", key.name(), key.tighter().describe())]
    Loosens {
        /// The key.
        key: PolicyKey,
        /// The source of the setting.
        origin: String,
        /// The value in force.
        current: String,
        /// The text or value in the setting.
        attempted: String,
    },
    /// The key cannot be changed on resume.
    #[error("{}: cannot be changed when a run is resumed; `resume` sets {}", key.name(), resume_keys())]
    FixedAtStart {
        /// The key.
        key: PolicyKey,
    },
    /// The argument of `--set` is not `key=value`.
    #[error("`{text}` is not of the form key=value")]
    NotAnAssignment {
        /// The text or value in the setting.
        text: String,
    },
}

fn resume_keys() -> String {
    let keys = PolicyKey::ALL.iter().filter(|key| key.is_set_on_resume());
    keys.map(|key| key.name()).collect::<Vec<_>>().join(", ")
}

fn did_you_mean(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn lowest_value_text(key: PolicyKey) -> &'static str {
    if matches!(key, PolicyKey::BudgetUsd | PolicyKey::ApproveBelowUsd) {
        "any amount above it, or none"
    } else if key == PolicyKey::MaxDepth {
        "1 (to switch delegation off, set enabled=false)"
    } else if key == PolicyKey::Continuations {
        "1 (to switch continuing off, set on_full=handover)"
    } else {
        "1"
    }
}

/// A policy with the source of each value.
#[derive(Clone, Debug)]
pub struct LayeredPolicy {
    policy: Policy,
    sources: BTreeMap<PolicyKey, PolicySource>,
}

impl LayeredPolicy {
    /// Starts from a preset.
    #[must_use]
    pub fn new(preset: Preset) -> Self {
        Self { policy: preset.policy(), sources: BTreeMap::new() }
    }

    /// Sets one key, if its source is trusted to do so.
    pub fn set(
        &mut self,
        name: &str,
        value: &Value,
        source: &PolicySource,
    ) -> Result<(), PolicyError> {
        let key = key_of(name)?;
        let mut changed = self.policy.clone();
        key.set(&mut changed, value)?;
        if source.trust() == SourceTrust::Content
            && !is_tighter_or_equal(key, &self.policy, &changed)
        {
            return Err(PolicyError::Loosens {
                key,
                origin: source.to_string(),
                current: show(&key.get(&self.policy)),
                attempted: show(&key.get(&changed)),
            });
        }
        self.policy = changed;
        self.sources.insert(key, source.clone());
        self.settle_output();
        Ok(())
    }

    /// Raises the output limit for agents that can write files, unless it was set explicitly.
    fn settle_output(&mut self) {
        if self.sources.contains_key(&PolicyKey::MaxOutputTokens) {
            return;
        }
        let usual = self.policy.preset.policy().max_output_tokens;
        let is_writer = self.writing_key().is_some();
        self.policy.max_output_tokens =
            if is_writer { usual.max(WRITER_OUTPUT_TOKENS) } else { usual };
    }

    /// Returns the key that lets agents write files, apart from `write_below`.
    fn writing_key(&self) -> Option<PolicyKey> {
        if self.policy.in_place {
            return Some(PolicyKey::InPlace);
        }
        (self.policy.workspace == WorkspaceSharing::Own).then_some(PolicyKey::Workspace)
    }

    /// Sets all keys of an object in order, or none of them if one fails.
    pub fn apply(
        &mut self,
        layer: &serde_json::Map<String, Value>,
        source: &PolicySource,
    ) -> Result<(), PolicyError> {
        let mut changed = self.clone();
        for (name, value) in layer {
            changed.set(name, value, source)?;
        }
        *self = changed;
        Ok(())
    }

    /// Returns the policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the source of a key's value.
    #[must_use]
    pub fn source(&self, key: PolicyKey) -> PolicySource {
        let mut key = key;
        if key == PolicyKey::MaxOutputTokens && !self.sources.contains_key(&key) {
            key = self.writing_key().unwrap_or(key);
        }
        self.sources.get(&key).cloned().unwrap_or(PolicySource::Preset(self.policy.preset))
    }

    /// Returns how many of the `tasks` that a person typed in one call run at once: all of them, up
    /// to the preset's limit. `None` if `concurrency` decides, as it does once it is set.
    #[must_use]
    pub fn typed_concurrency(&self, tasks: u64) -> Option<u64> {
        let is_set = self.sources.contains_key(&PolicyKey::Concurrency);
        let limit = self.policy.preset.typed_concurrency().filter(|_| !is_set)?;
        Some(tasks.min(limit).max(self.policy.concurrency))
    }

    /// Returns the policy without the sources.
    #[must_use]
    pub fn into_policy(self) -> Policy {
        self.policy
    }
}

fn key_of(name: &str) -> Result<PolicyKey, PolicyError> {
    PolicyKey::parse(name).ok_or_else(|| PolicyError::UnknownKey {
        name: name.to_owned(),
        nearest: nearest(name, PolicyKey::ALL.iter().map(|key| key.name())),
    })
}

impl Policy {
    /// Sets a limit for a resumed run.
    ///
    /// # Errors
    ///
    /// The key does not exist, is fixed when a run begins, or does not accept the value.
    pub fn set_on_resume(&mut self, name: &str, value: &Value) -> Result<(), PolicyError> {
        let key = key_of(name)?;
        if !key.is_set_on_resume() {
            return Err(PolicyError::FixedAtStart { key });
        }
        key.set(self, value)
    }

    /// Returns the limits that differ in `wanted`, among those that `resume` may change.
    #[must_use]
    pub fn limits_changed_by(&self, wanted: &Self) -> BTreeMap<String, Value> {
        let keys = PolicyKey::ALL.iter().filter(|key| key.is_set_on_resume());
        keys.filter(|key| key.get(self) != key.get(wanted))
            .map(|key| (key.name().to_owned(), key.get(wanted)))
            .collect()
    }
}

/// Parses the `key=value` argument of `--set`. The value is JSON if it parses as JSON, otherwise
/// text.
pub fn parse_assignment(text: &str) -> Result<(&str, Value), PolicyError> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty())
        .ok_or_else(|| PolicyError::NotAnAssignment { text: text.to_owned() })?;
    let value = value.trim();
    let parsed = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((key.trim(), parsed))
}

fn is_tighter_or_equal(key: PolicyKey, current: &Policy, changed: &Policy) -> bool {
    let (before, after) = (key.get(current), key.get(changed));
    before == after
        || match key.tighter() {
            TighteningRule::Lower => {
                after.as_f64().is_some_and(|after| after <= upper_bound(&before))
            }
            TighteningRule::Less => {
                let allowed = before.as_f64();
                after.is_null() || after.as_f64().zip(allowed).is_some_and(|(a, b)| a <= b)
            }
            TighteningRule::Off => after == Value::Bool(false),
            TighteningRule::Fewer => {
                let held = before.as_array();
                let is_held = |name: &Value| held.is_some_and(|held| held.contains(name));
                after.as_array().is_some_and(|names| names.iter().all(is_held))
            }
            TighteningRule::Ask => current.approval == super::ApprovalRule::None,
            TighteningRule::Handover => changed.on_full < current.on_full,
            TighteningRule::Unordered => false,
        }
}

/// Returns the highest number an untrusted source may set. No limit counts as infinite. If the
/// limit depends on the operation, only a number below the smallest entry of that table is
/// certainly tighter.
fn upper_bound(value: &Value) -> f64 {
    match value.as_f64() {
        Some(number) => number,
        None if value.is_null() => f64::INFINITY,
        None => Operation::Simple.default_seconds() as f64,
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}
