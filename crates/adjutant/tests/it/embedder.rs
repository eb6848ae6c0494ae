//! A program that depends on no crate of Adjutant but `adjutant` can name what it needs.

use adjutant::error::{ArchiveError, EngineError, OpenModelError};
use adjutant::model::{
    AttemptError, AttemptResult, BoxFuture, ModelErrorKind, ModelReply, ModelSpec, Price,
    StopReason, TurnProgress, TurnRequest,
};
use adjutant::policy::{
    ApprovalRule, ContractKind, CycleKey, DelegationTimeout, HostSet, OnFullContext, ToolSet,
    WorkspaceSharing,
};
use adjutant::{
    Adjutant, Error, Model, ModelChoice, Outcome, Policy, Preset, ProgressKind, Task, Usage, Usd,
    progress,
};
use std::sync::Arc;

use tempfile::TempDir;

/// Answers every turn with the last message, but fails for a task named `broken`.
#[derive(Debug)]
struct EchoModel(ModelSpec);

impl Model for EchoModel {
    fn spec(&self) -> &ModelSpec {
        &self.0
    }

    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult> {
        Box::pin(async move {
            if request.label == "broken" {
                return Err(AttemptError {
                    kind: ModelErrorKind::BadRequest,
                    message: "I cannot".to_owned(),
                    retry_after_ms: None,
                    never_began: true,
                });
            }
            let text = request.messages.last().map(|it| it.text().to_owned()).unwrap_or_default();
            progress(TurnProgress::Text(&text));
            Ok(ModelReply {
                text,
                tool_calls: Vec::new(),
                stop: StopReason::EndTurn,
                opaque: None,
                usage: Some(Usage::default()),
            })
        })
    }
}

fn echo() -> ModelChoice {
    let price = Price { input: 1.0, output: 1.0, cache_read: 0.0, cache_write: 0.0 };
    let spec = ModelSpec {
        name: "own/echo".to_owned(),
        window: 100_000,
        max_output: 4_000,
        price: Some(price),
        effort: None,
    };
    ModelChoice::Opened(Arc::new(EchoModel(spec)))
}

#[test]
fn a_program_writes_its_own_policy_and_model() {
    let directory = TempDir::new().unwrap();
    let policy = Policy {
        approval: ApprovalRule::Batch,
        tools: ToolSet::new(["Read", "Glob"]),
        timeout_s: DelegationTimeout::Seconds(60),
        web_domains: HostSet::new(["docs.rs"]).unwrap(),
        contract: ContractKind::Report,
        workspace: WorkspaceSharing::Shared,
        on_full: OnFullContext::Handover,
        cycle_key: CycleKey::Agent,
        budget_usd: Usd::from_dollars(1.0),
        ..Preset::Scout.policy()
    };
    let adjutant = Adjutant::builder()
        .model(echo())
        .policy(policy)
        .root(directory.path())
        .state_dir(directory.path().join("state"))
        .build()
        .unwrap();
    let tasks = [Task::new("a", "Say pineapple"), Task::new("broken", "Fail")];
    let report =
        tokio::runtime::Runtime::new().unwrap().block_on(adjutant.delegate(tasks)).unwrap();
    assert!(report.results[0].text.contains("Say pineapple"), "{:?}", report.results[0]);
    assert_eq!(report.results[1].outcome, Outcome::Failed, "{:?}", report.results[1]);
}

/// Compiles only if every type inside an error and a progress event has a public name.
#[test]
fn errors_and_events_can_be_taken_apart() {
    fn kind(error: &Error) -> &'static str {
        if matches!(error, Error::Engine(EngineError::ToolName(_))) {
            return "tool name";
        }
        if matches!(error, Error::Archive(ArchiveError::NoSession(_))) {
            return "session";
        }
        if matches!(error, Error::Model(OpenModelError::NoKey { .. })) { "key" } else { "other" }
    }
    fn is_open(event: &ProgressKind) -> bool {
        matches!(event, ProgressKind::Approval { state: progress::ApprovalState::Asked, .. })
    }
    let error = Adjutant::builder()
        .model("anthropic/claude-haiku-5-5")
        .model_sources(adjutant::ModelSources::from_vars(|_| None))
        .build()
        .err()
        .unwrap();
    assert_eq!(kind(&error), "key");
    let output = ProgressKind::Output { label: String::new(), content: String::new() };
    assert!(!is_open(&output));
}
