//! The strict parser of `Delegate` calls.
//!
//! A [`DelegateCall`] is a whole valid call, a [`TaskSpec`] one of its tasks.

use serde_json::Value;

use super::complaint::{ComplaintCollector, SchemaError};
use super::delegate_tool::{CallLimits, ReturnFormat};
use crate::ids::{InvalidLabel, Label};
use crate::policy::Operation;
use adjutant_formats::fields::{FieldFault, FieldProblem, FieldReader, FieldValue};

const CALL_KEYS: [&str; 3] = ["tasks", "concurrency", "return"];
const TASK_KEYS: [&str; 5] = ["label", "prompt", "context", "model", "max_output_tokens"];

/// The arguments of a valid `Delegate` call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegateCall {
    /// The tasks in the caller's order; equal labels get numbers at admission.
    pub tasks: Vec<TaskSpec>,
    /// How many tasks may run at once; `None` uses the policy's default.
    pub concurrency: Option<u64>,
    /// The format of the results.
    pub return_form: ReturnFormat,
}

/// One task of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// The label; two tasks may have the same one.
    pub label: Label,
    /// The prompt.
    pub prompt: String,
    /// Context files as the caller wrote them; the paths are not checked here.
    pub context: Vec<String>,
    /// The requested model.
    pub model: Option<String>,
    /// The requested output tokens; `None` uses the policy's default.
    pub max_output_tokens: Option<u64>,
    /// The operation; only `Task` calls have one.
    pub operation: Option<Operation>,
    /// The requested timeout in seconds.
    pub timeout_s: Option<u64>,
}

impl TaskSpec {
    /// Returns a task with only a label and a prompt.
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
    /// Parses the arguments of a call.
    ///
    /// Unknown properties, numbers in quotes and `null` are errors rather than guesses, because a
    /// wrong guess would spend money.
    pub fn parse(arguments: &Value, limits: &CallLimits) -> Result<Self, SchemaError> {
        let mut complaints = ComplaintCollector::default();
        let call = call(arguments.into(), limits, &mut complaints);
        complaints.finish(call)
    }
}

fn call(
    arguments: FieldValue<'_>,
    limits: &CallLimits,
    complaints: &mut ComplaintCollector,
) -> Option<DelegateCall> {
    let fields = complaints.keep(arguments_of(arguments))?;
    complaints.refuse_unknown("arguments", &fields, &CALL_KEYS);
    let tasks = tasks(&fields, limits, complaints);
    let running = |value: FieldValue<'_>| value.integer(1..=limits.max_concurrency);
    let concurrency = complaints.keep(fields.read("concurrency", running));
    let forms = ReturnFormat::ALL.map(|form| (form.as_str(), form));
    let return_form = complaints.keep(fields.read("return", |value| value.choice(&forms)));
    Some(DelegateCall {
        tasks: tasks?,
        concurrency: concurrency?,
        return_form: return_form?.unwrap_or_default(),
    })
}

