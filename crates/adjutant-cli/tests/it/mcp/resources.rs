//! What clients read beside tools: runs and transcripts as resources, slash commands as prompts, and
//! results that fit what a client takes.

use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::mcp_http::{Host, request};
use crate::support::rig::Rig;

fn text(data: &Value, key: &str) -> String {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}")).to_owned()
}

fn read(client: &mut Client, uri: &str) -> Value {
    client.request("resources/read", json!({ "uri": uri }))
}

/// Reads a resource page by page; returns the content without the notes about pages.
fn read_all(client: &mut Client, uri: &str) -> String {
    let (mut address, mut all) = (uri.to_owned(), String::new());
    for _ in 0..1000 {
        let answer = read(client, &address);
        let contents = &answer["result"]["contents"][0];
        assert_eq!(contents["uri"], address, "{answer}");
        let page = text(contents, "text");
        let Some((body, note)) = page.rsplit_once("\n[bytes ") else { return all + &page };
        all += body;
        let Some((_, next)) = note.split_once("continued at ") else { return all };
        address = next.trim_end().trim_end_matches(']').to_owned();
    }
    panic!("{uri} has no end");
}

/// A report of a megabyte whose two ends are known.
fn long_report() -> String {
    format!("THE BEGINNING {} THE END", "and so on ".repeat(100_000))
}

fn long_rig() -> Rig {
    let turn = json!({ "text": long_report(), "usage": { "input": 10, "output": 10 } });
    let rig = Rig::new();
    let script = json!({ "price": { "input": 1.0, "output": 1.0 }, "turn": [turn] });
    std::fs::write(rig.path().join("script.json"), script.to_string()).unwrap();
    rig
}

fn long_client(rig: &Rig, name: &str, args: &[&str]) -> Client {
    // The limits must not truncate the report.
    let args = [&["--approve-below", "10000", "--set", "result_tokens=null"], args].concat();
    let mut client = Client::start_on(rig, "script:../script.json", &args, &[]);
    client.initialize(name, "2025-11-25");
    client
}

#[test]
fn a_report_of_a_megabyte_fits_the_client_and_names_where_the_rest_is() {
    let rig = long_rig();
    for (name, args, most) in [
        ("tester", &[][..], 80_000),
        ("claude-code", &[], 50_000),
        ("codex-mcp-client", &[], 20_000),
        ("tester", &["--result-bytes", "5000"], 5_000),
    ] {
        let mut client = long_client(&rig, name, args);
        for form in ["markdown", "json"] {
            let tasks =
                json!([{ "label": "a", "prompt": "Look" }, { "label": "b", "prompt": "Look" }]);
            let result = client.call("Delegate", json!({ "tasks": tasks, "return": form }));
            let (content, data) = (&result["content"], &result["structuredContent"]);
            let size = content.to_string().len() + data.to_string().len();
            assert!(size <= most, "{name}: {size} of {most}");
            assert!(size > most / 3, "{name}: {size} of {most}, which is less than could be shown");
            let run = text(data, "run");
            for (nth, report) in data["results"]["results"].as_array().unwrap().iter().enumerate() {
                let said = text(report, "report");
                assert!(said.starts_with("THE BEGINNING") && said.ends_with("THE END"), "{said}");
                assert!(said.contains("bytes are left out here"), "{said}");
                let session = text(report, "session_id");
                let link = &content[2 + nth];
                assert_eq!(link["type"], "resource_link", "{link}");
                assert_eq!(link["uri"], format!("adjutant://run/{run}/{session}/transcript"));
                let page = read(&mut client, &text(link, "uri")).to_string();
                assert!(page.contains("THE BEGINNING") && page.len() < most * 2, "{}", page.len());
            }
            assert_eq!(content[1]["uri"], format!("adjutant://run/{run}/result"));
        }
    }
}

#[test]
fn following_the_pages_yields_the_whole_report() {
    let rig = long_rig();
    let mut client = long_client(&rig, "tester", &["--result-bytes", "200000"]);
    let result = client.call("Delegate", task("a"));
    let links: Vec<_> =
        result["content"].as_array().unwrap()[1..].iter().map(|it| text(it, "uri")).collect();
    assert_eq!(links.len(), 2, "the whole result, and the transcript of the one that was cut");
    for link in links {
        assert!(read_all(&mut client, &link).contains(long_report().trim()), "{link}");
    }
}

