//! Random histories: policies with small limits, and steps that name their targets by number, so that
//! they shrink well.

use adjutant_core::policy::{ApprovalRule, ContractKind, CycleKey, DelegationTimeout};
use adjutant_core::{
    AgentName, AttemptError, Brief, Label, ModelErrorKind, ModelReply, ModelSpec, Policy, Preset,
    Price, StopReason, ToolOutput, Usage, Usd,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use crate::sim::{read, tool};

/// A policy with every limit so small that histories of a few steps meet it.
pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let fan_out = (1..=3_u64, 2..=4_u64, option::of(2..=6_u64), option::of(4..=20_u64));
    let cycle_key = prop_oneof![Just(CycleKey::Task), Just(CycleKey::Agent), Just(CycleKey::Story)];
    let time = (option::of(5..=60_u64), option::of(5..=90_u64), option::of(5..=30_u64));
    let tokens = (
        option::of(300..=40_000_u64),
        option::of(1_000..=80_000_u64),
        option::of(10..=2_000_u64),
        100..=1_000_u64,
        option::of(900..=20_000_u64),
    );
    let kinds = (any::<bool>(), any::<bool>(), 1..=3_u64, option::of(10..=4_000_u64));
    (fan_out, cycle_key, time, tokens, kinds)
        .prop_map(|(fan_out, cycle_key, time, tokens, (asks, standard, concurrency, below))| {
            Policy {
                max_depth: fan_out.0,
                tasks_per_call: fan_out.1,
                children_per_parent: fan_out.2,
                children_per_run: fan_out.3,
                concurrency,
                cycle_key,
                timeout_s: time.0.map_or(DelegationTimeout::None, DelegationTimeout::Seconds),
                total_s: time.1,
                stall_s: time.2,
                budget_tokens: tokens.0,
                budget_tokens_run: tokens.1,
                budget_usd: tokens.2.and_then(|cents| Usd::from_dollars(cents as f64 / 1_000.0)),
                max_output_tokens: tokens.3,
                context_tokens: tokens.4,
                approve_below_usd: below
                    .and_then(|mills| Usd::from_dollars(mills as f64 / 1_000.0)),
                network: true,
                approval: if asks { ApprovalRule::Batch } else { ApprovalRule::None },
                contract: if standard { ContractKind::Standard } else { ContractKind::Report },
                ..Preset::Story.policy()
            }
        })
        .prop_map(|policy| Policy { enabled: true, ..policy })
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Delegate {
        parent: Index,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
    },
    Answer {
        who: Index,
        reply: ModelReply,
    },
    Fail {
        who: Index,
        error: AttemptError,
    },
    Output {
        who: Index,
        call: u32,
        output: ToolOutput,
    },
    Conclude {
        who: Index,
        good: bool,
    },
    /// The next mark on the project's list is made, or fails.
    Mark {
        which: Index,
        made: bool,
    },
    /// Due handovers are collected, with a diff of this size.
    HandOver {
        diff_bytes: usize,
    },
    Progress {
        who: Index,
    },
    Decide {
        which: Index,
        yes: bool,
    },
    /// An answer about a host, asked for or not.
    Host {
        which: usize,
        yes: bool,
    },
    Tell {
        who: Index,
        bytes: usize,
    },
    Cancel {
        who: Index,
    },
    Crash {
        who: Index,
    },
    /// An answer to a call that is not open.
    Stray {
        who: Index,
        turn: u32,
        attempt: u32,
    },
    Wait {
        millis: u64,
    },
    /// Waits for exactly the next deadline.
    Next,
}

