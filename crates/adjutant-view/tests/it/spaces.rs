//! Agents that write in their own workspaces: sandbox, committed work, and files that several change.

use adjutant_core::workspace::{
    ChangedFile, KeptWork, OwnWorkspace, WorkspaceKind, WorkspaceTerms,
};
use adjutant_core::{DelegationState, ErrorCode, Event, Outcome, SessionId, ToolOutput};
use adjutant_view::errors::of_run;
use adjutant_view::palette::Palette;
use adjutant_view::progress::{ProgressFrame, line};
use adjutant_view::results::{CallResults, ResultOptions};
use adjutant_view::status::{ContentRetention, ObservedRun, detail, list};
use adjutant_view::{ProcessLiveness, RunView, tree};

use crate::history::{History, tokens};

fn file(path: &str, how: &str) -> ChangedFile {
    ChangedFile { path: path.into(), how: how.into(), added: Some(1), removed: Some(0) }
}

fn kept(files: &[(&str, &str)]) -> KeptWork {
    let files = files.iter().map(|(path, how)| file(path, how)).collect();
    KeptWork { commit: Some("c0ffee".into()), files, ..KeptWork::default() }
}

fn terms(sandbox_off: bool) -> Option<Box<WorkspaceTerms>> {
    Some(Box::new(WorkspaceTerms { sandbox_off, ..WorkspaceTerms::default() }))
}

fn begun(sandbox_off: bool) -> History {
    let mut h = History::new();
    if let Event::RunStarted { terms: of_run, .. } = &mut h.records[0].1 {
        *of_run = terms(sandbox_off);
    }
    h
}

fn works(h: &mut History, session: SessionId) {
    h.start(session);
    let (path, base) = ("/spaces/1".into(), "abc".into());
    let (layers, remarks) = (Vec::new(), Vec::new());
    let space = OwnWorkspace { kind: WorkspaceKind::Worktree, path, base, layers, remarks };
    h.push(Event::SpaceMade { session, space, project: None });
    h.reply(session, "It is done.", vec![], tokens(10, 1));
}

fn ends(h: &mut History, session: SessionId, kept: KeptWork, problem: Option<&str>) {
    h.end(session, Outcome::Completed, None);
    let problem = problem.map(str::to_owned);
    h.push(Event::SpaceKept { session, kept, problem });
}

fn markdown(h: &History) -> String {
    CallResults::of_run(&h.view()).markdown(&ResultOptions::default())
}

#[test]
fn requirement_31_work_that_could_not_be_committed_is_an_error_until_it_is() {
    let mut h = begun(false);
    let [one] = h.call([("one", "Do it.")]);
    works(&mut h, one);
    ends(&mut h, one, KeptWork::default(), Some("the disk is full"));
    let errors = |h: &History| -> Vec<String> {
        let errors = of_run(&h.view(), ProcessLiveness::Dead).into_iter();
        errors.map(|it| format!("{} {}: {}", it.fix_status.word(), it.code, it.message)).collect()
    };
    let said = "GIT_COMMIT_FAILED: The work is done, but could not be committed: the disk is full";
    assert_eq!(errors(&h), [format!("unfixed {said}")]);
    let view = h.view();
    let node = view.delegation(one).unwrap();
    assert_eq!(node.state, DelegationState::Ended(Outcome::Partial));
    assert_eq!(node.reason.as_ref().unwrap().code, ErrorCode::GitCommitFailed);
    h.push(Event::SpaceKept { session: one, kept: kept(&[("a.rs", "added")]), problem: None });
    assert_eq!(errors(&h), [format!("fixed {said}")]);
    let view = h.view();
    let node = view.delegation(one).unwrap();
    assert_eq!((&node.state, &node.reason), (&DelegationState::Ended(Outcome::Completed), &None));
}

/// All progress lines of a history.
fn lines(h: &History) -> Vec<String> {
    let mut view = RunView::default();
    let mut lines = Vec::new();
    for entry in h.entries() {
        view.apply(entry);
        lines.extend(line(&view, &entry, Palette::Plain));
    }
    lines
}

/// All output about a run.
fn shown(h: &History) -> Vec<(&'static str, String)> {
    let (view, now) = (h.view(), h.at());
    let look = ObservedRun {
        view: &view,
        liveness: ProcessLiveness::Alive,
        now,
        content: ContentRetention::Kept,
        program: "adjutant",
    };
    let frame = ProgressFrame { width: 80, height: None, now, palette: Palette::Plain };
    vec![
        ("frame", frame.render(&view)),
        ("list", list(&[look])),
        ("detail", detail(&look, None, Palette::Plain)),
        ("tree", tree::render(&view, now, ProcessLiveness::Alive, Palette::Plain, 160)),
        ("result", markdown(h)),
        ("lines", lines(h).join("\n")),
    ]
}

#[test]
fn uncommitted_work_is_never_shown_as_a_success() {
    let mut h = begun(false);
    let [poor] = h.call([("poor", "x")]);
    works(&mut h, poor);
    ends(&mut h, poor, KeptWork::default(), Some("the disk is full"));
    h.end_run(Outcome::Partial);
    for (place, text) in shown(&h) {
        assert!(!text.contains('✓'), "{place}: {text}");
        assert!(!text.contains("1 complete"), "{place}: {text}");
    }
    let json = CallResults::of_run(&h.view()).json(&ResultOptions::default());
    assert_eq!((json.completed, json.partial, json.results[0].outcome), (0, 1, "partial"));
    assert!(markdown(&h).contains(
        "**Work**: its work could not be committed and is still in its workspace: the disk is full"
    ));
    assert!(markdown(&h).contains("It is done."), "what it said is there all the same");

    // Once it is committed, the original outcome returns.
    h.push(Event::SpaceKept { session: poor, kept: kept(&[("a", "added")]), problem: None });
    assert_eq!(
        h.view().delegation(poor).unwrap().state,
        DelegationState::Ended(Outcome::Completed)
    );
}

