//! What is known of models, and how a name becomes one.

use adjutant_core::{Price, PriceOverride};
use adjutant_model::catalogue::{AS_OF_DAY, ModelOverride, catalogue};
use adjutant_model::wire::Wire;
use adjutant_model::{ModelSources, OpenModelError, ProviderConfig, Secret, open_model};

const FAKE: &str = "fake-key-for-tests";

fn vars(pairs: &'static [(&'static str, &'static str)]) -> ModelSources {
    ModelSources::from_vars(|name| {
        pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_figures_of_the_catalogue_are_consistent() {
    let mut names = std::collections::BTreeSet::new();
    for entry in catalogue().iter() {
        assert!(names.insert(entry.name()), "{} is listed twice", entry.name());
        assert!(entry.max_output < entry.window, "{}", entry.name());
        if let Some(price) = entry.price {
            assert!(price.cache_read < price.input, "{}", entry.name());
            assert!(price.input <= price.cache_write, "{}", entry.name());
            assert!(price.cache_write < price.output, "{}", entry.name());
        }
    }
    for provider in ["anthropic", "openai", "gemini"] {
        let defaults =
            catalogue().iter().filter(|entry| entry.provider == provider && entry.is_default);
        assert_eq!(defaults.count(), 1, "{provider}");
    }
}

#[test]
fn a_dated_name_is_found_and_an_unknown_one_gets_conservative_figures() {
    let find = |model| catalogue().find("anthropic", model).map(|entry| entry.model);
    assert_eq!(find("claude-haiku-4-5-20251001"), Some("claude-haiku-4-5"));
    assert_eq!(find("claude-haiku-4-5"), Some("claude-haiku-4-5"));
    assert_eq!(find("claude-haiku-4-5-turbo"), None);
    let unknown = ModelSources::default().describe("ollama", "llama4");
    assert!(unknown.assumed);
    assert_eq!((unknown.spec.window, unknown.spec.max_output), (32_000, 4_096));
    assert_eq!(unknown.spec.price, None);
}

#[test]
fn configured_figures_override_the_catalogue() {
    let price = Price { input: 1.0, output: 2.0, cache_read: 0.0, cache_write: 0.0 };
    let own_price =
        PriceOverride { input: Some(1.0), output: Some(2.0), ..PriceOverride::default() };
    let sources = ModelSources::default()
        .with_override(
            "ollama/llama4",
            ModelOverride { window: Some(8_000), max_output: Some(1_000), price: Some(own_price) },
        )
        .with_override(
            "anthropic/claude-haiku-5-5",
            ModelOverride { window: Some(1_000_000), ..ModelOverride::default() },
        );
    let own = sources.describe("ollama", "llama4");
    assert!(!own.assumed);
    assert_eq!((own.spec.window, own.spec.price), (8_000, Some(price)));
    let wider = sources.describe("anthropic", "claude-haiku-5-5");
    assert_eq!((wider.spec.window, wider.spec.max_output), (1_000_000, 64_000));
}

#[test]
fn a_single_price_is_replaced_and_the_others_stay() {
    let dearer = PriceOverride { output: Some(12.5), ..PriceOverride::default() };
    let own = ModelOverride { price: Some(dearer), ..ModelOverride::default() };
    let sources = ModelSources::default()
        .with_override("openai/gpt-5", own.clone())
        .with_override("ollama/llama4", own);
    let listed = catalogue().find("openai", "gpt-5").unwrap().price.unwrap();
    let price = sources.describe("openai", "gpt-5").spec.price;
    assert_eq!(price, Some(Price { output: 12.5, ..listed }));
    assert_eq!(sources.describe("ollama", "llama4").spec.price, None, "its input has no price");
}

#[test]
fn prices_are_stale_after_ninety_days() {
    for (days, expected) in [(0, None), (90, None), (91, Some(91)), (400, Some(400))] {
        let end_of_day = (AS_OF_DAY + days + 1) * 24 * 60 * 60 * 1000 - 1;
        assert_eq!(catalogue().stale_days(end_of_day), expected, "{days}");
    }
    assert_eq!(catalogue().stale_days(0), None, "a clock that is behind makes nothing stale");
}

#[test]
fn keys_and_addresses_come_from_the_usual_variables() {
    let sources = vars(&[
        ("GOOGLE_API_KEY", FAKE),
        ("OPENAI_API_KEY", "  "),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1\n"),
    ]);
    let with_keys: Vec<_> =
        sources.providers().filter(|known| known.key.is_some()).map(|known| &known.name).collect();
    assert_eq!(with_keys, ["gemini"]);
    assert_eq!(sources.default_model().as_deref(), Some("gemini/gemini-3.8-flash"));
    assert_eq!(sources.secrets(), [FAKE]);
    let openai = sources.provider("openai").unwrap();
    assert_eq!((openai.wire, openai.base_url.as_str()), (Wire::Chat, "http://127.0.0.1:1/v1"));
    // The address OpenAI has anyway is not somewhere else: its newest models take tools on
    // Responses alone.
    let said = vars(&[("OPENAI_BASE_URL", "https://eu.api.openai.com/")]);
    assert_eq!(said.provider("openai").unwrap().wire, Wire::Responses);
    assert_eq!(vars(&[]).provider("openai").unwrap().wire, Wire::Responses);
    assert_eq!(ModelSources::default().default_model(), None);
    assert!(!format!("{sources:?}").contains(FAKE));
}

#[test]
fn a_model_is_opened_by_its_name() {
    let sources = vars(&[("ANTHROPIC_API_KEY", FAKE), ("GEMINI_API_KEY", FAKE)]);
    for name in ["anthropic/claude-opus-5-5", "google/gemini-2.5-pro", "ollama/qwen3:8b"] {
        let model = open_model(name, &sources).unwrap();
        let shown = model.spec().name.replace("gemini/", "google/");
        assert_eq!(shown, name);
        assert!(!format!("{model:?}").contains(FAKE));
    }
}

#[test]
fn a_bare_model_name_suggests_the_providers_that_have_it_or_the_nearest_names() {
    let at_home = ModelSources::default().with_override("home/gpt-5", ModelOverride::default());
    for (sources, name, expected) in [
        (ModelSources::default(), "gpt-5", &["openai/gpt-5"][..]),
        (at_home, "gpt-5", &["openai/gpt-5", "home/gpt-5"]),
        (ModelSources::default(), "GPT-5-mini", &["openai/gpt-5-mini"]),
        (ModelSources::default(), "claude-haiku-4-5-20251001", &["anthropic/claude-haiku-4-5"]),
        (ModelSources::default(), "gpt5-mini", &["openai/gpt-5-mini"]),
        (
            ModelSources::default(),
            "haiku",
            &["anthropic/claude-haiku-5-5", "anthropic/claude-haiku-4-5"],
        ),
        (ModelSources::default(), "/gpt-5", &["openai/gpt-5"]),
        (ModelSources::default(), "qwen3", &[]),
        (ModelSources::default(), "", &[]),
    ] {
        let OpenModelError::Name { suggestions, .. } = open_model(name, &sources).unwrap_err()
        else {
            panic!("{name} is no provider/model")
        };
        assert_eq!(suggestions, expected, "{name}");
    }
}

#[test]
fn a_model_that_cannot_be_opened_says_why() {
    let local = |base_url: &str, key: Option<&str>| ProviderConfig {
        name: "home".to_owned(),
        wire: Wire::Chat,
        base_url: base_url.to_owned(),
        key: key.and_then(Secret::new),
        needs_key: false,
    };
    let fails =
        |name: &str, sources: &ModelSources| open_model(name, sources).unwrap_err().to_string();
    let bare = ModelSources::default();
    let home = |url| bare.clone().with_provider(local(url, None));
    let complaints = [
        fails("anthropic/claude-opus-5-5", &bare),
        fails("claude", &bare),
        fails("qwen3", &bare),
        fails("antropic/claude", &bare),
        fails("nobody/x", &bare),
        fails("ollama/../../admin", &bare),
        fails("ollama/a b", &bare),
        fails("home/x", &home("ftp://127.0.0.1/")),
        fails("home/x", &home("127.0.0.1:8080")),
        fails("home/x", &home("file:///etc/passwd")),
        fails("home/x", &home("http://me:fake-password@127.0.0.1/")),
        fails("home/x", &home("")),
        fails("home/x", &bare.clone().with_provider(local("http://a/", Some("fa\nke")))),
    ];
    insta::assert_snapshot!(complaints.join("\n"), @r##"
    Cannot spawn subagents: no API key for provider anthropic
    `claude` is not provider/model; did you mean anthropic/claude-fable-5-1 or anthropic/claude-opus-5-5 or anthropic/claude-sonnet-5-5 or anthropic/claude-haiku-5-5?
    `qwen3` is not provider/model; write it as in anthropic/claude-sonnet-5-5
    no provider `antropic`, did you mean anthropic; known are anthropic, openai, gemini, openrouter, ollama
    no provider `nobody`; known are anthropic, openai, gemini, openrouter, ollama
    the model name `../../admin` contains characters that are not allowed in a model name
    the model name `a b` contains characters that are not allowed in a model name
    the base URL of provider home is neither http nor https
    the base URL of provider home is no address
    the base URL of provider home is neither http nor https
    the base URL of provider home holds a user name or password; keys go elsewhere
    the base URL of provider home is no address
    the key of provider home contains characters that are not allowed in a key
    "##);
    assert_eq!(
        open_model("openai/gpt-5", &bare).unwrap_err(),
        OpenModelError::NoKey { provider: "openai".to_owned() }
    );
}
