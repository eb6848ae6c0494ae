//! Changing one entry of a configuration that people write by hand: JSON, with comments and commas
//! behind the last item where they put them.
//!
//! Comments and such commas are blanked, byte for byte, so that what is left is JSON whose parts
//! stand where they stand in the file. Invariant: every byte outside the entry stays as it is.

use serde_json::{Map, Value};

use super::json::{Node, eol, line_indent, shown, spans, unit};
use super::splice::{Splice, apply};

/// What a file is indented by where it does not show it.
const UNIT: &str = "  ";

/// Says why a configuration was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The text is not JSON, even without its comments.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// Something else stands where an object must.
    #[error("`{0}` is not an object")]
    NotAnObject(String),
}

/// Reads a configuration; one without any content is an empty object.
pub fn read(text: &str) -> Result<Value, Unfit> {
    let plain = Plain::of(text);
    if plain.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_str(&plain.text).map_err(|error| Unfit::NotJson(error.to_string()))
}

/// Sets members of the object at `path`; objects that are missing on the way are made.
///
/// Members that are there with another value are changed where they stand, and those that have the
/// value already are left alone, down to their layout.
pub fn merge(text: &str, path: &[&str], members: &[(&str, Value)]) -> Result<String, Unfit> {
    let plain = Plain::of(text);
    let nest = |keys: &[&str]| {
        let inner = members.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        keys.iter().rev().fold(Value::Object(inner), |value, key| {
            Value::Object(Map::from_iter([((*key).to_owned(), value)]))
        })
    };
    if plain.is_empty() {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return Ok(format!("{text}{gap}{}\n", shown(&nest(path), UNIT, "\n", "")));
    }
    let root = plain.root()?;
    let mut node = &root;
    for (depth, key) in path.iter().enumerate() {
        match node.member(&plain.text, key) {
            Some(next) if next.is_object() => node = next,
            Some(_) => return Err(Unfit::NotAnObject(path[..=depth].join("."))),
            None => {
                let added = [(*key, nest(&path[depth + 1..]))];
                return Ok(spliced(text, plain.add(text, node, &added)));
            }
        }
    }
    let mut splices = Vec::new();
    let mut added = Vec::new();
    for (key, value) in members {
        match node.member(&plain.text, key) {
            Some(known) if known.read(&plain.text) == *value => {}
            Some(known) => {
                let base = line_indent(&plain.text, known.range.start);
                splices.push(Splice::replace(known.range.clone(), plain.show(value, base)));
            }
            None => added.push((*key, value.clone())),
        }
    }
    if !added.is_empty() {
        splices.extend(plain.add(text, node, &added));
    }
    Ok(spliced(text, splices))
}

/// Removes the last member of `path` from the objects before it; nothing changes where it is not.
pub fn remove(text: &str, path: &[&str]) -> Result<String, Unfit> {
    let plain = Plain::of(text);
    let Some((last, before)) = path.split_last().filter(|_| !plain.is_empty()) else {
        return Ok(text.to_owned());
    };
    let root = plain.root()?;
    let mut node = &root;
    for key in before {
        match node.member(&plain.text, key) {
            Some(next) => node = next,
            None => return Ok(text.to_owned()),
        }
    }
    Ok(spliced(text, plain.cut(text, node, last)))
}

/// Splices of one call want bytes of their own; were that not so, nothing would change.
fn spliced(text: &str, splices: Vec<Splice>) -> String {
    apply(text, splices).unwrap_or_else(|| text.to_owned())
}

/// A text without what JSON does not know, each byte of it where it was.
struct Plain {
    text: String,
    /// Where commas stood behind the last item of something.
    trailing: Vec<usize>,
}

impl Plain {
    fn of(text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        // Editors that mark their files so read them, too.
        if text.starts_with('\u{feff}') {
            bytes[..3].fill(b' ');
        }
        let mut trailing = Vec::new();
        let mut comma = None;
        // One that keeps nothing apart is a mistake, and stays one.
        let mut before = b'{';
        let mut at = 0;
        while at < bytes.len() {
            let rest = &text.as_bytes()[at..];
            let end = at + token(rest);
            let byte = rest[0];
            if byte == b'/' && end > at + 1 {
                bytes[at..end].fill(b' ');
            } else if !byte.is_ascii_whitespace() {
                let last = comma.take().filter(|_| b"}]".contains(&byte));
                if let Some(last) = last {
                    bytes[last] = b' ';
                    trailing.push(last);
                }
                comma = (byte == b',' && !b"{[,".contains(&before)).then_some(at);
                before = byte;
            }
            at = end;
        }
        // Whole characters gave way to blanks, so it is text still; were it not, it would be no JSON.
        Self { text: String::from_utf8(bytes).unwrap_or_default(), trailing }
    }

    fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn root(&self) -> Result<Node, Unfit> {
        let value: Value =
            serde_json::from_str(&self.text).map_err(|error| Unfit::NotJson(error.to_string()))?;
        if !value.is_object() {
            return Err(Unfit::NotAnObject("the file".into()));
        }
        spans(&self.text).ok_or_else(|| Unfit::NotJson("it is nested too deeply".into()))
    }

    /// Writes a value as the file is laid out.
    fn show(&self, value: &Value, base: &str) -> String {
        match unit(&self.text) {
            Some(unit) => shown(value, unit, eol(&self.text), base),
            None => value.to_string(),
        }
    }

