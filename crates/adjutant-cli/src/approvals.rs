//! `approvals` and `approve`: lists the questions that wait for a person, and answers one.

use std::io::{self, IsTerminal};
use std::path::Path;

use adjutant_core::Event;
use adjutant_core::registry::QuestionPointer;
use adjutant_core::tree::WHOLE_RUN;
use adjutant_engine::{
    Archive, ControlError, MergeQuestion, RunFiles, RunLiveness, question_id, wall_now,
};
use adjutant_view::approval::{ApprovalQuestion, is_asked_about};
use adjutant_view::{RunView, TimedEvent, sanitize};
use serde_json::json;

use crate::args::ApproveCallArgs;
use crate::ask::Terminal;
use crate::exit::{Exit, Failure};
use crate::hints::{advise, program};
use crate::live::columns;
use crate::output::{print, print_json, print_list};
use crate::records;
use crate::results::PendingMerge;

/// A call that waits for a person's approval, with its run and the time left to answer.
struct InboxQuestion {
    id: String,
    waiting: QuestionPointer,
    files: RunFiles,
    question: ApprovalQuestion,
    left_ms: u64,
}

/// What to do about a registry that cannot be read.
const UNREADABLE_REGISTRY: &str = "Questions of MCP clients and about merges are only in that file and cannot be listed or \
     answered. To go on without it, end its runs with `adjutant cancel` and move it away: open questions, consents and what was \
     spent today are then forgotten.";

/// Runs `adjutant approvals`.
pub(crate) fn run_approvals(archive: &Archive, as_json: bool) -> Result<Exit, Failure> {
    let known = open_inbox(archive).and_then(|all| Ok((all, PendingMerge::all(archive)?)));
    let runs = archive.runs().map_err(records::archive_failure)?;
    let (all, merges) = match known {
        Ok(known) => known,
        Err(failure) => {
            // Journals still show what runs ask on terminals.
            let mut prompts = prompt_questions(archive, &runs, &[]);
            prompts.retain(|it| it.terminal.is_some() && !as_json);
            let texts: Vec<String> = prompts.iter().map(|it| it.text(false)).collect();
            print_list(&texts.join("\n"))?;
            return Err(failure.hint(UNREADABLE_REGISTRY));
        }
    };
    let prompts = prompt_questions(archive, &runs, &all);
    // What a prompt shows is listed with its terminal, whether or not it could be registered.
    let all: Vec<InboxQuestion> = all.into_iter().filter(|it| !it.waiting.at_prompt).collect();
    if as_json {
        let all: Vec<_> = all.iter().map(InboxQuestion::json).collect();
        let prompts: Vec<_> = prompts.iter().map(PromptQuestion::json).collect();
        let merges: Vec<_> = merges.iter().map(|it| it.json(archive)).collect();
        print_json(&json!({ "v": 1, "approvals": all, "merges": merges, "at_prompts": prompts }))?;
        return Ok(Exit::Completed);
    }
    if all.is_empty() && merges.is_empty() && prompts.is_empty() {
        print("Nothing waits for your approval.\n")?;
        if io::stderr().is_terminal() {
            advise("`adjutant status` lists questions of subagents.");
        }
        return Ok(Exit::Completed);
    }
    // A model that runs this command usually reads a pipe, a person reads a terminal. This is not a security boundary: a
    // program with its own terminal and this account can read the code.
    let shows_codes = io::stdout().is_terminal() && Terminal::open().is_some();
    let inbox = all.iter().map(|it| it.text(shows_codes));
    let inbox = inbox.chain(merges.iter().map(|it| it.text(archive, shows_codes)));
    let texts: Vec<String> = inbox.chain(prompts.iter().map(|it| it.text(shows_codes))).collect();
    print_list(&texts.join("\n"))?;
    Ok(Exit::Completed)
}

/// A question that a run asks on its own terminal.
struct PromptQuestion {
    /// The id and the code with which another terminal can answer it; `None` if it could not be registered.
    answered_with: Option<(String, String)>,
    files: RunFiles,
    pid: Option<u32>,
    terminal: Option<String>,
    question: ApprovalQuestion,
}

impl PromptQuestion {
    fn json(&self) -> serde_json::Value {
        let mut json = json!({
            "run": self.files.id(), "root": self.files.workdir(), "pid": self.pid,
            "terminal": self.terminal, "question": self.question.json(),
        });
        if let Some((id, _)) = &self.answered_with {
            json["id"] = json!(id);
        }
        json
    }

