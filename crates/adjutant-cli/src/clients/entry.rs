//! The server's entry in the text of a configuration, in JSON or in TOML.

use std::ops::Range;

use adjutant_formats::document::jsonc;
use adjutant_mcp::{Client, SERVER};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

/// A configuration and what it says of the server.
pub(crate) struct Text {
    client: Client,
    text: String,
    path: Vec<&'static str>,
    entry: Option<Value>,
}

impl Text {
    /// Reads a configuration; the error says in words what is wrong with it.
    pub(crate) fn read(client: Client, text: String) -> Result<Self, String> {
        let whole = if client == Client::Codex {
            let table: toml::Table = toml::from_str(&text).map_err(|error| {
                format!("it is not TOML: {}", error.to_string().trim_end().replace('\n', " "))
            })?;
            serde_json::to_value(table).map_err(|error| error.to_string())?
        } else {
            jsonc::read(&text).map_err(|error| error.to_string())?
        };
        let mut path = vec![client.section()];
        // The second version of opencode has a level more; an entry of the first may have that name.
        let inner = &whole["mcp"]["servers"];
        if client == Client::Opencode && inner.is_object() && client.command(inner).is_none() {
            path.push("servers");
        }
        path.push(SERVER);
        let entry = path.iter().try_fold(&whole, |value, key| value.get(key)).cloned();
        Ok(Self { client, text, path, entry })
    }

    /// Returns the entry.
    pub(crate) fn entry(&self) -> Option<&Value> {
        self.entry.as_ref()
    }

    /// Returns the text with an entry that starts `command`; what else the entry holds stays.
    pub(crate) fn with(&self, command: &[String]) -> Result<String, String> {
        let mut members = self.client.members(command);
        // A plain level has the usual members; the second version of opencode knows none of them.
        if self.path.len() == 2 {
            let is_missing =
                |key: &str| self.entry.as_ref().is_none_or(|entry| entry.get(key).is_none());
            members.extend(self.client.usual().into_iter().filter(|(key, _)| is_missing(key)));
        }
        if self.client == Client::Codex {
            return toml_with(&self.text, &members);
        }
        jsonc::merge(&self.text, &self.path, &members).map_err(|error| error.to_string())
    }

    /// Returns the text without the entry.
    pub(crate) fn without(&self) -> Result<String, String> {
        if self.entry.is_none() {
            return Ok(self.text.clone());
        }
        if self.client == Client::Codex {
            return toml_without(&self.text);
        }
        jsonc::remove(&self.text, &self.path).map_err(|error| error.to_string())
    }
}

/// The table of servers in a configuration of Codex.
const SERVERS: &str = "mcp_servers";

const BY_HAND: &str = "its entry is written in a way that only a person can change";

/// Sets members of the server's table and leaves every other byte alone.
fn toml_with(text: &str, members: &[(&str, Value)]) -> Result<String, String> {
    let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let values: Vec<(&str, toml::Value)> = (members.iter())
        .map(|(key, value)| Ok((*key, toml::Value::try_from(value)?)))
        .collect::<Result<_, toml::ser::Error>>()
        .map_err(|error| error.to_string())?;
    let line = |(key, value): &(&str, toml::Value)| format!("{key} = {value}{eol}");
    let mut wanted: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let root = DeTable::parse(text).map_err(|error| error.to_string())?;
    let entry = root.get_ref().get(SERVERS).and_then(|servers| servers.get_ref().get(SERVER));
    let section = |lines: &str| {
        let gap = match text {
            "" => "",
            _ if text.ends_with('\n') => eol,
            _ => &format!("{eol}{eol}"),
        };
        format!("{gap}[{SERVERS}.{SERVER}]{eol}{lines}")
    };
    let new = match entry.map(|entry| entry.get_ref().as_table().ok_or(BY_HAND)).transpose()? {
        None => text.to_owned() + &section(&values.iter().map(line).collect::<String>()),
        Some(table) => {
            let mut splices: Vec<(Range<usize>, String)> = Vec::new();
            let mut missing = String::new();
            for (key, value) in &values {
                match table.get(*key) {
                    Some(known) if toml_value(text, known.span()).as_ref() == Some(value) => {}
                    Some(known) => splices.push((known.span(), value.to_string())),
                    None => missing += &line(&(*key, value.clone())),
                }
            }
            if !missing.is_empty() {
                let headers = headers(text, root.get_ref());
                let own = headers.iter().find(|(path, _)| path == &[SERVERS, SERVER]);
                let end = own.map(|own| text[own.1..].find('\n').map(|at| own.1 + at + 1));
                splices.push(match end {
                    Some(Some(end)) => (end..end, missing),
                    Some(None) => (text.len()..text.len(), format!("{eol}{missing}")),
                    // There are only tables below it so far.
                    None => (text.len()..text.len(), section(&missing)),
                });
            }
            splices.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
            splices.into_iter().fold(text.to_owned(), |mut text, (range, new)| {
                text.replace_range(range, &new);
                text
            })
        }
    };
    // Judged by what the file then says: what cannot be changed so is left to a person.
    let server = wanted.entry(SERVERS).or_insert_with(|| toml::Table::new().into());
    let server = server.as_table_mut().ok_or(BY_HAND)?;
    let server = server.entry(SERVER).or_insert_with(|| toml::Table::new().into());
    server
        .as_table_mut()
        .ok_or(BY_HAND)?
        .extend(values.into_iter().map(|(key, it)| (key.into(), it)));
    if toml::from_str::<toml::Table>(&new).is_ok_and(|new| new == wanted) {
        Ok(new)
    } else {
        Err(BY_HAND.into())
    }
}

