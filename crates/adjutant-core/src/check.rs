//! `adjutant check`: judges one delegation request against a described tree, without running
//! anything.
//!
//! Builds a [`Tree`] by folding the events that would have led to the described state, then asks
//! [`Tree::judge_one`], which applies the same checks as `decide`.
//!
//! [`CheckInput`] is the whole input, with the running delegations ([`CheckNode`]) and the
//! [`CheckRequest`]; [`CheckAnswer`] is the output (granted or refused), and [`CheckError`] says
//! why the input itself is invalid.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::brief::Brief;
use crate::event::{Event, Grant, IllegalEvent};
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::policy::{LayeredPolicy, Operation, PolicyError, PolicySource, Preset};
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::time::Timestamp;
use crate::tree::{Admission, Tree};

/// The JSON input of `adjutant check`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckInput {
    /// Policy keys that override the preset.
    #[serde(default)]
    pub policy: Map<String, Value>,
    /// The running delegations; the first one is the root.
    #[serde(default)]
    pub tree: Vec<CheckNode>,
    /// Delegation edges between stories; every story named here counts as running.
    #[serde(default)]
    pub edges: Vec<(String, String)>,
    /// The names of the defined agents; absent means that any name is accepted.
    #[serde(default)]
    pub agents: Option<Vec<String>>,
    /// The delegation to judge.
    pub request: CheckRequest,
}

/// A running delegation in the input.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckNode {
    /// Its id within this input.
    pub id: String,
    /// Its parent's id; absent for the root.
    #[serde(default)]
    pub parent: Option<String>,
    /// The agent; defaults to the id.
    #[serde(default)]
    pub agent: Option<String>,
    /// Its prompt.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The size of its context in tokens.
    #[serde(default)]
    pub context_tokens: Option<u64>,
}

/// The delegation request to judge.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// The id of the delegating node; defaults to the root.
    #[serde(default)]
    pub parent: Option<String>,
    /// The agent to delegate to; defaults to `child`.
    #[serde(default)]
    pub agent: Option<String>,
    /// The id of the story to work on.
    #[serde(default)]
    pub child: Option<String>,
    /// The prompt.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Estimated context size in tokens.
    #[serde(default)]
    pub estimate_tokens: Option<u64>,
    /// Requested timeout in seconds.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// The operation, which decides the time limits.
    #[serde(default)]
    pub operation: Option<String>,
}

/// Says why the input cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// A policy key or value was rejected.
    #[error("policy: {0}")]
    Policy(#[from] PolicyError),
    /// The tree is empty.
    #[error("tree: at least the root is needed")]
    NoRoot,
    /// The first node is the root but names a parent.
    #[error("tree: `{id}` comes first and is the root, but names a parent, `{parent}`")]
    RootHasParent {
        /// The root's id.
        id: String,
        /// The parent that it names.
        parent: String,
    },
    /// Two nodes share an id.
    #[error("tree: `{id}` appears twice")]
    Duplicate {
        /// The id.
        id: String,
    },
    /// A node is not connected to the root.
    #[error("tree: `{id}` does not lead to the root; its parent is {parent}")]
    Detached {
        /// The node's id.
        id: String,
        /// The parent that it names.
        parent: String,
    },
    /// The request names neither an agent nor a story.
    #[error("request: `agent` or `child` is needed")]
    NoTarget,
    /// The described tree is contradictory.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
}

/// The JSON output of `adjutant check`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "fields are the documented keys of the output")]
pub enum CheckAnswer {
    /// The delegation would be granted.
    Granted {
        granted: bool,
        depth: u64,
        path: Vec<String>,
        timeout: Option<u64>,
        clamped: bool,
        estimate_tokens: u64,
        tools: Vec<String>,
    },
    /// The delegation would be refused.
    Refused {
        granted: bool,
        code: String,
        message: String,
        recommendation: String,
        recoverable: bool,
    },
}

impl CheckAnswer {
    /// Says whether the delegation would be granted.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        matches!(self, Self::Granted { .. })
    }
}

