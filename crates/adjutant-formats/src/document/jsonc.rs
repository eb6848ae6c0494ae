//! Edits one entry of a hand-written JSON configuration file, which may contain comments and trailing commas.
//!
//! Invariant: every byte outside the entry stays unchanged.

use serde_json::{Map, Value};

use super::node::DocumentNode;
use super::node_edit::{UNIT, format_value};
use super::parse::{SyntaxError, parse_jsonc};
use super::splice::{Splice, apply};

/// The byte order mark that some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Why a configuration file was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsoncEditError {
    /// The text is not JSON, even without its comments.
    #[error("it is not JSON: {0}")]
    NotJson(#[from] SyntaxError),
    /// A value on the path is not an object.
    #[error("`{0}` is not an object")]
    NotAnObject(String),
}

/// Parses a configuration file; an empty file is an empty object.
pub fn read(text: &str) -> Result<Value, JsoncEditError> {
    let text = text.trim_start_matches(BYTE_ORDER_MARK);
    let root = parse_jsonc(text)?;
    Ok(root.map_or_else(|| Value::Object(Map::new()), |root| root.read(text)))
}

/// Sets members of the object at `path` and creates missing objects on the way.
///
/// Existing members with another value are changed in place. Members that already have the value keep their
/// layout.
pub fn merge(
    text: &str,
    path: &[&str],
    members: &[(&str, Value)],
) -> Result<String, JsoncEditError> {
    edit(text, |text, root| {
        let nest = |keys: &[&str]| {
            let inner = members.iter().map(|(key, value)| ((*key).to_owned(), value.clone()));
            keys.iter().rev().fold(Value::Object(inner.collect()), |value, key| {
                Value::Object(Map::from_iter([((*key).to_owned(), value)]))
            })
        };
        let whole = || format_value(&nest(path), UNIT, "\n", "");
        let Some(root) = root else {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            return Ok(vec![Splice::insert(text.len(), format!("{gap}{}\n", whole()))]);
        };
        if text[root.range.start + 1..root.range.end - 1].trim().is_empty() {
            return Ok(vec![Splice::replace(root.range.clone(), whole())]);
        }
        let mut node = root;
        for (depth, key) in path.iter().enumerate() {
            match node.member(text, key) {
                Some(next) if next.is_object() => node = next,
                Some(_) => return Err(JsoncEditError::NotAnObject(path[..=depth].join("."))),
                None => return Ok(node.set(text, key, &nest(&path[depth + 1..]))),
            }
        }
        let is_new = |(key, value): &&(&str, Value)| {
            node.member(text, key).is_none_or(|known| known.read(text) != *value)
        };
        let new = members.iter().filter(is_new).map(|(key, value)| (*key, value));
        Ok(node.set_all(text, &new.collect::<Vec<_>>()))
    })
}

/// Removes the member at `path`; does nothing if it does not exist.
pub fn remove(text: &str, path: &[&str]) -> Result<String, JsoncEditError> {
    edit(text, |text, root| {
        let Some((last, before)) = path.split_last() else { return Ok(Vec::new()) };
        let node = before.iter().try_fold(root, |node, key| Some(node?.member(text, key)));
        Ok(node.flatten().map_or_else(Vec::new, |node| node.remove(text, &[last])))
    })
}

