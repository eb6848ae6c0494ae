//! Stories in the registry: the budget that those of a PRD share, and runs of versions that had no registry.

use adjutant_core::budget::{BudgetAmount, BudgetCap};
use adjutant_core::registry::{HolderId, StoryEnd, StoryKey, StoryRun, StoryRunState};
use adjutant_core::{Registry, RegistryCommand, RegistryEvent, RegistryRefusal, RunId, Usd};

const PRD: &str = "/work/prd.json";

fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars).unwrap()
}

fn run(number: u32) -> RunId {
    format!("run_1735460684_{number:06}").parse().unwrap()
}

fn story(id: &str) -> StoryKey {
    StoryKey { prd: PRD.to_owned(), id: id.to_owned() }
}

/// A process that is known to a registry.
struct Process {
    registry: Registry,
    holder: HolderId,
}

impl Process {
    fn new() -> Self {
        let (registry, holder) = (Registry::default(), HolderId::new("one"));
        let mut process = Self { registry, holder: holder.clone() };
        process.submit(RegistryCommand::Join { holder, pid: 7 }).unwrap();
        process
    }

    fn submit(&mut self, command: RegistryCommand) -> Result<Vec<RegistryEvent>, RegistryRefusal> {
        let events = self.registry.decide(0, command)?;
        events.iter().for_each(|event| self.registry.evolve(0, event));
        Ok(events)
    }

    /// Begins a run on a story; returns what it may use up.
    fn begin(
        &mut self,
        id: &str,
        number: u32,
        budget: BudgetCap,
    ) -> Result<BudgetCap, RegistryRefusal> {
        let (holder, story) = (self.holder.clone(), story(id));
        self.submit(RegistryCommand::ClaimStory { holder: holder.clone(), story: story.clone() })?;
        let (run, asked) = (run(number), String::new());
        let events =
            self.submit(RegistryCommand::BeginStory { holder, story, run, asked, budget })?;
        let [RegistryEvent::StoryBegun { left_usd, left_tokens, .. }] = events.as_slice() else {
            panic!("{events:?}");
        };
        Ok(BudgetCap { usd: *left_usd, tokens: *left_tokens })
    }

    fn end(&mut self, number: u32, spent: BudgetAmount) {
        let (run, end) = (run(number), StoryEnd::Passed);
        let ended = RegistryCommand::EndStory { run, end, spent, commit: None, last_child: 0 };
        self.submit(ended).unwrap();
    }
}

/// Returns the budget of a second story after the first cost `spent`.
fn after(budget: BudgetCap, spent: BudgetAmount) -> Result<BudgetCap, RegistryRefusal> {
    let mut process = Process::new();
    assert_eq!(process.begin("A", 1, budget), Ok(budget));
    process.end(1, spent);
    process.begin("B", 2, budget)
}

#[test]
fn stories_share_one_budget() {
    let budget = BudgetCap { usd: Some(usd(1.0)), tokens: Some(1_000) };
    let spent = |tokens, dollars| BudgetAmount { tokens, usd: usd(dollars) };
    assert_eq!(after(budget, spent(0, 0.0)), Ok(budget));
    let rest = BudgetCap { usd: Some(usd(0.75)), tokens: Some(600) };
    assert_eq!(after(budget, spent(400, 0.25)), Ok(rest));
    for (tokens, dollars) in [(1_000, 0.1), (1_500, 0.1), (10, 1.0), (10, 1.2)] {
        let refused = Err(RegistryRefusal::StoryBudgetUsedUp);
        assert_eq!(after(budget, spent(tokens, dollars)), refused, "{tokens}, {dollars}");
    }
    // A zero budget does not refuse the story: its run meets the limit as soon as it asks for something.
    let nothing = BudgetCap { usd: Some(Usd::ZERO), ..budget };
    assert_eq!(after(nothing, BudgetAmount::default()), Ok(nothing));
    assert_eq!(after(BudgetCap::default(), spent(u64::MAX, 9.0)), Ok(BudgetCap::default()));
}

#[test]
fn the_commits_of_a_passed_story_are_kept_when_its_run_is_resumed() {
    let mut process = Process::new();
    let key = story("A");
    let (holder, run) = (process.holder.clone(), run(1));
    process.begin("A", 1, BudgetCap::default()).unwrap();
    let ends = [
        (StoryEnd::Passed, Some("c1"), ["c1"].as_slice()),
        (StoryEnd::Resumable, Some("c2"), &["c1"]),
        (StoryEnd::Passed, Some("c3"), &["c1", "c3"]),
        (StoryEnd::Passed, None, &["c1", "c3"]),
        (StoryEnd::Passed, Some("c1"), &["c3", "c1"]),
    ];
    for (end, commit, passed_with) in ends {
        let (spent, commit) = (BudgetAmount::default(), commit.map(str::to_owned));
        process
            .submit(RegistryCommand::EndStory { run, end, spent, commit, last_child: 0 })
            .unwrap();
        assert_eq!(process.registry.story_run(run).unwrap().passed_with, passed_with);
        let (holder, story, asked) = (holder.clone(), key.clone(), String::new());
        let budget = BudgetCap::default();
        process.submit(RegistryCommand::BeginStory { holder, story, run, asked, budget }).unwrap();
    }
}

#[test]
fn runs_of_earlier_versions_are_imported_once_and_come_before_those_that_are_known() {
    let earlier = |number| StoryRun {
        story: story("A"),
        run: run(number),
        asked: String::new(),
        state: StoryRunState::Ended(StoryEnd::Over),
        passed_with: Vec::new(),
        last_child: 3,
    };
    let mut process = Process::new();
    process.begin("A", 3, BudgetCap::default()).unwrap();
    assert!(!process.registry.has_imported_story_runs(PRD));
    // The known run may have been started by an earlier version and resumed by this one.
    let runs = vec![earlier(1), earlier(2), earlier(3)];
    let import = RegistryCommand::ImportStoryRuns { prd: PRD.to_owned(), runs };
    process.submit(import.clone()).unwrap();
    let known = |process: &Process| {
        process.registry.story_runs(&story("A")).map(|it| it.run).collect::<Vec<_>>()
    };
    assert_eq!(known(&process), [run(3), run(2), run(1)]);
    assert!(process.registry.has_imported_story_runs(PRD));
    assert_eq!(process.submit(import), Err(RegistryRefusal::AlreadyImported));
    let key = story("A");
    let latest = process.registry.story_runs(&key).next().unwrap();
    assert_eq!(latest.state, StoryRunState::Running(process.holder.clone()));
    // The fold of a checkpoint is the same.
    let mut again = Registry::default();
    again.evolve(0, &process.registry.checkpoint());
    assert_eq!(again, process.registry);
}