/// Truncated JSON would be invalid: instead fewer subagents are listed, with their count.
#[test]
fn the_status_of_a_run_with_many_subagents_is_valid_json() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &["--result-bytes", "5000"]);
    let tasks: Vec<_> =
        (0..8).map(|n| json!({ "label": format!("t{n}"), "prompt": "Look" })).collect();
    let run = text(&client.data("Delegate", json!({ "tasks": tasks })), "run");
    let contents =
        read(&mut client, &format!("adjutant://run/{run}"))["result"]["contents"].clone();
    assert!(contents.to_string().len() < 5500, "{contents}");
    let data: Value = serde_json::from_str(&text(&contents[0], "text")).unwrap();
    for data in [data, client.data("delegate_status", json!({ "run": run }))] {
        let shown = &data["runs"][0];
        let listed = shown["delegations"].as_array().unwrap().len();
        assert!(listed < 8, "{data}");
        assert_eq!(shown["delegations_left_out"], 8 - listed, "{data}");
        let whole = read_all(&mut client, &text(shown, "all_delegations"));
        assert!((0..8).all(|n| whole.contains(&format!("t{n}"))), "{whole}");
    }
    let none = read(&mut client, &format!("adjutant://run/{run}?offset=7"));
    assert_eq!(none["error"]["code"], -32002, "{none}");
}

/// Every answer stays within the size limit of the client, whatever the input.
#[test]
fn invalid_input_of_megabytes_is_not_echoed() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    let long = "\"a".repeat(600_000);
    let deep = |n: usize| (0..n).fold(json!("x"), |inner, _| json!([inner, inner]));
    let many: serde_json::Map<_, _> = (0..100_000).map(|n| (format!("key{n}"), json!(n))).collect();
    let artifacts: Vec<_> = (0..100_000).map(|n| format!("no/such/{n}")).collect();
    for returned in [
        json!(long),
        json!({ "status": "completed", "summary": long }),
        json!({ "status": long, (long.clone()): 1 }),
        json!({ "status": "completed", "summary": "It is done.", "artifacts": artifacts, "errors": [] }),
        json!({ "status": "completed", "more": many, "deep": deep(14) }),
    ] {
        let result = client.call("validate_return", json!({ "return": returned }));
        let size = result.to_string().len();
        assert!(size < 81_000, "{size}");
        assert!(result["structuredContent"]["valid"].is_boolean(), "{result}");
    }
    let named = |tool: &str, arguments: Value| json!({ "name": tool, "arguments": arguments });
    for (method, params) in [
        ("tools/call", named("delegate_wait", json!({ "run": long }))),
        ("tools/call", named("delegate_status", json!({ "run": long }))),
        ("tools/call", named("delegate_result", json!({ "run": "x", (long.clone()): 1 }))),
        ("tools/call", named("delegate_cancel", json!({ "run": long }))),
        ("tools/call", named("delegate_command", json!({ "command": long }))),
        ("tools/call", named("delegate_story", json!({ "prd": long }))),
        ("tools/call", named("Delegate", json!({ (long.clone()): 1 }))),
        ("tools/call", named("Delegate", json!({ "tasks": [{ "label": long, "prompt": "x" }] }))),
        ("tools/call", named("validate_return", json!({ "return": {}, "session_id": long }))),
        ("tools/call", named(&long, json!({}))),
        ("prompts/get", json!({ "name": long })),
        ("prompts/get", json!({ "name": "plan", "arguments": { (long.clone()): "x" } })),
        ("prompts/get", json!({ "name": "plan", "arguments": { "arguments": long } })),
        ("resources/read", json!({ "uri": long })),
        ("resources/list", json!({ "cursor": long })),
        (&long, json!({})),
    ] {
        let size = client.request(method, params).to_string().len();
        assert!(size < 81_000, "{}: {size}", &method[..10]);
    }
}

#[test]
fn only_the_runs_of_this_work_tree_are_resources() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    let about = client.request("resources/templates/list", json!({}));
    assert_eq!(about["result"]["resourceTemplates"].as_array().unwrap().len(), 5, "{about}");
    let run = text(&client.data("Delegate", task("a")), "run");
    let listed = client.request("resources/list", json!({}))["result"]["resources"].clone();
    let uris: Vec<_> = listed.as_array().unwrap().iter().map(|it| text(it, "uri")).collect();
    assert_eq!(uris, [format!("adjutant://run/{run}"), format!("adjutant://run/{run}/result")]);
    for (rest, mime, words) in [
        ("", "application/json", "\"completed\""),
        ("/result", "text/markdown", "> quick answer"),
        ("/transcript", "text/plain", "quick answer"),
        ("/patch", "text/x-diff", ""),
    ] {
        let uri = format!("adjutant://run/{run}{rest}");
        let contents = read(&mut client, &uri)["result"]["contents"][0].clone();
        assert_eq!(contents["mimeType"], mime, "{contents}");
        assert!(text(&contents, "text").contains(words), "{contents}");
    }
    let other = rig.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let mut stranger = Client::allowed(&rig, &["--root", "../other"]);
    let none = stranger.request("resources/list", json!({}));
    assert_eq!(none["result"]["resources"], json!([]), "{none}");
    for uri in [
        format!("adjutant://run/{run}"),
        format!("adjutant://run/{run}/result"),
        format!("adjutant://run/{run}/transcript"),
        format!("adjutant://run/{}/transcript", run.replace("run_", "sess_")),
        "adjutant://run/../../etc/passwd".to_owned(),
        "file:///etc/passwd".to_owned(),
        String::new(),
    ] {
        let answer = read(&mut stranger, &uri);
        assert_eq!(answer["error"]["code"], -32002, "{uri}: {answer}");
        assert_eq!(answer["error"]["data"]["uri"], uri);
    }
}

