//! Edits one table of a hand-written TOML configuration file.
//!
//! `toml_edit` supplies the positions; its own printing would change line endings. Every edited text is
//! parsed again and compared with the intended result; an entry that cannot be edited safely is left to the
//! user. Invariant: every byte outside the table stays unchanged.

use std::ops::Range;

use serde_json::Value;
use toml::Table;
use toml_edit::{Document, Item, TableLike};

use super::splice::{Splice, apply};

/// Why a configuration file was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TomlEditError {
    /// The text is not TOML.
    #[error("it is not TOML: {0}")]
    NotToml(String),
    /// The entry is not a table with its own header, or contains a value that TOML cannot represent.
    #[error("the entry for adjutant in it cannot be edited automatically; change it by hand")]
    ByHand,
}

/// Parses a configuration file.
pub fn read(text: &str) -> Result<Value, TomlEditError> {
    serde_json::to_value(table(text)?).map_err(|error| TomlEditError::NotToml(error.to_string()))
}

/// Sets members of the table at `path`; a missing table is appended to the file.
pub fn merge(
    text: &str,
    path: &[&str],
    members: &[(&str, Value)],
) -> Result<String, TomlEditError> {
    let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let values: Table = (members.iter())
        .map(|(key, value)| Ok(((*key).to_owned(), toml::Value::try_from(value)?)))
        .collect::<Result<_, toml::ser::Error>>()
        .map_err(|_| TomlEditError::ByHand)?;
    let mut wanted = table(text)?;
    let there = table_at(&mut wanted, path).ok_or(TomlEditError::ByHand)?;
    let document = parse(text)?;
    let item = path.iter().try_fold(document.as_item(), |item, key| item.get(key));
    let (mut splices, mut missing) = (Vec::new(), String::new());
    // Iterates in the order of `members`, because a table sorts its keys.
    for (key, value) in members.iter().filter_map(|(key, _)| Some((*key, values.get(*key)?))) {
        match item.and_then(|item| item.get(key)).and_then(Item::span) {
            Some(_) if there.get(key) == Some(value) => {}
            Some(known) => splices.push(Splice::replace(known, value.to_string())),
            None => missing += &format!("{key} = {value}{eol}"),
        }
    }
    if !missing.is_empty() {
        splices.push(match header(item).map(|header| line_end(text, header.end)) {
            Some(end) if text[..end].ends_with('\n') => Splice::insert(end, missing),
            Some(end) => Splice::insert(end, format!("{eol}{missing}")),
            None => {
                let gap = match text {
                    "" => "",
                    _ if text.ends_with('\n') => eol,
                    _ => &eol.repeat(2),
                };
                let section = format!("{gap}[{}]{eol}{missing}", path.join("."));
                Splice::insert(text.len(), section)
            }
        });
    }
    there.extend(values);
    apply_splices(text, splices, |new| *new == wanted)
}

/// Removes the table at `path` and its sub-tables, each from its header to its last value.
pub fn remove(text: &str, path: &[&str]) -> Result<String, TomlEditError> {
    let mut wanted = table(text)?;
    let Some((last, before)) = path.split_last() else { return Ok(text.to_owned()) };
    table_at(&mut wanted, before).ok_or(TomlEditError::ByHand)?.remove(*last);
    let mut without_parent = wanted.clone();
    if let Some((parent, above)) = before.split_last()
        && table_at(&mut wanted, before).is_some_and(|parent| parent.is_empty())
    {
        table_at(&mut without_parent, above).and_then(|table| table.remove(*parent));
    }
    let document = parse(text)?;
    let mut found = Vec::new();
    if let Some(item) = path.iter().try_fold(document.as_item(), |item, key| item.get(key)) {
        extents(item, &mut found);
    }
    let cut = |extent: Range<usize>| {
        let end = line_end(text, extent.end);
        let before = &text[..extent.start];
        // Remove the blank line that separated the table from the one before it.
        let blank = ["\r\n", "\n"].into_iter().find(|eol| before.ends_with(&eol.repeat(2)));
        let blank = blank.filter(|_| end == text.len()).map_or(0, str::len);
        Splice::replace(extent.start - blank..end, "")
    };
    let splices = found.into_iter().map(cut).collect();
    apply_splices(text, splices, |new| *new == wanted || *new == without_parent)
}

fn table(text: &str) -> Result<Table, TomlEditError> {
    toml::from_str(text)
        .map_err(|error| TomlEditError::NotToml(error.to_string().trim_end().replace('\n', " ")))
}

fn parse(text: &str) -> Result<Document<&str>, TomlEditError> {
    Document::parse(text).map_err(|error| TomlEditError::NotToml(error.message().to_owned()))
}

/// Returns the table at `path` and creates missing tables on the way.
fn table_at<'t>(table: &'t mut Table, path: &[&str]) -> Option<&'t mut Table> {
    path.iter().try_fold(table, |table, key| {
        table.entry(*key).or_insert_with(|| Table::new().into()).as_table_mut()
    })
}

