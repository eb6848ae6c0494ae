//! Properties of what is forwarded, for random requests. The checks know nothing of the gateway's code.

use adjutant_model::wire::Wire;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::parse;

/// Fields of all four APIs; each request gets some of them, fitting or not.
const FIELDS: [&str; 30] = [
    "tools",
    "tools",
    "tools",
    "input",
    "tool_choice",
    "toolConfig",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "generationConfig",
    "generation_config",
    "thinking",
    "stream",
    "stream_options",
    "store",
    "service_tier",
    "web_search_options",
    "mcp_servers",
    "container",
    "plugins",
    "n",
    "messages",
    "contents",
    "context_management",
    "metadata",
    "system",
    "betas",
    "models",
    "background",
    "temperature",
];

fn tool() -> impl Strategy<Value = Value> {
    let kinds = [
        "function",
        "custom",
        "local_shell",
        "apply_patch",
        "bash_20250124",
        "text_editor_20250728",
        "computer_20250124",
        "memory_20250818",
        "web_search_20250305",
        "web_fetch_20250910",
        "mcp_toolset",
        "web_search",
        "web_search_preview",
        "file_search",
        "code_interpreter",
        "mcp",
        "image_generation",
        "computer",
        "tool_search",
        "x_search",
        "bash_",
        "functions",
    ];
    let fields = [
        "googleSearch",
        "urlContext",
        "codeExecution",
        "functionDeclarations",
        "function_declarations",
    ];
    let leaf = prop_oneof![
        6 => select(kinds.to_vec()).prop_map(|kind| json!({"type":kind,"name":kind})),
        2 => select(fields.to_vec()).prop_map(|field| json!({field:[]})),
        1 => Just(json!({"name":"Read","input_schema":{"type":"web_search"}})),
        1 => Just(json!({"functionDeclarations":[{"name":"f"}],"googleMaps":{}})),
        1 => select(vec!["local", "container_auto"])
            .prop_map(|place| json!({"type":"shell","environment":{"type":place}})),
        1 => Just(json!({"type":"tool_search","execution":"client"})),
        1 => select(vec![Value::Null, json!(7), json!("web_search"), json!([]), json!({"type":null}), json!({"type":[]})]),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let tools = prop::collection::vec(inner, 0..3);
        tools.prop_map(|tools| json!({"type":"namespace","name":"n","tools":tools}))
    })
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..200_000_u64).prop_map(Value::from),
        select(vec![
            json!(null),
            json!(-1),
            json!(1e9),
            json!("50000"),
            json!("x"),
            json!(u64::MAX),
            json!([]),
            json!(true)
        ]),
    ]
}

