//! `story`: runs the stories of a PRD, each in its own run, in dependency order.
//!
//! A PRD is content of a repository: it may tighten limits and add prompts; everything else it requests needs a
//! person's consent. Outcomes are written back into it without touching the rest of the file.
//!
//! Start at [`run_story`]. `decision` judges earlier runs, `story_run` executes one story, `record` writes its outcome
//! into the PRD, `report` prints all outcomes.

mod claim_wait;
mod consent;
mod decision;
mod earlier_versions;
mod history;
mod models;
mod record;
mod report;
mod resume;
mod run_end;
mod story_run;
mod typed_flags;

use std::collections::BTreeSet;
use std::path::PathBuf;

use adjutant_core::story::StoryAssignment;
use adjutant_core::{LayeredPolicy, Outcome, Policy, Preset, RegistryRefusal, RunId};
use adjutant_engine::prd::{PrdFile, PrdFileError};
use adjutant_engine::roster::AgentRoster;
use adjutant_engine::{Archive, RegistryError, new_run_id};
use adjutant_formats::prd::{Prd, Story};
use adjutant_view::story::StoryReport;

use self::claim_wait::HolderWait;
use self::consent::PrdConsent;
use self::decision::StoryDecision;
use self::history::{StoryBase, StoryHistory};
use self::models::StoryModels;
pub(crate) use self::record::record_outcome;
use self::record::{report_placement, resume_conflict};
pub(crate) use self::report::show;
pub(crate) use self::resume::ResumedStory;
use self::typed_flags::completed as with_flags;
pub(crate) use self::typed_flags::flags;
use crate::agents;
use crate::args::{MergeAfterRun, ResultFormat, StoryArgs};
use crate::delegate::{absolute, apply_flags, form};
use crate::detached::{self, DetachedTerms};
use crate::exit::{Exit, Failure};
use crate::hints::completed;
use crate::output::say;
use crate::settings::{Settings, base_depth, open_archive};
use crate::wiring::ModelSetup;
use crate::workspace_flags::check_kept_globs;

/// Runs the command.
pub(crate) fn run_story(
    args: &StoryArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let flags = &args.work;
    if flags.spaces.verify.as_ref().is_some_and(|command| command.trim().is_empty()) {
        return Err(Failure::usage("--verify: the command is empty")
            .hint("Leave it out to have the PRD's own commands decide."));
    }
    check_kept_globs(&flags.spaces.verify_keep, "--verify-keep")?;
    let base_depth = base_depth()?;
    let workdir = absolute(&flags.root)?;
    let mut handover = None;
    let path = if args.detached.detached {
        handover = Some(detached::detach(&args.detached)?);
        detached::resolve_prd(&workdir, &args.prd)?
    } else {
        std::path::absolute(&args.prd)
            .map_err(|error| Failure::usage(format!("{}: {error}", args.prd.display())))?
    };
    let file = PrdFile::open(path).map_err(|error| Failure::from_error(Exit::Usage, &error))?;
    if file.path().to_str().is_none() {
        // The journal records the path as text, and `resume` would not find the file.
        let shown = file.path().display();
        return Err(Failure::usage(format!("`{shown}`: the path of a PRD must be UTF-8")));
    }
    let order = order(&file, args.story.as_deref())?;
    let mut settings =
        Settings::load_as(&typed_flags::of_stories(flags)?, &workdir, Some(Preset::Story))?;
    apply_flags(&mut settings, flags, false)?;
    let terms = DetachedTerms::for_agents(
        &args.detached,
        handover,
        given_home.clone(),
        &workdir,
        &mut settings,
    )?;
    settle_policy(&mut settings.policy, &file)?;
    let archive = open_archive(given_home)?;
    for story in file.prd().stories() {
        let planned = story.planned.iter().map(|it| &it.verify_keep);
        for globs in std::iter::once(&story.verify_keep).chain(planned) {
            check_kept_globs(globs, &format!("story {}: `verifyKeep`", story.id))?;
        }
    }
    let own_verify = flags.spaces.verify.is_some() || settings.verify.is_some();
    let trust = typed_flags::command_with_flag(args, file.path(), None, "--trust-prd");
    let consent =
        PrdConsent::ask(file.prd(), file.path(), &archive, (args.trust_prd, own_verify), trust);
    let mut wiring = ModelSetup::new(&settings)?;
    if let Some(path) = flags.record.as_deref() {
        wiring = wiring.record(path, &settings.secrets)?;
    }
    let roster = agents::find(&workdir)?;
    let usual = agents::choose(&settings, flags, None, |name| wiring.choose(name));
    let is_typed = flags.model.is_some();
    let allowed = &settings.models_allowed;
    let models =
        StoryModels::new(usual, wiring.clone(), is_typed, allowed, (file.prd(), &consent))?;
    let history = StoryHistory::new(&archive, &workdir, file.path());
    let form = form(flags.return_form, Default::default(), as_json);
    let mut session = PrdSession {
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
        base_depth,
        has_begun: false,
        reports: Vec::new(),
        left: Vec::new(),
        held: Vec::new(),
        unsaved: false,
    };
    let done = session.run_all(order);
    session.wiring.end_recording();
    let exit = done.as_ref().map_or_else(|failure| failure.exit, |exit| *exit);
    // After an error, the stories that were finished before it are still reported.
    if done.is_ok() || !session.reports.is_empty() || !session.left.is_empty() {
        session.report(exit)?;
    }
    done
}