/// Takes the server's tables out, each from its header to the next.
fn toml_without(text: &str) -> Result<String, String> {
    let mut wanted: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let root = DeTable::parse(text).map_err(|error| error.to_string())?;
    let headers = headers(text, root.get_ref());
    let mut new = text.to_owned();
    for (nth, (path, start)) in headers.iter().enumerate().rev() {
        if path.starts_with(&[SERVERS.to_owned(), SERVER.to_owned()]) {
            let end = headers.get(nth + 1).map_or(text.len(), |(_, next)| *next);
            // What is said before the next table belongs to that one.
            let end = start + own_lines(&text[*start..end]);
            let blank = if text[end..].is_empty() { blank_line_before(text, *start) } else { 0 };
            let start = start - blank;
            new.replace_range(start..end, "");
        }
    }
    if let Some(toml::Value::Table(servers)) = wanted.get_mut(SERVERS) {
        servers.remove(SERVER);
    }
    let mut without_servers = wanted.clone();
    if wanted.get(SERVERS).and_then(toml::Value::as_table).is_some_and(toml::Table::is_empty) {
        without_servers.remove(SERVERS);
    }
    let is_as_wanted = |new: toml::Table| new == wanted || new == without_servers;
    if toml::from_str::<toml::Table>(&new).is_ok_and(is_as_wanted) {
        Ok(new)
    } else {
        Err(BY_HAND.into())
    }
}

/// Returns the length of a section without the remarks and blank lines at its end.
fn own_lines(section: &str) -> usize {
    let mut end = 0;
    let mut at = 0;
    for line in section.split_inclusive('\n') {
        at += line.len();
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            end = at;
        }
    }
    end
}

/// Returns the length of the blank line before `at`, which kept apart what is gone.
fn blank_line_before(text: &str, at: usize) -> usize {
    ["\r\n", "\n"].into_iter().find(|eol| text[..at].ends_with(&eol.repeat(2))).map_or(0, str::len)
}

fn toml_value(text: &str, span: Range<usize>) -> Option<toml::Value> {
    let table: toml::Table = toml::from_str(&format!("it = {}", text.get(span)?)).ok()?;
    table.get("it").cloned()
}

/// Finds the headers of tables: their names, and where their lines begin.
fn headers(text: &str, root: &DeTable<'_>) -> Vec<(Vec<String>, usize)> {
    let mut values = Vec::new();
    root.iter().for_each(|(_, value)| leaves(text, value.get_ref(), value.span(), &mut values));
    let mut at = 0;
    let mut found = Vec::new();
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        // A line within a list or a text of several lines may look like a header.
        if line.trim_start().starts_with('[') && !values.iter().any(|it| it.contains(&start)) {
            found.extend(header(line).map(|path| (path, start)));
        }
    }
    found
}

fn header(line: &str) -> Option<Vec<String>> {
    let mut table: toml::Table = toml::from_str(line).ok()?;
    let mut path = Vec::new();
    while let Some(key) = table.keys().next().cloned() {
        let value = table.remove(&key)?;
        path.push(key);
        match value {
            toml::Value::Table(inner) => table = inner,
            toml::Value::String(_)
            | toml::Value::Integer(_)
            | toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_) => break,
        }
    }
    Some(path)
}

/// Collects where values stand, which are not tables of their own.
fn leaves(text: &str, value: &DeValue<'_>, span: Range<usize>, found: &mut Vec<Range<usize>>) {
    let is_inline = text[span.start..].starts_with('{');
    match value {
        DeValue::Table(table) if !is_inline => {
            table.iter().for_each(|(_, value)| leaves(text, value.get_ref(), value.span(), found));
        }
        DeValue::Array(items)
            if !items.is_empty()
                && items.iter().all(|it| {
                    it.get_ref().is_table() && !text[it.span().start..].starts_with('{')
                }) =>
        {
            items.iter().for_each(|it| leaves(text, it.get_ref(), it.span(), found));
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => found.push(span),
    }
}
