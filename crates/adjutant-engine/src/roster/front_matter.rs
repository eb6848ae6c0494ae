//! Parsing front matter: the YAML between two lines of `---`, as a JSON object.
//!
//! People and models often leave a colon in an unquoted text, so such a line is quoted and parsed again, but
//! not for keys that limit an agent. Aliases are refused, so a document cannot grow when it is parsed.

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// The deepest nesting of values. Inclusive; known keys need at most three levels.
const MAX_DEPTH: usize = 16;

/// The keys of front matter.
#[derive(Debug, PartialEq)]
pub(crate) struct FrontMatter {
    /// An object.
    pub(crate) keys: Value,
    /// Duplicate keys of the top level; the first value of each is used.
    pub(crate) duplicates: Vec<String>,
}

/// Splits a file into its front matter and its body.
pub(crate) fn split(text: &str) -> Result<(&str, &str), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let missing = || "it has no front matter: its first line is not ---".to_owned();
    let (first, mut rest) = text.split_once('\n').ok_or_else(missing)?;
    if first.trim_end() != "---" {
        return Err(missing());
    }
    let start = rest;
    loop {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if line.trim_end() == "---" {
            return Ok((&start[..start.len() - rest.len()], after));
        }
        if after.is_empty() {
            return Err("its front matter has no end: a second line of --- is missing".into());
        }
        rest = after;
    }
}

/// Parses front matter. Lines that are not valid YAML are quoted and parsed again.
pub(crate) fn read(text: &str) -> Result<FrontMatter, String> {
    // An empty line stands for the `---` above, so that errors have the line numbers of the file.
    let text = &format!("\n{text}");
    match parse(text) {
        Ok(front) => Ok(front),
        // Quoting must not turn YAML that is refused on purpose into accepted YAML.
        Err(FrontMatterError::Refused(why)) => Err(why),
        Err(FrontMatterError::Syntax(why)) => {
            parse(&with_quoted_values(text)).map_err(|broken| match broken {
                FrontMatterError::Refused(why) => why,
                FrontMatterError::Syntax(_) => why,
            })
        }
    }
}

/// Why front matter could not be parsed.
enum FrontMatterError {
    /// It is not valid YAML.
    Syntax(String),
    /// It uses a feature of YAML that is refused.
    Refused(String),
}

/// A list or map whose end has not been parsed yet; a map with the key that waits for its value.
enum OpenCollection {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

fn parse(text: &str) -> Result<FrontMatter, FrontMatterError> {
    let mut open: Vec<OpenCollection> = Vec::new();
    let mut duplicates = Vec::new();
    let mut whole = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| FrontMatterError::Syntax(format!("its YAML is broken: {error}")))?;
        let value = match event {
            Event::Scalar(text, style, _, _) => scalar(&text, style),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == MAX_DEPTH => {
                return Err(FrontMatterError::Refused(format!(
                    "its YAML nests deeper than {MAX_DEPTH}"
                )));
            }
            Event::SequenceStart(..) => {
                open.push(OpenCollection::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(OpenCollection::Map(Map::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(OpenCollection::List(items)) => Value::Array(items),
                Some(OpenCollection::Map(map, _)) => Value::Object(map),
                None => continue,
            },
            Event::Alias(_) => {
                let line = span.start.line();
                return Err(FrontMatterError::Refused(format!(
                    "its YAML uses an alias in line {line}; write the value out"
                )));
            }
            Event::DocumentStart(_) if whole.is_some() => {
                return Err(FrontMatterError::Refused(
                    "its front matter holds more than one document".into(),
                ));
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => continue,
        };
        let level = open.len();
        match open.last_mut() {
            None => whole = Some(value),
            Some(OpenCollection::List(items)) => items.push(value),
            Some(OpenCollection::Map(_, key @ None)) => *key = Some(name(&value)?),
            Some(OpenCollection::Map(map, key)) => {
                let key = key.take().unwrap_or_default();
                if !map.contains_key(&key) {
                    map.insert(key, value);
                } else if level == 1 {
                    duplicates.push(key);
                } else {
                    return Err(FrontMatterError::Refused(format!("its YAML holds `{key}` twice")));
                }
            }
        }
    }
    match whole {
        None | Some(Value::Null) => Ok(FrontMatter { keys: Value::Object(Map::new()), duplicates }),
        Some(keys @ Value::Object(_)) => Ok(FrontMatter { keys, duplicates }),
        Some(_) => Err(FrontMatterError::Syntax("its front matter is not a list of keys".into())),
    }
}

fn name(value: &Value) -> Result<String, FrontMatterError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(_) | Value::Object(_) => {
            Err(FrontMatterError::Refused("its YAML uses a list or a map as a key".into()))
        }
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.to_owned());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    }
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+' | '.')) {
        return None;
    }
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}

