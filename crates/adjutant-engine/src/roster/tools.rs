//! The `tools` and `permission` keys of definitions: maps the tool names of other products to ours.

use std::collections::BTreeSet;

use adjutant_core::ToolSet;
use adjutant_core::tool_call::{find_alias, tool_aliases};
use serde_json::{Map, Value};

/// The tools that every agent keeps, because they only affect its own scratchpad.
const KEPT: [&str; 1] = ["Note"];

/// The tools that start other agents. Denying one denies both.
const STARTING: [&str; 2] = ["Task", "Delegate"];

/// The tools that a file asks for and denies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedTools {
    /// The tools it is restricted to; `None` for all that the policy permits.
    pub allowed: Option<ToolSet>,
    /// The tools it denies.
    pub denied: ToolSet,
    /// The tools it names in any key, to report those that it does not get.
    pub asked: ToolSet,
}

impl RequestedTools {
    /// Returns the tools of `permitted` that the file leaves.
    #[must_use]
    pub fn within(&self, permitted: &ToolSet) -> ToolSet {
        let allowed = self.allowed.as_ref().map_or_else(
            || permitted.clone(),
            |allowed| permitted.intersection(&ToolSet::new(allowed.iter().chain(KEPT))),
        );
        allowed.difference(&self.denied)
    }

    /// Returns the tools that the file names and does not deny, and that `permitted` does not have.
    #[must_use]
    pub fn missing(&self, permitted: &ToolSet) -> ToolSet {
        self.asked.difference(&self.denied).difference(permitted)
    }

    /// Returns the tools that this file names and the person's file of the same agent does not permit. They are removed
    /// from the named ones.
    pub(super) fn missing_in(&mut self, other: &Self) -> ToolSet {
        let missing = self.asked.difference(&self.denied);
        let missing = missing.difference(&other.within(&missing));
        self.asked = self.asked.difference(&missing);
        missing
    }

    fn ask<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let names: Vec<&str> = names.into_iter().collect();
        self.asked = ToolSet::new(self.asked.iter().chain(names));
    }

    /// Restricts this to what both files permit.
    pub(super) fn narrow(&mut self, other: &Self) {
        self.allowed = match (self.allowed.take(), &other.allowed) {
            (Some(own), Some(theirs)) => Some(own.intersection(theirs)),
            (own, theirs) => own.or_else(|| theirs.clone()),
        };
        self.denied = ToolSet::new(self.denied.iter().chain(other.denied.iter()));
    }

    pub(super) fn allow_only<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        self.narrow(&Self { allowed: Some(ToolSet::new(names)), ..Self::default() });
    }

    pub(super) fn deny(&mut self, names: impl IntoIterator<Item = &'static str>) {
        let names: Vec<&str> = names.into_iter().collect();
        let starts = names.iter().any(|name| STARTING.contains(name));
        let also = STARTING.into_iter().filter(|_| starts);
        self.denied = ToolSet::new(self.denied.iter().chain(names).chain(also));
    }
}

/// Returns our tools for a tool of another product; none if there is no such tool here.
pub(super) fn our_tools(name: &str) -> &'static [&'static str] {
    find_alias(name).map(|alias| alias.tools).unwrap_or_default()
}

/// Reads a list of permitted tools, or a map that switches tools on or off.
pub(crate) fn allow(
    wished: &mut RequestedTools,
    key: &str,
    value: &Value,
    ignored: &mut Vec<String>,
) {
    if let Value::Object(map) = value {
        return switch(wished, key, map, ignored);
    }
    let Some(names) = names(value) else {
        ignored.push(format!("`{key}` is not a list of tools, so it permits none"));
        return wished.allow_only([]);
    };
    if names.iter().any(|name| name == "*") {
        return;
    }
    let mut allowed = BTreeSet::new();
    for name in &names {
        match (our_tools(name), name.split_once('(')) {
            // `Bash(git:*)` permits a part; granting the whole tool would be more than the file asks for.
            ([], Some((whole, _))) if !our_tools(whole).is_empty() => {
                ignored
                    .push(format!("`{name}`: a tool cannot be given in part, so it is left out"));
            }
            ([], _) => ignored.push(format!("`{name}`: there is no such tool here")),
            (tools, _) => allowed.extend(tools.iter().copied()),
        }
    }
    wished.ask(allowed.iter().copied());
    wished.allow_only(allowed);
}

