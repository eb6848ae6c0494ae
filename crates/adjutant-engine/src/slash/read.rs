//! Parsing a command file into a [`SlashCommand`].
//!
//! Front matter is optional. A file of opencode or Adjutant that replaces a built-in command inherits its argument
//! form and routing. Claude Code has neither, so its files inherit nothing.

use std::collections::BTreeMap;

use adjutant_core::policy::Operation;
use adjutant_core::schema::CallLimits;
use adjutant_formats::contract::ORCHESTRATOR;
use adjutant_formats::fields::{FieldReader, FieldValue, did_you_mean};
use serde_json::Value;

use super::arguments::ArgumentForm;
use super::route::CommandFileRoutes;
use super::{SlashCommand, builtin, fill};
use crate::roster::{
    AgentDefinition, DefinitionFields, DefinitionFile, DefinitionLimits, DefinitionScope,
    FrontMatter, RequestedTools, SourceProduct, agent_name, allow, qualified_model, read_front,
    split,
};

/// Keys that are read; also the candidates for "did you mean".
const READ: [&str; 16] = [
    "name",
    "description",
    "agent",
    "language",
    "routing",
    "timeout",
    "argument-hint",
    "argument_hint",
    "allowed-tools",
    "tools",
    "model",
    "disable",
    "disabled",
    "kind",
    "context_loading",
    "adjutant",
];

/// Keys of the products that have no meaning in Adjutant.
const UNUSED: [&str; 13] = [
    "agents",
    "author",
    "category",
    "color",
    "context",
    "context_level",
    "disable-model-invocation",
    "hide-from-slash-command-tool",
    "subtask",
    "tags",
    "title",
    "user-invocable",
    "version",
];

/// Keys of `context_loading` that name context files.
const CONTEXT_KEYS: [&str; 3] = ["required", "data_files", "index"];

/// The most characters of the first line that is used as description if there is none.
const DESCRIPTION_CHARS: usize = 160;

/// Returns the name of a command by its path, including subfolders.
pub(super) fn name_of(leaf: &DefinitionFile) -> String {
    let between = if leaf.product == SourceProduct::Claude { ":" } else { "/" };
    let path = leaf.within.with_extension("");
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts.iter().filter(|part| *part != ".").map(AsRef::as_ref).collect::<Vec<_>>().join(between)
}

/// Parses a command file, or returns why it cannot be used.
pub(super) fn command(leaf: &DefinitionFile, text: &str) -> Result<SlashCommand, String> {
    let (front, body) = parts(text)?;
    let mut sheet = DefinitionFields::new(&front, &READ)?;
    sheet.check_kind()?;
    let name = sheet.text("name").unwrap_or_else(|| name_of(leaf));
    let name = agent_name(name.trim_start_matches('/'))?;
    if name.as_str().contains(char::is_whitespace) {
        return Err(format!("its name `{name}` holds a space; name it with -"));
    }
    let body = body.trim();
    if body.is_empty() {
        return Err("its body is empty".into());
    }
    let description = sheet.text("description").unwrap_or_else(|| first_line(body));
    let (form, hint, routing) = sheet.form_hint_and_routing(leaf.product, name.as_str());
    let mut tools = sheet.read_tools();
    let model = sheet.text("model").and_then(|model| qualified_model(leaf.product, &model));
    let language = sheet.text("language").filter(|word| word != "varies");
    let mut limits =
        DefinitionLimits { timeout_s: sheet.amount("timeout", 1.0), ..DefinitionLimits::default() };
    sheet.read_adjutant_limits(&mut tools, &mut limits, &["arguments"]);
    // Work on a task of the list must produce a file.
    limits.artifacts_required |= replaces_task_command(leaf.product, name.as_str());
    let context = sheet.context_files();
    sheet.limit_timeout(leaf.scope, name.as_str(), &mut limits);
    sheet.report_unknown_keys(&UNUSED, &READ);
    sheet.ignored.extend(fill::syntax_left_as_text(body));
    if routing.names_someone() {
        keep_task(&mut tools);
    }
    let definition = AgentDefinition {
        name,
        description,
        prompt: body.to_owned(),
        tools,
        model,
        model_is_theirs: leaf.scope == DefinitionScope::User,
        effort: None,
        effort_is_theirs: false,
        limits,
        verify: None,
        worker: None,
        takes_tasks: false,
        file: leaf.file.clone(),
        scope: leaf.scope,
        product: leaf.product,
        ceiling: None,
        ignored: sheet.ignored,
    };
    let language = language.map(|word| word.to_lowercase());
    Ok(SlashCommand { definition, form, hint, language, routing, context, is_ours: false })
}

