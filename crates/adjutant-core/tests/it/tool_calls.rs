//! Calls in the shapes of other products: what they are read as, and that none of them widens rights.
//!
//! `tool_calls.jsonl` has one call per line. `is` and `with` are our tool and arguments, `ignored` the arguments that a
//! remark names, `refused` a part of the answer that says what to do instead, and `as_written` a call that is not
//! translated, because its name is exact or unknown.

use std::collections::BTreeSet;

use adjutant_core::ToolCall;
use adjutant_core::tool_call::{TranslatedCall, find_alias, tool_aliases, translate};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

const CORPUS: &str = include_str!("tool_calls.jsonl");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CorpusCall {
    from: String,
    call: String,
    args: Value,
    is: Option<String>,
    with: Option<Value>,
    #[serde(default)]
    ignored: Vec<String>,
    remark: Option<String>,
    refused: Option<String>,
    #[serde(default)]
    as_written: bool,
}

fn corpus() -> Vec<CorpusCall> {
    CORPUS.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn call(name: &str, arguments: Value) -> ToolCall {
    let malformed = arguments.is_string();
    ToolCall { id: "1".into(), name: name.into(), arguments, malformed }
}

fn read(name: &str, arguments: &Value) -> Option<TranslatedCall> {
    translate(&call(name, arguments.clone()), |_| false)
}

impl CorpusCall {
    /// Returns what this row expects, in the words of [`CorpusCall::found`].
    fn expected(&self) -> String {
        match (&self.is, &self.refused) {
            (Some(tool), None) if !self.as_written => {
                let names: Vec<String> =
                    self.ignored.iter().map(|name| format!("`{name}`")).collect();
                let ignored = (!names.is_empty()).then(|| format!("ignored: {}", names.join(", ")));
                let remarks = ignored.into_iter().chain(self.remark.clone());
                let remarks: Vec<String> = remarks.map(|remark| in_order(&remark)).collect();
                let arguments = self.with.clone().unwrap_or_default();
                format!("{tool} {} {remarks:?}", sorted(arguments))
            }
            (None, Some(part)) if !self.as_written => format!("refused: {part}"),
            (None, None) if self.as_written => "as written".to_owned(),
            _ => "a row with exactly one expectation".to_owned(),
        }
    }

    fn found(&self) -> String {
        match read(&self.call, &self.args) {
            None => "as written".to_owned(),
            Some(TranslatedCall::RunAs { tool, arguments, remarks }) => {
                let remarks: Vec<String> = remarks.iter().map(|remark| in_order(remark)).collect();
                format!("{tool} {} {remarks:?}", sorted(arguments))
            }
            Some(TranslatedCall::Refused { text }) => {
                let part = self.refused.as_deref().filter(|part| text.contains(part));
                format!("refused: {}", part.unwrap_or(&text))
            }
        }
    }
}

/// Sorts the names of arguments, whose order means nothing.
fn sorted(mut arguments: Value) -> Value {
    arguments.sort_all_objects();
    arguments
}

/// Sorts the names in a remark about ignored arguments.
fn in_order(remark: &str) -> String {
    let Some(names) = remark.strip_prefix("ignored: ") else { return remark.to_owned() };
    let names: BTreeSet<&str> = names.split(", ").collect();
    format!("ignored: {names:?}")
}

#[test]
fn every_call_of_the_corpus_is_read_as_stated() {
    let rows = corpus();
    assert!(rows.len() >= 300, "{} calls", rows.len());
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| row.found() != row.expected())
        .map(|row| {
            format!(
                "{}: {} {}\n  expected {}\n  found    {}",
                row.from,
                row.call,
                row.args,
                row.expected(),
                row.found()
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} calls:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn a_translated_call_is_not_translated_again() {
    for row in corpus() {
        if let Some(TranslatedCall::RunAs { tool, arguments, .. }) = read(&row.call, &row.args) {
            assert_eq!(
                read(&tool, &arguments),
                None,
                "{} {} as {tool} {arguments}",
                row.call,
                row.args
            );
        }
    }
}

#[test]
fn an_exact_name_wins_over_an_alias() {
    for row in corpus() {
        let made = call(&row.call, row.args.clone());
        assert_eq!(translate(&made, |name| name == row.call), None, "{}", row.call);
    }
}

fn any_arguments() -> impl Strategy<Value = Value> {
    let rows = corpus();
    let names: Vec<String> =
        rows.iter().filter_map(|row| row.args.as_object()).flat_map(Map::keys).cloned().collect();
    let values: Vec<Value> =
        rows.iter().filter_map(|row| row.args.as_object()).flat_map(Map::values).cloned().collect();
    let name = prop_oneof![4 => proptest::sample::select(names), 1 => "[a-z_-]{0,12}"];
    let value = prop_oneof![
        4 => proptest::sample::select(values),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(|it| json!(it)),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => ".{0,30}".prop_map(Value::from),
    ];
    proptest::collection::vec((name, value), 0..6)
        .prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

proptest! {
    #[test]
    fn no_call_becomes_a_tool_that_its_name_does_not_stand_for(
        index in 0..tool_aliases().len(),
        arguments in any_arguments(),
    ) {
        let alias = &tool_aliases()[index];
        if let Some(TranslatedCall::RunAs { tool, arguments, .. }) = read(alias.name, &arguments) {
            prop_assert!(alias.may_become(&tool), "{} became {tool} {arguments}", alias.name);
            prop_assert!(!["Delegate", "Task", "Return"].contains(&tool.as_str()));
            prop_assert_eq!(find_alias(alias.name).map(|it| it.name), Some(alias.name));
        }
    }

    #[test]
    fn our_own_names_never_become_another_tool(
        index in 0..9_usize,
        arguments in any_arguments(),
    ) {
        let own = ["Read", "Grep", "Glob", "Note", "Edit", "Write", "Run", "WebFetch", "WebSearch"][index];
        if let Some(TranslatedCall::RunAs { tool, .. }) = read(own, &arguments) {
            prop_assert_eq!(tool, own);
        }
    }
}