/// Returns the byte range of a table's header; a table may have none.
fn header(item: Option<&Item>) -> Option<Range<usize>> {
    let table = item?.as_table().filter(|table| !table.is_implicit() && !table.is_dotted())?;
    table.span()
}

/// Collects the byte ranges of an entry's tables, each from its header to the end of its last value.
fn extents(item: &Item, found: &mut Vec<Range<usize>>) {
    found.extend(header(Some(item)));
    match item {
        Item::Table(table) => inner_extents(table, found),
        Item::ArrayOfTables(tables) => {
            for table in tables {
                found.extend(table.span());
                inner_extents(table, found);
            }
        }
        Item::Value(value) => {
            if let Some((last, span)) = found.last_mut().zip(value.span()) {
                last.end = last.end.max(span.end);
            }
        }
        Item::None => {}
    }
}

fn inner_extents(table: &dyn TableLike, found: &mut Vec<Range<usize>>) {
    // A sub-table may precede its parent in the file; values after a header belong to that header's table.
    let is_own = |item: &Item| item.is_value() || item.as_table().is_some_and(|it| it.is_dotted());
    let (own, below): (Vec<&Item>, Vec<&Item>) =
        table.iter().map(|(_, item)| item).partition(|item| is_own(item));
    own.into_iter().chain(below).for_each(|item| extents(item, found));
}

/// Returns the end of the line that contains byte `at`, line ending included.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

fn apply_splices(
    text: &str,
    splices: Vec<Splice>,
    is_wanted: impl FnOnce(&Table) -> bool,
) -> Result<String, TomlEditError> {
    let new = apply(text, splices).ok_or(TomlEditError::ByHand)?;
    if table(&new).is_ok_and(|new| is_wanted(&new)) { Ok(new) } else { Err(TomlEditError::ByHand) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: [&str; 2] = ["mcp_servers", "us"];

    fn merged(text: &str) -> Result<String, TomlEditError> {
        merge(text, &PATH, &[("command", json!("run")), ("args", json!(["a", "b"]))])
    }

    #[test]
    fn a_table_is_set_where_it_stands_and_can_be_taken_out_again() {
        let own = "[mcp_servers.us]\ncommand = \"run\"\nargs = [\"a\", \"b\"]\n";
        for (text, with, without) in [
            ("", own.to_owned(), ""),
            ("model = 'x' # c", format!("model = 'x' # c\n\n{own}"), "model = 'x' # c\n"),
            ("a = 1\n", format!("a = 1\n\n{own}"), "a = 1\n"),
            (
                "# top\r\n[mcp_servers.us] # ours\r\nargs = ['a',\r\n 'b'] # same\r\n# mine\r\ncommand = 'old' # c\r\n\r\n# theirs\r\n[z]\r\n",
                "# top\r\n[mcp_servers.us] # ours\r\nargs = ['a',\r\n 'b'] # same\r\n# mine\r\ncommand = \"run\" # c\r\n\r\n# theirs\r\n[z]\r\n".to_owned(),
                "# top\r\n\r\n# theirs\r\n[z]\r\n",
            ),
            (
                "[mcp_servers.us]\n[mcp_servers.us.env]\nX = '''\n[z]\n'''\n",
                "[mcp_servers.us]\ncommand = \"run\"\nargs = [\"a\", \"b\"]\n[mcp_servers.us.env]\nX = '''\n[z]\n'''\n".to_owned(),
                "",
            ),
            (
                "[mcp_servers.us.env]\nX = 1\n[a]\nb = 1\n",
                format!("[mcp_servers.us.env]\nX = 1\n[a]\nb = 1\n\n{own}"),
                "[a]\nb = 1\n",
            ),
        ] {
            let new = merged(text).unwrap();
            assert_eq!(new, with);
            assert_eq!(merged(&new).unwrap(), new, "{text:?}");
            assert_eq!(remove(&new, &PATH).unwrap(), without, "{text:?}");
        }
    }

    #[test]
    fn what_has_no_header_of_its_own_is_left_to_a_person() {
        for text in [
            "mcp_servers = 3\n",
            "mcp_servers = { us = { args = [] } }\n",
            "mcp_servers = { other = { command = 'x' } }\n",
            "[mcp_servers]\nus.args = []\n",
        ] {
            assert_eq!(merged(text), Err(TomlEditError::ByHand), "{text}");
        }
        for text in ["mcp_servers = { us = { args = [] } }\n", "[mcp_servers]\nus.args = []\n"] {
            assert_eq!(remove(text, &PATH), Err(TomlEditError::ByHand), "{text}");
        }
        assert!(matches!(merged("a = ["), Err(TomlEditError::NotToml(_))));
        assert!(matches!(merged(&"a = [".repeat(100_000)), Err(TomlEditError::NotToml(_))));
    }
}