    fn text(&self, shows_code: bool) -> String {
        let run = self.files.id();
        let here = match &self.answered_with {
            Some((id, code)) => {
                let code = if shows_code { code } else { "CODE" };
                format!(", or here with {} approve {id} {code}", program())
            }
            None => String::new(),
        };
        let root = self.files.workdir().unwrap_or_default().display().to_string();
        let terminal = self.terminal.as_deref().unwrap_or("its own terminal");
        let process = self.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
        format!(
            "{run}  asks in {} at the prompt on {}{process}\n\n{}\nAnswer it there{here}.\nEnd the run  {} cancel {run}\n",
            sanitize::line(&root),
            sanitize::line(terminal),
            self.question.text(columns(io::stdout())),
            program(),
        )
    }
}

/// Finds the open questions of live runs that only their own terminals show. `inbox` has every registered question.
fn prompt_questions(
    archive: &Archive,
    runs: &[RunFiles],
    inbox: &[InboxQuestion],
) -> Vec<PromptQuestion> {
    let mut all = Vec::new();
    for files in runs {
        // An unreadable run must not hide the others.
        let Ok(RunLiveness::Live { pid }) = files.liveness() else { continue };
        let Some(asked) = read_questions(files) else { continue };
        for open in asked.view.approvals() {
            let known = inbox.iter().find(|it| it.waiting.hash == open.hash);
            if known.is_some_and(|it| !it.waiting.at_prompt) {
                continue;
            }
            let answered_with = known.map(|it| (it.id.clone(), it.waiting.code.clone()));
            let Some(policy) = asked.view.policy() else { continue };
            let question =
                ApprovalQuestion::of_call(policy, &asked.admitted, open.parent, open.call);
            let question = question.with_commands_see(asked.view.commands_see());
            let question = with_history(question, archive, &asked.view);
            let (files, terminal) = (files.clone(), pid.and_then(terminal_of));
            all.push(PromptQuestion { answered_with, files, pid, terminal, question });
        }
    }
    all
}

/// Counts the questions in the inbox, and those at the prompts of these runs.
pub(crate) fn count_waiting(archive: &Archive, runs: &[RunFiles]) -> Result<usize, Failure> {
    let inbox = open_inbox(archive)?;
    let merges = PendingMerge::all(archive)?.len();
    let prompts = prompt_questions(archive, runs, &inbox).len();
    Ok(inbox.iter().filter(|it| !it.waiting.at_prompt).count() + merges + prompts)
}

/// Tells a question what ended delegations consumed, if the registry can be read.
fn with_history(question: ApprovalQuestion, archive: &Archive, view: &RunView) -> ApprovalQuestion {
    match archive.registry().read_unlocked() {
        Ok(known) => question
            .with_history(&known, |agent| view.worker_terms(agent).map(|terms| terms.name.clone())),
        Err(_) => question,
    }
}

/// Returns the terminal of a process, such as /dev/pts/3.
fn terminal_of(pid: u32) -> Option<String> {
    let terminal = |descriptor: u32| {
        let target = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
        let is_terminal = target.starts_with("/dev/pts") || target.starts_with("/dev/tty");
        is_terminal.then(|| target.display().to_string())
    };
    [0, 2, 1].into_iter().find_map(terminal)
}

/// The journal of a run, as far as its questions are concerned.
struct AskedQuestions {
    view: RunView,
    /// The events that describe the calls in question.
    admitted: Vec<Event>,
    /// Whether every record could be read.
    is_whole: bool,
}

/// Reads the questions of a run; `None` if its journal cannot be opened.
fn read_questions(files: &RunFiles) -> Option<AskedQuestions> {
    let mut asked = AskedQuestions { view: RunView::light(), admitted: Vec::new(), is_whole: true };
    for record in files.records().ok()? {
        let Ok(record) = record else {
            asked.is_whole = false;
            break;
        };
        asked.view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
        if is_asked_about(&record.event) {
            asked.admitted.push(record.event);
        }
    }
    Some(asked)
}

impl InboxQuestion {
    fn age_s(&self) -> u64 {
        wall_now().saturating_sub(self.waiting.asked_ms) / 1000
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "id": self.id, "run": self.waiting.run, "client": self.waiting.client,
            "root": self.files.workdir(), "age_s": self.age_s(), "expires_s": self.left_ms / 1000,
            "question": self.question.json(),
        })
    }

    fn text(&self, shows_code: bool) -> String {
        let (id, program) = (&self.id, program());
        let client = sanitize::line(&self.waiting.client).into_owned();
        let client = if client.is_empty() { "a client".into() } else { client };
        let root = self.files.workdir().unwrap_or_default().display().to_string();
        let code = if shows_code {
            format!("Start it    {program} approve {id} {}\n", self.waiting.code)
        } else {
            format!(
                "Start it    {program} approve {id} CODE   (run `{program} approvals` in a terminal to see the \
                 code)\n"
            )
        };
        let remedy = self.question.remedy().map(|it| format!("{it}\n\n")).unwrap_or_default();
        format!(
            "{id}  {client} asks in {}, {} ago; expires in {}\n\n{}\n{remedy}{code}Refuse it   {program} approve --deny {id}\n",
            sanitize::line(&root),
            span(self.age_s()),
            span(self.left_ms / 1000),
            self.question.text(columns(io::stdout())),
        )
    }
}