/// Judges the request of `input` under the policy `layered` plus the keys in the input.
pub fn check(mut layered: LayeredPolicy, input: &CheckInput) -> Result<CheckAnswer, CheckError> {
    layered.apply(&input.policy, &PolicySource::Flag("policy of the input".into()))?;
    let policy = layered.into_policy();
    let target = input
        .request
        .agent
        .as_deref()
        .or(input.request.child.as_deref())
        .ok_or(CheckError::NoTarget)?;
    let mut builder =
        CheckTreeBuilder { tree: Tree::default(), ids: BTreeMap::new(), preset: policy.preset };
    builder.build_tree(policy, input)?;
    builder.connect(&input.edges);
    builder.add_requesting_parent(input)?;
    builder.define(input.agents.as_deref())?;
    let mut brief = Brief::new(
        label(target),
        AgentName::new(target),
        input.request.prompt.as_deref().unwrap_or_default(),
    );
    brief.story.clone_from(&input.request.child);
    brief.operation =
        input.request.operation.as_deref().map_or(Operation::Unknown, Operation::parse);
    brief.timeout_wish = input.request.timeout;
    brief.is_timeout_requested = input.request.timeout.is_some();
    brief.estimate_tokens = input.request.estimate_tokens;
    let answer = builder.judge(input, &brief);
    Ok(match answer {
        Ok(admission) => grant_answer(admission, &brief),
        Err(refusal) => refusal_answer(&refusal),
    })
}

fn grant_answer(admission: Admission, brief: &Brief) -> CheckAnswer {
    CheckAnswer::Granted {
        granted: true,
        depth: admission.depth,
        path: admission.path,
        timeout: admission.timeout_s,
        clamped: admission.clamped,
        estimate_tokens: brief.estimate(),
        tools: admission.rights.usable_tools().iter().map(str::to_owned).collect(),
    }
}

fn refusal_answer(refusal: &Refusal) -> CheckAnswer {
    CheckAnswer::Refused {
        granted: false,
        code: refusal.code().to_string(),
        message: refusal.message(),
        recommendation: refusal.recommendation(),
        recoverable: refusal.recoverable(),
    }
}

/// Builds a tree by folding the events that would have led to it.
struct CheckTreeBuilder {
    tree: Tree,
    ids: BTreeMap<String, SessionId>,
    preset: Preset,
}

impl CheckTreeBuilder {
    fn build_tree(
        &mut self,
        policy: crate::policy::Policy,
        input: &CheckInput,
    ) -> Result<(), CheckError> {
        let alone = CheckNode {
            id: input.request.parent.clone().unwrap_or_default(),
            ..CheckNode::default()
        };
        let root = match input.tree.first() {
            Some(root) => root,
            None if is_story(input, &alone.id) => &alone,
            None => return Err(CheckError::NoRoot),
        };
        if let Some(parent) = &root.parent {
            return Err(CheckError::RootHasParent { id: root.id.clone(), parent: parent.clone() });
        }
        let run = RunId::new(FIRST_STAMP, [0; 6]);
        let event = Event::RunStarted {
            run,
            agent: AgentName::new(root.name()),
            goal: root.prompt.clone().unwrap_or_default(),
            workdir: String::new(),
            policy: Box::new(policy),
            version: String::new(),
            model: None,
            terms: None,
            base_depth: 0,
            environment: None,
        };
        self.tree.evolve(Timestamp::ZERO, &event)?;
        self.give_context(run.root_session(), root);
        self.ids.insert(root.id.clone(), run.root_session());
        self.grow(root, &input.tree)
    }

    /// Adds the nodes below the root. The input may list them in any order.
    fn grow(&mut self, root: &CheckNode, nodes: &[CheckNode]) -> Result<(), CheckError> {
        let mut below: BTreeMap<&str, Vec<&CheckNode>> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::from([root.id.as_str()]);
        for node in nodes.iter().skip(1) {
            if !seen.insert(&node.id) {
                return Err(CheckError::Duplicate { id: node.id.clone() });
            }
            below.entry(node.parent.as_deref().unwrap_or_default()).or_default().push(node);
        }
        let mut open = vec![root.id.as_str()];
        while let Some(parent) = open.pop() {
            for node in below.remove(parent).unwrap_or_default() {
                self.add(parent, node)?;
                open.push(&node.id);
            }
        }
        match below.values().flatten().next() {
            None => Ok(()),
            Some(node) => Err(CheckError::Detached {
                id: node.id.clone(),
                parent: node
                    .parent
                    .as_ref()
                    .map_or_else(|| "missing".to_owned(), |parent| format!("`{parent}`")),
            }),
        }
    }

