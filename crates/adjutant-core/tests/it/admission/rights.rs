//! Part of `admission`: rights.

use super::*;

#[test]
fn rights_only_shrink_on_the_way_down() {
    let settings = ["enabled=true", "max_depth=3", "network=true"];
    let mut sim = Sim::new(policy(Preset::Story, &settings));
    let define = |agent: &str, tools: &[&str], network: bool| Command::Define {
        agent: AgentName::new(agent),
        system: String::new(),
        tools: Vec::new(),
        rights: Rights { tools: ToolSet::new(tools.iter().copied()), network, ..Rights::default() },
        max_turns: None,
        worker: None,
    };
    sim.submit(define("dev", &["Read", "Write", "Delegate"], true)).unwrap();
    sim.submit(define("all", &["Read", "Write", "Run", "WebFetch", "Delegate"], true)).unwrap();
    sim.submit(define("reader", &["Read", "WebFetch"], false)).unwrap();
    let dev = sim.child(brief("dev", "dev", "a"));
    assert_eq!(rights_of(&sim, dev), "Delegate, Read, Write +network");
    // A definition is a ceiling, not a grant: `all` gets from `dev` what `dev` has.
    let all = sim.child_of(dev, brief("all", "all", "b"));
    assert_eq!(rights_of(&sim, all), "Delegate, Read, Write +network");
    let reader = sim.child_of(all, brief("reader", "reader", "c"));
    assert_eq!(rights_of(&sim, reader), "Read");
}

#[test]
fn requested_rights_must_be_within_the_parent_s() {
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let wish = |tools: &[&str], network: bool| Brief {
        rights_wish: Some(Rights {
            tools: ToolSet::new(tools.iter().copied()),
            network,
            ..Rights::default()
        }),
        ..about("wish")
    };
    let less = sim.child(wish(&["Read"], false));
    assert_eq!(rights_of(&sim, less), "Read");
    for (tools, network) in [(&["Read", "Run"][..], false), (&["Read"], true), (&["Edit"], true)] {
        let events = sim.ask(root, vec![wish(tools, network)], None).unwrap();
        assert_eq!(refused(&events), [ErrorCode::RightsExceeded], "{tools:?} {network}");
    }
    let reason = |tools: &[&str], network: bool| {
        let refusal = sim.tree.judge_one(sim.now, root, &wish(tools, network)).unwrap_err();
        shown(&refusal)
    };
    insta::assert_snapshot!(reason(&["Edit", "Run"], false), @r"
    RIGHTS_EXCEEDED: Rights beyond the parent's: Edit, Run.
    rights beyond the parent's: Edit, Run
    => Ask only for tools the parent holds.
    ");
    insta::assert_snapshot!(reason(&["Read"], true), @r"
    RIGHTS_EXCEEDED: Rights beyond the parent's: the network.
    rights beyond the parent's: the network
    => Ask only for tools and a network that the parent holds.
    ");
    insta::assert_snapshot!(reason(&["Edit"], true), @r"
    RIGHTS_EXCEEDED: Rights beyond the parent's: Edit, the network.
    rights beyond the parent's: Edit, the network
    => Ask only for tools and a network that the parent holds.
    ");
}

#[test]
fn any_agent_is_accepted_unless_agents_are_defined() {
    let ask = |agents: Value| {
        let mut input = json!({"tree": [{"id": "lead"}], "request": {"agent": "scout"}});
        if !agents.is_null() {
            input["agents"] = agents;
        }
        refusal(Preset::Scout, &input)
    };
    assert!(ask(Value::Null).starts_with("Granted"));
    assert!(ask(json!(["reader", "scout"])).starts_with("Granted"));
    insta::assert_snapshot!(ask(json!(["reader", "planner"])), @r"
    UNKNOWN_AGENT (recoverable)
    Unknown agent: scout. Known agents: planner, reader.
    => Use one of the known agents.
    ");
    // With an empty list, no agent is known.
    insta::assert_snapshot!(ask(json!([])), @r"
    UNKNOWN_AGENT (recoverable)
    Unknown agent: scout. Known agents: none.
    => Use one of the known agents.
    ");
}