/// Applies the splices that `change` returns for a text and its outermost object (`None` for an empty text).
fn edit(
    text: &str,
    change: impl FnOnce(&str, Option<&DocumentNode>) -> Result<Vec<Splice>, JsoncEditError>,
) -> Result<String, JsoncEditError> {
    let (mark, text) = text.split_at(text.len() - text.trim_start_matches(BYTE_ORDER_MARK).len());
    let root = parse_jsonc(text)?;
    if root.as_ref().is_some_and(|root| !root.is_object()) {
        return Err(JsoncEditError::NotAnObject("the file".into()));
    }
    let splices = change(text, root.as_ref())?;
    // The splices of one call never overlap; if they did, the text would stay unchanged.
    Ok(mark.to_owned() + &apply(text, splices).unwrap_or_else(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PATH: [&str; 2] = ["mcp", "us"];

    fn merged(text: &str) -> String {
        let members = [("command", json!("run")), ("args", json!(["a", "b"]))];
        merge(text, &PATH, &members).unwrap()
    }

    /// For files of any layout: merging adds the entry and keeps the rest, merging again changes nothing, and
    /// removing the entry restores the original content.
    #[test]
    fn an_entry_is_set_once_and_can_be_taken_out_again() {
        let entry = json!({ "command": "run", "args": ["a", "b"] });
        for text in [
            "",
            "\n",
            "{}",
            "{ }\n",
            "{\n}\n",
            "\u{feff}{\r\n  \"a\": 1\r\n}\r\n",
            r#"{"a":1}"#,
            r#"{"mcp":{}}"#,
            r#"{"mcp": {"other": {"x": [1, {"y": "}],//"}]}}, "z": null}"#,
            "{\n  // why\n  \"a\": 1, // because\n  \"b\": [1, 2,], /* and\n so */\n}\n",
            "{\n\t\"mcp\": {\n\t\t\"other\": {}, // theirs\n\t}, // servers\n\t\"b\": 2\n}",
            "{\n  \"mcp\": { // none yet\n  }\n}\n",
            "{\n  \"mcp\": { /* none yet */ }\n}\n",
            "{ \"mcp\": { \"other\": 1 }, }",
            "{\n    \"mcp\": {\n        \"last\": 1 // no comma\n    }\n}\n",
            "{\n  \"mcp\": {},\n  \"mcp\": { \"a\": 1 }\n}\n",
        ] {
            let was = read(text).unwrap();
            let new = merged(text);
            let mut wanted = was.clone();
            wanted["mcp"]["us"] = entry.clone();
            assert_eq!(read(&new).unwrap(), wanted, "{text:?} became {new:?}");
            assert_eq!(merged(&new), new, "{text:?}");
            assert!(is_within(text, &new), "{text:?} became {new:?}");
            let gone = remove(&new, &PATH).unwrap();
            let mut left = was;
            if left["mcp"].is_null() {
                left["mcp"] = json!({});
            }
            assert_eq!(read(&gone).unwrap(), left, "{new:?} became {gone:?}");
            assert!(is_within(text, &gone), "{new:?} became {gone:?}");
            assert_eq!(remove(&gone, &PATH).unwrap(), gone);
        }
    }

    /// Returns whether all non-whitespace characters of `text` are still in `new`, in order.
    fn is_within(text: &str, new: &str) -> bool {
        let mut rest = new.chars();
        text.chars().filter(|it| !it.is_whitespace()).all(|it| rest.any(|other| other == it))
    }

    #[test]
    fn the_layout_is_that_of_the_file() {
        for (text, expected) in [
            (
                "{}\n",
                "{\n  \"mcp\": {\n    \"us\": {\n      \"command\": \"run\",\n      \"args\": [\n        \
                 \"a\",\n        \"b\"\n      ]\n    }\n  }\n}\n",
            ),
            (r#"{"mcp":{"a":1}}"#, r#"{"mcp":{"a":1, "us": {"command":"run","args":["a","b"]}}}"#),
            (
                "{\r\n\t\"mcp\": {\r\n\t\t\"a\": 1, // x\r\n\t}\r\n}",
                "{\r\n\t\"mcp\": {\r\n\t\t\"a\": 1, // x\r\n\t\t\"us\": {\r\n\t\t\t\"command\": \"run\",\r\n\t\t\t\
                 \"args\": [\r\n\t\t\t\t\"a\",\r\n\t\t\t\t\"b\"\r\n\t\t\t]\r\n\t\t},\r\n\t}\r\n}",
            ),
        ] {
            assert_eq!(merged(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_differs_is_changed_where_it_stands() {
        let text = "{\n  \"mcp\": {\n    \"us\": { \"args\": [\"a\",  \"b\"], /* mine */ \"command\": \"old\" }\n  }\n}\n";
        assert_eq!(merged(text), text.replace("\"old\"", "\"run\""));
    }

    #[test]
    fn an_entry_goes_with_its_line_and_one_comma() {
        for (text, expected) in [
            ("{\n  \"a\": 1,\n  \"b\": 2\n}\n", "{\n  \"a\": 1\n}\n"),
            ("{\n  \"b\": 2,\n  \"a\": 1\n}\n", "{\n  \"a\": 1\n}\n"),
            ("{\n  \"b\": 2 // x\n}\n", "{\n   // x\n}\n"),
            ("{\"a\":1,\"b\":2}", "{\"a\":1}"),
            ("{\"b\":2}", "{}"),
            ("{\n  \"a\": 1, // one\n  \"b\": 2, // two\n}", "{\n  \"a\": 1, // one\n   // two\n}"),
        ] {
            assert_eq!(remove(text, &["b"]).unwrap(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_broken_is_said_and_nothing_is_made_of_it() {
        for (text, said) in [
            ("{", "it is not JSON"),
            ("{ /* open", "it is not JSON"),
            ("{\"a\": 1,,}", "it is not JSON"),
            ("{,}", "it is not JSON"),
            ("[]", "`the file` is not an object"),
            ("{\"mcp\": []}", "`mcp` is not an object"),
            ("{\"mcp\": {\"us\": null}}", "`mcp.us` is not an object"),
            ("{} {}", "it is not JSON"),
        ] {
            let problem = merge(text, &PATH, &[("a", json!(1))]).unwrap_err();
            assert!(problem.to_string().starts_with(said), "{text:?}: {problem}");
        }
    }
}