/// Quotes the values of the top level that are not valid YAML, as in `description: Use it when: …`.
fn with_quoted_values(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut open_text = false;
    for line in text.lines() {
        let is_inner = line.starts_with([' ', '\t']);
        if open_text && is_inner {
            // A continuation line of the value that was quoted above.
            if let Some(quoted) = lines.last_mut() {
                let so_far = quoted.trim_end_matches('"').len();
                quoted.truncate(so_far);
                *quoted += &format!(" {}\"", escaped(line.trim()));
            }
            continue;
        }
        open_text = false;
        match line.split_once(':') {
            Some((key, value))
                if is_key(key) && value.starts_with([' ', '\t']) && parse(line).is_err() =>
            {
                lines.push(format!("{key}: \"{}\"", escaped(value.trim())));
                open_text = true;
            }
            Some(_) | None => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// Returns whether a line's key may have its value quoted; false for keys that limit an agent.
fn is_key(text: &str) -> bool {
    let part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    !text.is_empty() && text.chars().all(part) && !BOUNDING.contains(&text)
}

/// Keys that limit an agent, whose values are never quoted.
const BOUNDING: [&str; 5] = ["tools", "allowed-tools", "disallowedTools", "permission", "adjutant"];

/// Escapes a text for a double-quoted YAML string.
fn escaped(text: &str) -> String {
    // Models write `\n` for a line break in an unquoted text; other backslashes are kept.
    let bare = text.trim_matches('"');
    bare.replace('\\', "\\\\").replace("\\\\n", "\\n").replace('"', "\\\"").replace('\t', " ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(text: &str) -> Value {
        match read(text) {
            Ok(front) => front.keys,
            Err(why) => Value::String(why),
        }
    }

    #[test]
    fn yaml_values_have_the_expected_types() {
        for (text, expected) in [
            (
                "name: a\nn: 3\nf: 0.5\nyes: true\nnone: ~\nempty:",
                json!({"name": "a", "n": 3, "f": 0.5, "yes": true, "none": null, "empty": null}),
            ),
            (
                "a: 'true'\nb: \"3\"\nc: v3\nd: 2025-01-02",
                json!({"a": "true", "b": "3", "c": "v3", "d": "2025-01-02"}),
            ),
            (
                "tools: [Read, Grep]\nt:\n  - A\n  - B",
                json!({"tools": ["Read", "Grep"], "t": ["A", "B"]}),
            ),
            (
                "t:\n  bash: false\n  web: {a: deny}",
                json!({"t": {"bash": false, "web": {"a": "deny"}}}),
            ),
            (
                "d: |\n  two\n  lines\ne: >-\n  one\n  line",
                json!({"d": "two\nlines\n", "e": "one line"}),
            ),
            ("", json!({})),
            ("# only a comment", json!({})),
        ] {
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn unquoted_colons_are_accepted() {
        for (text, expected) in [
            (
                "name: a\ndescription: Use it when: always\ntools: Read",
                json!({"name": "a", "description": "Use it when: always", "tools": "Read"}),
            ),
            (
                "description: Examples: <example>user: \"hi\"\\nassistant: 'ho'</example>",
                json!({"description": "Examples: <example>user: \"hi\"\nassistant: 'ho'</example>"}),
            ),
            (
                "description: Use it: often\n  and: well\nmodel: opus",
                json!({"description": "Use it: often and: well", "model": "opus"}),
            ),
            ("description: *Bold* words", json!({"description": "*Bold* words"})),
            ("description: @someone: knows `x`", json!({"description": "@someone: knows `x`"})),
            (
                "description: [a] [b]\ntools:\n  bash: false",
                json!({"description": "[a] [b]", "tools": {"bash": false}}),
            ),
            ("description: \"quoted\" and: more", json!({"description": "quoted\" and: more"})),
        ] {
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn aliases_duplicates_and_deep_nesting_are_refused() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]";
        assert_eq!(check(bomb), json!("its YAML uses an alias in line 3; write the value out"));
        assert_eq!(check("t:\n  bash: false\n  bash: true"), json!("its YAML holds `bash` twice"));
        let deep = format!("a: {}x{}", "[".repeat(17), "]".repeat(17));
        assert_eq!(check(&deep), json!("its YAML nests deeper than 16"));
        let deeper = format!("tools: {}", "[".repeat(100_000));
        assert!(check(&deeper).is_string());
        assert!(check("- a\n- b").is_string());
        assert!(check("disallowedTools: [Edit\nname: x").is_string());
        assert_eq!(
            read("a: 1\na: 2").unwrap(),
            FrontMatter { keys: json!({"a": 1}), duplicates: vec!["a".into()] }
        );
    }

    #[test]
    fn front_matter_is_between_two_delimiter_lines() {
        assert_eq!(split("---\na: 1\n---\nbody\n"), Ok(("a: 1\n", "body\n")));
        assert_eq!(split("\u{feff}---\r\na: 1\r\n---\r\nbody"), Ok(("a: 1\r\n", "body")));
        assert_eq!(split("---\n---\n"), Ok(("", "")));
        assert_eq!(split("---\na: 1\n---"), Ok(("a: 1\n", "")));
        assert!(
            split("# Agents\n").is_err()
                && split("").is_err()
                && split("---\na: 1\nbody\n").is_err()
        );
    }

    proptest! {
        #[test]
        fn front_matter_parser_never_panics(text in "([a-z]{1,3}: |- |[\\[\\]{},:&*|>'\"#\n!?%@`\\\\]|[a-z \t\u{feff}ä]){0,60}") {
            let _front = read(&text);
            let _parts = split(&text);
        }
    }
}