fn briefs() -> impl Strategy<Value = Brief> {
    let model = (prop_oneof![Just(3_000_u64), Just(50_000)], any::<bool>()).prop_map(
        |(window, is_priced)| {
            // No published price has input dearer than output, but no rule forbids it.
            let price = Price { input: 30.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
            let price = is_priced.then_some(price);
            ModelSpec { name: "script:random".into(), window, max_output: 800, price, effort: None }
        },
    );
    let turns = option::of(1..6_u32);
    (
        0..4_usize,
        0..4_usize,
        option::of(0..5_usize),
        option::of(1..80_u64),
        0..300_u64,
        model,
        turns,
    )
        .prop_map(|(agent, prompt, story, timeout_wish, estimate, model, max_turns)| Brief {
            max_turns,
            story: story.map(|story| ["US-1", "US-2", "US-3", "US-4", "lead"][story].to_owned()),
            timeout_wish,
            estimate_tokens: Some(estimate),
            model: Some(model),
            ..Brief::new(
                Label::new(["a", "b", "c", "d"][prompt]).unwrap(),
                AgentName::new(["lead", "planner", "worker", "helper"][agent]),
                ["one", "two", "three", ""][prompt],
            )
        })
}

fn replies() -> impl Strategy<Value = ModelReply> {
    let usage = option::weighted(0.9, (0..1_000_u64, 0..600_u64, 0..200_u64, 0..200_u64));
    let kind = prop_oneof![
        4 => Just((StopReason::EndTurn, 0)),
        6 => (1..4_u32).prop_map(|calls| (StopReason::ToolUse, calls)),
        1 => Just((StopReason::MaxOutput, 0)),
        1 => Just((StopReason::Refused, 0)),
    ];
    (kind, "[a-z ]{0,12}", usage).prop_map(|((stop, calls), text, usage)| ModelReply {
        tool_calls: (0..calls)
            .map(|call| match call {
                0 => read("same", "a"),
                1 if text.len() % 2 == 0 => {
                    let host = ["a.example", "b.example", "odd@c.example"][text.len() % 3];
                    tool("w", "WebFetch", json!({"url": format!("https://{host}/")}))
                }
                1 => tool("b", "Grep", json!({"pattern": "x"})),
                _ if text.len() % 3 == 0 => tool("r", "Return", json!({})),
                _ => tool("same", "Dance", json!({})),
            })
            .collect(),
        text,
        stop,
        opaque: None,
        usage: usage.map(|(input, output, cache_read, cache_write)| Usage {
            input,
            output,
            cache_read,
            cache_write,
        }),
    })
}

fn errors() -> impl Strategy<Value = AttemptError> {
    let kind = prop_oneof![
        3 => Just(ModelErrorKind::Overloaded),
        1 => Just(ModelErrorKind::BadRequest),
        1 => Just(ModelErrorKind::ContextExhausted),
    ];
    (kind, option::of(0..20_000_u64), any::<bool>()).prop_map(
        |(kind, retry_after_ms, never_began)| AttemptError {
            kind,
            message: "no".into(),
            retry_after_ms,
            never_began,
        },
    )
}

fn outputs() -> impl Strategy<Value = ToolOutput> {
    ("[a-z]{0,400}", option::of(Just("noted".to_owned())), any::<bool>()).prop_map(
        |(content, note, is_error)| ToolOutput { content, is_error, note, ..ToolOutput::default() },
    )
}

pub(crate) fn steps() -> impl Strategy<Value = Step> {
    let who = any::<Index>;
    prop_oneof![
        6 => (who(), vec(briefs(), 1..4), option::of(1..5_u64))
            .prop_map(|(parent, briefs, concurrency)| Step::Delegate { parent, briefs, concurrency }),
        8 => (who(), replies()).prop_map(|(who, reply)| Step::Answer { who, reply }),
        3 => (who(), errors()).prop_map(|(who, error)| Step::Fail { who, error }),
        6 => (who(), 0..2_u32, outputs())
            .prop_map(|(who, call, output)| Step::Output { who, call, output }),
        3 => (who(), any::<bool>()).prop_map(|(who, good)| Step::Conclude { who, good }),
        2 => (who(), prop::bool::weighted(0.8)).prop_map(|(which, made)| Step::Mark { which, made }),
        2 => (0..4_000_usize).prop_map(|diff_bytes| Step::HandOver { diff_bytes }),
        1 => who().prop_map(|who| Step::Progress { who }),
        4 => (who(), prop::bool::weighted(0.9)).prop_map(|(which, yes)| Step::Decide { which, yes }),
        2 => (0..2_usize, any::<bool>()).prop_map(|(which, yes)| Step::Host { which, yes }),
        3 => (who(), 0..1_500_usize).prop_map(|(who, bytes)| Step::Tell { who, bytes }),
        1 => who().prop_map(|who| Step::Cancel { who }),
        1 => who().prop_map(|who| Step::Crash { who }),
        1 => (who(), 0..4_u32, 0..3_u32)
            .prop_map(|(who, turn, attempt)| Step::Stray { who, turn, attempt }),
        2 => (0..8_000_u64).prop_map(|millis| Step::Wait { millis }),
        2 => Just(Step::Next),
    ]
}

/// The first step gives the run something to live on.
pub(crate) fn histories() -> impl Strategy<Value = Vec<Step>> {
    let first = (any::<Index>(), vec(briefs(), 2..4)).prop_map(|(parent, briefs)| Step::Delegate {
        parent,
        briefs,
        concurrency: Some(4),
    });
    (first, vec(steps(), 0..80))
        .prop_map(|(first, rest)| std::iter::once(first).chain(rest).collect())
}
