//! What is forwarded of a request: everything but what is capped, removed or set.

use std::fmt::Write;

use adjutant_model::gateway::{ChatCapField, GenerateEndpoint, ServedRequest};
use adjutant_model::wire::Wire;
use serde_json::{Value, json};

use super::{endpoint, parse, served};

/// Shows each request as it is forwarded with 4,000 tokens of output.
fn check(requests: &[(Wire, Value)]) -> String {
    let mut shown = String::new();
    for (wire, body) in requests {
        let request = served(*wire, body);
        let forwarded = request.rewritten("big-model", 4_000);
        let removed = request.removed.join(", ");
        writeln!(shown, "{wire} {:?} [{removed}]", request.requested_output).unwrap();
        writeln!(shown, "  {}", String::from_utf8_lossy(&forwarded)).unwrap();
    }
    shown
}

#[test]
fn requests_of_the_four_agents_keep_everything_but_their_limits() {
    insta::assert_snapshot!(check(&[
        (Wire::Anthropic, json!({
            "model": "small-model", "max_tokens": 128_000, "stream": true,
            "system": [{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
            "tools": [
                {"name":"Bash","description":"Runs.","input_schema":{"type":"object"}},
                {"type":"custom","name":"Read","input_schema":{"type":"object"}},
                {"type":"bash_20250124","name":"bash"},
                {"type":"text_editor_20250728","name":"str_replace_based_edit_tool"},
            ],
            "thinking": {"type":"enabled","budget_tokens":31_999},
            "context_management": {"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
            "metadata": {"user_id":"{}"},
            "messages": [{"role":"user","content":[{"type":"text","text":"Größe → 🚀"}]}],
        })),
        (Wire::Responses, json!({
            "model": "small-model", "instructions": "Be brief.", "store": false, "stream": true,
            "include": ["reasoning.encrypted_content"], "prompt_cache_key": "thread",
            "tools": [
                {"type":"function","name":"exec","parameters":{},"strict":false},
                {"type":"custom","name":"apply_patch","format":{"type":"grammar"}},
                {"type":"local_shell"}, {"type":"shell","environment":{"type":"local"}},
                {"type":"namespace","name":"mcp","tools":[{"type":"function","name":"a"}]},
                {"type":"tool_search","execution":"client"},
            ],
            "input": [{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}],
        })),
        (Wire::Chat, json!({
            "model": "small-model", "max_tokens": 32_000, "temperature": 0.5, "stream": true,
            "messages": [{"role":"user","content":"Hi"}],
            "tools": [{"type":"function","function":{"name":"read","parameters":{}}}],
            "tool_choice": "auto",
        })),
        (Wire::Gemini, json!({
            "contents": [{"role":"user","parts":[{"text":"Hi"}]}],
            "tools": [{"functionDeclarations":[{"name":"read"}]}],
            "generationConfig": {"temperature":1,"thinkingConfig":{"includeThoughts":true,"thinkingBudget":8192}},
        })),
    ]), @r##"
    anthropic Some(128000) []
      {"model":"big-model","max_tokens":4000,"stream":true,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"Bash","description":"Runs.","input_schema":{"type":"object"}},{"type":"custom","name":"Read","input_schema":{"type":"object"}},{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"str_replace_based_edit_tool"}],"thinking":{"type":"enabled","budget_tokens":2000},"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},"metadata":{"user_id":"{}"},"messages":[{"role":"user","content":[{"type":"text","text":"Größe → 🚀"}]}]}
    responses None []
      {"model":"big-model","instructions":"Be brief.","store":false,"stream":true,"include":["reasoning.encrypted_content"],"prompt_cache_key":"thread","tools":[{"type":"function","name":"exec","parameters":{},"strict":false},{"type":"custom","name":"apply_patch","format":{"type":"grammar"}},{"type":"local_shell"},{"type":"shell","environment":{"type":"local"}},{"type":"namespace","name":"mcp","tools":[{"type":"function","name":"a"}]},{"type":"tool_search","execution":"client"}],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}],"max_output_tokens":4000}
    chat Some(32000) []
      {"model":"big-model","max_tokens":4000,"temperature":0.5,"stream":true,"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"read","parameters":{}}}],"tool_choice":"auto","stream_options":{"include_usage":true}}
    gemini None []
      {"contents":[{"role":"user","parts":[{"text":"Hi"}]}],"tools":[{"functionDeclarations":[{"name":"read"}]}],"generationConfig":{"temperature":1,"thinkingConfig":{"includeThoughts":true,"thinkingBudget":2000},"maxOutputTokens":4000}}
    "##);
}

#[test]
fn a_limit_is_lowered_or_added_and_never_raised() {
    let chat = |fields: Value| {
        let mut body = json!({"model":"m","messages":[]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        (Wire::Chat, body)
    };
    let gemini = |fields: Value| (Wire::Gemini, fields);
    insta::assert_snapshot!(check(&[
        (Wire::Anthropic, json!({"model":"m","max_tokens":100})),
        (Wire::Anthropic, json!({"model":"m"})),
        (Wire::Anthropic, json!({"model":"m","max_tokens":"many"})),
        (Wire::Responses, json!({"model":"m","max_output_tokens":100,"store":true})),
        (Wire::Responses, json!({"model":"m","max_output_tokens":null})),
        chat(json!({})),
        chat(json!({"max_completion_tokens":9_000})),
        chat(json!({"max_completion_tokens":100,"max_tokens":9_000})),
        chat(json!({"max_tokens":null,"stream":false})),
        chat(json!({"stream":true,"stream_options":{"include_obfuscation":false}})),
        chat(json!({"stream":"true","stream_options":null})),
        gemini(json!({})),
        gemini(json!({"model":"models/other","generation_config":{"max_output_tokens":"9000"}})),
        gemini(json!({"generation_config":{"max_output_tokens":50},"generationConfig":{"maxOutputTokens":9_000}})),
        gemini(json!({"generationConfig":null})),
    ]), @r##"
    anthropic Some(100) []
      {"model":"big-model","max_tokens":100}
    anthropic None []
      {"model":"big-model","max_tokens":4000}
    anthropic None []
      {"model":"big-model","max_tokens":4000}
    responses Some(100) [store]
      {"model":"big-model","max_output_tokens":100,"store":false}
    responses None []
      {"model":"big-model","max_output_tokens":4000,"store":false}
    chat None []
      {"model":"big-model","messages":[],"max_tokens":4000}
    chat Some(9000) []
      {"model":"big-model","messages":[],"max_completion_tokens":4000}
    chat Some(100) []
      {"model":"big-model","messages":[],"max_completion_tokens":100,"max_tokens":4000}
    chat None []
      {"model":"big-model","messages":[],"max_tokens":4000,"stream":false}
    chat None []
      {"model":"big-model","messages":[],"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true},"max_tokens":4000}
    chat None []
      {"model":"big-model","messages":[],"stream":false,"stream_options":null,"max_tokens":4000}
    gemini None []
      {"generationConfig":{"maxOutputTokens":4000}}
    gemini Some(9000) []
      {"generation_config":{"max_output_tokens":4000}}
    gemini Some(50) []
      {"generation_config":{"max_output_tokens":50},"generationConfig":{"maxOutputTokens":4000}}
    gemini None []
      {"generationConfig":{"maxOutputTokens":4000}}
    "##);
    let request = served(Wire::Chat, &json!({"model":"m"}));
    let official = request.rewritten_with("m", 10, ChatCapField::MaxCompletionTokens);
    assert_eq!(official, r#"{"model":"m","max_completion_tokens":10}"#);
}

#[test]
fn a_thinking_budget_is_lowered_with_the_output_or_disabled() {
    let mut shown = String::new();
    for (max_tokens, budget, granted) in [
        (32_000, 16_000, 64_000),
        (32_000, 31_999, 32_000),
        (32_000, 16_000, 8_000),
        (32_000, 2_000, 8_000),
        (32_000, 16_000, 2_000),
        (32_000, 16_000, 1_025),
        (32_000, 16_000, 1_024),
        // More than the output is allowed between tool calls; here it would exceed the grant.
        (8_000, 16_000, 8_000),
        (32_000, 500, 8_000),
    ] {
        let body = json!({
            "model":"m", "max_tokens":max_tokens,
            "thinking":{"type":"enabled","budget_tokens":budget},
            "context_management":{"edits":[{"type":"clear_thinking_20251015"},{"type":"clear_tool_uses_20250919"}]},
        });
        let forwarded = served(Wire::Anthropic, &body).rewritten("m", granted);
        let forwarded: Value = serde_json::from_slice(&forwarded).unwrap();
        let edits = forwarded["context_management"]["edits"].as_array().unwrap().len();
        writeln!(
            shown,
            "{max_tokens}/{budget}, granted {granted}: {} {} {edits}",
            forwarded["max_tokens"], forwarded["thinking"]
        )
        .unwrap();
    }
    for (config, granted) in [
        (json!({"thinkingBudget":8192}), 65_536),
        (json!({"thinkingBudget":8192}), 4_000),
        (json!({"thinking_budget":8192}), 400),
        (json!({"thinkingBudget":-1}), 400),
        (json!({"thinkingBudget":0}), 400),
        (json!({"thinkingLevel":"high"}), 400),
    ] {
        let body = json!({"generationConfig":{"thinkingConfig":config}});
        let forwarded = served(Wire::Gemini, &body).rewritten("m", granted);
        writeln!(shown, "gemini, granted {granted}: {}", String::from_utf8_lossy(&forwarded))
            .unwrap();
    }
    insta::assert_snapshot!(shown, @r##"
    32000/16000, granted 64000: 32000 {"type":"enabled","budget_tokens":16000} 2
    32000/31999, granted 32000: 32000 {"type":"enabled","budget_tokens":31999} 2
    32000/16000, granted 8000: 8000 {"type":"enabled","budget_tokens":4000} 2
    32000/2000, granted 8000: 8000 {"type":"enabled","budget_tokens":2000} 2
    32000/16000, granted 2000: 2000 {"type":"enabled","budget_tokens":1024} 2
    32000/16000, granted 1025: 1025 {"type":"enabled","budget_tokens":1024} 2
    32000/16000, granted 1024: 1024 {"type":"disabled"} 1
    8000/16000, granted 8000: 8000 {"type":"enabled","budget_tokens":4000} 2
    32000/500, granted 8000: 8000 {"type":"enabled","budget_tokens":500} 2
    gemini, granted 65536: {"generationConfig":{"thinkingConfig":{"thinkingBudget":8192},"maxOutputTokens":65536}}
    gemini, granted 4000: {"generationConfig":{"thinkingConfig":{"thinkingBudget":2000},"maxOutputTokens":4000}}
    gemini, granted 400: {"generationConfig":{"thinkingConfig":{},"maxOutputTokens":400}}
    gemini, granted 400: {"generationConfig":{"thinkingConfig":{"thinkingBudget":-1},"maxOutputTokens":400}}
    gemini, granted 400: {"generationConfig":{"thinkingConfig":{"thinkingBudget":0},"maxOutputTokens":400}}
    gemini, granted 400: {"generationConfig":{"thinkingConfig":{"thinkingLevel":"high"},"maxOutputTokens":400}}
    "##);
}

#[test]
fn what_an_agent_can_do_without_is_removed_and_recorded() {
    let function = json!({"type":"function","name":"run","defer_loading":true});
    insta::assert_snapshot!(check(&[
        (Wire::Anthropic, json!({
            "model":"m", "max_tokens":10, "service_tier":"auto", "betas":["x"],
            "mcp_servers":[{"type":"url","url":"https://example.com"}], "container":"c",
            "cache_control":{"type":"ephemeral","ttl":"1h"},
            "context_management":{"edits":[{"type":"compact_20260112"}]},
            "tools":[
                {"type":"web_search_20250305","name":"web_search","max_uses":8},
                {"type":"web_fetch_20250910","name":"web_fetch"},
                {"type":"code_execution_20250825","name":"code_execution"},
                {"type":"mcp_toolset","mcp_server_name":"x"},
                {"type":"tool_search_tool_regex_20251119","name":"tool_search"},
                {"type":"bash_of_the_provider","name":"b"},
                {"type":7,"name":"c"},
                {"name":"Read","input_schema":{},"defer_loading":true,"allowed_callers":["code_execution_20250825"],
                 "cache_control":{"type":"ephemeral","ttl":"1h"}},
            ],
            "tool_choice":{"type":"any"},
            "messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t",
                "content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"5m"}}]}]}],
        })),
        (Wire::Anthropic, json!({
            "model":"m", "tools":[{"type":"web_search_20250305","name":"web_search"}], "tool_choice":{"type":"auto"},
        })),
        (Wire::Responses, json!({
            "model":"m", "service_tier":"auto", "parallel_tool_calls":true,
            "context_management":[{"type":"compaction","compact_threshold":1000}],
            "tools":[
                {"type":"web_search"}, {"type":"web_search_preview_2025_03_11"},
                {"type":"file_search","vector_store_ids":["v"]}, {"type":"code_interpreter","container":{"type":"auto"}},
                {"type":"mcp","server_label":"x","server_url":"https://example.com"}, {"type":"image_generation"},
                {"type":"computer_use_preview"}, {"type":"shell","environment":{"type":"container_auto"}},
                {"type":"tool_search"}, function,
                {"type":"namespace","name":"n","tools":[{"type":"mcp"},{"type":"function","name":"a","defer_loading":true}]},
                {"type":"namespace","name":"o","tools":[{"type":"web_search"}]},
            ],
            "input":[{"type":"additional_tools","tools":[{"type":"web_search"},{"type":"function","name":"b"}]}],
            "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"},{"type":"function","name":"run"}]},
        })),
        (Wire::Responses, json!({
            "model":"m", "parallel_tool_calls":true, "tools":[{"type":"web_search"}], "tool_choice":"auto",
        })),
        (Wire::Responses, json!({
            "model":"m", "tools":[{"type":"web_search"},{"type":"function","name":"a"}],
            "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]},
        })),
        (Wire::Chat, json!({
            "model":"m", "store":true, "web_search_options":{}, "prediction":{"type":"content","content":"x"},
            "plugins":[{"id":"web"}], "models":["other"], "search_parameters":{"mode":"on"},
            "tools":[{"type":"web_search"},{"type":"custom","custom":{"name":"c"}},{"function":{"name":"f"}}],
        })),
        (Wire::Gemini, json!({
            "tools":[
                {"googleSearch":{}}, {"google_search":{}}, {"googleSearchRetrieval":{}}, {"urlContext":{}},
                {"codeExecution":{}}, {"googleMaps":{}}, {"fileSearch":{}}, {"computerUse":{}},
                {"functionDeclarations":[{"name":"read"}],"mcpServers":[{"name":"x"}]},
            ],
            "toolConfig":{"includeServerSideToolInvocations":true,"functionCallingConfig":{"mode":"ANY"}},
        })),
        (Wire::Gemini, json!({
            "tools":{"googleSearch":{}}, "toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},
        })),
    ]), @r##"
    anthropic Some(10) [mcp_servers, container, betas, service_tier auto, compaction, cache_control ttl, web_search_20250305, web_fetch_20250910, code_execution_20250825, mcp_toolset, tool_search_tool_regex_20251119, bash_of_the_provider, unknown tool]
      {"model":"big-model","max_tokens":10,"service_tier":"standard_only","cache_control":{"type":"ephemeral"},"tools":[{"name":"Read","input_schema":{},"cache_control":{"type":"ephemeral"}}],"tool_choice":{"type":"any"},"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}]}]}
    anthropic None [web_search_20250305]
      {"model":"big-model","max_tokens":4000}
    responses None [service_tier auto, context_management, web_search, web_search_preview_2025_03_11, file_search, code_interpreter, mcp, image_generation, computer_use_preview, shell, tool_search, namespace]
      {"model":"big-model","service_tier":"default","parallel_tool_calls":true,"tools":[{"type":"function","name":"run"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"a"}]}],"input":[{"type":"additional_tools","tools":[{"type":"function","name":"b"}]}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"run"}]},"store":false,"max_output_tokens":4000}
    responses None [web_search]
      {"model":"big-model","store":false,"max_output_tokens":4000}
    responses None [web_search]
      {"model":"big-model","tools":[{"type":"function","name":"a"}],"tool_choice":"none","store":false,"max_output_tokens":4000}
    chat None [web_search_options, prediction, plugins, models, search_parameters, store, web_search, unknown tool]
      {"model":"big-model","store":false,"tools":[{"type":"custom","custom":{"name":"c"}}],"max_tokens":4000}
    gemini None [googleSearch, google_search, googleSearchRetrieval, urlContext, codeExecution, googleMaps, fileSearch, computerUse, mcpServers]
      {"tools":[{"functionDeclarations":[{"name":"read"}]}],"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},"generationConfig":{"maxOutputTokens":4000}}
    gemini None [googleSearch]
      {"generationConfig":{"maxOutputTokens":4000}}
    "##);
}

#[test]
fn the_bound_of_the_input_counts_what_is_forwarded() {
    let bare = json!({"model":"m","max_tokens":10,"messages":[{"role":"user","content":"x".repeat(3_000)}]});
    let mut padded = bare.clone();
    padded["mcp_servers"] = json!([{"url":"y".repeat(9_000)}]);
    let [bare, padded] = [bare, padded].map(|body| served(Wire::Anthropic, &body));
    assert_eq!(bare.input_bound(), bare.body_bytes.div_ceil(3) + 64);
    assert_eq!(padded.input_bound(), bare.input_bound());
    assert!(padded.body_bytes > 12_000);
}

#[test]
fn the_model_and_the_kind_of_answer_are_read_where_each_api_has_them() {
    let stream = |wire, value: Value| served(wire, &json!({"model":"a","stream":value}));
    for wire in [Wire::Anthropic, Wire::Chat, Wire::Responses] {
        assert!(stream(wire, json!(true)).is_streaming);
        assert!(!stream(wire, json!(null)).is_streaming);
        assert_eq!(stream(wire, json!(false)).model, "a");
        let forwarded = stream(wire, json!(1)).rewritten("b", 5);
        let forwarded: Value = serde_json::from_slice(&forwarded).unwrap();
        assert_eq!((&forwarded["model"], &forwarded["stream"]), (&json!("b"), &json!(false)));
    }
    let request = parse(Wire::Gemini, &json!({})).unwrap();
    assert!(request.is_streaming && request.model == "small-model");
    let GenerateEndpoint::Gemini { model, .. } = endpoint(Wire::Gemini) else { panic!() };
    let whole = adjutant_model::gateway::GeminiDelivery::Whole;
    let whole = GenerateEndpoint::Gemini { model, delivery: whole };
    assert!(!ServedRequest::parse(&whole, b"{}").unwrap().is_streaming);
}
