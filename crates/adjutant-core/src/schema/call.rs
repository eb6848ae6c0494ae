//! One call of the tool, and its strict reading.

use serde_json::Value;

use super::reader::{Reader, SchemaError};
use super::spec::{CallLimits, ReturnForm};
use crate::ids::{InvalidLabel, Label};
use crate::policy::Operation;

const CALL_KEYS: [&str; 3] = ["tasks", "concurrency", "return"];
const TASK_KEYS: [&str; 5] = ["label", "prompt", "context", "model", "max_output_tokens"];

/// One call of the tool, well formed and within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegateCall {
    /// The tasks, in the caller's order; equal labels are numbered when they are admitted.
    pub tasks: Vec<TaskSpec>,
    /// How many may run at once; `None` leaves it to the policy.
    pub concurrency: Option<u64>,
    /// The form of the results.
    pub return_form: ReturnForm,
}

/// One task of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// What the task is called; two tasks may share a name.
    pub label: Label,
    /// What is to be done.
    pub prompt: String,
    /// Files to start from, as the caller wrote them; nothing is checked about them here.
    pub context: Vec<String>,
    /// The model wished for.
    pub model: Option<String>,
    /// The output tokens wished for; `None` leaves it to the policy.
    pub max_output_tokens: Option<u64>,
    /// What kind of work it is; only a named agent's task says so.
    pub operation: Option<Operation>,
    /// The seconds wished for.
    pub timeout_s: Option<u64>,
}

impl TaskSpec {
    /// Asks for one thing, with nothing beside it.
    pub fn new(label: &str, prompt: &str) -> Result<Self, InvalidLabel> {
        Ok(Self {
            label: Label::new(label)?,
            prompt: prompt.to_owned(),
            context: Vec::new(),
            model: None,
            max_output_tokens: None,
            operation: None,
            timeout_s: None,
        })
    }
}

impl DelegateCall {
    /// Reads the arguments of a call.
    ///
    /// Strict: a property nobody knows, a number in quotes or a `null` is refused rather than
    /// guessed at, because every guess here would spend someone's money.
    pub fn parse(arguments: &Value, limits: &CallLimits) -> Result<Self, SchemaError> {
        let mut reader = Reader::default();
        let call = call(arguments, limits, &mut reader);
        reader.finish(call)
    }
}

fn call(arguments: &Value, limits: &CallLimits, reader: &mut Reader) -> Option<DelegateCall> {
    let map = reader.object("arguments", arguments)?;
    reader.known_keys("arguments", map, &CALL_KEYS);
    let tasks = match map.get("tasks") {
        Some(value) => tasks(value, limits, reader),
        None => reader.complain("tasks", "is required"),
    };
    let bounds = 1..=limits.max_concurrency;
    let concurrency =
        map.get("concurrency").and_then(|value| reader.number("concurrency", value, &bounds));
    let return_form = map.get("return").map_or(Some(ReturnForm::default()), |value| {
        reader.choice("return", value, &ReturnForm::ALL, ReturnForm::as_str)
    });
    Some(DelegateCall { tasks: tasks?, concurrency, return_form: return_form? })
}

fn tasks(value: &Value, limits: &CallLimits, reader: &mut Reader) -> Option<Vec<TaskSpec>> {
    let list = reader.array("tasks", value)?;
    if list.is_empty() {
        let message = format!("0 tasks, allowed are 1 to {}", limits.max_tasks);
        return reader.complain("tasks", message);
    }
    let tasks: Vec<Option<TaskSpec>> =
        list.iter().enumerate().map(|(nth, value)| task(nth, value, limits, reader)).collect();
    tasks.into_iter().collect()
}

fn task(nth: usize, value: &Value, limits: &CallLimits, reader: &mut Reader) -> Option<TaskSpec> {
    let path = format!("tasks[{nth}]");
    let at = |key: &str| format!("{path}.{key}");
    let map = reader.object(&path, value)?;
    reader.known_keys(&path, map, &TASK_KEYS);
    let label = label(&at("label"), map.get("label"), reader);
    let prompt = reader.required_string(&at("prompt"), map.get("prompt"));
    let prompt = prompt.and_then(|prompt| reader.filled(&at("prompt"), prompt));
    let context = map
        .get("context")
        .map_or(Some(Vec::new()), |value| context(&at("context"), value, limits, reader));
    let model = map.get("model").and_then(|value| text(&at("model"), value, reader));
    let max_output_tokens = map
        .get("max_output_tokens")
        .and_then(|value| reader.number(&at("max_output_tokens"), value, &limits.output_tokens));
    Some(TaskSpec {
        label: label?,
        prompt: prompt?.to_owned(),
        context: context?,
        model,
        max_output_tokens,
        operation: None,
        timeout_s: None,
    })
}

