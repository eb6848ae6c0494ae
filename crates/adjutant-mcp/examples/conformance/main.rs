//! A server for the official conformance suite, over the HTTP transport of `adjutant mcp`.
//!
//! The suite calls tools, resources and prompts with fixed names. This server answers them from tables
//! (`fixtures`), so that the suite tests the transport, the protocol eras and `rmcp`. The suite cannot send a
//! token, so none is required. Prints its address; `tests/mcp/run` starts it.
#![expect(clippy::print_stdout, reason = "where it listens is what it is run for")]
#![expect(deprecated, reason = "the suite tests what older clients still ask")]

mod fixtures;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientResult, CompleteRequestParams, CompleteResult,
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ServerConfig, ServerNotification, ServerRequest, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The pause between two messages of a tool.
const PAUSE: Duration = Duration::from_millis(50);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fixture = Fixture { changed: Arc::default() };
    Ok(adjutant_mcp::serve_handler(move || fixture.clone(), |url| println!("{url}"))?)
}

/// The handler, shared by all clients.
#[derive(Clone)]
struct Fixture {
    /// Signalled when the lists of tools and of prompts change.
    changed: Arc<[watch::Sender<()>; 2]>,
}

/// Parses a protocol value from JSON.
fn of<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// Parses a result. `rmcp` removes the fields that older clients do not know.
fn whole<T: DeserializeOwned>(mut value: Value) -> Result<T, ErrorData> {
    value["resultType"] = json!("complete");
    of(value)
}

fn failed(error: &dyn std::error::Error) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

type Context = RequestContext<RoleServer>;

impl Fixture {
    /// Sends a request to the client and waits for its answer, as in the era with sessions.
    async fn ask(context: &Context, request: Value) -> Result<Value, ErrorData> {
        let request: ServerRequest = of(request)?;
        let answer: ClientResult =
            context.peer.send_request(request).await.map_err(|error| failed(&error))?;
        serde_json::to_value(answer).map_err(|error| failed(&error))
    }

    async fn log(context: &Context) -> Result<(), ErrorData> {
        for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
            let params = json!({ "level": "info", "logger": "fixture", "data": text });
            let note: ServerNotification =
                of(json!({ "method": "notifications/message", "params": params }))?;
            context.peer.send_notification(note).await.map_err(|error| failed(&error))?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn progress(context: &Context) -> Result<(), ErrorData> {
        for done in [0.0, 50.0, 100.0] {
            if let Some(token) = context.meta.get_progress_token() {
                let note = ProgressNotificationParam::new(token, done).with_total(100.0);
                context.peer.notify_progress(note).await.map_err(|error| failed(&error))?;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Executes a tool that does more than return a value.
    async fn act(
        &self,
        tool: &str,
        arguments: &Value,
        context: &Context,
    ) -> Result<String, ErrorData> {
        let is_new = context.protocol_version().is_some_and(|it| !it.has_initialize());
        match tool {
            // In the new era, a request that names no level gets no log messages.
            "test_tool_with_logging" | "test_logging_tool" => {
                if !is_new || context.meta.log_level().is_some() {
                    Self::log(context).await?;
                }
            }
            "test_tool_with_progress" | "test_streaming_elicitation" => {
                Self::progress(context).await?
            }
            "test_reconnection" => tokio::time::sleep(4 * PAUSE).await,
            "test_trigger_tool_change" => {
                self.changed[0].send_replace(());
            }
            "test_trigger_prompt_change" => {
                self.changed[1].send_replace(());
            }
            "test_sampling" => {
                let answer = Self::ask(context, fixtures::sampling(&arguments["prompt"])).await?;
                return Ok(format!("LLM response: {}", answer["content"]["text"]));
            }
            "test_elicitation" => {
                let asked =
                    fixtures::elicitation(&arguments["message"], &fixtures::name_and_mail());
                return Ok(format!("User response: {}", Self::ask(context, asked).await?));
            }
            _ => {
                let Some(schema) = fixtures::elicited(tool) else {
                    return Err(ErrorData::invalid_params(format!("no tool {tool}"), None));
                };
                let asked = fixtures::elicitation(&json!("Please answer"), &schema);
                let answer = Self::ask(context, asked).await?;
                let (action, content) = (&answer["action"], &answer["content"]);
                return Ok(format!("Elicitation completed: action={action}, content={content}"));
            }
        }
        Ok(format!("{tool} is done"))
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = of(fixtures::capabilities()).unwrap_or_default();
        ServerConfig::new(capabilities)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tool = fixtures::tools().into_iter().find(|tool| tool["name"] == name)?;
        of(tool).ok()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        whole(json!({ "tools": fixtures::tools() }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let tool = request.name.as_ref();
        if let Some(asked) = rounds::of_tool(tool) {
            let (responses, state) = (request.input_responses.as_ref(), request.request_state);
            return match asked.go_on(responses, state.as_deref(), &context)? {
                rounds::RoundOutcome::Asks(asks) => Ok(CallToolResponse::InputRequired(of(asks)?)),
                rounds::RoundOutcome::Done(text) => {
                    Ok(CallToolResponse::Complete(whole(fixtures::said(&text))?))
                }
            };
        }
        if tool == "test_missing_capability" {
            let has = context.client_capabilities().is_some_and(|it| it.sampling.is_some());
            return if has {
                Ok(CallToolResponse::Complete(whole(fixtures::said("sampling is there"))?))
            } else {
                Err(ErrorData::missing_required_client_capability(of(json!({ "sampling": {} }))?))
            };
        }
        let result = match fixtures::result(tool) {
            Some(result) => result,
            None => fixtures::said(&self.act(tool, &arguments, &context).await?),
        };
        Ok(CallToolResponse::Complete(whole(result)?))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        whole(fixtures::resources())
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        whole(fixtures::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let Some(content) = fixtures::resource(&request.uri) else {
            let data = json!({ "uri": request.uri });
            return Err(ErrorData::new(
                ErrorCode::RESOURCE_NOT_FOUND,
                "no such resource",
                Some(data),
            ));
        };
        Ok(ReadResourceResponse::Complete(whole(json!({ "contents": [content] }))?))
    }

    async fn subscribe(
        &self,
        _request: SubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        let is_new = context.protocol_version().is_some_and(|it| !it.has_initialize());
        if is_new {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "logging/setLevel", None));
        }
        Ok(())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        whole(
            json!({ "completion": { "values": ["paris", "park"], "total": 2, "hasMore": false } }),
        )
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        whole(fixtures::prompts())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        if let Some(asked) = rounds::of_prompt(&request.name) {
            let (responses, state) = (request.input_responses.as_ref(), request.request_state);
            return match asked.go_on(responses, state.as_deref(), &context)? {
                rounds::RoundOutcome::Asks(asks) => Ok(GetPromptResponse::InputRequired(of(asks)?)),
                rounds::RoundOutcome::Done(text) => {
                    Ok(GetPromptResponse::Complete(whole(fixtures::prompted(&text))?))
                }
            };
        }
        let Some(prompt) = fixtures::prompt(&request.name, &arguments) else {
            return Err(ErrorData::invalid_params(format!("no prompt {}", request.name), None));
        };
        Ok(GetPromptResponse::Complete(whole(prompt)?))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let [mut tools, mut prompts] = [self.changed[0].subscribe(), self.changed[1].subscribe()];
        loop {
            // `rmcp` delivers these only to clients that subscribed to them.
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                _ = tools.changed() => {
                    let _ = context.sink().notify_tool_list_changed().await;
                }
                _ = prompts.changed() => {
                    let _ = context.sink().notify_prompt_list_changed().await;
                }
            }
        }
    }
}