/// Splits a file into front matter and body. A file that does not begin with `---` has only a body.
fn parts(text: &str) -> Result<(FrontMatter, &str), String> {
    let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
    if plain.lines().next().is_none_or(|first| first.trim_end() != "---") {
        return Ok((read_front("")?, plain));
    }
    let (front, body) = split(plain)?;
    Ok((read_front(front)?, body))
}

fn first_line(body: &str) -> String {
    let line = body.lines().map(|line| line.trim_start_matches('#').trim());
    line.filter(|line| !line.is_empty())
        .take(1)
        .flat_map(|line| line.chars().take(DESCRIPTION_CHARS))
        .collect()
}

/// Adds the Task tool, which a command needs to delegate, even if the file's list leaves it out.
fn keep_task(tools: &mut RequestedTools) {
    if let Some(allowed) = &mut tools.allowed {
        *allowed = adjutant_core::ToolSet::new(allowed.iter().chain(["Task"]));
    }
}

/// Reads `adjutant.arguments`, the form of a command's arguments.
fn own_form(sheet: &mut DefinitionFields<'_>) -> Option<ArgumentForm> {
    let forms = [
        ("free", ArgumentForm::Free),
        ("text", ArgumentForm::Text(&[])),
        ("task", ArgumentForm::Task(&[])),
        ("tasks", ArgumentForm::Tasks),
    ];
    // Other problems under `adjutant` are reported by `read_adjutant_limits`.
    let own = FieldReader::new(sheet.fields.non_null("adjutant")?, "adjutant").ok()?;
    sheet.keep(own.read("arguments", |value| value.choice(&forms)))
}

/// Returns whether a command replaces a built-in one that works on tasks of the list.
fn replaces_task_command(product: SourceProduct, name: &str) -> bool {
    let is_task = |built_in: &builtin::BuiltinCommand| {
        matches!(built_in.form, ArgumentForm::Task(_) | ArgumentForm::Tasks)
    };
    inherits_built_in(product) && builtin::find(name).is_some_and(is_task)
}

const fn inherits_built_in(product: SourceProduct) -> bool {
    matches!(product, SourceProduct::Opencode | SourceProduct::Adjutant)
}

