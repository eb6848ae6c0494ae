//! Both eras of the protocol, spoken by hand: with a handshake, and with the version in every request.

use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::mcp_http::{Answer, Host, request};
use crate::support::rig::Rig;

const NEW: &str = "2026-07-28";

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

/// Adds the client name and protocol version to parameters.
fn inline(version: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "new", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "token-1",
    });
    params
}

fn delegate(arguments: &Value) -> Value {
    json!({ "name": "Delegate", "arguments": arguments })
}

/// Posts a request of the new era like its clients, with method and name repeated in headers.
fn post(host: &Host, version: &str, method: &str, params: &Value) -> Answer {
    let name = params["name"].as_str().unwrap_or_default();
    let headers = [("MCP-Protocol-Version", version), ("Mcp-Method", method), ("Mcp-Name", name)];
    host.post(&headers, &request(1, method, params))
}

fn assert_describes(result: &Value) {
    assert_eq!(result["supportedVersions"], json!(["2025-06-18", "2025-11-25", NEW]), "{result}");
    assert!(result["capabilities"]["tools"].is_object(), "{result}");
}

fn assert_unsupported(answer: &Value, asked: &str) {
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert_eq!(answer["error"]["data"]["requested"], asked, "{answer}");
    assert!(answer["error"]["data"]["supported"].as_array().unwrap().contains(&json!(NEW)));
}

/// A version that is negotiated by a handshake cannot be named in a request instead.
#[test]
fn an_older_version_in_a_request_is_not_a_handshake() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    for version in ["2025-06-18", "2025-11-25"] {
        let answer = client.request("tools/call", inline(version, delegate(&task("a"))));
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
    client.initialize("tester", "2025-11-25");
    client.ping();
}

#[test]
fn without_a_handshake_each_request_says_its_version_and_is_answered() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    let about = client.request("server/discover", inline(NEW, json!({})));
    assert_describes(&about["result"]);
    let listed = client.request("tools/list", inline(NEW, json!({})));
    assert_eq!(listed["result"]["tools"][0]["name"], "Delegate", "{listed}");
    assert_eq!(listed["result"]["resultType"], "complete");
    let call = client.ask("tools/call", inline(NEW, delegate(&task("soon"))));
    assert_eq!(client.progress(1)["progress"], 1.0, "progress comes in this era too");
    let result = client.answer(call)["result"].clone();
    assert_eq!(result["structuredContent"]["state"], "completed", "{result}");

    // Missing capabilities are not assumed.
    let silent = client.request("tools/list", json!({}));
    assert_eq!(silent["error"]["code"], -32602, "{silent}");
    let gone = client.request("ping", inline(NEW, json!({})));
    assert_eq!(gone["error"]["code"], -32601, "{gone}");
    let stranger = client.request("no/such", inline(NEW, json!({})));
    assert_eq!(stranger["error"]["code"], -32601, "{stranger}");
    assert_eq!(client.leave(), (Vec::new(), Some(0)));
}

#[test]
fn without_a_handshake_a_call_can_still_be_cancelled() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    let call = client.ask("tools/call", inline(NEW, delegate(&task("slow"))));
    client.progress(1);
    let params = json!({ "requestId": call, "reason": "escape" });
    let method = "notifications/cancelled";
    client.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    // Not through the server, where a waiting call would keep the run alive.
    let run = rig.only_run();
    assert_ne!(rig.run(["wait", &run, "--timeout", "20"]).code, 124);
    let wait = json!({ "name": "delegate_wait", "arguments": { "run": run } });
    let ended = client.request("tools/call", inline(NEW, wait));
    assert_eq!(ended["result"]["structuredContent"]["state"], "cancelled", "{ended}");
}

#[test]
fn an_unsupported_version_is_refused_with_the_supported_ones() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    for asked in ["2099-01-01", "1999-01-01", "nonsense"] {
        let answer = client.request("tools/call", inline(asked, delegate(&task("a"))));
        assert_unsupported(&answer, asked);
    }
    // A refused request changes nothing, and either era can still be chosen.
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }));
    let mut half = inline(NEW, delegate(&task("a")));
    half["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    let answer = client.request("tools/call", half);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("clientCapabilities"),
        "{answer}"
    );
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
    assert_eq!(client.initialize("tester", "2025-06-18")["protocolVersion"], "2025-06-18");
    assert_eq!(client.data("Delegate", task("a"))["state"], "completed");
}

#[test]
fn over_http_each_request_says_its_version_and_needs_no_session() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let about = post(&host, NEW, "server/discover", &inline(NEW, json!({})));
    assert_eq!(about.header("mcp-session-id"), None);
    assert_describes(&about.result(1));
    let listed = post(&host, NEW, "tools/list", &inline(NEW, json!({}))).result(1);
    assert_eq!(listed["tools"][0]["name"], "Delegate", "{listed}");
    let mut answer = post(&host, NEW, "tools/call", &inline(NEW, delegate(&task("soon"))));
    assert_eq!(answer.message()["method"], "notifications/progress");
    assert_eq!(answer.result(1)["structuredContent"]["state"], "completed");
}

