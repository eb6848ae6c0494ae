//! What the well-known models hold and charge, and what is assumed of the others.
//!
//! The table is data with a date; a person's own figures win over it. A model that charges more
//! beyond some length is listed with a window of that length, so that its one price is exact and
//! a budget is a bound; a wider window is an override away.

mod table;

use adjutant_core::{ModelSpec, Price, PriceOverride};

pub use table::{AS_OF, AS_OF_DAY};

/// The window assumed of a model nobody described.
const UNKNOWN_WINDOW: u64 = 32_000;
/// The output assumed of a model nobody described.
const UNKNOWN_MAX_OUTPUT: u64 = 4_096;

/// Days for which the prices of the table are taken without a warning. Inclusive.
const FRESH_DAYS: u64 = 90;
const MS_PER_DAY: u64 = 24 * 60 * 60 * 1000;

/// One model of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CatalogueEntry {
    /// The provider that serves it.
    pub provider: &'static str,
    /// The model as that provider names it.
    pub model: &'static str,
    /// Tokens the window holds at this price.
    pub window: u64,
    /// The most output tokens of one call.
    pub max_output: u64,
    /// Dollars per million tokens; `None` where nobody could say.
    pub price: Option<Price>,
    /// Whether it thinks and hands its thoughts back.
    pub reasoning: bool,
    /// Whether it is what the provider is asked for when nobody chose.
    pub is_default: bool,
}

impl CatalogueEntry {
    /// Returns `provider/model`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider, self.model)
    }
}

/// The table of well-known models.
#[derive(Clone, Copy, Debug)]
pub struct Catalogue(&'static [CatalogueEntry]);

/// Returns the table of well-known models.
#[must_use]
pub const fn catalogue() -> Catalogue {
    Catalogue(table::MODELS)
}

impl Catalogue {
    /// Lists the models, by provider, the strongest first.
    pub fn iter(&self) -> impl Iterator<Item = &'static CatalogueEntry> + use<> {
        self.0.iter()
    }

    /// Finds a model; a dated name (`claude-haiku-4-5-20251001`) is its undated one.
    #[must_use]
    pub fn find(&self, provider: &str, model: &str) -> Option<&'static CatalogueEntry> {
        let mut of_provider = self.0.iter().filter(|entry| entry.provider == provider);
        let exact = of_provider.clone().find(|entry| entry.model == model);
        exact.or_else(|| of_provider.find(|entry| is_dated(model, entry.model)))
    }

    /// Returns how many days ago the table was compared with the providers' pages, where that is longer ago than a
    /// price can be expected to hold.
    #[must_use]
    pub const fn stale_days(&self, wall_ms: u64) -> Option<u64> {
        let age = (wall_ms / MS_PER_DAY).saturating_sub(table::AS_OF_DAY);
        if age > FRESH_DAYS { Some(age) } else { None }
    }

    /// Returns what a provider is asked for when nobody chose.
    #[must_use]
    pub fn default_of(&self, provider: &str) -> Option<&'static CatalogueEntry> {
        self.0.iter().find(|entry| entry.is_default && entry.provider == provider)
    }
}

fn is_dated(model: &str, undated: &str) -> bool {
    let date = model.strip_prefix(undated).and_then(|rest| rest.strip_prefix(['-', '@']));
    date.is_some_and(|date| {
        date.len() >= 8 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    })
}

/// A person's own figures for a model; what is absent keeps the table's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOverride {
    /// Tokens the window holds.
    pub window: Option<u64>,
    /// The most output tokens of one call.
    pub max_output: Option<u64>,
    /// Dollars per million tokens.
    pub price: Option<PriceOverride>,
}

/// What is known of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDescription {
    /// What it holds and charges.
    pub spec: ModelSpec,
    /// Whether the figures are a careful guess, which is worth a warning.
    pub assumed: bool,
    pub(crate) reasoning: bool,
}

impl ModelDescription {
    pub(crate) fn new(provider: &str, model: &str, own: Option<&ModelOverride>) -> Self {
        let entry = catalogue().find(provider, model);
        let own = own.cloned().unwrap_or_default();
        let assumed = entry.is_none() && (own.window.is_none() || own.max_output.is_none());
        let table_window = entry.map_or(UNKNOWN_WINDOW, |entry| entry.window);
        let table_output = entry.map_or(UNKNOWN_MAX_OUTPUT, |entry| entry.max_output);
        let spec = ModelSpec {
            name: format!("{provider}/{model}"),
            window: own.window.unwrap_or(table_window),
            max_output: own.max_output.unwrap_or(table_output),
            price: own.price.unwrap_or_default().over(entry.and_then(|entry| entry.price)),
        };
        // Newer models think; of the unknown ones only the old names are known not to.
        let old = ["gpt-3", "gpt-4", "chatgpt-4"].iter().any(|old| model.starts_with(old));
        Self { spec, assumed, reasoning: entry.map_or(!old, |entry| entry.reasoning) }
    }
}