fn label(path: &str, value: Option<&Value>, reader: &mut Reader) -> Option<Label> {
    let text = reader.required_string(path, value)?;
    match Label::new(text) {
        Ok(label) => Some(label),
        Err(invalid) => reader.complain(path, invalid.to_string()),
    }
}

pub(super) fn context(
    path: &str,
    value: &Value,
    limits: &CallLimits,
    reader: &mut Reader,
) -> Option<Vec<String>> {
    let list = reader.array(path, value)?;
    let max = limits.max_context;
    if list.len() > max {
        return reader.complain(path, format!("{} paths, allowed are 0 to {max}", list.len()));
    }
    let paths: Vec<Option<String>> = list
        .iter()
        .enumerate()
        .map(|(nth, value)| text(&format!("{path}[{nth}]"), value, reader))
        .collect();
    paths.into_iter().collect()
}

pub(super) fn text(path: &str, value: &Value, reader: &mut Reader) -> Option<String> {
    let text = reader.string(path, value)?;
    reader.filled(path, text).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(arguments: Value) -> String {
        match DelegateCall::parse(&arguments, &CallLimits::default()) {
            Ok(call) => {
                let labels: Vec<_> = call.tasks.iter().map(|task| task.label.as_str()).collect();
                labels.join(", ")
            }
            Err(error) => {
                let lines: Vec<_> = error.complaints.iter().map(ToString::to_string).collect();
                lines.join("\n")
            }
        }
    }

    fn task_with(key: &str, value: Value) -> Value {
        let mut task = json!({"label": "a", "prompt": "p"});
        task[key] = value;
        json!({ "tasks": [task] })
    }

    fn call_with(key: &str, value: Value) -> Value {
        let mut call = json!({"tasks": [{"label": "a", "prompt": "p"}]});
        call[key] = value;
        call
    }

    #[test]
    fn requirement_42_a_full_call_is_read() {
        let arguments = json!({
            "tasks": [
                {"label": "security", "prompt": "Scan.", "context": ["src/auth.rs"],
                 "model": "anthropic/claude", "max_output_tokens": 100},
                {"label": "refactor", "prompt": "Propose."},
            ],
            "concurrency": 4,
            "return": "json",
        });
        let call = DelegateCall::parse(&arguments, &CallLimits::default()).unwrap();
        assert_eq!(call.concurrency, Some(4));
        assert_eq!(call.return_form, ReturnForm::Json);
        assert_eq!(
            call.tasks[0],
            TaskSpec {
                label: Label::new("security").unwrap(),
                prompt: "Scan.".to_owned(),
                context: vec!["src/auth.rs".to_owned()],
                model: Some("anthropic/claude".to_owned()),
                max_output_tokens: Some(100),
                operation: None,
                timeout_s: None,
            }
        );
        assert_eq!(
            call.tasks[1],
            TaskSpec {
                label: Label::new("refactor").unwrap(),
                prompt: "Propose.".to_owned(),
                context: Vec::new(),
                model: None,
                max_output_tokens: None,
                operation: None,
                timeout_s: None,
            }
        );
        let small = json!({"tasks": [{"label": "a", "prompt": "p"}]});
        let call = DelegateCall::parse(&small, &CallLimits::default()).unwrap();
        assert_eq!((call.concurrency, call.return_form), (None, ReturnForm::Markdown));
    }

    #[test]
    fn requirement_53_a_call_has_a_task_and_how_many_is_for_the_policy_to_say() {
        let of = |count: usize| json!({"tasks": vec![json!({"label": "a", "prompt": "p"}); count]});
        assert_eq!(check(of(0)), "tasks: 0 tasks, allowed are 1 to 8");
        assert_eq!(check(of(9)), "a, a, a, a, a, a, a, a, a");
    }

    #[test]
    fn requirement_53_a_prompt_is_not_blank() {
        for prompt in ["", " ", "\n\t"] {
            let text = check(task_with("prompt", prompt.into()));
            assert_eq!(text, "tasks[0].prompt: must not be blank");
        }
    }

    #[test]
    fn requirement_24_the_bounds_hold_at_their_edges() {
        for (key, value, expected) in [
            ("label", json!(""), "tasks[0].label: label has 0 characters, allowed are 1 to 32"),
            (
                "label",
                json!("x".repeat(33)),
                "tasks[0].label: label has 33 characters, allowed are 1 to 32",
            ),
            ("context", json!(vec!["a"; 10]), "a"),
            ("context", json!(vec!["a"; 11]), "tasks[0].context: 11 paths, allowed are 0 to 10"),
            ("context", json!(["a", ""]), "tasks[0].context[1]: must not be blank"),
            (
                "max_output_tokens",
                json!(99),
                "tasks[0].max_output_tokens: 99 is outside 100 to 16384",
            ),
            ("max_output_tokens", json!(100), "a"),
            ("max_output_tokens", json!(16_384), "a"),
            (
                "max_output_tokens",
                json!(16_385),
                "tasks[0].max_output_tokens: 16385 is outside 100 to 16384",
            ),
            ("model", json!(" "), "tasks[0].model: must not be blank"),
        ] {
            assert_eq!(check(task_with(key, value)), expected);
        }
        for (key, value, expected) in [
            ("concurrency", json!(0), "concurrency: 0 is outside 1 to 4"),
            ("concurrency", json!(4), "a"),
            ("concurrency", json!(4.0), "a"),
            ("concurrency", json!(5), "concurrency: 5 is outside 1 to 4"),
            ("concurrency", json!(-1), "concurrency: -1 is outside 1 to 4"),
            ("concurrency", json!(1e300), "concurrency: 1e+300 is outside 1 to 4"),
            ("concurrency", json!(2.5), "concurrency: 2.5 is not a whole number"),
            ("concurrency", json!("2"), "concurrency: must be a whole number, not a string"),
            ("return", json!("xml"), "return: `xml` is not one of markdown, json"),
            ("return", json!(null), "return: must be a string, not null"),
        ] {
            assert_eq!(check(call_with(key, value)), expected);
        }
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let arguments = json!({
            "tasks": [
                {"label": "a", "promt": "p"},
                "scan",
                {"label": 1, "prompt": null, "context": "a.rs", "foo": 1},
            ],
            "concurrencey": 2,
            "return": 1,
        });
        insta::assert_snapshot!(check(arguments), @r"
        arguments: unknown property `concurrencey`, did you mean `concurrency`?
        tasks[0]: unknown property `promt`, did you mean `prompt`?
        tasks[0].prompt: is required
        tasks[1]: must be an object, not a string
        tasks[2]: unknown property `foo`
        tasks[2].label: must be a string, not a number
        tasks[2].prompt: must be a string, not null
        tasks[2].context: must be an array, not a string
        return: must be a string, not a number
        ");
        assert_eq!(check(json!([])), "arguments: must be an object, not an array");
        assert_eq!(check(json!({})), "tasks: is required");
        assert_eq!(check(json!({"tasks": {}})), "tasks: must be an array, not an object");
    }

    #[test]
    fn an_error_reads_as_one_line_and_has_a_code() {
        let error = DelegateCall::parse(&json!({"task": []}), &CallLimits::default()).unwrap_err();
        assert_eq!(error.code(), crate::Code::ValidationFailed);
        insta::assert_snapshot!(error, @r"
        arguments: unknown property `task`, did you mean `tasks`?; tasks: is required
        ");
    }

    fn any_arguments() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (0_u64..6).prop_map(Value::from),
            "json|a|\\PC{0,40}".prop_map(Value::from),
        ];
        let key = "tasks|concurrency|return|label|prompt|context|model|max_output_tokens|other";
        leaf.prop_recursive(4, 60, 10, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..10).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..6)
                    .prop_map(|map| { map.into_iter().collect::<serde_json::Map<_, _>>().into() }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_call_is_read_within_its_bounds_or_refused_with_a_reason(value in any_arguments()) {
            match DelegateCall::parse(&value, &CallLimits::default()) {
                Ok(call) => prop_assert!((1..=8).contains(&call.tasks.len())),
                Err(error) => prop_assert!(!error.complaints.is_empty()),
            }
        }
    }
}
