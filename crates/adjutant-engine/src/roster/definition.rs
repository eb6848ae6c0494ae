//! Parsing a definition file into an [`AgentDefinition`].
//!
//! The keys of the products do not contradict each other, so one parser accepts them all: a key that limits an
//! agent in one format limits it in every format.

use adjutant_core::policy::Operation;
use adjutant_core::{ReasoningEffort, VerifyCommand};
use adjutant_formats::document::parse_toml;
use adjutant_formats::fields::{FieldFault, FieldProblem, FieldReader, FieldValue, did_you_mean};
use serde_json::Value;

use crate::workspaces::why_not_kept;

use super::tools::{allow, forbid, permit};
use super::{
    AgentDefinition, DefinedVerify, DefinitionLimits, DefinitionScope, MAX_KEYS, RequestedTools,
    SourceProduct, agent_name, front_matter,
};

/// Keys that would grant rights or reach other programs; they are ignored with a warning.
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

/// Keys of the products that have no meaning in Adjutant.
const UNUSED: [&str; 21] = [
    "background",
    "category",
    "color",
    "display_name",
    "emoji",
    "hidden",
    "icon",
    "initialPrompt",
    "isolation",
    "memory",
    "metadata",
    "model_verbosity",
    "nickname_candidates",
    "options",
    "skills",
    "tags",
    "temperature",
    "top_p",
    "variant",
    "version",
    "vibe",
];

