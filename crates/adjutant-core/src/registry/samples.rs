//! What ended delegations consumed, so that a person who is asked about new ones can be told what to expect.
//!
//! A [`DelegationSample`] is one ended delegation; a [`SampleGroup`] has the latest of them with the same [`SampleKey`].
//! Nothing is decided with them. Invariant: their number is bounded, whatever the history.

use serde::{Deserialize, Serialize};

use super::decide::RegistryDecision;
use super::event::RegistryEvent as Event;
use super::state::Registry;
use crate::money::Usd;
use crate::policy::Preset;

/// How many samples of one group are kept.
pub const KEPT_SAMPLES: usize = 200;

/// How many groups are kept.
const KEPT_GROUPS: usize = 200;

/// How many samples of all groups are kept: at twenty bytes each, the checkpoint stays fast to read.
const KEPT_SAMPLES_IN_ALL: usize = 4_000;

/// The longest name of a model or worker, in bytes. Delegations with longer ones are not sampled.
const MAX_NAME_BYTES: usize = 200;

/// Picodollars of a microdollar.
const PICO_PER_MICRO: u64 = 1_000_000;

/// What makes delegations comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleKey {
    /// The preset of the run.
    pub preset: Preset,
    /// The model, as `provider/model`.
    pub model: String,
    /// The external agent that does the work, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// What one ended delegation consumed, with everything below it. An array of three numbers in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, Option<u64>, u64)", into = "(u64, Option<u64>, u64)")]
pub struct DelegationSample {
    /// The tokens.
    pub tokens: u64,
    /// The cost in microdollars; absent if a model had no price.
    pub micro_usd: Option<u64>,
    /// How long it worked, in milliseconds.
    pub elapsed_ms: u64,
}

impl DelegationSample {
    /// Makes a sample. The cost is rounded up to microdollars.
    #[must_use]
    pub fn new(tokens: u64, cost: Option<Usd>, elapsed_ms: u64) -> Self {
        let micro_usd = cost.map(|usd| usd.as_pico().div_ceil(PICO_PER_MICRO));
        Self { tokens, micro_usd, elapsed_ms }
    }

    /// Returns the cost, if every model had a price.
    #[must_use]
    pub fn cost(&self) -> Option<Usd> {
        self.micro_usd.map(|micro| Usd::from_pico(micro.saturating_mul(PICO_PER_MICRO)))
    }
}

impl From<(u64, Option<u64>, u64)> for DelegationSample {
    fn from((tokens, micro_usd, elapsed_ms): (u64, Option<u64>, u64)) -> Self {
        Self { tokens, micro_usd, elapsed_ms }
    }
}

impl From<DelegationSample> for (u64, Option<u64>, u64) {
    fn from(sample: DelegationSample) -> Self {
        (sample.tokens, sample.micro_usd, sample.elapsed_ms)
    }
}

/// Samples of delegations with the same preset, model and worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleGroup {
    /// What they have in common.
    pub key: SampleKey,
    /// The latest last.
    pub samples: Vec<DelegationSample>,
}

impl SampleGroup {
    /// Sorts samples into groups, in the order of their first samples.
    pub fn collect(samples: impl IntoIterator<Item = (SampleKey, DelegationSample)>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for (key, sample) in samples {
            match groups.iter_mut().find(|group| group.key == key) {
                Some(group) => group.samples.push(sample),
                None => groups.push(Self { key, samples: vec![sample] }),
            }
        }
        groups
    }

    /// Drops surplus samples, oldest first.
    fn trim(&mut self) {
        self.samples.drain(..self.samples.len().saturating_sub(KEPT_SAMPLES));
    }
}

impl Registry {
    /// Returns the samples with this key, the latest last.
    #[must_use]
    pub fn samples(&self, key: &SampleKey) -> &[DelegationSample] {
        let group = self.samples.iter().find(|group| group.key == *key);
        group.map(|group| group.samples.as_slice()).unwrap_or_default()
    }

    /// Records the samples of an ended run: of each group only what is kept anyway.
    pub(super) fn record_samples(groups: Vec<SampleGroup>) -> RegistryDecision {
        let is_short = |name: &str| name.len() <= MAX_NAME_BYTES;
        let is_kept = |group: &SampleGroup| {
            let names_fit =
                is_short(&group.key.model) && group.key.worker.as_deref().is_none_or(is_short);
            names_fit && !group.samples.is_empty()
        };
        let mut groups: Vec<SampleGroup> = groups.into_iter().filter(is_kept).collect();
        groups.iter_mut().for_each(SampleGroup::trim);
        drop_surplus(&mut groups);
        Ok(if groups.is_empty() { Vec::new() } else { vec![Event::DelegationsSampled { groups }] })
    }

    pub(super) fn take_samples(&mut self, groups: &[SampleGroup]) {
        for new in groups {
            let known = self.samples.iter().position(|group| group.key == new.key);
            let mut group = match known {
                Some(known) => self.samples.remove(known),
                None => SampleGroup { key: new.key.clone(), samples: Vec::new() },
            };
            group.samples.extend_from_slice(&new.samples);
            group.trim();
            // The latest last, so that the groups that are no longer used come first.
            self.samples.push(group);
        }
        drop_surplus(&mut self.samples);
    }
}

/// Drops the first groups until the rest is within the limits.
fn drop_surplus(groups: &mut Vec<SampleGroup>) {
    let mut in_all = 0;
    let kept = groups.iter().rev().take(KEPT_GROUPS).take_while(|group| {
        in_all += group.samples.len();
        in_all <= KEPT_SAMPLES_IN_ALL
    });
    let surplus = groups.len() - kept.count();
    groups.drain(..surplus);
}
