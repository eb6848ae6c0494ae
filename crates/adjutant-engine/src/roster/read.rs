//! From the keys of a file to a definition.
//!
//! The products' keys do not contradict each other, so one reader takes them all: what bounds an agent
//! in one format bounds it in another.

use adjutant_core::nearest;
use adjutant_core::policy::Operation;
use serde_json::{Map, Value};

use super::tools::{allow, forbid, permit};
use super::{Definition, Limits, MAX_KEYS, Product, Scope, Wished, agent_name, yaml};

/// Keys by which a file would reach beyond itself; none of them counts.
const GRANTING: [&str; 16] = [
    "hooks",
    "mcpServers",
    "mcp_servers",
    "mcp",
    "base_url",
    "baseURL",
    "api_key",
    "apiKey",
    "headers",
    "auth",
    "env",
    "approval_policy",
    "network",
    "allow",
    "sandbox",
    "plugin",
];

/// Keys of the products that mean nothing here.
const UNUSED: [&str; 24] = [
    "background",
    "category",
    "color",
    "display_name",
    "effort",
    "emoji",
    "hidden",
    "icon",
    "initialPrompt",
    "isolation",
    "memory",
    "metadata",
    "model_reasoning_effort",
    "model_verbosity",
    "nickname_candidates",
    "options",
    "reasoningEffort",
    "skills",
    "tags",
    "temperature",
    "top_p",
    "variant",
    "version",
    "vibe",
];

/// Keys that are read; for guessing what a stranger was meant to be.
const READ: [&str; 22] = [
    "name",
    "description",
    "prompt",
    "developer_instructions",
    "tools",
    "disallowedTools",
    "permission",
    "permissionMode",
    "model",
    "maxTurns",
    "max_turns",
    "steps",
    "maxSteps",
    "timeout_mins",
    "timeout_s",
    "sandbox_mode",
    "web_search",
    "mode",
    "kind",
    "disable",
    "disabled",
    "adjutant",
];

/// Keys under `adjutant:`.
const BOUNDS: [&str; 7] = [
    "tools",
    "max_turns",
    "timeout_s",
    "max_output_tokens",
    "operation",
    "artifacts_required",
    "network",
];

/// Tools an agent without the right to write does without.
const WRITING: [&str; 3] = ["Edit", "Write", "Run"];

/// Reads a file, or says why nothing can be made of it.
pub(crate) fn definition(
    product: Product,
    scope: Scope,
    file: &str,
    stem: &str,
    text: &str,
) -> Result<Definition, String> {
    let (keys, body) = match product {
        Product::Codex => (toml_keys(text)?, ""),
        Product::Claude | Product::Opencode | Product::Gemini | Product::Adjutant => {
            let (front, body) = yaml::split(text)?;
            (yaml::read(front)?, body)
        }
    };
    let count = keys.again.len() + keys.keys.values().map(|value| 1 + within(value)).sum::<usize>();
    if count > MAX_KEYS {
        return Err(format!("it has {count} keys, allowed are {MAX_KEYS}"));
    }
    let mut sheet = Sheet { keys: keys.keys, ignored: Vec::new() };
    for key in keys.again {
        // A bound that is there twice has two meanings, and the looser one must not win.
        if READ.contains(&key.as_str()) {
            return Err(format!("it holds `{key}` twice"));
        }
        sheet.ignore(format!("`{key}` is there more than once"));
    }
    sheet.check_kind()?;
    let name = agent_name(&sheet.text("name").unwrap_or_else(|| stem.to_owned()))?;
    let description = sheet.text("description").unwrap_or_default();
    if description.is_empty() {
        sheet.ignore("there is no `description`, so nobody is told when to use it".to_owned());
    }
    let prompt = sheet.prompt(body)?;
    let tools = sheet.tools();
    let limits = sheet.limits();
    let model = sheet.text("model").and_then(|model| spelled(product, &model));
    let takes_tasks = sheet.text("mode").is_none_or(|mode| mode != "primary");
    let (mut tools, mut limits) = (tools, limits);
    sheet.own_bounds(&mut tools, &mut limits);
    sheet.name_the_rest(&UNUSED, &READ);
    Ok(Definition {
        name,
        description,
        prompt,
        tools,
        model,
        model_is_theirs: scope == Scope::User,
        limits,
        takes_tasks,
        file: file.to_owned(),
        scope,
        product,
        ceiling: None,
        ignored: sheet.ignored,
    })
}

