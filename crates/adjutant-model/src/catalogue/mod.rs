//! Context windows and prices of the well-known models, and the assumptions for unknown ones.
//!
//! The table is dated, and the user's own values override it. A model with a higher price for long requests
//! is listed with a window below that length, so that one price is exact and budgets hold; users can override
//! the window.

mod table;

use adjutant_core::{ModelSpec, Price, PriceOverride};

pub use table::{AS_OF, AS_OF_DAY};

/// The context window assumed for an unknown model.
const UNKNOWN_WINDOW: u64 = 32_000;
/// The maximum output assumed for an unknown model.
const UNKNOWN_MAX_OUTPUT: u64 = 4_096;

/// The number of days after which prices of the table cause a warning. Inclusive.
const FRESH_DAYS: u64 = 90;
const MS_PER_DAY: u64 = 24 * 60 * 60 * 1000;

/// A well-known model: its limits, its price and whether it is its provider's default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CatalogueEntry {
    /// The provider.
    pub provider: &'static str,
    /// The provider's name for the model.
    pub model: &'static str,
    /// The context window for which this price holds, in tokens.
    pub window: u64,
    /// The maximum number of output tokens of one call.
    pub max_output: u64,
    /// The price in dollars per million tokens; `None` if it is not published.
    pub price: Option<Price>,
    /// Whether it returns reasoning that must be sent back.
    pub reasoning: bool,
    /// Whether it is the provider's default model.
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
    /// Iterates over the models by provider, most capable first.
    pub fn iter(&self) -> impl Iterator<Item = &'static CatalogueEntry> + use<> {
        self.0.iter()
    }

    /// Finds a model; a dated name (`claude-haiku-4-5-20251001`) matches the undated one.
    #[must_use]
    pub fn find(&self, provider: &str, model: &str) -> Option<&'static CatalogueEntry> {
        let mut of_provider = self.0.iter().filter(|entry| entry.provider == provider);
        let exact = of_provider.clone().find(|entry| entry.model == model);
        exact.or_else(|| of_provider.find(|entry| is_dated(model, entry.model)))
    }

    /// Returns the age of the table in days if it is too old for its prices to be trusted.
    #[must_use]
    pub const fn stale_days(&self, wall_ms: u64) -> Option<u64> {
        let age = (wall_ms / MS_PER_DAY).saturating_sub(table::AS_OF_DAY);
        if age > FRESH_DAYS { Some(age) } else { None }
    }

    /// Returns the default model of a provider.
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

/// The user's own values for a model. Absent values are taken from the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOverride {
    /// The context window in tokens.
    pub window: Option<u64>,
    /// The maximum number of output tokens of one call.
    pub max_output: Option<u64>,
    /// The price in dollars per million tokens.
    pub price: Option<PriceOverride>,
}

/// The limits and price of a model, and whether they are known or assumed.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDescription {
    /// Its context window, maximum output and price.
    pub spec: ModelSpec,
    /// Whether the values are assumptions, which causes a warning.
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
            price: own.price.unwrap_or_default().apply_to(entry.and_then(|entry| entry.price)),
            effort: None,
        };
        // Newer models reason; among unknown models only these old families are known not to.
        let old = ["gpt-3", "gpt-4", "chatgpt-4"].iter().any(|old| model.starts_with(old));
        Self { spec, assumed, reasoning: entry.map_or(!old, |entry| entry.reasoning) }
    }
}