/// Reads a list of denied tools. A tool that is denied in part is denied completely.
pub(super) fn forbid(
    wished: &mut RequestedTools,
    key: &str,
    value: &Value,
    ignored: &mut Vec<String>,
) {
    let Some(names) = names(value) else {
        ignored.push(format!("`{key}` is not a list of tools, so it permits none"));
        return wished.allow_only([]);
    };
    for name in &names {
        let whole = name.split_once('(').map_or(name.as_str(), |(whole, _)| whole);
        wished.deny(matching(whole));
        if whole != name && !our_tools(whole).is_empty() {
            ignored.push(format!("`{name}`: a tool cannot be denied in part, so all of it is"));
        }
    }
}

/// Reads a map that switches tools on or off. Other tools are on, unless `*` is off.
fn switch(
    wished: &mut RequestedTools,
    key: &str,
    map: &Map<String, Value>,
    ignored: &mut Vec<String>,
) {
    let is_on = |value: &Value| matches!(value, Value::Bool(true)) || *value == "allow";
    let named =
        |on: bool| move |(name, value): &(&String, &Value)| *name != "*" && is_on(value) == on;
    if map.get("*").is_some_and(|value| !is_on(value)) {
        wished.allow_only(map.iter().filter(named(true)).flat_map(|(name, _)| matching(name)));
    }
    wished.deny(map.iter().filter(named(false)).flat_map(|(name, _)| matching(name)));
    wished.ask(map.iter().filter(named(true)).flat_map(|(name, _)| matching(name)));
    for (name, _) in map.iter().filter(named(true)).filter(|(name, _)| matching(name).is_empty()) {
        ignored.push(format!("`{key}.{name}`: there is no such tool here"));
    }
}

/// Reads permissions. `deny` and `ask` both deny a tool, because no person is asked while an agent works.
pub(super) fn permit(
    wished: &mut RequestedTools,
    key: &str,
    value: &Value,
    ignored: &mut Vec<String>,
) {
    let map = match value {
        Value::Object(map) => map,
        Value::String(word) if word == "allow" => return,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            ignored.push(format!("`{key}` does not allow everything, so it permits no tools"));
            return wished.allow_only([]);
        }
    };
    if map.get("*").is_some_and(|value| *value != "allow") {
        let allowed = map.iter().filter(|(name, value)| *name != "*" && **value == "allow");
        wished.allow_only(allowed.flat_map(|(name, _)| covered(name)));
    }
    for (name, value) in map.iter().filter(|(name, _)| *name != "*") {
        let denies = value
            .as_object()
            .map_or_else(|| value != "allow", |rules| rules.values().any(|rule| rule != "allow"));
        let covered = covered(name);
        if !denies {
            wished.ask(covered.iter().copied());
        }
        if !denies || covered.is_empty() {
            continue;
        }
        if value.is_object() {
            ignored
                .push(format!("`{key}.{name}`: a tool cannot be denied in part, so all of it is"));
        } else if value == "ask" {
            ignored.push(format!(
                "`{key}.{name}`: no person is asked while an agent works, so it is denied"
            ));
        }
        wished.deny(covered);
    }
}

/// Returns our tools that a permission covers. `edit` covers both tools that write files.
fn covered(name: &str) -> Vec<&'static str> {
    if name == "edit" { vec!["Edit", "Write"] } else { matching(name) }
}

/// Returns our tools that match a name or a pattern such as `web*`.
fn matching(pattern: &str) -> Vec<&'static str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return our_tools(pattern).to_vec();
    };
    let fits = |name: &str| name.starts_with(before) && name.ends_with(after);
    let aliases = tool_aliases().iter();
    let tools = aliases.flat_map(|alias| alias.tools.iter().map(|tool| (alias.name, *tool)));
    tools.filter(|(theirs, ours)| fits(theirs) || fits(ours)).map(|(_, ours)| ours).collect()
}

/// Returns the names in a list or in a string with separators.
fn names(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(parts(text)),
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map(|text| text.trim().to_owned())).collect()
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Splits at commas outside brackets; at spaces if there is no comma.
fn parts(text: &str) -> Vec<String> {
    let by_space = !text.contains([',', '(']);
    let mut depth = 0_u32;
    let split = |letter: char| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (letter == ',' || (by_space && letter.is_whitespace()))
    };
    text.split(split).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