/// Counts the keys within a value; how deep it nests was bounded when it was read.
fn within(value: &Value) -> usize {
    match value {
        Value::Object(keys) => keys.values().map(|value| 1 + within(value)).sum(),
        Value::Array(values) => values.iter().map(within).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn toml_keys(text: &str) -> Result<yaml::Front, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let message = error.message().lines().next().unwrap_or_default().to_owned();
        format!("its TOML is broken: {message}")
    })?;
    let keys: serde_json::Result<Map<String, Value>> =
        table.into_iter().map(|(key, value)| Ok((key, serde_json::to_value(value)?))).collect();
    let keys = keys.map_err(|error| format!("its TOML is broken: {error}"))?;
    Ok(yaml::Front { keys, again: Vec::new() })
}

/// The keys of a file that have not been read yet, and what was said about the others.
pub(crate) struct Sheet {
    pub(crate) keys: Map<String, Value>,
    pub(crate) ignored: Vec<String>,
}

impl Sheet {
    pub(crate) fn ignore(&mut self, what: String) {
        self.ignored.push(what);
    }

    /// Takes a text; a number or a word such as `true` is one too.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        match self.keys.remove(key)? {
            Value::String(text) => Some(text.trim().to_owned()),
            value @ (Value::Bool(_) | Value::Number(_)) => Some(value.to_string()),
            Value::Null => None,
            Value::Array(_) | Value::Object(_) => {
                self.ignore(format!("`{key}` is not a text"));
                None
            }
        }
    }

    /// Takes a number above zero, times `unit`, rounded up.
    pub(crate) fn amount(&mut self, key: &str, unit: f64) -> Option<u64> {
        let value = self.keys.remove(key)?;
        let amount = amount(&value, unit);
        if amount.is_none() && !value.is_null() {
            self.ignore(format!("`{key}` is not a number above zero"));
        }
        amount
    }

    fn is_true(&mut self, key: &str) -> bool {
        self.keys.remove(key).is_some_and(|value| value == Value::Bool(true))
    }

    /// Files that describe no agent of this machine, or one that is switched off.
    pub(crate) fn check_kind(&mut self) -> Result<(), String> {
        if self.text("kind").is_some_and(|kind| kind != "local") {
            return Err("it describes an agent on another machine".into());
        }
        if self.is_true("disable") || self.is_true("disabled") {
            return Err("it is switched off by its own `disable`".into());
        }
        Ok(())
    }

    fn prompt(&mut self, body: &str) -> Result<String, String> {
        let keyed = [self.text("developer_instructions"), self.text("prompt")];
        let texts = std::iter::once(body.trim().to_owned()).chain(keyed.into_iter().flatten());
        let prompt = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        if prompt.is_empty() {
            return Err("it says nothing to its agent: the prompt is empty".into());
        }
        if prompt.starts_with("{file:") {
            return Err("its prompt is another file, which is not read".into());
        }
        Ok(prompt)
    }

    fn tools(&mut self) -> Wished {
        let mut wished = Wished::default();
        if let Some(value) = self.keys.remove("tools").filter(|value| !value.is_null()) {
            allow(&mut wished, "tools", &value, &mut self.ignored);
        }
        if let Some(value) = self.keys.remove("disallowedTools") {
            forbid(&mut wished, "disallowedTools", &value, &mut self.ignored);
        }
        if let Some(value) = self.keys.remove("permission").filter(|value| !value.is_null()) {
            permit(&mut wished, "permission", &value, &mut self.ignored);
        }
        match self.text("permissionMode").as_deref() {
            None | Some("default") => {}
            Some("plan") => wished.deny(WRITING),
            Some(mode) => {
                self.ignore(format!("`permissionMode: {mode}`: a file cannot grant this"))
            }
        }
        match self.text("sandbox_mode").as_deref() {
            None | Some("workspace-write") => {}
            Some("read-only") => wished.deny(WRITING),
            Some(mode) => self.ignore(format!("`sandbox_mode: {mode}`: a file cannot grant this")),
        }
        match self.text("web_search").as_deref() {
            Some("disabled" | "false") => wished.deny(["WebSearch"]),
            Some(word) => self.ignore(format!("`web_search: {word}`: a file cannot grant this")),
            None => {}
        }
        wished
    }

    fn limits(&mut self) -> Limits {
        let mut limits = Limits::default();
        for key in ["maxTurns", "max_turns", "steps", "maxSteps"] {
            let max_turns = self.amount(key, 1.0).map(turns);
            limits.tighten(&Limits { max_turns, ..Limits::default() });
        }
        for (key, unit) in [("timeout_mins", 60.0), ("timeout_s", 1.0)] {
            let timeout_s = self.amount(key, unit);
            limits.tighten(&Limits { timeout_s, ..Limits::default() });
        }
        limits
    }

    /// Reads what stands under `adjutant:`.
    pub(crate) fn own_bounds(&mut self, wished: &mut Wished, limits: &mut Limits) {
        let mut keys = match self.keys.remove("adjutant") {
            None | Some(Value::Null) => return,
            Some(Value::Object(keys)) => keys,
            Some(_) => return self.ignore("`adjutant` is not a list of keys".to_owned()),
        };
        if let Some(value) = keys.remove("tools") {
            allow(wished, "adjutant.tools", &value, &mut self.ignored);
        }
        let mut own = Limits::default();
        for key in ["max_turns", "timeout_s", "max_output_tokens"] {
            let Some(value) = keys.remove(key) else { continue };
            let Some(amount) = amount(&value, 1.0) else {
                self.ignore(format!("`adjutant.{key}` is not a number above zero"));
                continue;
            };
            match key {
                "max_turns" => own.max_turns = Some(turns(amount)),
                "timeout_s" => own.timeout_s = Some(amount),
                _ => own.max_output_tokens = Some(amount),
            }
        }
        if let Some(value) = keys.remove("operation") {
            match value.as_str().map(Operation::parse) {
                None | Some(Operation::Unknown) => {
                    self.ignore(format!("`adjutant.operation`: {value} is not known"));
                }
                operation => own.operation = operation,
            }
        }
        match keys.remove("artifacts_required") {
            Some(Value::Bool(required)) => own.artifacts_required = required,
            Some(_) => self.ignore("`adjutant.artifacts_required` is not true or false".to_owned()),
            None => {}
        }
        match keys.remove("network") {
            Some(Value::Bool(false)) => own.offline = true,
            Some(_) => {
                self.ignore("`adjutant.network`: a file can only take the network away".to_owned())
            }
            None => {}
        }
        limits.tighten(&own);
        for key in keys.keys() {
            self.ignored.push(format!("`adjutant.{key}`: unknown{}", hint(key, &BOUNDS)));
        }
    }

    /// Says of every key that is left that it counts for nothing.
    pub(crate) fn name_the_rest(&mut self, unused: &[&str], known: &[&str]) {
        let mut keys: Vec<&str> = self.keys.keys().map(String::as_str).collect();
        keys.sort_unstable();
        for key in keys {
            self.ignored.push(if GRANTING.contains(&key) {
                format!("`{key}`: a file cannot grant this")
            } else if unused.contains(&key) {
                format!("`{key}`: not used")
            } else {
                format!("`{key}`: unknown{}", hint(key, known))
            });
        }
    }
}

