//! Tools and prompts that ask the client for input and are called again with the answer.

use std::collections::BTreeMap;

use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::fixtures::{elicitation, sampling};

/// The tools that ask for input.
pub(crate) const TOOLS: [&str; 8] = [
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

/// The requests for input, by round.
pub(crate) struct InputRounds {
    asked: Vec<Value>,
    has_state: bool,
}

/// The outcome of a call.
pub(crate) enum RoundOutcome {
    /// More input is needed.
    Asks(Value),
    /// All input is there; the final text.
    Done(String),
}

fn person(message: &str, key: &str, kind: &str) -> Value {
    let schema =
        json!({ "type": "object", "properties": { key: { "type": kind } }, "required": [key] });
    elicitation(&json!(message), &schema)
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// Returns the requests of a tool.
pub(crate) fn of_tool(tool: &str) -> Option<InputRounds> {
    let name = || person("What is your name?", "name", "string");
    let confirm = || json!({ "confirm": person("Please confirm", "ok", "boolean") });
    let (asked, has_state) = match tool {
        "test_input_required_result_elicitation" => (vec![json!({ "user_name": name() })], false),
        "test_input_required_result_sampling" => {
            let question = sampling(&json!("What is the capital of France?"));
            (vec![json!({ "capital_question": question })], false)
        }
        "test_input_required_result_list_roots" => {
            (vec![json!({ "client_roots": roots() })], false)
        }
        "test_input_required_result_request_state"
        | "test_input_required_result_tampered_state" => (vec![confirm()], true),
        "test_input_required_result_multiple_inputs" => {
            let greeting = sampling(&json!("Generate a greeting"));
            let all = json!({ "user_name": name(), "greeting": greeting, "client_roots": roots() });
            (vec![all], true)
        }
        "test_input_required_result_multi_round" => {
            let first = person("Step 1: What is your name?", "name", "string");
            let second = person("Step 2: What is your favorite color?", "color", "string");
            (vec![json!({ "step1": first }), json!({ "step2": second })], true)
        }
        "test_input_required_result_capabilities" => {
            let question = sampling(&json!("What do you think?"));
            (vec![json!({ "person": name(), "model": question })], false)
        }
        _ => return None,
    };
    Some(InputRounds { asked, has_state })
}

/// Returns the requests of a prompt.
pub(crate) fn of_prompt(prompt: &str) -> Option<InputRounds> {
    let context = || person("What context should the prompt use?", "context", "string");
    (prompt == "test_input_required_result_prompt").then(|| InputRounds {
        asked: vec![json!({ "user_context": context() })],
        has_state: false,
    })
}

impl InputRounds {
    /// Checks the answers to the last round, and returns the next requests or the final text.
    pub(crate) fn go_on(
        &self,
        responses: Option<&BTreeMap<String, Value>>,
        state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<RoundOutcome, ErrorData> {
        let round = match state {
            Some(state) if self.has_state => opened(state)?,
            Some(_) | None => 0,
        };
        let asked = self.asked.get(round).and_then(Value::as_object);
        let is_answered = asked.into_iter().flatten().all(|(key, request)| {
            responses.and_then(|all| all.get(key)).is_some_and(|it| fits(request, it))
        });
        if responses.is_none() || !is_answered {
            return Ok(RoundOutcome::Asks(self.asks(round, context)));
        }
        if round + 1 < self.asked.len() {
            return Ok(RoundOutcome::Asks(self.asks(round + 1, context)));
        }
        let name = responses.and_then(|all| all.get("user_name"));
        let name = name.and_then(|it| it["content"]["name"].as_str()).unwrap_or("you");
        let all = responses.map(|all| json!(all)).unwrap_or_default();
        Ok(RoundOutcome::Done(format!("Hello, {name}! state-ok {all}")))
    }

    fn asks(&self, round: usize, context: &RequestContext<RoleServer>) -> Value {
        let able = context.client_capabilities().unwrap_or_default();
        let mut requests = self.asked.get(round).cloned().unwrap_or_default();
        // If there are several requests, send only those that the client supports.
        if let Some(requests) = requests.as_object_mut().filter(|it| it.len() == 2) {
            requests.retain(|_, request| match request["method"].as_str() {
                Some("elicitation/create") => able.elicitation.is_some(),
                Some("sampling/createMessage") => able.sampling.is_some(),
                Some(_) | None => true,
            });
        }
        let mut asks = json!({ "resultType": "input_required", "inputRequests": requests });
        if self.has_state {
            asks["requestState"] = json!(sealed(round));
        }
        asks
    }
}

/// Returns whether an answer has the requested form.
fn fits(request: &Value, response: &Value) -> bool {
    match request["method"].as_str() {
        Some("elicitation/create") => {
            let required = request["params"]["requestedSchema"]["required"].as_array();
            let has = |key: &Value| {
                key.as_str().is_some_and(|key| response["content"].get(key).is_some())
            };
            response["action"] == "accept" && required.into_iter().flatten().all(has)
        }
        Some("sampling/createMessage") => response["content"].is_object(),
        Some("roots/list") => response["roots"].is_array(),
        Some(_) | None => false,
    }
}

fn sealed(round: usize) -> String {
    format!("{round}.{}", seal(round))
}

fn seal(round: usize) -> String {
    let digest = Sha256::digest(format!("a key of this fixture alone {round}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn opened(state: &str) -> Result<usize, ErrorData> {
    let parts = state.split_once('.').and_then(|(round, seal)| Some((round.parse().ok()?, seal)));
    match parts {
        Some((round, given)) if seal(round) == given => Ok(round),
        Some(_) | None => Err(ErrorData::invalid_params("the state was altered", None)),
    }
}