fn field_value() -> impl Strategy<Value = Value> {
    let config = (number(), number(), number()).prop_map(|(camel, snake, budget)| {
        json!({"maxOutputTokens":camel,"max_output_tokens":snake,"thinkingConfig":{"thinkingBudget":budget}})
    });
    prop_oneof![
        4 => prop::collection::vec(tool(), 0..5).prop_map(Value::from),
        3 => number(),
        2 => config,
        1 => number().prop_map(|budget| json!({"type":"enabled","budget_tokens":budget})),
        1 => prop::collection::vec(tool(), 0..3).prop_map(|tools| json!([{"type":"additional_tools","tools":tools}])),
        2 => select(vec![
            json!("auto"), json!("required"), json!("none"), json!("default"), json!({"type":"any"}), json!({"type":"auto"}),
            json!({"type":"tool","name":"web_search"}), json!({"type":"web_search"}), json!(false), json!({}),
            json!({"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"type":"function"}]}),
            json!({"functionCallingConfig":{"mode":"ANY"}}), json!(null),
        ]),
    ]
}

fn request() -> impl Strategy<Value = Value> {
    let fields = prop::collection::vec((select(&FIELDS), field_value()), 0..10);
    fields.prop_map(|fields| {
        let mut body = Map::from_iter([("model".to_owned(), json!("m"))]);
        body.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Value::Object(body)
    })
}

/// Returns the output that a provider of this wire would allow at most; `None` without a limit.
fn allowed_output(wire: Wire, body: &Value) -> Option<u64> {
    let limits: Vec<&Value> = match wire {
        Wire::Anthropic => vec![&body["max_tokens"]],
        Wire::Chat => ["max_tokens", "max_completion_tokens"].map(|name| &body[name]).into(),
        Wire::Responses => vec![&body["max_output_tokens"]],
        Wire::Gemini => ["generationConfig", "generation_config"]
            .into_iter()
            .flat_map(|config| {
                ["maxOutputTokens", "max_output_tokens"].map(|name| &body[config][name])
            })
            .collect(),
    };
    let limits: Vec<&Value> = limits.into_iter().filter(|limit| !limit.is_null()).collect();
    assert!(limits.iter().all(|limit| limit.is_u64()), "{body}");
    limits.into_iter().filter_map(Value::as_u64).max()
}

/// Returns a tool that the provider would run.
fn provider_tool(wire: Wire, tool: &Value) -> Option<&Value> {
    let local: &[&str] = match wire {
        Wire::Anthropic => &[
            "custom",
            "bash_20250124",
            "text_editor_20250728",
            "computer_20250124",
            "memory_20250818",
            "bash_",
        ],
        Wire::Chat => &["function", "custom"],
        Wire::Responses => &["function", "custom", "local_shell", "apply_patch"],
        Wire::Gemini => {
            let functions = ["functionDeclarations", "function_declarations"];
            let only_functions = tool
                .as_object()
                .is_some_and(|tool| tool.keys().all(|name| functions.contains(&name.as_str())));
            return (!only_functions).then_some(tool);
        }
    };
    let Some(kind) = tool["type"].as_str() else {
        let untyped = wire == Wire::Anthropic && tool.is_object() && tool["type"].is_null();
        return (!untyped).then_some(tool);
    };
    if wire == Wire::Responses {
        match kind {
            "shell" if tool["environment"]["type"] == "local" => return None,
            "tool_search" if tool["execution"] == "client" => return None,
            "namespace" => {
                return tool["tools"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find_map(|tool| provider_tool(wire, tool));
            }
            _ => {}
        }
    }
    (!local.contains(&kind)).then_some(tool)
}

/// Returns all tools of a request, also those in the conversation of Responses.
fn tools(wire: Wire, body: &Value) -> Vec<&Value> {
    let listed = match &body["tools"] {
        Value::Array(tools) => tools.iter().collect(),
        Value::Null => Vec::new(),
        one @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![one]
        }
    };
    let input = body["input"].as_array().into_iter().flatten().filter(|_| wire == Wire::Responses);
    listed
        .into_iter()
        .chain(input.flat_map(|item| item["tools"].as_array().into_iter().flatten()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn no_forwarded_request_exceeds_its_grant_or_uses_a_tool_of_the_provider(
        wire in select(&Wire::ALL),
        body in request(),
        granted in 1..150_000_u64,
    ) {
        let Ok(request) = parse(wire, &body) else { return Ok(()) };
        let forwarded = request.rewritten("real", granted);
        let body: Value = serde_json::from_slice(&forwarded).unwrap();
        let output = allowed_output(wire, &body);
        prop_assert!(output.is_some_and(|output| output <= granted), "{granted}: {body}");
        for tool in tools(wire, &body) {
            prop_assert_eq!(provider_tool(wire, tool), None, "{}", body);
        }
        for field in ["web_search_options", "plugins", "models"] {
            prop_assert!(wire != Wire::Chat || body[field].is_null(), "{body}");
        }
        for field in ["mcp_servers", "container"] {
            prop_assert!(wire != Wire::Anthropic || body[field].is_null(), "{body}");
        }
        prop_assert!(wire != Wire::Responses || body["store"] == false, "{body}");
        let budget = body["thinking"]["budget_tokens"].as_u64();
        if wire == Wire::Anthropic && let Some(budget) = budget.filter(|budget| *budget >= 1_024) {
            prop_assert!(budget < body["max_tokens"].as_u64().unwrap(), "{body}");
        }
        // What was forwarded once is forwarded unchanged.
        let again = parse(wire, &body).unwrap();
        prop_assert_eq!(again.removed.clone(), Vec::<String>::new(), "{}", body);
        prop_assert_eq!(again.rewritten("real", granted), forwarded, "{}", body);
    }
}
