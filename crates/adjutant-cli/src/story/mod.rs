//! `story`: the stories of a PRD, each a run of its own, in the order of their dependencies.
//!
//! The file is a person's and part of a repository: it may tighten limits and add prompts, and what
//! else it asks for needs a person's consent. What came of a story is written back by splices.

mod consent;
mod earlier;
mod model;
mod record;
mod typed;

use std::collections::BTreeSet;
use std::path::PathBuf;

use adjutant_core::budget::Amount;
use adjutant_core::prd::{Prd, Story, asked, story_prompt};
use adjutant_core::story::{MarkedTask, StoryWork};
use adjutant_core::{AgentName, Layered, Outcome, Policy, Preset, RunId};
use adjutant_engine::prd::{PrdError, PrdFile};
use adjutant_engine::roster::Roster;
use adjutant_engine::work::Whereabouts;
use adjutant_engine::{Archive, ClaimError, Engine, Goal, Setup, SpaceSetup};
use adjutant_mcp::Handed;
use adjutant_view::RunView;
use adjutant_view::story::{StoriesJson, StoryReport, json, render};
use serde::Serialize;

use self::consent::Consent;
use self::earlier::{Earlier, Foundation, History};
use self::model::Models;
pub(crate) use self::record::{in_vain, record_outcome, tell_place};
pub(crate) use self::typed::{completed as with_flags, flags};
use crate::agents;
use crate::args::{Form, MergeAfter, StoryArgs};
use crate::ask::{Terminal, approver, may_ask};
use crate::delegate::{absolute, apply_flags, failed, form};
use crate::detached::{self, Terms};
use crate::exit::{Exit, Failure};
use crate::hints::{completed, typed};
use crate::output::{print, print_json, say};
use crate::run::{Conducted, Showing, Work, conduct};
use crate::settings::{Settings, open_archive};
use crate::wiring::{Chosen, Wiring};
use crate::work::{Placed, after_run};

/// Why a story is not begun whose command needs consent.
const UNALLOWED: &str =
    "its verify command needs your consent: --trust-prd allows it, --verify COMMAND replaces it";

/// Why a story is not begun that plans a task whose command needs consent; `--verify` is for the story itself.
const UNALLOWED_BELOW: &str =
    "the verify command of a task it plans needs your consent: --trust-prd allows it";

/// What to do where the agent of a story gets no workspace.
const NEEDS_SPACE: &str = "`adjutant doctor` says what this machine allows.";

/// Columns that a title may take in the line that says a story begins.
const TITLE_COLUMNS: usize = 80;