#[test]
fn a_missing_resource_is_an_error_of_the_protocol_version() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::start(&rig, &[], &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let missing = json!({ "uri": "adjutant://run/run_1735460684_a1b2c3", "_meta": meta });
    let answer = client.request("resources/read", missing);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    for method in ["resources/list", "resources/templates/list", "prompts/list", "tools/list"] {
        let answer = client.request(method, json!({ "_meta": meta }));
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    let discovered = client.request("server/discover", json!({ "_meta": meta }));
    let can = &discovered["result"]["capabilities"];
    for what in ["tools", "resources", "prompts"] {
        assert_eq!(can[what], json!({}), "nothing is announced that does not happen: {discovered}");
    }
}

#[test]
fn the_prompts_are_the_slash_commands_and_execute_nothing() {
    let rig = Rig::with_script(SCRIPT);
    let file = "---\ndescription: Says hello\nargument-hint: NAME\n---\n!`touch ran` @secret Hello $ARGUMENTS";
    rig.write(".claude/commands/hello.md", file);
    rig.write("secret", "the secret");
    let mut client = Client::allowed(&rig, &[]);
    let prompts = client.request("prompts/list", json!({}))["result"]["prompts"].clone();
    let listed: Vec<_> = prompts.as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    let commands = rig.run(["commands", "--json"]).json();
    let known: Vec<_> =
        commands["commands"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(listed, known);
    let hello = prompts.as_array().unwrap().iter().find(|it| it["name"] == "hello").unwrap();
    assert_eq!(hello["description"], "Says hello");
    assert!(text(&hello["arguments"][0], "description").contains("NAME"), "{hello}");
    let arguments = json!({ "arguments": "12 \"keep it\" small" });
    let got = client.request("prompts/get", json!({ "name": "plan", "arguments": arguments }));
    let said = text(&got["result"]["messages"][0]["content"], "text");
    let call = json!({ "command": "/plan 12 \"keep it\" small" }).to_string();
    assert!(said.contains("delegate_command") && said.ends_with(&call), "{said}");
    let got = client.request("prompts/get", json!({ "name": "hello" })).to_string();
    assert!(!got.contains("touch ran") && !got.contains("the secret"), "{got}");
    assert!(!rig.work().join("ran").exists());
    let ours = client.request("prompts/get", json!({ "name": "task" }));
    let said = text(&ours["result"]["messages"][0]["content"], "text");
    assert!(said.contains("adjutant run"), "{said}");
    for params in [
        json!({ "name": "plam" }),
        json!({ "name": "../secret" }),
        json!({ "name": "plan", "arguments": { "model": "x" } }),
        json!({ "name": "plan", "arguments": { "arguments": 12 } }),
        json!({}),
    ] {
        let answer = client.request("prompts/get", params.clone());
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
}

#[test]
fn over_http_only_the_runs_of_the_token_are_resources() {
    let rig = Rig::with_script(SCRIPT);
    let other = text(&Client::allowed(&rig, &[]).data("Delegate", task("a")), "run");
    let host = Host::start(&rig, &[]);
    let client = host.session("tester", "2025-11-25");
    let own = text(&client.data("Delegate", &task("a")), "run");
    let listed = client.post(&request(3, "resources/list", &json!({}))).result(3);
    assert!(listed.to_string().contains(&own) && !listed.to_string().contains(&other), "{listed}");
    let read = |run: &str| {
        let uri = json!({ "uri": format!("adjutant://run/{run}/result") });
        client.post(&request(4, "resources/read", &uri)).message()
    };
    assert!(read(&own)["result"].to_string().contains("quick answer"));
    assert_eq!(read(&other)["error"]["code"], -32002);
}