/// Returns what an unknown word was probably meant to be, as the end of a sentence.
pub(crate) fn hint(key: &str, known: &[&str]) -> String {
    nearest(key, known.iter().copied())
        .map_or_else(String::new, |known| format!(", did you mean `{known}`?"))
}

fn turns(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

fn amount(value: &Value, unit: f64) -> Option<u64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    let amount = (number * unit).ceil();
    (amount.is_finite() && amount >= 1.0).then_some(amount as u64)
}

/// Returns a model in our spelling; `None` where the file leaves it to the caller.
pub(crate) fn spelled(product: Product, model: &str) -> Option<String> {
    let model = model.trim();
    if matches!(model, "" | "inherit" | "default") {
        return None;
    }
    if let Some(rest) = model.strip_prefix("google/") {
        return Some(format!("gemini/{rest}"));
    }
    let is_short = matches!(model, "sonnet" | "opus" | "haiku");
    if is_short || model.contains(['/', ':']) {
        return Some(model.to_owned());
    }
    let provider = match product {
        _ if model.starts_with("claude-") => "anthropic",
        _ if model.starts_with("gemini-") => "gemini",
        Product::Codex => "openai",
        _ if model.starts_with("gpt-") => "openai",
        Product::Claude | Product::Opencode | Product::Gemini | Product::Adjutant => {
            return Some(model.to_owned());
        }
    };
    Some(format!("{provider}/{model}"))
}