/// Runs the command.
pub(crate) fn run_story(
    args: &StoryArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let flags = &args.work;
    if args.verify.as_ref().is_some_and(|command| command.trim().is_empty()) {
        return Err(Failure::usage("--verify needs a command; an empty one would decide nothing")
            .hint("Leave it out to have the PRD's own commands decide."));
    }
    let workdir = absolute(&flags.root)?;
    let mut handed = None;
    let path = if args.detached.detached {
        handed = detached::leave(&args.detached)?;
        detached::prd(&workdir, &args.prd)?
    } else {
        std::path::absolute(&args.prd)
            .map_err(|error| Failure::usage(format!("{}: {error}", args.prd.display())))?
    };
    let file = PrdFile::open(path).map_err(|error| Failure::caused(Exit::Usage, &error))?;
    if file.path().to_str().is_none() {
        // The journal names it, and the run would not find it again.
        let shown = file.path().display();
        return Err(Failure::usage(format!("`{shown}`: the path of a PRD must be UTF-8")));
    }
    let order = order(&file, args.story.as_deref())?;
    let mut settings =
        Settings::load_as(&typed::of_stories(flags)?, &workdir, Some(Preset::Story))?;
    apply_flags(&mut settings, flags, false)?;
    let terms = Terms::of_agents(&args.detached, given_home.clone(), &workdir, &mut settings)?;
    settle_policy(&mut settings.policy, &file)?;
    let archive = open_archive(given_home)?;
    let own_verify = args.verify.is_some() || settings.verify.is_some();
    let consent = Consent::ask(file.prd(), file.path(), &archive, (args.trust_prd, own_verify));
    let mut wiring = Wiring::new(&settings)?;
    if let Some(path) = flags.record.as_deref() {
        wiring = wiring.record(path, &settings.secrets)?;
    }
    let roster = agents::find(&workdir)?;
    let usual = agents::choose(&settings, flags, None, |name| wiring.choose(name));
    let is_typed = flags.model.is_some();
    let allowed = &settings.models_allowed;
    let models = Models::new(usual, wiring.clone(), is_typed, allowed, (file.prd(), &consent))?;
    let history = History::new(&archive, &workdir, file.path());
    let form = form(flags.return_form, Default::default(), as_json);
    let mut reading = Reading {
        args,
        workdir,
        settings,
        archive: &archive,
        file,
        consent,
        wiring,
        roster,
        models,
        history,
        form,
        terms,
        handed,
        has_begun: false,
        spent: Amount::default(),
        reports: Vec::new(),
        left: Vec::new(),
        unsaved: false,
    };
    let done = reading.run_all(order);
    reading.wiring.end_recording();
    let exit = done.as_ref().map_or_else(|failure| failure.exit, |exit| *exit);
    // What was done before something broke is reported all the same.
    if done.is_ok() || !reading.reports.is_empty() || !reading.left.is_empty() {
        reading.report(exit)?;
    }
    done
}

/// Tightens the limits by what the file says, and says what of it counts for nothing.
fn settle_policy(policy: &mut Layered, file: &PrdFile) -> Result<(), Failure> {
    let origin = file.path().display().to_string();
    for warning in file.prd().tighten(policy, &origin) {
        say(&format!("adjutant: {warning}"));
    }
    if let Some(word) = file.prd().merge().filter(|word| MergeAfter::parse(word).is_none()) {
        let word = adjutant_view::sanitize::line(word);
        say(&format!(
            "adjutant: {origin}: `merge`: `{word}` is none of report, apply, branch; it was ignored"
        ));
    }
    if file.prd().wants_delegation() && !policy.policy().enabled {
        say("adjutant: the PRD would like to delegate; --enable-delegation allows it");
    }
    for warning in file.prd().warnings() {
        say(&format!("adjutant: {origin}: {warning}"));
    }
    Ok(())
}

/// Returns the stories to be worked on, in their order: those that are left, or the one that was asked for.
fn order(file: &PrdFile, story: Option<&str>) -> Result<Vec<String>, Failure> {
    let (prd, path) = (file.prd(), file.path().display().to_string());
    let found = match story {
        Some(id) => prd.select(id).map(|story| vec![story]),
        None => prd.order(),
    };
    let found = found.map_err(|error| {
        Failure::usage(format!("{}: {error}", adjutant_view::sanitize::line(&path)))
    })?;
    Ok(found.into_iter().map(|story| story.id.clone()).collect())
}

/// What an earlier run means for a story.
enum Before {
    /// It may be begun; one that is begun again although it was done says why.
    Begin(Option<String>),
    /// It was done, which is not written down.
    Done(RunId),
    /// It is not begun, for this reason.
    Leave(String),
}

/// A PRD that is being worked on.
struct Reading<'a> {
    args: &'a StoryArgs,
    workdir: PathBuf,
    settings: Settings,
    archive: &'a Archive,
    file: PrdFile,
    consent: Consent,
    wiring: Wiring,
    roster: Roster,
    models: Models,
    history: History<'a>,
    form: Form,
    /// What a run on behalf of an MCP client goes by.
    terms: Option<Terms>,
    /// What the server of that client handed us.
    handed: Option<Handed>,
    /// Whether a run has begun.
    has_begun: bool,
    /// What the stories before have used up of what all of them may.
    spent: Amount,
    reports: Vec<StoryReport>,
    /// Stories that were not begun, each with the reason.
    left: Vec<(String, String)>,
    /// Whether the last outcome could not be written down.
    unsaved: bool,
}

