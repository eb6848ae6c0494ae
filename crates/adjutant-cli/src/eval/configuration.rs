//! The configurations that an evaluation compares: model, preset, and whether the agent works alone.
//!
//! Start at [`ConfigurationChoice::parse_all`], then [`ConfigurationChoice::prepare`].

use std::path::Path;

use adjutant_core::policy::{ContractKind, PolicyKey};
use adjutant_core::tree::worst_case_of_run;
use adjutant_core::{Policy, Usd};
use adjutant_engine::{Engine, EngineSetup, WorkspaceSetup};
use adjutant_view::eval::EvalConfigurationTitle;
use serde::{Deserialize, Serialize};

use super::task::{EvalTask, TaskKind};
use crate::args::{EvalArgs, PolicyFlags};
use crate::delegate::engine_failure;
use crate::exit::Failure;
use crate::output::say;
use crate::settings::Settings;
use crate::wiring::{ChosenModel, ModelSetup};
use crate::workspace_flags::write_in_workspaces;

/// The most configurations of one evaluation.
const MAX_CONFIGURATIONS: usize = 2;

/// A configuration as it was typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConfigurationChoice {
    /// The model; `None` for the default.
    pub(super) model: Option<String>,
    /// The preset; `None` for the default.
    pub(super) preset: Option<String>,
    /// Who does the work.
    pub(super) mode: WorkMode,
    /// The external agent that does it; `None` for Adjutant's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<String>,
}

/// Who does the work of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkMode {
    /// One agent, as with `delegate --write`.
    #[default]
    Alone,
    /// A parent agent that can delegate, as with `run --write`.
    Delegated,
}

impl WorkMode {
    const fn word(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Delegated => "delegated",
        }
    }
}

impl ConfigurationChoice {
    /// Reads the configurations that were typed: one or two.
    pub(super) fn parse_all(args: &EvalArgs) -> Result<Vec<Self>, Failure> {
        let usual = Self {
            model: args.model.clone(),
            preset: args.policy.preset.clone(),
            mode: WorkMode::Alone,
            worker: args.worker.clone(),
        };
        if args.config.len() > MAX_CONFIGURATIONS {
            return Err(Failure::usage("--config: at most two configurations can be compared"));
        }
        if args.config.is_empty() {
            return Ok(vec![usual]);
        }
        args.config.iter().map(|typed| usual.clone().with(typed)).collect()
    }

    fn with(mut self, typed: &str) -> Result<Self, Failure> {
        let refused = |why: String| {
            Failure::usage(format!("--config {typed}: {why}"))
                .hint("An example: --config model=openai/gpt-5,preset=scout,mode=delegated")
        };
        for part in typed.split(',') {
            match part.split_once('=') {
                Some(("model", model)) => self.model = Some(model.to_owned()),
                Some(("preset", preset)) => self.preset = Some(preset.to_owned()),
                Some(("worker", worker)) => self.worker = Some(worker.to_owned()),
                Some(("mode", "alone")) => self.mode = WorkMode::Alone,
                Some(("mode", "delegated")) => self.mode = WorkMode::Delegated,
                Some(("mode", other)) => {
                    return Err(refused(format!("`{other}` is not alone or delegated")));
                }
                Some(_) | None => {
                    return Err(refused(format!(
                        "`{part}` is not model=, preset=, mode= or worker="
                    )));
                }
            }
        }
        Ok(self)
    }

    /// Opens the model and combines the limits. `root` is an empty directory, so no project's file counts.
    pub(super) fn prepare(
        &self,
        number: usize,
        flags: &PolicyFlags,
        root: &Path,
    ) -> Result<PreparedConfiguration, Failure> {
        let flags = PolicyFlags { preset: self.preset.clone(), ..flags.clone() };
        let mut settings = Settings::load(&flags, root)?;
        write_in_workspaces(&mut settings)?;
        if self.mode == WorkMode::Delegated {
            settings.set(PolicyKey::Enabled, true, "mode=delegated")?;
        }
        let wiring = ModelSetup::new(&settings)?;
        let model = wiring.choose(self.model.as_deref().or(settings.model.as_deref()))?;
        model.remarks.iter().for_each(|remark| say(&format!("adjutant: {remark}")));
        let mut policy = settings.policy.policy().clone();
        // The attempts must not depend on what the network has today.
        policy.network = false;
        let title = EvalConfigurationTitle {
            name: if number == 0 { "A" } else { "B" }.to_owned(),
            model: self.model.clone().unwrap_or_else(|| model.model.spec().name.clone()),
            preset: policy.preset.name().to_owned(),
            mode: self.mode.word(),
        };
        Ok(PreparedConfiguration {
            title,
            mode: self.mode,
            worker: self.worker.clone(),
            policy,
            settings,
            wiring,
            model,
        })
    }
}

/// A configuration with its limits and its open model.
pub(super) struct PreparedConfiguration {
    /// How it is shown.
    pub(super) title: EvalConfigurationTitle,
    /// Who does the work.
    pub(super) mode: WorkMode,
    worker: Option<String>,
    policy: Policy,
    settings: Settings,
    wiring: ModelSetup,
    model: ChosenModel,
}

impl PreparedConfiguration {
    /// Returns whether the model has a price, without which no amount of dollars can be enforced.
    pub(super) fn is_priced(&self) -> bool {
        self.model.model.spec().price.is_some()
    }

    /// Returns the most tokens that one attempt can use, and their cost if the model has a price.
    pub(super) fn worst_case(&self) -> (u64, Option<Usd>) {
        let mut policy = self.policy.clone();
        if self.mode == WorkMode::Alone {
            let one = [policy.budget_tokens, policy.budget_tokens_run].into_iter().flatten().min();
            policy.budget_tokens_run = one;
        }
        worst_case_of_run(&policy, self.model.model.spec())
    }

    /// Returns the amount up to which its limits allow to start without asking.
    pub(super) const fn approve_below(&self) -> Option<Usd> {
        self.policy.approve_below_usd
    }

    /// Finds the toolchains that commands see.
    pub(super) fn find_toolchains(&self, setup: &mut WorkspaceSetup) {
        self.settings.toolchains.find(setup);
    }

    /// Returns the limits of one attempt at a task, if `left` remains of the evaluation's budget.
    ///
    /// The return of work must have a status; a question is answered by a report.
    pub(super) fn policy_for(&self, task: &EvalTask, left: Option<Usd>) -> Policy {
        let contract = match task.settings.kind {
            TaskKind::Question => ContractKind::Report,
            TaskKind::Fix | TaskKind::Refactor | TaskKind::Split | TaskKind::Impossible => {
                ContractKind::Standard
            }
        };
        let budget_usd = [self.policy.budget_usd, left].into_iter().flatten().min();
        Policy { contract, budget_usd, ..self.policy.clone() }
    }

    /// Returns the engine of one attempt.
    pub(super) fn engine(&self, policy: Policy, tree: &Path) -> Result<Engine, Failure> {
        let setup = EngineSetup {
            policy,
            opener: Some(self.model.opener(&self.wiring)),
            model: self.model.model.clone(),
            workdir: tree.to_owned(),
            system: None,
            web: None,
            tools: Vec::new(),
            secrets: [self.settings.secrets.clone(), self.wiring.secrets()].concat(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workers: Some(self.wiring.workers(&self.settings)?),
        };
        let engine = Engine::new(setup).map_err(|error| engine_failure(&error))?;
        let engine = engine.with_guidance().with_efforts(self.settings.efforts.clone());
        Ok(engine.with_worker(self.worker.clone()))
    }
}
