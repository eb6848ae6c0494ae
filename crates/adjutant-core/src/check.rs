//! `adjutant check`: one admission judged from a description of the tree, without running anything.
//!
//! Builds a [`Tree`] from the input by folding the events that would have led there, then asks for
//! the judgement that `decide` makes for each task of a call.

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

/// What `check` reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckInput {
    /// Keys over the preset.
    #[serde(default)]
    pub policy: Map<String, Value>,
    /// The delegations that are live; the first is the root.
    #[serde(default)]
    pub tree: Vec<CheckNode>,
    /// Edges between stories; the stories named here are live.
    #[serde(default)]
    pub edges: Vec<(String, String)>,
    /// The agents that are known; absent means any.
    #[serde(default)]
    pub agents: Option<Vec<String>>,
    /// What is asked.
    pub request: CheckRequest,
}

/// A live delegation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckNode {
    /// What it is called in this input.
    pub id: String,
    /// Its parent's id; absent for the root.
    #[serde(default)]
    pub parent: Option<String>,
    /// Who works; its id when absent.
    #[serde(default)]
    pub agent: Option<String>,
    /// What it was asked.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Tokens its context holds.
    #[serde(default)]
    pub context_tokens: Option<u64>,
}

/// The delegation that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// Who asks; the root when absent.
    #[serde(default)]
    pub parent: Option<String>,
    /// Who is to work; the child's name when absent.
    #[serde(default)]
    pub agent: Option<String>,
    /// The story that is to be worked on.
    #[serde(default)]
    pub child: Option<String>,
    /// What is to be done.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Tokens it is expected to need.
    #[serde(default)]
    pub estimate_tokens: Option<u64>,
    /// Seconds it asks for.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// What kind of work it is.
    #[serde(default)]
    pub operation: Option<String>,
}

/// Says why the input describes no tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// A setting was not taken.
    #[error("policy: {0}")]
    Policy(#[from] PolicyError),
    /// There is nothing to be the root.
    #[error("tree: at least the root is needed")]
    NoRoot,
    /// The first node, which is the root, names a parent.
    #[error("tree: `{id}` comes first and is the root, but names a parent, `{parent}`")]
    RootHasParent {
        /// The root.
        id: String,
        /// What it names.
        parent: String,
    },
    /// Two nodes share an id.
    #[error("tree: `{id}` appears twice")]
    Duplicate {
        /// The id.
        id: String,
    },
    /// A node does not hang on the root.
    #[error("tree: `{id}` does not lead to the root; its parent is {parent}")]
    Detached {
        /// The node.
        id: String,
        /// What it names as its parent.
        parent: String,
    },
    /// Neither an agent nor a story is asked for.
    #[error("request: `agent` or `child` is needed")]
    NoTarget,
    /// The events do not fit together.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
}

/// What `check` prints.
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
    /// It would not.
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

/// Judges the request of `input` under a policy that starts from `layered`.
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
    builder.plant(policy, input)?;
    builder.connect(&input.edges);
    builder.enlist(input)?;
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
        Ok(admission) => granted(admission, &brief),
        Err(refusal) => refused(&refusal),
    })
}

fn granted(admission: Admission, brief: &Brief) -> CheckAnswer {
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

fn refused(refusal: &Refusal) -> CheckAnswer {
    CheckAnswer::Refused {
        granted: false,
        code: refusal.code().to_string(),
        message: refusal.message(),
        recommendation: refusal.recommendation(),
        recoverable: refusal.recoverable(),
    }
}

/// Grows a tree by folding the events that would have led to it.
struct CheckTreeBuilder {
    tree: Tree,
    ids: BTreeMap<String, SessionId>,
    preset: Preset,
}

impl CheckTreeBuilder {
    fn plant(
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
        };
        self.tree.evolve(Timestamp::ZERO, &event)?;
        self.give_context(run.root_session(), root);
        self.ids.insert(root.id.clone(), run.root_session());
        self.grow(root, &input.tree)
    }

    /// Adds the nodes below the root in any order they were written in, each once.
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

    /// A given context is all that the node holds, its prompt included.
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

    /// Makes the parent live when only the edges name it.
    fn enlist(&mut self, input: &CheckInput) -> Result<(), CheckError> {
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
            };
            self.tree.evolve(Timestamp::ZERO, &event)?;
        }
        Ok(())
    }

    /// Asks the tree about the parent that is named. A name that stands for no node is asked about
    /// as well: whether delegation is switched off is judged before who delegates.
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

/// Ids are made up: the first stamp that has ten digits.
const FIRST_STAMP: u64 = 1_000_000_000;

fn is_story(input: &CheckInput, name: &str) -> bool {
    input.edges.iter().any(|(parent, child)| parent == name || child == name)
}

/// Returns a label for any name: its first characters.
fn label(name: &str) -> Label {
    let short: String = name.chars().take(Label::MAX_CHARS).collect();
    Label::new(&short).unwrap_or_else(|_| Label::unnamed())
}