impl Reading<'_> {
    /// Works on those of the stories that are ready.
    fn run_all(&mut self, order: Vec<String>) -> Result<Exit, Failure> {
        if order.is_empty() {
            let has_none = self.file.prd().stories().is_empty();
            let what =
                if has_none { "the PRD has no stories" } else { "every story of the PRD passes" };
            say(&format!("adjutant: {what}, there is nothing to do"));
            return Ok(Exit::Completed);
        }
        let mut outcomes = Vec::new();
        let mut order = order.into_iter();
        while let Some(id) = order.next() {
            let taken = self.take(&id);
            let over = match &taken {
                Ok(Some(Outcome::Cancelled)) => Some(format!("you cancelled {id} before it")),
                Err(_) if self.has_begun => {
                    Some(format!("{id} before it could not be brought to an end"))
                }
                Ok(_) | Err(_) => None,
            };
            if let Some(why) = &over {
                order.by_ref().for_each(|rest| _ = self.leave(&rest, why));
            }
            outcomes.push(taken?.unwrap_or(Outcome::Partial));
            if self.args.next && self.has_begun {
                break;
            }
        }
        if self.args.detached.detached && !self.has_begun {
            return Err(self.nothing_begun());
        }
        // Whoever cancels wants to know that, whatever was done before.
        let is_cancelled = outcomes.contains(&Outcome::Cancelled);
        Ok(if is_cancelled { Exit::Cancelled } else { Exit::of(Outcome::of_all(outcomes)) })
    }

    /// Says why nothing was begun, to one who hears nothing but that.
    fn nothing_begun(&self) -> Failure {
        let left = self.left.iter().map(|(id, why)| format!("{id}: not begun, {why}"));
        let done =
            self.reports.iter().map(|report| format!("{}: is done, and written down", report.id));
        Failure::new(Exit::Refused, done.chain(left).collect::<Vec<_>>().join("\n"))
    }

    /// Works on one story, unless it has to wait or was begun before; returns how it ended.
    fn take(&mut self, id: &str) -> Result<Option<Outcome>, Failure> {
        if let Err(left) = self.ready(id) {
            return Ok(left);
        }
        // Held until the outcome is written down. What ran before and what the file says is read after it.
        let _claim = match self.archive.claim_story(self.file.path(), id) {
            Ok(claim) => claim,
            Err(ClaimError::Held { pid }) => {
                let why = self.busy(id, pid)?;
                return Ok(self.leave(id, &why));
            }
            Err(error @ ClaimError::File(_)) => return Err(Failure::caused(Exit::Failed, &error)),
        };
        let story = match self.ready(id) {
            Ok(story) => story,
            Err(left) => return Ok(left),
        };
        self.consent.renew(self.file.prd(), self.file.path(), self.archive);
        if let Some(why) = self.unallowed(&story) {
            // What nobody may check would be paid for and could not pass.
            return Ok(self.leave(id, why));
        }
        let again = match self.before(&story)? {
            Before::Begin(why) => why,
            Before::Done(run) => return self.write_down(id, run),
            Before::Leave(why) => {
                self.catch_up(&story)?;
                return Ok(self.leave(id, &completed(&why)));
            }
        };
        let Some(policy) = self.settings.policy.policy().after(self.spent) else {
            return Ok(self.leave(id, "the budget of all stories is used up"));
        };
        let foundation = match self.history.work_before(self.file.prd(), &story) {
            Ok(foundation) => foundation,
            // Without what it builds on it would be another piece of work.
            Err(why) => return Ok(self.leave(id, &why)),
        };
        match self.models.of(&story, &self.consent) {
            Ok(chosen) => {
                let Foundation { commits, remarks } = foundation;
                let remarks: Vec<String> = again.into_iter().chain(remarks).collect();
                remarks.iter().for_each(|remark| say(&format!("adjutant: {id}: {remark}")));
                let work = self.work_of(&story, commits);
                self.work_on(&story, work, policy, chosen, remarks).map(Some)
            }
            Err(failure) => Ok(self.leave(id, &failure.to_string())),
        }
    }

    /// Looks at what ran before on a story, and what that means for it.
    fn before(&mut self, story: &Story) -> Result<Before, Failure> {
        self.history.look(&story.id)?;
        let asked = asked(story, self.verify_of(story).as_deref());
        Ok(match self.history.find(&story.id, &asked) {
            Some(Earlier::Running(run)) => {
                Before::Leave(format!("{run} works on it: `adjutant wait {run}` waits for its end"))
            }
            Some(_) if self.args.again => Before::Begin(None),
            Some(Earlier::Unread(run)) => Before::Leave(format!(
                "{run} cannot be read ({}); --again begins it anew",
                self.history.problem(run)
            )),
            Some(Earlier::Passed(run)) if self.is_unrecorded(&story.id, run)? => {
                match self.history.lost(run)? {
                    None => Before::Done(run),
                    Some(why) => Before::Begin(Some(format!("{why}, so it was begun anew"))),
                }
            }
            Some(Earlier::Open(run)) => Before::Leave(format!(
                "{run} can go on with it: `adjutant resume {run}`; --again begins it anew"
            )),
            Some(Earlier::Spent(run)) => Before::Leave(format!(
                "{run} used up what it was given; --again begins it anew, with a higher --budget-usd, \
                 --budget-tokens or the limit that `adjutant result {run}` names"
            )),
            Some(Earlier::Passed(_) | Earlier::Over) => Before::Begin(None),
            None => Before::Begin(self.history.unfinished(&story.id).map(|run| {
                format!(
                    "{run} was left unfinished and was asked for something else (the story or its verify command \
                     is another one), so it was begun anew; `adjutant diff {run}` shows what that run has"
                )
            })),
        })
    }

    /// Returns a story that may be begun by what the file says now; otherwise how it ended, if it did.
    fn ready(&mut self, id: &str) -> Result<Story, Option<Outcome>> {
        if let Err(error) = self.reread() {
            return Err(self.leave(id, &format!("its outcome could not be written down: {error}")));
        }
        let Some(story) = self.file.prd().story(id).cloned() else {
            return Err(self.leave(id, "it is not in the PRD any more"));
        };
        if story.passes {
            self.leave(id, "it passes by now");
            return Err(Some(Outcome::Completed));
        }
        match self.file.prd().waits_for(&story).as_slice() {
            [] => Ok(story),
            waits => Err(self.leave(id, &format!("waits for {}", waits.join(", ")))),
        }
    }

    /// Says who works on a story that another process has claimed.
    fn busy(&mut self, id: &str, pid: Option<u32>) -> Result<String, Failure> {
        let process =
            pid.map_or_else(|| "another process".to_owned(), |it| format!("process {it}"));
        self.history.look(id)?;
        Ok(completed(&match self.history.at_work(id) {
            Some(run) => format!(
                "{run} works on it ({process}): `adjutant watch {run}` follows it, `adjutant wait {run}` waits \
                 for its end"
            ),
            None => format!(
                "{process} works on it: `adjutant status` lists its run once that has begun"
            ),
        }))
    }

    /// Reads the file anew; one that took no outcome is tried out too, since only the story itself may
    /// have been in the way.
    fn reread(&mut self) -> Result<(), PrdError> {
        if !self.unsaved {
            return self.file.reread();
        }
        (self.file, self.unsaved) = (PrdFile::open(self.file.path())?, false);
        Ok(())
    }

    /// Remembers why a story is not begun.
    fn leave(&mut self, id: &str, why: &str) -> Option<Outcome> {
        self.left.push((id.to_owned(), why.to_owned()));
        None
    }

    /// Says whether the file lacks what came of a run that completed a story.
    ///
    /// Whoever took `passes` back after it was written down wants the story done again, and what a
    /// later run came to is not taken back by an earlier one.
    fn is_unrecorded(&self, id: &str, run: RunId) -> Result<bool, Failure> {
        Ok(match record::recorded(self.file.prd(), id) {
            None => true,
            Some(it) if it.run == run => !it.is_completed,
            Some(it) => record::began_later(self.archive, run, it.run)?,
        })
    }

    /// Writes down what the latest run on a story came to, where that ended and could not write it itself.
    fn catch_up(&mut self, story: &Story) -> Result<(), Failure> {
        let asked = asked(story, self.verify_of(story).as_deref());
        let Some(Earlier::Open(run) | Earlier::Spent(run)) = self.history.find(&story.id, &asked)
        else {
            return Ok(());
        };
        let found = self.archive.find(&run.to_string()).map_err(crate::records::failed);
        let need = crate::records::Need::Texts;
        let Ok((view, _)) = found.and_then(|(files, _)| crate::records::fold(&files, need)) else {
            return Ok(());
        };
        let Some(outcome) = view.outcome() else { return Ok(()) };
        let is_new = match record::recorded(self.file.prd(), &story.id) {
            None => true,
            Some(it) if it.run == run => it.status != outcome.word(),
            Some(it) => record::began_later(self.archive, run, it.run)?,
        };
        if is_new {
            match record::save(&mut self.file, self.archive, &view, None) {
                Ok(()) => {
                    say(&format!("adjutant: {}: what came of {run} is written down now", story.id));
                }
                Err(failure) => say(&format!("adjutant: {failure}")),
            }
        }
        Ok(())
    }

    /// Writes down what an earlier run achieved and could not write: nothing is done twice.
    fn write_down(&mut self, id: &str, run: RunId) -> Result<Option<Outcome>, Failure> {
        let (files, _) = self.archive.find(&run.to_string()).map_err(crate::records::failed)?;
        let (view, _) = crate::records::fold(&files, crate::records::Need::Texts)?;
        let remark = format!("was done by {run}; it is written down now, --again begins it anew");
        say(&format!("adjutant: {id} {remark}"));
        let merge = self.merge();
        // A branch is only a name that may be missing; files are changed once.
        let is_due = match merge {
            MergeAfter::Branch => true,
            MergeAfter::Apply => self.history.place_of(&view)? == Some(Whereabouts::Kept),
            MergeAfter::Report => false,
        };
        let placed = if is_due { after_run(self.archive, &view, merge) } else { Placed::nowhere() };
        let is_placed = placed.exit == Exit::Completed;
        record::save(&mut self.file, self.archive, &view, placed.branch.clone())?;
        self.tell(&view, placed, |report| {
            report.earlier = true;
            report.remarks.push(remark);
        });
        Ok(view.outcome().map(|outcome| if is_placed { outcome } else { Outcome::Partial }))
    }

    /// Adds what came of a run to what is reported at the end; returns whether its story passes.
    fn tell(&mut self, view: &RunView, placed: Placed, add: impl FnOnce(&mut StoryReport)) -> bool {
        let Some(mut report) = StoryReport::of(view).map(|it| with_flags(it, view)) else {
            return false;
        };
        add(&mut report);
        tell_place(&mut report, placed);
        let passes = report.passes;
        self.reports.push(report);
        passes
    }

    fn work_on(
        &mut self,
        story: &Story,
        work: StoryWork,
        mut policy: Policy,
        chosen: Chosen,
        remarks: Vec<String>,
    ) -> Result<Outcome, Failure> {
        let spaces = self.spaces()?;
        if !self.has_begun {
            // Found before anything is said to begin.
            let network = policy.network;
            let checked = spaces.check(&self.workdir, network).map_err(|error| failed(&error));
            checked.map_err(|failure| failure.hint(NEEDS_SPACE))?;
        }
        let title = adjutant_view::layout::fit(&story.title, TITLE_COLUMNS);
        say(&format!("adjutant: {} {title}", adjutant_view::sanitize::line(&story.id)));
        if let Some(terms) = &self.terms {
            terms.bound(&mut policy, chosen.model.spec().price.is_some());
        }
        let setup = Setup {
            policy: policy.clone(),
            opener: Some(chosen.opener(&self.wiring)),
            model: chosen.model,
            web: self.settings.web(),
            tools: Vec::new(),
            workdir: self.workdir.clone(),
            system: None,
            secrets: [self.settings.secrets.clone(), self.wiring.secrets()].concat(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let engine = Engine::new(setup).map_err(|error| failed(&error))?;
        let agents = self.roster.agents.iter().cloned();
        let engine = engine
            .with_agents(agents, &self.settings.models_allowed)
            .with_story(work)
            .with_stories(names(self.file.prd()))
            .with_spaces(spaces);
        let mut engine = detached::tie(engine, self.handed.take());
        let goal = Goal {
            agent: AgentName::new("story"),
            system: String::new(),
            text: story_prompt(story),
        };
        let terminal =
            if self.args.work.yes || !may_ask(&policy) { None } else { Terminal::open() };
        let mut terms = self.terms.take();
        let approver = match &mut terms {
            Some(terms) => {
                engine = engine.asking_first(None);
                let preview = engine.preview_run(goal.clone()).map_err(|error| failed(&error))?;
                terms.begin(&preview.events)?
            }
            None => approver(self.args.work.yes, terminal),
        };
        self.has_begun = true;
        let showing = Showing {
            form: self.form,
            events: self.args.work.events,
            result_tokens: policy.result_tokens,
            merge: self.merge(),
        };
        let Conducted { view, finished } =
            conduct(engine, self.archive, Work::Goal(goal), approver, &showing)?;
        if let Some(terms) = terms {
            terms.end(&view, finished.is_ok());
        }
        let spent = view.total();
        let spent = Amount { tokens: spent.usage.total(), usd: spent.usd };
        self.spent = self.spent.plus(spent);
        let placed = after_run(self.archive, &view, showing.merge);
        let is_placed = placed.exit == Exit::Completed;
        let saved = record::save(&mut self.file, self.archive, &view, placed.branch.clone());
        if let Err(failure) = &saved {
            say(&format!("adjutant: {failure}"));
            self.unsaved = true;
        }
        let passes = self.tell(&view, placed, |report| report.remarks = remarks);
        let finished = finished.map_err(|error| {
            let failure = crate::run::broken_off(&error, &view);
            // Agents of stories always write.
            let needs_space = matches!(error, adjutant_engine::EngineError::Spaces(_));
            if needs_space { failure.hint(NEEDS_SPACE) } else { failure }
        })?;
        let is_done = passes && is_placed && saved.is_ok();
        let is_whole = is_done || finished.outcome != Outcome::Completed;
        Ok(if is_whole { finished.outcome } else { Outcome::Partial })
    }

    /// Returns where agents work; the PRD is no part of what they do.
    fn spaces(&self) -> Result<SpaceSetup, Failure> {
        let mut setup = self.args.work.spaces.setup(self.archive.path(), &self.workdir)?;
        setup.reserved = Some(self.file.path().to_owned());
        Ok(setup)
    }

    /// Returns the command that decides about a story: a person's, else the file's with consent.
    fn verify_of(&self, story: &Story) -> Option<String> {
        let own = self.args.verify.clone().or_else(|| self.settings.verify.clone());
        own.or_else(|| story.verify.clone().filter(|_| self.consent.is_given()))
    }

    /// Says why a story is not begun for want of consent: a command decides that nobody allowed.
    fn unallowed(&self, story: &Story) -> Option<&'static str> {
        if story.verify.is_some() && self.verify_of(story).is_none() {
            return Some(UNALLOWED);
        }
        // Without delegation no planned task is run, and none can pass.
        let is_open = !self.consent.is_given() && self.settings.policy.policy().enabled;
        let is_below = is_open && story.planned.iter().any(|planned| planned.verify.is_some());
        is_below.then_some(UNALLOWED_BELOW)
    }

    fn work_of(&self, story: &Story, takes_in: Vec<String>) -> StoryWork {
        let plan = story.planned.iter().map(|planned| MarkedTask {
            description: planned.task(),
            hours: planned.hours,
            verify: planned.verify.clone().filter(|_| self.consent.is_given()),
        });
        let verify = self.verify_of(story);
        let written = u64::from(self.file.prd().last_child_number(&story.id));
        StoryWork {
            id: story.id.clone(),
            title: story.title.clone(),
            prd: Some(self.file.path().display().to_string()),
            asked: asked(story, verify.as_deref()),
            verify,
            plan: plan.collect(),
            takes_in,
            numbered: written.max(self.history.last_child(&story.id)),
            typed: typed().to_vec(),
            ..StoryWork::default()
        }
    }

    /// Returns what becomes of the work: a person's word, else the file's with consent, else a branch.
    fn merge(&self) -> MergeAfter {
        let wish = self.file.prd().merge().filter(|_| self.consent.is_given());
        let wish = wish.and_then(MergeAfter::parse);
        self.args.work.merge.or(wish).unwrap_or(MergeAfter::Branch)
    }

    fn report(&self, exit: Exit) -> Result<(), Failure> {
        if self.args.work.events {
            return Ok(());
        }
        if self.form == Form::Json {
            let left = |(id, why): &(String, String)| NotBegun { id: id.clone(), why: why.clone() };
            return print_json(&Document {
                prd: Some(self.file.path().display().to_string()),
                exit: Some(exit.code()),
                not_begun: self.left.iter().map(left).collect(),
                all: json(&self.reports),
            });
        }
        if !self.reports.is_empty() {
            print(&completed(&render(&self.reports)))?;
        }
        for (id, why) in &self.left {
            print(&format!("{id}: not begun, {why}\n"))?;
        }
        Ok(())
    }
}