fn span(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}

/// Runs `adjutant approve`.
pub(crate) fn run_approve(
    archive: &Archive,
    args: &ApproveCallArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    if !io::stdin().is_terminal() || Terminal::open().is_none() {
        return Err(Failure::new(Exit::Refused, "`adjutant approve` works only in a terminal")
            .hint("A person must answer: run the command yourself in a terminal."));
    }
    let known = open_inbox(archive).and_then(|all| Ok((all, PendingMerge::all(archive)?)));
    let (all, merges) = known.map_err(|failure| failure.hint(UNREADABLE_REGISTRY))?;
    let is_meant = |id: &str| !args.id.is_empty() && id.starts_with(&args.id.to_lowercase());
    let found: Vec<&InboxQuestion> = all.iter().filter(|it| is_meant(&it.id)).collect();
    let merges: Vec<&PendingMerge> = merges.iter().filter(|it| is_meant(&it.id)).collect();
    if let ([], &[merge]) = (found.as_slice(), merges.as_slice()) {
        return answer_merge(archive, merge, args, as_json);
    }
    let &[open] = found.as_slice() else {
        let what = match found.len() + merges.len() {
            0 => {
                let end = question_end(archive, is_meant).map(|end| format!(": {end}"));
                let id = sanitize::line(&args.id);
                format!("no question `{id}` is open{}", end.unwrap_or_default())
            }
            several => format!("`{}` matches {several} questions", sanitize::line(&args.id)),
        };
        return Err(Failure::new(Exit::Refused, what).hint(
            "It may have been answered or have expired; `adjutant approvals` lists the open questions.",
        ));
    };
    refuse_wrong_code(args, &open.waiting)?;
    let verdict = if args.deny { Err("a person said no".to_owned()) } else { Ok(()) };
    let decided = open.files.decide(&open.waiting.hash, verdict, None);
    decided.map_err(|error| match question_end(archive, |id| id == open.id) {
        // It was open a moment ago, and another answer came first.
        Some(end) => {
            Failure::new(Exit::Refused, format!("no question `{}` is open: {end}", open.id))
        }
        None => control_failure(&error),
    })?;
    archive.registry().close_question(&open.id);
    let (id, run) = (&open.id, open.waiting.run);
    if as_json {
        print_json(&json!({ "v": 1, "id": id, "run": run, "approved": !args.deny }))?;
    } else if args.deny {
        print(&format!("{id} refused: {run} starts nothing\n"))?;
    } else {
        print(&format!("{id} approved: {run} goes on; `{} watch {run}` follows it\n", program()))?;
    }
    Ok(Exit::Completed)
}

/// How many of the latest runs are searched for a question that is no longer open.
const SEARCHED_RUNS: usize = 50;

/// Says how the question with a matching id ended: with which answer, or that its process is gone.
fn question_end(archive: &Archive, is_meant: impl Fn(&str) -> bool) -> Option<String> {
    let runs = archive.runs().ok()?;
    runs.iter().take(SEARCHED_RUNS).find_map(|files| {
        let mut asked = None;
        for record in files.records().ok()?.map_while(Result::ok) {
            if let Event::ApprovalAsked { hash, .. } = &record.event {
                let is_it = is_meant(&question_id(hash));
                asked = is_it.then(|| (hash.clone(), None)).or(asked);
            } else if let Event::Approved { hash, .. } = &record.event {
                set_answer(&mut asked, hash, "it was approved".to_owned());
            } else if let Event::Denied { hash, reason } = &record.event {
                set_answer(&mut asked, hash, format!("it was refused: {reason}"));
            }
        }
        let run = files.id();
        match asked? {
            (_, Some(answer)) => Some(format!("{} ({run})", sanitize::line(&answer))),
            (_, None) if matches!(files.liveness(), Ok(RunLiveness::Dead)) => Some(format!(
                "the process of {run} is gone; `{} resume {run}` asks again",
                program()
            )),
            (_, None) => None,
        }
    })
}

fn set_answer(asked: &mut Option<(String, Option<String>)>, hash: &str, words: String) {
    if let Some((_, answer)) = asked.as_mut().filter(|(of, _)| of == hash) {
        *answer = Some(words);
    }
}