/// Opens the arguments as an object; errors name `arguments` only if they are not an object.
pub(super) fn arguments_of(value: FieldValue<'_>) -> Result<FieldReader<'_>, FieldFault> {
    FieldReader::new(value, "").map_err(|problem| FieldFault {
        path: "arguments".to_owned(),
        at: 0,
        problem,
    })
}

fn tasks(
    fields: &FieldReader<'_>,
    limits: &CallLimits,
    complaints: &mut ComplaintCollector,
) -> Option<Vec<TaskSpec>> {
    let list = complaints.keep(fields.require("tasks", |value| {
        let list = value.items()?;
        let none = || format!("0 tasks, allowed are 1 to {}", limits.max_tasks).into();
        if list.is_empty() { Err(none()) } else { Ok(list) }
    }))?;
    let task = |(nth, value)| {
        let fields = complaints.keep(fields.item("tasks", nth, value))?;
        task(nth, &fields, limits, complaints)
    };
    let tasks: Vec<Option<TaskSpec>> = list.into_iter().enumerate().map(task).collect();
    tasks.into_iter().collect()
}

fn task(
    nth: usize,
    fields: &FieldReader<'_>,
    limits: &CallLimits,
    complaints: &mut ComplaintCollector,
) -> Option<TaskSpec> {
    complaints.refuse_unknown(&format!("tasks[{nth}]"), fields, &TASK_KEYS);
    let label = complaints.keep(fields.require("label", label));
    let prompt = complaints.keep(fields.require("prompt", FieldValue::non_blank_string));
    let context = context(fields, limits, complaints);
    let model = complaints.keep(fields.read("model", FieldValue::non_blank_string));
    let tokens = |value: FieldValue<'_>| value.integer(limits.output_tokens.clone());
    let max_output_tokens = complaints.keep(fields.read("max_output_tokens", tokens));
    Some(TaskSpec {
        label: label?,
        prompt: prompt?.into_owned(),
        context: context?,
        model: model?.map(Into::into),
        max_output_tokens: max_output_tokens?,
        operation: None,
        timeout_s: None,
    })
}

fn label(value: FieldValue<'_>) -> Result<Label, FieldProblem> {
    Label::new(&value.string()?).map_err(|invalid| invalid.to_string().into())
}

pub(super) fn context(
    fields: &FieldReader<'_>,
    limits: &CallLimits,
    complaints: &mut ComplaintCollector,
) -> Option<Vec<String>> {
    let max = limits.max_context;
    let few = |value: FieldValue<'_>| match value.items()?.len() {
        count if count > max => Err(format!("{count} paths, allowed are 0 to {max}").into()),
        _ => Ok(()),
    };
    complaints.keep(fields.read("context", few))?;
    complaints
        .keep_all(fields.read_items("context", |path| path.non_blank_string().map(Into::into)))
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
    fn requirement_42_a_call_with_every_property_is_parsed() {
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
        assert_eq!(call.return_form, ReturnFormat::Json);
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
        assert_eq!((call.concurrency, call.return_form), (None, ReturnFormat::Markdown));
    }

    #[test]
    fn requirement_53_a_call_needs_a_task_and_the_policy_limits_their_number() {
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
                "tasks[0].max_output_tokens: must be a whole number from 100 to 16384, not 99",
            ),
            ("max_output_tokens", json!(100), "a"),
            ("max_output_tokens", json!(16_384), "a"),
            (
                "max_output_tokens",
                json!(16_385),
                "tasks[0].max_output_tokens: must be a whole number from 100 to 16384, not 16385",
            ),
            ("model", json!(" "), "tasks[0].model: must not be blank"),
        ] {
            assert_eq!(check(task_with(key, value)), expected);
        }
        for (key, value, expected) in [
            ("concurrency", json!(0), "concurrency: must be a whole number from 1 to 4, not 0"),
            ("concurrency", json!(4), "a"),
            ("concurrency", json!(4.0), "a"),
            ("concurrency", json!(5), "concurrency: must be a whole number from 1 to 4, not 5"),
            ("concurrency", json!(-1), "concurrency: must be a whole number from 1 to 4, not -1"),
            (
                "concurrency",
                json!(1e300),
                "concurrency: must be a whole number from 1 to 4, not 1e+300",
            ),
            ("concurrency", json!(2.5), "concurrency: must be a whole number from 1 to 4, not 2.5"),
            (
                "concurrency",
                json!("2"),
                "concurrency: must be a whole number from 1 to 4, not a string",
            ),
            ("return", json!("xml"), "return: must be one of markdown, json, not `xml`"),
            ("return", json!(null), "return: must be a string, not null"),
        ] {
            assert_eq!(check(call_with(key, value)), expected);
        }
    }

    #[test]
    fn all_errors_of_a_call_are_reported_at_once() {
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
    fn an_error_reads_as_one_line() {
        let error = DelegateCall::parse(&json!({"task": []}), &CallLimits::default()).unwrap_err();
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
        fn a_call_is_within_its_bounds_or_refused_with_an_error(value in any_arguments()) {
            match DelegateCall::parse(&value, &CallLimits::default()) {
                Ok(call) => prop_assert!((1..=8).contains(&call.tasks.len())),
                Err(error) => prop_assert!(!error.complaints.is_empty()),
            }
        }
    }
}