/// What a program is told of stories.
#[derive(Serialize)]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    prd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<u8>,
    not_begun: Vec<NotBegun>,
    #[serde(flatten)]
    all: StoriesJson,
}

/// A story that was not begun, and why.
#[derive(Serialize)]
struct NotBegun {
    id: String,
    why: String,
}

/// Shows what came of the one story of a run that went on.
pub(crate) fn show(report: &StoryReport, showing: &Showing) -> Result<(), Failure> {
    match showing.form {
        _ if showing.events => Ok(()),
        Form::Json => print_json(&Document {
            prd: None,
            exit: None,
            not_begun: Vec::new(),
            all: json(std::slice::from_ref(report)),
        }),
        Form::Markdown => print(&completed(&render(std::slice::from_ref(report)))),
    }
}

/// Returns the names of the stories beside that of a run that goes on; none where its file cannot be read, which is said.
pub(crate) fn stories_again(work: &StoryWork) -> BTreeSet<String> {
    match work.prd.as_ref().map(PrdFile::look) {
        Some(Ok(prd)) => names(&prd),
        Some(Err(error)) => {
            let failure = Failure::caused(Exit::Failed, &error);
            say(&format!(
                "adjutant: the other stories are not known, so a task that is the name of one would be begun: {failure}"
            ));
            BTreeSet::new()
        }
        None => BTreeSet::new(),
    }
}

/// Returns the names of all stories, tasks of earlier runs included.
fn names(prd: &Prd) -> BTreeSet<String> {
    prd.stories().iter().map(|story| story.id.clone()).collect()
}