/// Tightens the limits as the PRD says, and warns about settings that have no effect.
fn settle_policy(policy: &mut LayeredPolicy, file: &PrdFile) -> Result<(), Failure> {
    let origin = file.path().display().to_string();
    for warning in policy.tighten(file.prd().config(), &origin) {
        say(&format!("adjutant: {warning}"));
    }
    if let Some(word) = file.prd().merge().filter(|word| MergeAfterRun::parse(word).is_none()) {
        let word = adjutant_view::sanitize::line(word);
        say(&format!(
            "adjutant: {origin}: `merge`: `{word}` is not report, apply or branch; it is ignored"
        ));
    }
    if file.prd().wants_delegation() && !policy.policy().enabled {
        say(
            "adjutant: the PRD requests delegation; without --enable-delegation its stories run without it",
        );
    }
    for warning in file.prd().warnings() {
        say(&format!("adjutant: {origin}: {warning}"));
    }
    Ok(())
}

/// Returns the ids of the stories to run, in dependency order: the one that was named, or all that do not pass.
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

/// The state of one `adjutant story` command.
struct PrdSession<'a> {
    args: &'a StoryArgs,
    workdir: PathBuf,
    settings: Settings,
    archive: &'a Archive,
    file: PrdFile,
    consent: PrdConsent,
    wiring: ModelSetup,
    roster: AgentRoster,
    models: StoryModels,
    history: StoryHistory<'a>,
    form: ResultFormat,
    /// Set for a run on behalf of an MCP client.
    terms: Option<DetachedTerms>,
    /// The delegation depth of the story's agent.
    base_depth: u64,
    /// Whether a run was started by this command.
    has_begun: bool,
    reports: Vec<StoryReport>,
    /// Ids of the stories that were skipped, each with the reason.
    left: Vec<(String, String)>,
    /// The skipped stories that other processes have claimed.
    held: Vec<String>,
    /// Whether the last outcome could not be written into the PRD.
    unsaved: bool,
}