    fn add(&mut self, parent: &str, node: &CheckNode) -> Result<(), CheckError> {
        let above = self.ids[parent];
        let session = SessionId::new(FIRST_STAMP + self.ids.len() as u64, [0; 6]);
        let depth = self.tree.node(above).map_or(0, |above| above.depth) + 1;
        let mut brief = Brief::new(
            label(&node.id),
            AgentName::new(node.name()),
            node.prompt.as_deref().unwrap_or_default(),
        );
        brief.story = (self.preset == Preset::Story).then(|| node.id.clone());
        let policy = self.tree.policy();
        let rights = Rights::of(policy);
        let grant = Grant {
            session,
            parent: above,
            call: 1,
            index: 0,
            places: u64::MAX,
            brief,
            depth,
            path: Vec::new(),
            rights,
            timeout_s: None,
            clamped: false,
            preface: None,
            task: None,
            opening_bytes: 0,
            awaiting_approval: false,
        };
        self.tree.evolve(Timestamp::ZERO, &Event::Granted(Box::new(grant)))?;
        let started =
            Event::Started { session, deadline: None, bound: crate::refusal::TimeBound::Own };
        self.tree.evolve(Timestamp::ZERO, &started)?;
        self.give_context(session, node);
        self.ids.insert(node.id.clone(), session);
        Ok(())
    }

    /// Sets a node's context size, if the input gives one; it includes the prompt.
    fn give_context(&mut self, session: SessionId, node: &CheckNode) {
        if let Some(tokens) = node.context_tokens {
            self.tree.give_context(session, tokens);
        }
    }

    fn connect(&mut self, edges: &[(String, String)]) {
        for (parent, child) in edges {
            self.tree.connect_stories(parent, child);
        }
    }

    /// Adds the requesting parent as a running node if only the edges name it.
    fn add_requesting_parent(&mut self, input: &CheckInput) -> Result<(), CheckError> {
        match (&input.request.parent, input.tree.first()) {
            (Some(name), Some(root)) if !self.ids.contains_key(name) && is_story(input, name) => {
                self.add(&root.id, &CheckNode { id: name.clone(), ..CheckNode::default() })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    fn define(&mut self, agents: Option<&[String]>) -> Result<(), CheckError> {
        let policy = self.tree.policy();
        let rights = Rights::of(policy);
        let Some(agents) = agents else { return Ok(()) };
        self.tree.know_no_agent();
        for name in agents {
            let event = Event::AgentDefined {
                agent: AgentName::new(name),
                system: String::new(),
                tools: Vec::new(),
                rights: rights.clone(),
                max_turns: None,
                worker: None,
            };
            self.tree.evolve(Timestamp::ZERO, &event)?;
        }
        Ok(())
    }

    /// Asks the tree. An unknown parent is judged too, with an id that does not exist, because a
    /// disabled policy is reported before an unknown parent.
    fn judge(&self, input: &CheckInput, brief: &Brief) -> Result<Admission, Refusal> {
        let judge = |parent| self.tree.judge_one(Timestamp::ZERO, parent, brief);
        match self.parent(input) {
            Ok(parent) => judge(parent),
            Err(unknown) => match judge(SessionId::new(0, [0; 6])) {
                Err(Refusal::UnknownParent { .. }) | Ok(_) => Err(unknown),
                Err(earlier) => Err(earlier),
            },
        }
    }

    fn parent(&self, input: &CheckInput) -> Result<SessionId, Refusal> {
        let name = match &input.request.parent {
            Some(name) => name,
            None => match input.tree.first() {
                Some(root) => &root.id,
                None => return Err(Refusal::UnknownParent { parent: String::new() }),
            },
        };
        self.ids.get(name).copied().ok_or_else(|| Refusal::UnknownParent { parent: name.clone() })
    }
}

impl CheckNode {
    fn name(&self) -> &str {
        self.agent.as_deref().unwrap_or(&self.id)
    }
}

/// Session ids are made up, counting up from the first timestamp with ten digits.
const FIRST_STAMP: u64 = 1_000_000_000;

fn is_story(input: &CheckInput, name: &str) -> bool {
    input.edges.iter().any(|(parent, child)| parent == name || child == name)
}

/// Returns a label from the first characters of any name.
fn label(name: &str) -> Label {
    let short: String = name.chars().take(Label::MAX_CHARS).collect();
    Label::new(&short).unwrap_or_else(|_| Label::unnamed())
}