#[test]
fn over_http_contradicting_headers_are_refused() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let params = inline(NEW, delegate(&task("a")));
    let message = request(1, "tools/call", &params);
    let version = ("MCP-Protocol-Version", NEW);
    let (method, name) = (("Mcp-Method", "tools/call"), ("Mcp-Name", "Delegate"));
    for headers in [
        vec![method, name],
        vec![("MCP-Protocol-Version", "2025-11-25"), method, name],
        vec![version, name],
        vec![version, ("Mcp-Method", "tools/list"), name],
        vec![version, method],
        vec![version, method, ("Mcp-Name", "delegate_status")],
    ] {
        let mut answer = host.post(&headers, &message);
        assert_eq!(answer.status, 400, "{headers:?}");
        assert_eq!(answer.message()["error"]["code"], -32020, "{headers:?}");
    }
    let unknown = inline("2099-01-01", delegate(&task("a")));
    let mut answer = post(&host, "2099-01-01", "tools/call", &unknown);
    assert_eq!(answer.status, 400);
    assert_unsupported(&answer.message(), "2099-01-01");
    assert_eq!(post(&host, NEW, "no/such", &inline(NEW, json!({}))).status, 404);
    // Without a version a request belongs to the era of sessions, and has none.
    let bare = host.post(&[], &request(1, "tools/call", &delegate(&task("a"))));
    assert_eq!(bare.status, 400);
    let wrong =
        host.post(&[("MCP-Protocol-Version", "1999-01-01")], &request(1, "tools/list", &json!({})));
    assert_eq!(wrong.status, 400);
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

#[test]
fn over_http_the_version_of_a_session_is_negotiated() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    for (asked, given) in [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        (NEW, "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let client = host.session("tester", asked);
        assert_eq!(client.about["protocolVersion"], given);
        assert_eq!(client.data("delegate_status", &json!({}))["runs"], json!([]));
    }
}

/// A stream that is closed takes the call back in this era. The work is kept all the same: a client
/// that dies, or waits no longer, closes it too.
#[test]
fn over_http_a_run_survives_the_closed_stream_of_its_call() {
    let rig = rig();
    let host = Host::start(&rig, &[]);
    let mut answer = post(&host, NEW, "tools/call", &inline(NEW, delegate(&task("soon"))));
    assert_eq!(answer.message()["method"], "notifications/progress");
    drop(answer);
    let again = post(&host, NEW, "tools/call", &inline(NEW, delegate(&task("soon")))).result(1);
    let data = &again["structuredContent"];
    assert_eq!((&data["repeated"], &data["state"]), (&json!(true), &json!("completed")), "{data}");
    assert_eq!(rig.runs().len(), 1);
}

/// Parameters of a client that supports tasks and these other capabilities.
fn knowing(mut params: Value, mut can: Value) -> Value {
    params = inline(NEW, params);
    can["extensions"] = json!({ "io.modelcontextprotocol/tasks": {} });
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = can;
    params
}

/// The format is that of the call, also for a server that did not receive it. A session id is not a task id.
#[test]
fn a_task_result_has_the_format_that_its_call_requested() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    let mut call = task("soon");
    call["return"] = json!("json");
    let begun = client.request("tools/call", knowing(delegate(&call), json!({})))["result"].clone();
    let run = begun["taskId"].clone();
    let wait = json!({ "name": "delegate_wait", "arguments": { "run": run } });
    let waited = client.request("tools/call", inline(NEW, wait))["result"].clone();
    client.kill();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    let ask = knowing(json!({ "taskId": run }), json!({}));
    let state = client.request("tasks/get", ask)["result"].clone();
    let said = state["result"]["content"][0]["text"].as_str().unwrap();
    assert!(said.starts_with('{'), "{said}");
    let session = &waited["structuredContent"]["results"]["results"][0]["session_id"];
    assert!(session.is_string(), "{waited}");
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let params = json!({ "taskId": session, "inputResponses": {} });
        let answer = client.request(method, knowing(params, json!({})));
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
}