impl DefinitionFields<'_> {
    /// Reads argument form, hint and routing; what is missing is inherited from the built-in command.
    fn form_hint_and_routing(
        &mut self,
        product: SourceProduct,
        name: &str,
    ) -> (ArgumentForm, Option<String>, CommandFileRoutes) {
        let (own_form, mut hint, mut routing) = (own_form(self), self.hint(), self.routing());
        let built_in = builtin::find(name).filter(|_| inherits_built_in(product));
        if let Some(built_in) = built_in {
            routing.inherit_routing(built_in);
            hint = hint.or_else(|| own_form.is_none().then(|| built_in.hint.to_owned()));
        }
        let form = own_form.or_else(|| built_in.map(builtin::BuiltinCommand::form_for_files));
        (form.unwrap_or(ArgumentForm::Free), hint.filter(|hint| !hint.is_empty()), routing)
    }

    /// Reads the tools.
    fn read_tools(&mut self) -> RequestedTools {
        let mut tools = RequestedTools::default();
        for key in ["allowed-tools", "tools"] {
            if let Some(value) = self.fields.non_null(key) {
                allow(&mut tools, key, &value.to_json(), &mut self.ignored);
            }
        }
        tools
    }

    /// Reads the argument hint. People write `[topic]`, which is a list in YAML.
    fn hint(&self) -> Option<String> {
        let keys = ["argument-hint", "argument_hint"];
        let value = keys.into_iter().find_map(|key| self.fields.get(key))?;
        match value.to_json() {
            Value::Array(parts) => {
                let parts = parts.iter().map(|part| part.as_str().unwrap_or("…"));
                Some(format!("[{}]", parts.collect::<Vec<_>>().join(", ")))
            }
            Value::String(text) => Some(text.trim().to_owned()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        }
    }

    /// Reads the context files of `context_loading`, relative to the root: `data_files`, and `required`, which are
    /// relative to the folder of `index` if there is one.
    fn context_files(&mut self) -> Vec<String> {
        let Some(keys) = self.object("context_loading") else { return Vec::new() };
        let index = keys.get("index").and_then(|index| index.string().ok());
        let folder = index.as_deref().and_then(|index| index.rsplit_once('/'));
        let folder = folder.map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
        let mut files: Vec<String> = Vec::new();
        for (key, folder) in [("required", folder.as_str()), ("data_files", "")] {
            let paths = keys.read_items(key, FieldValue::string).unwrap_or_else(|faults| {
                self.ignored.extend(faults.iter().map(ToString::to_string));
                Vec::new()
            });
            for path in paths {
                let is_whole = path.starts_with(['.', '/', '~']) || path.starts_with(folder);
                let path = if is_whole { path.into_owned() } else { format!("{folder}{path}") };
                if !files.contains(&path) {
                    files.push(path);
                }
            }
        }
        let most = CallLimits::default().max_context;
        if files.len() > most {
            let count = files.len();
            self.ignore(format!(
                "`context_loading`: only the first {most} of {count} files are context"
            ));
            files.truncate(most);
        }
        if let Some(unknown) = keys.unknown(&CONTEXT_KEYS).first() {
            let key = &unknown.name;
            self.ignore(format!(
                "`context_loading.{key}`: only `required`, `data_files` and `index` are used"
            ));
        }
        files
    }

    /// Reads `agent` and `routing`.
    fn routing(&mut self) -> CommandFileRoutes {
        let named = |text: String| Some(text).filter(|text| text != ORCHESTRATOR);
        let mut routing = CommandFileRoutes {
            agent: self.text("agent").and_then(named),
            ..CommandFileRoutes::default()
        };
        let keys = self.object("routing").and_then(|_| self.fields.get("routing"));
        let Some(Value::Object(keys)) = keys.map(FieldValue::to_json) else { return routing };
        for (key, value) in keys {
            match (key.as_str(), value) {
                ("language_based", Value::Bool(by)) => routing.by_language = Some(by),
                ("default", Value::String(agent)) => routing.default = named(agent),
                ("target_agent", Value::String(agent)) => routing.target = named(agent),
                (_, Value::String(agent)) if key != "language_based" => {
                    routing.languages.insert(key.to_lowercase(), agent);
                }
                _ => self.ignore(format!(
                    "`routing.{key}` is not the name of an agent{}",
                    did_you_mean(&key, &["language_based", "default", "target_agent"])
                )),
            }
        }
        routing
    }

    /// Sets the operation and limits the timeout. A project's file gets at most the time of the operation that its
    /// name stands for.
    fn limit_timeout(&mut self, scope: DefinitionScope, name: &str, limits: &mut DefinitionLimits) {
        let by_name = Operation::parse(name);
        let usual = by_name.default_seconds();
        let beyond =
            |own: &Operation| own.default_seconds() > usual && scope == DefinitionScope::Project;
        if limits.operation.take_if(|own| beyond(own)).is_some() {
            self.ignore(
                "`adjutant.operation`: a project's file cannot give itself time".to_owned(),
            );
        }
        let operation = *limits.operation.get_or_insert(by_name);
        let most = match scope {
            DefinitionScope::Project => operation.default_seconds(),
            DefinitionScope::User | DefinitionScope::BuiltIn => operation.max_seconds(),
        };
        if let Some(wish) = limits.timeout_s.filter(|wish| *wish > most) {
            self.ignore(format!("`timeout`: {wish} s is cut to {most} s"));
            limits.timeout_s = Some(most);
        }
    }
}

impl CommandFileRoutes {
    /// Copies the routing of the built-in command, unless the file has its own.
    fn inherit_routing(&mut self, built_in: &builtin::BuiltinCommand) {
        if self.names_someone() {
            return;
        }
        let languages: BTreeMap<String, String> =
            built_in.languages.iter().map(|(to, agent)| ((*to).into(), (*agent).into())).collect();
        self.default = built_in.agent.map(str::to_owned);
        self.languages = languages;
    }
}