/// Keys that are read; also the candidates for "did you mean".
const READ: [&str; 25] = [
    "name",
    "description",
    "prompt",
    "developer_instructions",
    "tools",
    "disallowedTools",
    "permission",
    "permissionMode",
    "model",
    "effort",
    "model_reasoning_effort",
    "reasoningEffort",
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

/// Keys under `adjutant:` about who does the work and how it is verified.
const WORKING: [&str; 3] = ["worker", "verify", "verify_keep"];

/// The tools that a read-only agent does not get.
const WRITING: [&str; 3] = ["Edit", "Write", "Run"];

/// Parses a definition file, or returns why it cannot be used.
pub(crate) fn definition(
    product: SourceProduct,
    scope: DefinitionScope,
    file: &str,
    stem: &str,
    text: &str,
) -> Result<AgentDefinition, String> {
    let (keys, body) = match product {
        SourceProduct::Codex => (toml_keys(text)?, ""),
        SourceProduct::Claude
        | SourceProduct::Opencode
        | SourceProduct::Gemini
        | SourceProduct::Adjutant => {
            let (front, body) = front_matter::split(text)?;
            (front_matter::read(front)?, body)
        }
    };
    let count = keys.duplicates.len() + count_keys(&keys.keys);
    if count > MAX_KEYS {
        return Err(format!("it has {count} keys, allowed are {MAX_KEYS}"));
    }
    let mut sheet = DefinitionFields::new(&keys, &READ)?;
    sheet.check_kind()?;
    let name = agent_name(&sheet.text("name").unwrap_or_else(|| stem.to_owned()))?;
    let description = sheet.text("description").unwrap_or_default();
    if description.is_empty() {
        sheet.ignore(
            "there is no `description`, so other agents are not told when to use it".to_owned(),
        );
    }
    let prompt = sheet.prompt(body)?;
    let tools = sheet.tools();
    let limits = sheet.limits();
    let model = sheet.text("model").and_then(|model| qualified_model(product, &model));
    let effort = sheet.effort();
    let takes_tasks = sheet.text("mode").is_none_or(|mode| mode != "primary");
    let (mut tools, mut limits) = (tools, limits);
    sheet.read_adjutant_limits(&mut tools, &mut limits, &WORKING);
    let worker = sheet.worker();
    let verify = sheet.verify();
    sheet.report_unknown_keys(&UNUSED, &READ);
    Ok(AgentDefinition {
        name,
        description,
        prompt,
        tools,
        model,
        model_is_theirs: scope == DefinitionScope::User,
        effort,
        effort_is_theirs: effort.is_some() && scope != DefinitionScope::Project,
        limits,
        verify: verify
            .map(|verify| DefinedVerify { verify, is_allowed: scope != DefinitionScope::Project }),
        worker,
        takes_tasks,
        file: file.to_owned(),
        scope,
        product,
        ceiling: None,
        ignored: sheet.ignored,
    })
}

/// Counts the keys within a value. The recursion is bounded by the depth limit of the parser.
fn count_keys(value: &Value) -> usize {
    match value {
        Value::Object(keys) => keys.values().map(|value| 1 + count_keys(value)).sum(),
        Value::Array(values) => values.iter().map(count_keys).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn toml_keys(text: &str) -> Result<front_matter::FrontMatter, String> {
    let document =
        parse_toml(text).map_err(|error| format!("its TOML is broken: {}", error.reason))?;
    let keys = FieldValue::Text(&document, text).to_json();
    Ok(front_matter::FrontMatter { keys, duplicates: Vec::new() })
}

/// The keys of a definition file, and the messages about those that are ignored.
pub(crate) struct DefinitionFields<'a> {
    pub(crate) fields: FieldReader<'a>,
    pub(crate) ignored: Vec<String>,
}

impl<'a> DefinitionFields<'a> {
    /// Wraps the keys of a file. A duplicate of a key in `known` is an error.
    pub(crate) fn new(
        front: &'a front_matter::FrontMatter,
        known: &[&str],
    ) -> Result<Self, String> {
        let fields = FieldReader::new((&front.keys).into(), "");
        let fields = fields.map_err(|problem| format!("its front matter {problem}"))?;
        let mut sheet = Self { fields, ignored: Vec::new() };
        for key in &front.duplicates {
            // With two values for a limit, the looser one must not win.
            if known.contains(&key.as_str()) {
                return Err(format!("it holds `{key}` twice"));
            }
            sheet.ignore(format!("`{key}` occurs more than once; the first value is used"));
        }
        Ok(sheet)
    }

    pub(crate) fn ignore(&mut self, what: String) {
        self.ignored.push(what);
    }

    /// Returns the value, or records the fault and ignores the key.
    pub(crate) fn keep<T>(&mut self, read: Result<Option<T>, FieldFault>) -> Option<T> {
        read.unwrap_or_else(|fault| {
            self.ignore(fault.to_string());
            None
        })
    }

    /// Reads a string. A number or boolean is converted to its text.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        let text = self.fields.optional(key, |value| match value.to_json() {
            Value::String(text) => Ok(text.trim().to_owned()),
            scalar @ (Value::Bool(_) | Value::Number(_)) => Ok(scalar.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(value.mismatch("a string")),
        });
        self.keep(text)
    }

    /// Reads a positive number, multiplies it by `unit` and rounds up.
    pub(crate) fn amount(&mut self, key: &str, unit: f64) -> Option<u64> {
        let amount = self.fields.optional(key, |value| amount(value, unit));
        self.keep(amount)
    }

    /// Reads an object.
    pub(crate) fn object(&mut self, key: &str) -> Option<FieldReader<'a>> {
        let within = self.fields.optional(key, |value| FieldReader::new(value, key));
        self.keep(within)
    }

    fn is_true(&self, key: &str) -> bool {
        self.fields.get(key).is_some_and(|value| value.boolean() == Ok(true))
    }

    /// Fails for a remote agent and for a definition that is disabled.
    pub(crate) fn check_kind(&mut self) -> Result<(), String> {
        if self.text("kind").is_some_and(|kind| kind != "local") {
            return Err("it describes an agent on another machine".into());
        }
        if self.is_true("disable") || self.is_true("disabled") {
            return Err("it is disabled by its own `disable`".into());
        }
        Ok(())
    }

    fn prompt(&mut self, body: &str) -> Result<String, String> {
        let keyed = [self.text("developer_instructions"), self.text("prompt")];
        let texts = std::iter::once(body.trim().to_owned()).chain(keyed.into_iter().flatten());
        let prompt = texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        if prompt.is_empty() {
            return Err("its prompt is empty".into());
        }
        if prompt.starts_with("{file:") {
            return Err("its prompt is another file, which is not read".into());
        }
        Ok(prompt)
    }

    fn tools(&mut self) -> RequestedTools {
        let mut wished = RequestedTools::default();
        for (key, take) in [
            ("tools", allow as fn(&mut RequestedTools, &str, &Value, &mut Vec<String>)),
            ("disallowedTools", forbid),
            ("permission", permit),
        ] {
            if let Some(value) = self.fields.non_null(key) {
                take(&mut wished, key, &value.to_json(), &mut self.ignored);
            }
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

    /// Reads the reasoning effort. A level that only some products have counts as the nearest one that is not higher,
    /// or as the lowest.
    fn effort(&mut self) -> Option<ReasoningEffort> {
        let mut lowest = None;
        for key in ["effort", "model_reasoning_effort", "reasoningEffort"] {
            let effort = match self.text(key).as_deref() {
                None => continue,
                Some("none" | "minimal") => Ok(ReasoningEffort::Low),
                Some("xhigh") => Ok(ReasoningEffort::High),
                Some(word) => ReasoningEffort::parse(word),
            };
            match effort {
                Ok(effort) => lowest = lowest.into_iter().chain([effort]).min(),
                Err(problem) => self.ignore(format!("`{key}`: {problem}")),
            }
        }
        lowest
    }

    fn limits(&mut self) -> DefinitionLimits {
        let mut limits = DefinitionLimits::default();
        for key in ["maxTurns", "max_turns", "steps", "maxSteps"] {
            let max_turns = self.amount(key, 1.0).map(turns);
            limits.tighten(&DefinitionLimits { max_turns, ..DefinitionLimits::default() });
        }
        for (key, unit) in [("timeout_mins", 60.0), ("timeout_s", 1.0)] {
            let timeout_s = self.amount(key, unit);
            limits.tighten(&DefinitionLimits { timeout_s, ..DefinitionLimits::default() });
        }
        limits
    }

    /// Reads the limits under `adjutant:`. The keys in `others` are read elsewhere.
    pub(crate) fn read_adjutant_limits(
        &mut self,
        wished: &mut RequestedTools,
        limits: &mut DefinitionLimits,
        others: &[&str],
    ) {
        let Some(fields) = self.object("adjutant") else { return };
        if let Some(value) = fields.get("tools") {
            allow(wished, "adjutant.tools", &value.to_json(), &mut self.ignored);
        }
        let mut bound = |key| self.keep(fields.read(key, |value| amount(value, 1.0)));
        let mut own = DefinitionLimits {
            max_turns: bound("max_turns").map(turns),
            timeout_s: bound("timeout_s"),
            max_output_tokens: bound("max_output_tokens"),
            ..DefinitionLimits::default()
        };
        if let Some(value) = fields.get("operation") {
            match value.string().map(|word| Operation::parse(&word)) {
                Err(_) | Ok(Operation::Unknown) => {
                    let value = value.to_json();
                    self.ignore(format!("`adjutant.operation`: {value} is not known"));
                }
                Ok(operation) => own.operation = Some(operation),
            }
        }
        let required = self.keep(fields.read("artifacts_required", FieldValue::boolean));
        own.artifacts_required = required.unwrap_or_default();
        match fields.get("network").map(FieldValue::boolean) {
            None => {}
            Some(Ok(false)) => own.offline = true,
            Some(Ok(true) | Err(_)) => {
                self.ignore("`adjutant.network`: a file can only take the network away".to_owned());
            }
        }
        limits.tighten(&own);
        for field in fields.unknown(&[&BOUNDS, others].concat()) {
            let (key, meant) = (&field.name, did_you_mean(&field.name, &BOUNDS));
            self.ignore(format!("`adjutant.{key}`: unknown{meant}"));
        }
    }

    /// Reads the name of the external agent under `adjutant:`.
    fn worker(&mut self) -> Option<String> {
        let fields = self.object("adjutant")?;
        self.keep(fields.read("worker", FieldValue::non_blank_string)).map(Into::into)
    }

    /// Reads the verify command under `adjutant:`.
    fn verify(&mut self) -> Option<VerifyCommand> {
        let fields = self.object("adjutant")?;
        let command = self.keep(fields.read("verify", FieldValue::non_blank_string));
        let keep = match fields.non_null("verify_keep") {
            None => Some(Vec::new()),
            Some(value) => self.keep(globs(&fields, value)),
        };
        match (command, keep) {
            (Some(command), Some(keep)) => Some(VerifyCommand { command: command.into(), keep }),
            (None, Some(keep)) if !keep.is_empty() => {
                self.ignore("`adjutant.verify_keep`: there is no `verify`".to_owned());
                None
            }
            // A command without its kept files would not verify what was meant.
            (Some(_) | None, _) => None,
        }
    }

    /// Adds a message for every key that is not known.
    pub(crate) fn report_unknown_keys(&mut self, unused: &[&str], known: &[&str]) {
        let mut unknown = self.fields.unknown(known);
        unknown.sort_by(|one, other| one.name.cmp(&other.name));
        for key in unknown.iter().map(|field| &*field.name) {
            self.ignored.push(if GRANTING.contains(&key) {
                format!("`{key}`: a file cannot grant this")
            } else if unused.contains(&key) {
                format!("`{key}`: not used")
            } else {
                format!("`{key}`: unknown{}", did_you_mean(key, known))
            });
        }
    }
}

/// Reads one glob or a list of globs.
fn globs(
    fields: &FieldReader<'_>,
    value: FieldValue<'_>,
) -> Result<Option<Vec<String>>, FieldFault> {
    let globs = match value.to_json() {
        Value::String(glob) => vec![glob],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let read = fields.read_items("verify_keep", |item| item.string().map(String::from));
            read.map_err(|mut faults| faults.remove(0))?
        }
    };
    match why_not_kept(&globs) {
        None => Ok(Some(globs)),
        Some(why) => Err(fields.fault("verify_keep", why)),
    }
}

fn turns(amount: u64) -> u32 {
    u32::try_from(amount).unwrap_or(u32::MAX)
}

fn amount(value: FieldValue<'_>, unit: f64) -> Result<u64, FieldProblem> {
    let number = value.number().ok().or_else(|| value.string().ok()?.trim().parse().ok());
    let amount = number.map(|number: f64| (number * unit).ceil());
    let amount = amount.filter(|amount| amount.is_finite() && *amount >= 1.0);
    let amount = amount.map(|amount| amount as u64);
    amount.ok_or_else(|| value.unfit_as_written("a number above zero"))
}

/// Returns a model as `provider/model` where the provider is clear; `None` if the file inherits the caller's.
pub(crate) fn qualified_model(product: SourceProduct, model: &str) -> Option<String> {
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
        SourceProduct::Codex => "openai",
        _ if model.starts_with("gpt-") => "openai",
        SourceProduct::Claude
        | SourceProduct::Opencode
        | SourceProduct::Gemini
        | SourceProduct::Adjutant => {
            return Some(model.to_owned());
        }
    };
    Some(format!("{provider}/{model}"))
}