/// Refuses an approval without the code of the question.
fn refuse_wrong_code(args: &ApproveCallArgs, waiting: &QuestionPointer) -> Result<(), Failure> {
    let fits = |code: &String| code.eq_ignore_ascii_case(&waiting.code);
    if args.deny || args.code.as_ref().is_some_and(fits) {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, "the code does not match the question")
        .hint("`adjutant approvals` shows the question and its code."))
}

/// Merges what a client asked to merge, or refuses it.
fn answer_merge(
    archive: &Archive,
    merge: &PendingMerge,
    args: &ApproveCallArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    refuse_wrong_code(args, &merge.waiting)?;
    if !args.deny {
        return merge.approve(archive, as_json);
    }
    archive.registry().close_question(&merge.id);
    let (id, run) = (&merge.id, merge.waiting.run);
    if as_json {
        print_json(&json!({ "v": 1, "id": id, "run": run, "approved": false }))?;
    } else {
        print(&format!("{id} refused: nothing of {run} is merged\n"))?;
    }
    Ok(Exit::Completed)
}

fn control_failure(error: &ControlError) -> Failure {
    match error {
        ControlError::Refused(complaint) => Failure::new(Exit::Refused, complaint.message.clone())
            .hint(
                "A question can be answered only once, and before it expires; `adjutant approvals` lists the open ones.",
            ),
        ControlError::NotLive
        | ControlError::NotConfirmed
        | ControlError::NeverBegan
        | ControlError::Silent(_)
        | ControlError::Unseen
        | ControlError::Kill(_)
        | ControlError::Stays(_)
        | ControlError::Archive(_)
        | ControlError::Record(_) => Failure::from_error(Exit::Failed, error),
    }
}

/// Returns the open questions of the inbox, and removes closed ones from the registry.
fn open_inbox(archive: &Archive) -> Result<Vec<InboxQuestion>, Failure> {
    let registry = archive.registry();
    let kept = registry.open_questions();
    let kept = kept.map_err(|error| {
        Failure::from_error(Exit::Failed, &adjutant_engine::RegistryError::Unavailable(error))
    })?;
    let mut all = Vec::new();
    for (id, waiting) in kept {
        if MergeQuestion::parse(&waiting.hash).is_some() {
            continue;
        }
        match read_question(archive, &waiting) {
            Ok(Some((files, question, left_ms))) if left_ms > 0 => {
                all.push(InboxQuestion { id, waiting, files, question, left_ms });
            }
            // An expired question is closed by its run. An unreadable run may be readable later.
            Ok(Some(_)) | Err(UnreadableRun) => {}
            Ok(None) => registry.close_question(&id),
        }
    }
    Ok(all)
}

/// The journal of a run cannot be read now, so the state of its questions is unknown.
struct UnreadableRun;

/// Reads a question, and for how many more milliseconds it is open, from the journal of its run.
///
/// Returns `None` for a question that was answered, or whose run is over or gone.
fn read_question(
    archive: &Archive,
    waiting: &QuestionPointer,
) -> Result<Option<(RunFiles, ApprovalQuestion, u64)>, UnreadableRun> {
    let files = match archive.find(&waiting.run.to_string()) {
        Ok((files, _)) => files,
        Err(_) if is_gone(archive, waiting) => return Ok(None),
        Err(_) => return Err(UnreadableRun),
    };
    if matches!(files.liveness().map_err(|_| UnreadableRun)?, RunLiveness::Dead) {
        return Ok(None);
    }
    let AskedQuestions { view, admitted, is_whole } =
        read_questions(&files).ok_or(UnreadableRun)?;
    let Some(open) = view.approvals().iter().find(|open| open.hash == waiting.hash) else {
        return if is_whole { Ok(None) } else { Err(UnreadableRun) };
    };
    let prd = view.story().and_then(|story| story.prd.as_deref()).map(Path::new);
    let prd = prd.filter(|_| open.call == WHOLE_RUN);
    let lacking = prd.map(|prd| archive.registry().lacking_consents(prd)).unwrap_or_default();
    let policy = view.policy().ok_or(UnreadableRun)?;
    let question = ApprovalQuestion::of_call(policy, &admitted, open.parent, open.call);
    let question = question.with_unallowed(lacking).with_commands_see(view.commands_see());
    let question = with_history(question, archive, &view);
    let latest = view.latest();
    let now = latest.at.plus_millis(files.since(latest.wall_ms));
    let left_ms = open.expires.as_millis().saturating_sub(now.as_millis());
    Ok(Some((files, question, left_ms)))
}

/// Returns whether the run is certainly gone: all runs can be listed and it is not among them.
fn is_gone(archive: &Archive, waiting: &QuestionPointer) -> bool {
    archive.runs().is_ok_and(|runs| runs.iter().all(|files| files.id() != waiting.run))
}