/// A task forwards a question of its run to clients that can ask the user.
#[test]
fn a_task_forwards_the_questions_of_its_run() {
    let rig = rig();
    let mut client = Client::start(&rig, &[], &[]);
    let begin = json!({ "name": "delegate_start", "arguments": task("a") });
    let begun = client.request("tools/call", inline(NEW, begin))["result"].clone();
    let run = begun["structuredContent"]["run"].clone();
    assert!(begun["structuredContent"]["approval"].is_object(), "{begun}");
    let ask = json!({ "taskId": run });
    let mute = client.request("tasks/get", knowing(ask.clone(), json!({})))["result"].clone();
    assert_eq!(mute["status"], "working", "{mute}");
    assert!(mute["statusMessage"].as_str().unwrap().contains("adjutant approve"), "{mute}");
    let able = || json!({ "elicitation": {} });
    let state = client.request("tasks/get", knowing(ask.clone(), able()))["result"].clone();
    assert_eq!(state["status"], "input_required", "{state}");
    let (name, question) = state["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{state}");
    let yes = json!({ "action": "accept", "content": { "answer": "start" } });
    let says =
        |name: &str, said: &Value| json!({ "taskId": run, "inputResponses": { (name): said } });
    for (params, can) in [
        (says(name, &yes), json!({})),
        (says("another", &yes), able()),
        (says(name, &json!("yes")), able()),
    ] {
        let answer = client.request("tasks/update", knowing(params, can));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let taken = client.request("tasks/update", knowing(says(name, &yes), able()));
    assert!(taken["error"].is_null(), "{taken}");
    let wait = json!({ "name": "delegate_wait", "arguments": { "run": run } });
    let waited = client.request("tools/call", inline(NEW, wait))["result"].clone();
    assert_eq!(waited["structuredContent"]["state"], "completed", "{waited}");
    let state = client.request("tasks/get", knowing(ask, able()))["result"].clone();
    assert_eq!(state["status"], "completed", "{state}");
    let again = client.request("tasks/update", knowing(says(name, &yes), able()));
    assert_eq!(again["error"]["code"], -32602, "it counts once: {again}");
}

#[test]
fn a_task_with_an_unanswered_question_says_how_to_answer_it() {
    for (setting, answer) in [
        ("answer_min_ms=none", json!({ "action": "cancel" })),
        ("answer_min_ms=600000", json!({ "action": "accept", "content": { "answer": "start" } })),
    ] {
        let rig = rig();
        let mut client = Client::start(&rig, &["--set", setting], &[]);
        let begin = json!({ "name": "delegate_start", "arguments": task("a") });
        client.request("tools/call", inline(NEW, begin));
        let run = rig.only_run();
        let ask = || knowing(json!({ "taskId": run }), json!({ "elicitation": {} }));
        let state = client.request("tasks/get", ask())["result"].clone();
        let (name, _) = state["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let said = json!({ "taskId": run, "inputResponses": { (name): answer } });
        let taken = client.request("tasks/update", knowing(said, json!({ "elicitation": {} })));
        assert!(taken["error"].is_null(), "{taken}");
        let state = client.request("tasks/get", ask())["result"].clone();
        assert_eq!(state["status"], "working", "{state}");
        let said = state["statusMessage"].as_str().unwrap();
        assert!(said.contains("not a person's answer") && said.contains("adjutant approve"));
        assert_eq!(rig.run(["cancel", &run]).code, 0);
    }
}

/// A call of a client that supports tasks returns a task at once; the task is the run.
#[test]
fn a_client_that_supports_tasks_gets_one_and_polls_it() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--approve-below", "10"], &[]);
    let able = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let knowing = |params: Value| {
        let mut params = inline(NEW, params);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = able.clone();
        params
    };
    let about = client.request("server/discover", knowing(json!({})));
    let offered = &about["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"];
    assert!(offered.is_object(), "{about}");
    let begun = client.request("tools/call", knowing(delegate(&task("slow"))))["result"].clone();
    assert_eq!(
        (&begun["resultType"], &begun["status"]),
        (&json!("task"), &json!("working")),
        "{begun}"
    );
    let run = rig.only_run();
    assert_eq!(begun["taskId"], json!(run));
    let ask = json!({ "taskId": run });
    let state = client.request("tasks/get", knowing(ask.clone()))["result"].clone();
    assert!(state["statusMessage"].as_str().unwrap().contains("[slow]"), "{state}");
    let undeclared = client.request("tasks/get", inline(NEW, ask.clone()));
    assert_eq!(undeclared["error"]["code"], -32021, "{undeclared}");
    let cancelled = client.request("tasks/cancel", knowing(ask.clone()));
    assert_eq!(cancelled["result"], json!({ "resultType": "complete" }), "{cancelled}");
    let wait = json!({ "name": "delegate_wait", "arguments": { "run": run } });
    assert_eq!(
        client.request("tools/call", inline(NEW, wait))["result"]["structuredContent"]["state"],
        "cancelled"
    );
    let state = client.request("tasks/get", knowing(ask))["result"].clone();
    assert_eq!(state["status"], "cancelled", "{state}");

    let begun = client.request("tools/call", knowing(delegate(&task("soon"))))["result"].clone();
    let wait = json!({ "name": "delegate_wait", "arguments": { "run": begun["taskId"] } });
    let waited = client.request("tools/call", inline(NEW, wait))["result"].clone();
    let state = client.request("tasks/get", knowing(json!({ "taskId": begun["taskId"] })));
    let state = &state["result"];
    assert_eq!(state["status"], "completed", "{state}");
    let report = |result: &Value| {
        result["structuredContent"]["results"]["results"][0]["report"].as_str().map(str::to_owned)
    };
    assert_eq!(report(&state["result"]), report(&waited));
    assert_eq!(report(&waited).as_deref(), Some("an answer after a second"));
    for unknown in ["run_1_aaaaaa", "", "../x"] {
        let answer = client.request("tasks/get", knowing(json!({ "taskId": unknown })));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    // A client without task support gets the usual answer.
    let plain = client.request("tools/call", inline(NEW, delegate(&task("soon"))));
    assert_eq!(plain["result"]["structuredContent"]["repeated"], true, "{plain}");
}