impl PrdSession<'_> {
    /// Runs the stories that are ready.
    fn run_all(&mut self, order: Vec<String>) -> Result<Exit, Failure> {
        if order.is_empty() {
            let has_none = self.file.prd().stories().is_empty();
            let what =
                if has_none { "the PRD has no stories" } else { "every story of the PRD passes" };
            say(&format!("adjutant: {what}, there is nothing to do"));
            return Ok(Exit::Completed);
        }
        let mut outcomes = Vec::new();
        let mut open = self.run_each(order, &mut outcomes)?;
        if self.args.detached.detached && !self.has_begun {
            return Err(self.nothing_begun());
        }
        // Whether all stories pass is known only after other processes have finished theirs.
        while !self.held.is_empty() && !self.args.next && !outcomes.contains(&Outcome::Cancelled) {
            if self.wait_for_holders()? == HolderWait::Interrupted {
                return Ok(Exit::Cancelled);
            }
            self.left.retain(|(id, _)| !open.contains(id));
            open = self.run_each(open, &mut outcomes)?;
        }
        outcomes.extend(open.iter().map(|_| Outcome::Partial));
        // After ctrl+c the exit code is `Cancelled`, even if earlier stories passed.
        let is_cancelled = outcomes.contains(&Outcome::Cancelled);
        Ok(if is_cancelled { Exit::Cancelled } else { Exit::of(Outcome::of_all(outcomes)) })
    }

    /// Runs the stories in order, adds their outcomes, and returns the ids of the skipped ones.
    fn run_each(
        &mut self,
        order: Vec<String>,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<Vec<String>, Failure> {
        let (mut order, mut open) = (order.into_iter(), Vec::new());
        self.held.clear();
        while let Some(id) = order.next() {
            let taken = self.run_one(&id);
            let over = match &taken {
                Ok(Some(Outcome::Cancelled)) => Some(format!("you cancelled {id} before it")),
                Err(_) if self.has_begun => Some(format!("{id} before it could not be finished")),
                Ok(_) | Err(_) => None,
            };
            if let Some(why) = &over {
                order.by_ref().for_each(|rest| _ = self.skip(&rest, why));
            }
            match taken? {
                Some(outcome) => outcomes.push(outcome),
                None => open.push(id),
            }
            if self.args.next && self.has_begun {
                break;
            }
        }
        Ok(open)
    }

    /// Describes why no run was started, for an MCP client, which sees only the failure.
    fn nothing_begun(&self) -> Failure {
        let left = self.left.iter().map(|(id, why)| format!("{id}: not begun, {why}"));
        let done = self
            .reports
            .iter()
            .map(|report| format!("{}: completed, and recorded in the PRD", report.id));
        Failure::new(Exit::Refused, done.chain(left).collect::<Vec<_>>().join("\n"))
    }

    /// Runs one story and returns its outcome; `None` if it was skipped.
    fn run_one(&mut self, id: &str) -> Result<Option<Outcome>, Failure> {
        if let Err(left) = self.check_ready(id) {
            return Ok(left);
        }
        // Held until the outcome is written. The history and the file are read only after the claim is taken.
        let _claim = match self.archive.registry().claim_story(self.file.path(), id) {
            Ok(claim) => claim,
            Err(RegistryError::Refused(RegistryRefusal::StoryHeld { pid, .. })) => {
                let why = self.describe_holder(id, pid)?;
                self.held.push(id.to_owned());
                return Ok(self.skip(id, &why));
            }
            Err(error) => return Err(Failure::from_error(Exit::Failed, &error)),
        };
        let story = match self.check_ready(id) {
            Ok(story) => story,
            Err(left) => return Ok(left),
        };
        self.consent.renew(self.file.prd(), self.file.path(), self.archive);
        if let Some(why) = self.missing_consent(&story) {
            // Without its verify command the story would cost money and could not pass.
            return Ok(self.skip(id, &completed(&why)));
        }
        let again = match self.decide(&story)? {
            StoryDecision::Begin(why) => why,
            StoryDecision::Done(run) => return self.record_earlier_success(id, run),
            StoryDecision::Leave(why) => {
                self.record_latest_end(&story)?;
                return Ok(self.skip(id, &completed(&why)));
            }
        };
        let foundation = match self.history.base_of(self.file.prd(), &story) {
            Ok(foundation) => foundation,
            // The story must not be built on files that lack the work of its dependencies.
            Err(why) => return Ok(self.skip(id, &why)),
        };
        match self.models.choose_for(&story, &self.consent) {
            Ok(chosen) => {
                let StoryBase { commits, remarks } = foundation;
                let remarks: Vec<String> = again.into_iter().chain(remarks).collect();
                remarks.iter().for_each(|remark| say(&format!("adjutant: {id}: {remark}")));
                let work = self.work_of(&story, commits);
                let begun = match self.begin(&work)? {
                    Ok(begun) => begun,
                    Err(refusal) => return Ok(self.skip(id, &refusal.to_string())),
                };
                self.work_on(&story, work, begun, chosen, remarks).map(Some)
            }
            Err(failure) => Ok(self.skip(id, &failure.to_string())),
        }
    }

    /// Records in the registry that a run on a story begins. Returns its id and its limits: the run budget minus what the
    /// stories before it have used.
    fn begin(
        &self,
        work: &StoryAssignment,
    ) -> Result<Result<(RunId, Policy), RegistryRefusal>, Failure> {
        let policy = self.settings.policy.policy().clone();
        let run = match &self.terms {
            Some(terms) => terms.run(),
            None => new_run_id().map_err(|error| Failure::from_error(Exit::Failed, &error))?,
        };
        let (story, budget) = ((self.file.path(), work.id.as_str()), policy.run_cap());
        match self.archive.registry().begin_story(story, run, &work.asked, budget) {
            Ok(left) => Ok(Ok((run, policy.with_run_cap(left)))),
            Err(RegistryError::Refused(refusal)) => Ok(Err(refusal)),
            Err(error @ RegistryError::Unavailable(_)) => {
                Err(Failure::from_error(Exit::Failed, &error))
            }
        }
    }

    /// Rereads the PRD and returns the story if it can begin; otherwise its outcome, if it has one.
    fn check_ready(&mut self, id: &str) -> Result<Story, Option<Outcome>> {
        if let Err(error) = self.reread() {
            return Err(self.skip(
                id,
                &format!(
                    "the PRD cannot be used now: {}",
                    Failure::from_error(Exit::Failed, &error).message()
                ),
            ));
        }
        let Some(story) = self.file.prd().story(id).cloned() else {
            return Err(self.skip(id, "it is not in the PRD any more"));
        };
        if story.passes {
            self.skip(id, "it already passes");
            return Err(Some(Outcome::Completed));
        }
        match self.file.prd().waits_for(&story).as_slice() {
            [] => Ok(story),
            waits => Err(self.skip(id, &format!("waits for {}", waits.join(", ")))),
        }
    }

    /// Describes the run and process that have claimed a story.
    fn describe_holder(&mut self, id: &str, pid: u32) -> Result<String, Failure> {
        let process = format!("process {pid}");
        self.history.load(id)?;
        Ok(completed(&match self.history.live_run() {
            Some(run) => format!(
                "{run} is working on it ({process}): `adjutant watch {run}` follows it, `adjutant wait {run}` waits \
                 until it ends"
            ),
            None => format!(
                "{process} is working on it: `adjutant status` lists its run once it has started"
            ),
        }))
    }

    /// Reads the PRD again. After a failed write the file is opened from scratch, because the cause may have been that one
    /// story only.
    fn reread(&mut self) -> Result<(), PrdFileError> {
        if !self.unsaved {
            return self.file.reread();
        }
        (self.file, self.unsaved) = (PrdFile::open(self.file.path())?, false);
        Ok(())
    }

    /// Records why a story is skipped.
    fn skip(&mut self, id: &str, why: &str) -> Option<Outcome> {
        self.left.push((id.to_owned(), why.to_owned()));
        None
    }

    /// Returns why a story cannot begin without consent: its verify command was not allowed.
    fn missing_consent(&self, story: &Story) -> Option<String> {
        let trust = self.command_with_flag(&story.id, "--trust-prd");
        if story.verify.is_some() && self.verify_of(story).is_none() {
            let own = self.command_with_flag(&story.id, "--verify COMMAND");
            return Some(format!(
                "its verify command needs your consent: {trust} allows it, {own} replaces it"
            ));
        }
        // Without delegation no planned task runs, so their verify commands do not matter.
        let is_open = !self.consent.is_given() && self.settings.policy.policy().enabled;
        let is_below = is_open && story.planned.iter().any(|planned| planned.verify.is_some());
        // `--verify` replaces the command of the story, not those of its tasks.
        is_below.then(|| {
            format!("the verify command of a task it plans needs your consent: {trust} allows it")
        })
    }

    /// Returns what a person types to give `flag` for a story.
    fn command_with_flag(&self, id: &str, flag: &str) -> String {
        typed_flags::command_with_flag(self.args, self.file.path(), Some(id), flag)
    }
}

/// Returns the ids of all stories in the PRD, including tasks that earlier runs added.
fn names(prd: &Prd) -> BTreeSet<String> {
    prd.stories().iter().map(|story| story.id.clone()).collect()
}