#[test]
fn a_slow_start_of_a_workspace_is_shown_until_it_is_made() {
    let mut h = begun(false);
    let [one] = h.call([("one", "Do it.")]);
    h.start(one);
    let text = "making its workspace".to_owned();
    h.push(Event::Printed { session: one, text: text.clone() });
    assert_eq!(lines(&h).last().unwrap(), "[one] making its workspace");
    assert!(shown(&h)[0].1.contains(&text), "{}", shown(&h)[0].1);
    works(&mut h, one);
    assert!(!shown(&h)[0].1.contains(&text), "{}", shown(&h)[0].1);
    // What a command prints is no line of its own.
    let before = lines(&h).len();
    h.push(Event::Printed { session: one, text });
    assert_eq!(lines(&h).len(), before);
}

#[test]
fn an_end_is_reported_once_together_with_the_committed_work() {
    let mut h = begun(false);
    let [fine] = h.call([("fine", "x")]);
    works(&mut h, fine);
    ends(&mut h, fine, kept(&[("a", "added")]), None);
    let ends: Vec<String> = lines(&h).into_iter().filter(|line| line.contains('✓')).collect();
    assert_eq!(ends.len(), 1, "{ends:?}");
    assert!(
        ends[0].starts_with("[fine] ✓") && ends[0].ends_with("· kept 1 file, +1 -0"),
        "{ends:?}"
    );
}

#[test]
fn files_that_several_change_are_listed_for_the_parent() {
    let mut h = begun(false);
    let [one, two, three] = h.call([("one", "x"), ("two", "x"), ("three", "x")]);
    for session in [one, two, three] {
        works(&mut h, session);
    }
    ends(&mut h, one, kept(&[("both", "modified"), ("mine", "added")]), None);
    ends(&mut h, two, kept(&[("both", "deleted"), ("new", "renamed from old")]), None);
    ends(&mut h, three, kept(&[("old", "modified")]), None);
    let text = markdown(&h);
    let (_, shared) = text.split_once("**Changed by several subagents**").unwrap();
    assert!(
        shared.ends_with("\n- `both` by [one] and [two]\n- `old` by [two] and [three]\n"),
        "{shared}"
    );
    let json = CallResults::of_run(&h.view()).json(&ResultOptions::default());
    let paths: Vec<&str> = json.shared.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["both", "old"]);
    assert_eq!(json.shared[1].by, [two, three]);
}

#[test]
fn ten_left_out_files_are_listed() {
    for (count, more) in
        [(10, None), (11, Some("- left out: and 1 more")), (500, Some("- left out: and 490 more"))]
    {
        let mut h = begun(false);
        let [one] = h.call([("one", "x")]);
        works(&mut h, one);
        let skipped =
            (0..count).map(|n| format!("pipe{n} (not a file, directory or link)")).collect();
        ends(&mut h, one, KeptWork { skipped, ..KeptWork::default() }, None);
        let text = markdown(&h);
        assert_eq!(text.matches("- left out: pipe").count(), 10);
        assert_eq!(text.lines().find(|line| line.contains("and") && line.ends_with("more")), more);
    }
}

#[test]
fn a_disabled_sandbox_is_shown_for_the_run_and_with_each_result() {
    for sandbox_off in [true, false] {
        let mut h = begun(sandbox_off);
        let [one, two] = h.call([("one", "x"), ("two", "x")]);
        works(&mut h, one);
        works(&mut h, two);
        let level = if sandbox_off { "off" } else { "reduced: without Landlock" };
        let output = ToolOutput { sandbox: Some(level.into()), ..ToolOutput::default() };
        h.push(Event::ToolReturned { session: one, call: 0, output });
        for (place, text) in shown(&h) {
            let is_said = text.contains("sandbox off") || text.contains("sandbox  off");
            if place != "result" {
                assert_eq!(is_said, sandbox_off, "{place}: {text}");
            }
        }
        ends(&mut h, one, KeptWork::default(), None);
        ends(&mut h, two, KeptWork::default(), None);
        let text = markdown(&h);
        assert!(text.contains(&format!("**Sandbox**: {level}\n")), "{text}");
        // If no command was run, the setting is shown.
        let word = if sandbox_off { "off" } else { "on" };
        assert_eq!(h.view().sandbox_of(h.view().delegation(two).unwrap()), Some(word));
    }
    // The setting of the last resume applies.
    let mut h = begun(false);
    let mut resumed = crate::history::resumed();
    if let Event::Resumed { terms: later, .. } = &mut resumed {
        *later = terms(true);
    }
    h.push(resumed);
    assert_eq!(h.view().sandbox(), Some("off"));
}

#[test]
fn files_that_an_agent_only_read_are_not_reported_as_changed() {
    let mut h = History::new();
    let [one] = h.call([("one", "x")]);
    works(&mut h, one);
    h.read(one, "style.css");
    h.read(one, "index.html");
    h.end(one, Outcome::Partial, None);
    let text = markdown(&h);
    assert!(text.contains("**Files read**: style.css, index.html\n"), "{text}");
    let kept = kept(&[("index.html", "modified")]);
    h.push(Event::SpaceKept { session: one, kept, problem: None });
    let text = markdown(&h);
    assert!(text.contains("**Files changed**: index.html\n"), "{text}");
    assert!(text.contains("**Files read**: style.css\n"), "{text}");
}
