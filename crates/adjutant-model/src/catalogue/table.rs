//! The table of models, from the providers' public price lists.

use adjutant_core::Price;

use super::CatalogueEntry;

/// The date of the last comparison with the providers' price lists.
pub const AS_OF: &str = "2026-11-15";
/// The same date in days since 1970-01-01.
pub const AS_OF_DAY: u64 = 20_772;

/// Dollars per million tokens: input, output, cache read, cache write.
const fn usd(input: f64, output: f64, cache_read: f64, cache_write: f64) -> Option<Price> {
    Some(Price { input, output, cache_read, cache_write })
}

const fn entry(
    provider: &'static str,
    model: &'static str,
    window: u64,
    max_output: u64,
    price: Option<Price>,
) -> CatalogueEntry {
    CatalogueEntry {
        provider,
        model,
        window,
        max_output,
        price,
        reasoning: true,
        is_default: false,
    }
}

const fn claude(
    model: &'static str,
    window: u64,
    max: u64,
    price: Option<Price>,
) -> CatalogueEntry {
    entry("anthropic", model, window, max, price)
}

const fn gpt(model: &'static str, window: u64, max: u64, price: Option<Price>) -> CatalogueEntry {
    entry("openai", model, window, max, price)
}

const fn gemini(model: &'static str, window: u64, price: Option<Price>) -> CatalogueEntry {
    entry("gemini", model, window, 65_536, price)
}

impl CatalogueEntry {
    const fn default_here(self) -> Self {
        Self { is_default: true, ..self }
    }

    const fn without_thoughts(self) -> Self {
        Self { reasoning: false, ..self }
    }
}

/// OpenAI charges more for longer requests, in tokens.
const GPT_SHORT: u64 = 272_000;
/// Gemini's Pro models charge more for longer requests, in tokens.
const GEMINI_SHORT: u64 = 200_000;

pub(super) const MODELS: &[CatalogueEntry] = &[
    claude("claude-fable-5-1", 1_000_000, 128_000, usd(10.0, 50.0, 1.0, 12.5)),
    claude("claude-opus-5-5", 1_000_000, 128_000, usd(4.0, 20.0, 0.4, 5.0)),
    claude("claude-sonnet-5-5", 1_000_000, 128_000, usd(2.0, 10.0, 0.2, 2.5)).default_here(),
    // Beyond 100,000 tokens the price is five times as high, so the full window of a million and output of
    // 128,000 need an override.
    claude("claude-haiku-5-5", 100_000, 64_000, usd(0.1, 0.5, 0.01, 0.125)),
    claude("claude-opus-5", 1_000_000, 128_000, usd(5.0, 25.0, 0.5, 6.25)),
    claude("claude-sonnet-5", 1_000_000, 128_000, usd(2.0, 10.0, 0.2, 2.5)),
    claude("claude-sonnet-4-5", 200_000, 64_000, usd(3.0, 15.0, 0.3, 3.75)),
    claude("claude-haiku-4-5", 200_000, 64_000, usd(1.0, 5.0, 0.1, 1.25)),
    gpt("gpt-6-astra", GPT_SHORT, 128_000, usd(10.0, 50.0, 1.0, 12.5)),
    gpt("gpt-6.1-sol", GPT_SHORT, 128_000, usd(2.0, 10.0, 0.1, 2.5)).default_here(),
    gpt("gpt-6-sol", GPT_SHORT, 128_000, usd(2.0, 10.0, 0.2, 2.5)),
    gpt("gpt-6-luna", GPT_SHORT, 128_000, usd(0.1, 0.5, 0.01, 0.125)),
    // 4 and 20 dollars are a promotion until 2026-11-21; with the regular price, budgets still hold after it.
    gpt("gpt-5.6-sol", GPT_SHORT, 128_000, usd(5.0, 30.0, 0.5, 6.25)),
    gpt("gpt-5.6-terra", GPT_SHORT, 128_000, usd(2.0, 12.0, 0.2, 2.5)),
    gpt("gpt-5.6-luna", GPT_SHORT, 128_000, usd(0.2, 1.2, 0.02, 0.25)),
    // For the following models, writing to the cache costs as much as uncached input.
    gpt("gpt-5.5", GPT_SHORT, 128_000, usd(5.0, 30.0, 0.5, 5.0)),
    gpt("gpt-5.4", GPT_SHORT, 128_000, usd(2.5, 15.0, 0.25, 2.5)),
    gpt("gpt-5.4-mini", GPT_SHORT, 128_000, usd(0.75, 4.5, 0.075, 0.75)),
    gpt("gpt-5", 400_000, 128_000, usd(1.25, 10.0, 0.125, 1.25)),
    gpt("gpt-5-mini", 400_000, 128_000, usd(0.25, 2.0, 0.025, 0.25)),
    gpt("gpt-5-nano", 400_000, 128_000, usd(0.05, 0.4, 0.005, 0.05)),
    gpt("gpt-4.1", 1_047_576, 32_768, usd(2.0, 8.0, 0.5, 2.0)).without_thoughts(),
    gpt("gpt-4.1-mini", 1_047_576, 32_768, usd(0.4, 1.6, 0.1, 0.4)).without_thoughts(),
    gpt("gpt-4o", 128_000, 16_384, usd(2.5, 10.0, 1.25, 2.5)).without_thoughts(),
    gpt("gpt-4o-mini", 128_000, 16_384, usd(0.15, 0.6, 0.075, 0.15)).without_thoughts(),
    // The next two models cost half as much until the end of 2026.
    gemini("gemini-3.8-flash", 1_048_576, usd(1.5, 7.5, 0.15, 1.5)).default_here(),
    gemini("gemini-3.6-flash", 1_048_576, usd(1.5, 7.5, 0.15, 1.5)),
    gemini("gemini-3.5-flash", 1_048_576, usd(1.5, 9.0, 0.15, 1.5)),
    gemini("gemini-3.5-flash-lite", 1_048_576, usd(0.3, 2.5, 0.03, 0.3)),
    gemini("gemini-3.1-pro-preview", GEMINI_SHORT, usd(2.0, 12.0, 0.2, 2.0)),
    gemini("gemini-3.1-flash-lite", 1_048_576, usd(0.25, 1.5, 0.025, 0.25)),
    gemini("gemini-2.5-pro", GEMINI_SHORT, usd(1.25, 10.0, 0.125, 1.25)),
    gemini("gemini-2.5-flash", 1_048_576, usd(0.3, 2.5, 0.03, 0.3)),
    gemini("gemini-2.5-flash-lite", 1_048_576, usd(0.1, 0.4, 0.01, 0.1)),
];