    /// Adds members behind those an object has, and behind what is said of the last one.
    fn add(&self, text: &str, node: &Node, members: &[(&str, Value)]) -> Vec<Splice> {
        let Some((first, end)) = node.edges() else { return vec![self.fill(text, node, members)] };
        let comma =
            self.trailing.iter().copied().find(|at| {
                (end..node.range.end).contains(at) && self.text[end..*at].trim().is_empty()
            });
        let behind = comma.map_or(end, |at| at + 1);
        let rest = &self.text[behind..node.range.end];
        let line = rest.find('\n').filter(|at| rest[..*at].trim().is_empty());
        let indent = line_indent(&self.text, first);
        let (at, gap) = match line {
            Some(at) if rest[..at].ends_with('\r') => (behind + at - 1, format!("\r\n{indent}")),
            Some(at) => (behind + at, format!("\n{indent}")),
            None => (behind, " ".to_owned()),
        };
        let each: Vec<String> = (members.iter())
            .map(|(key, value)| format!("{gap}{}: {}", Value::from(*key), self.show(value, indent)))
            .collect();
        let mut added = each.join(",");
        if comma.is_some() {
            added.push(',');
        }
        let mut splices = vec![Splice::insert(at, added)];
        if comma.is_none() {
            splices.insert(0, Splice::insert(end, ","));
        }
        splices
    }

    /// Adds members to an object that has none.
    fn fill(&self, text: &str, node: &Node, members: &[(&str, Value)]) -> Splice {
        let inside = node.range.start + 1..node.range.end - 1;
        let known = unit(&self.text);
        let is_root = self.text[..node.range.start].trim().is_empty();
        let Some(unit) = known.or(is_root.then_some(UNIT)) else {
            let each: Vec<String> = (members.iter())
                .map(|(key, value)| format!("{}: {value}", Value::from(*key)))
                .collect();
            return Splice::insert(inside.end, each.join(", "));
        };
        let unit = if unit.is_empty() { UNIT } else { unit };
        let (eol, base) = (eol(&self.text), line_indent(&self.text, node.range.start));
        let indent = format!("{base}{unit}");
        let each: Vec<String> = (members.iter())
            .map(|(key, value)| {
                let value = shown(value, unit, eol, &indent);
                format!("{eol}{indent}{}: {value}", Value::from(*key))
            })
            .collect();
        let added = format!("{}{eol}{base}", each.join(","));
        if text[inside.clone()].trim().is_empty() {
            return Splice::replace(inside, added);
        }
        // A comment stands in it: the last line of the blanks behind it gives way.
        let blanks =
            self.text[inside.clone()].rfind('\n').map_or(inside.end, |at| inside.start + at);
        Splice::replace(blanks..inside.end, added)
    }

    /// Takes a member out, with one comma and, where nothing else stands on them, its lines.
    fn cut(&self, text: &str, node: &Node, key: &str) -> Vec<Splice> {
        let Some(place) = node.place(&self.text, key) else { return Vec::new() };
        let is_comma = |at: &usize| self.text.as_bytes()[*at] == b',' || self.trailing.contains(at);
        let is_blank = |at: &usize| self.text.as_bytes()[*at].is_ascii_whitespace();
        let solid = |at: &usize| !is_blank(at) || is_comma(at);
        let next = (place.end..node.range.end).find(solid).filter(is_comma);
        let before = (node.range.start + 1..place.start).rev().find(solid).filter(is_comma);
        let Some(comma) = next else {
            let cut = self.lines(text, place);
            return before
                .map(|at| Splice::replace(at..at + 1, ""))
                .into_iter()
                .chain([cut])
                .collect();
        };
        if text[place.end..comma].trim().is_empty() {
            return vec![self.lines(text, place.start..comma + 1)];
        }
        vec![Splice::replace(place, ""), Splice::replace(comma..comma + 1, "")]
    }

    /// Widens a cut to whole lines where nothing else stands on them.
    fn lines(&self, text: &str, cut: std::ops::Range<usize>) -> Splice {
        let start = text[..cut.start].rfind('\n');
        let end = text[cut.end..].find('\n').map(|at| cut.end + at);
        if let Some((start, end)) = start.zip(end)
            && text[start..cut.start].trim().is_empty()
            && text[cut.end..end].trim().is_empty()
        {
            let start = if text[..start].ends_with('\r') { start - 1 } else { start };
            let end = if text[..end].ends_with('\r') { end - 1 } else { end };
            return Splice::replace(start..end, "");
        }
        Splice::replace(cut, "")
    }
}

/// Returns the length of what a text begins with: a string, a comment, or one byte.
fn token(rest: &[u8]) -> usize {
    let found = match rest {
        [b'"', ..] => {
            let mut at = 1;
            while at < rest.len() && rest[at] != b'"' {
                at += 1 + usize::from(rest[at] == b'\\');
            }
            Some(at + 1)
        }
        [b'/', b'/', ..] => {
            rest.iter().position(|byte| b"\r\n".contains(byte)).or(Some(rest.len()))
        }
        [b'/', b'*', inner @ ..] => inner.windows(2).position(|two| two == b"*/").map(|at| at + 4),
        _ => None,
    };
    found.unwrap_or(1).min(rest.len())
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

    /// Whatever a file looks like: it says what it said and the entry, a second time changes
    /// nothing, and taking the entry out leaves what was there.
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

    /// Says whether all that is not blank is still there, in its order.
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
