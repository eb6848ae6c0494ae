//! `task`: adds, lists and shows tasks of a project, and changes their status.

use std::path::Path;

use adjutant_core::nearest;
use adjutant_engine::specs::{Specs, SpecsError};
use adjutant_formats::task::{
    NewTask, Task, TaskChangeResult, TaskDisagreement, TaskError, TaskNumber, TaskPriority,
    TaskStatus,
};
use adjutant_view::sanitize;
use serde_json::{Value, json};

use crate::args::{TaskAddArgs, TaskArgs, TaskCommand, TaskSetArgs};
use crate::delegate::absolute;
use crate::exit::{Exit, Failure};
use crate::hints;
use crate::output::{print, print_json, say};

/// The most disagreements that are printed. `--json` has all of them.
const SAID: usize = 10;

/// Runs `adjutant task`.
pub(crate) fn run_task(args: &TaskArgs, as_json: bool) -> Result<Exit, Failure> {
    // Arguments are validated before any file is read.
    match &args.command {
        TaskCommand::Add(add) => self::add(&args.root, add, as_json, |task, folder| {
            format!("Task {} added to {folder}.", task.number)
        }),
        TaskCommand::List => ProjectTasks::open(&args.root)?.list(as_json),
        TaskCommand::Show { number } => {
            let number = numbered(number.as_deref())?;
            ProjectTasks::open(&args.root)?.show(number, as_json)
        }
        TaskCommand::Set(set) => {
            let (number, to) = (numbered(set.number.as_deref())?, status(set)?);
            let tasks = ProjectTasks::open(&args.root)?;
            let changed =
                tasks.specs.set_status(number, to, set.reason.clone()).map_err(specs_failure)?;
            tasks.report(&changed, as_json, |task| change_line(task, &changed))
        }
    }
}

/// Adds a task and prints `words` about it.
pub(crate) fn add(
    root: &Path,
    wish: &TaskAddArgs,
    as_json: bool,
    words: impl Fn(&Task, &str) -> String,
) -> Result<Exit, Failure> {
    let task = new_task(wish)?;
    let tasks = ProjectTasks::open(root)?;
    let changed = tasks.specs.add(task).map_err(specs_failure)?;
    tasks.report(&changed, as_json, |task| words(task, tasks.folder))
}

/// Returns the output of `/task`: the heading that every slash command has, the entry, and what to type next.
pub(crate) fn added(task: &Task, folder: &str) -> String {
    let (number, title) = (task.number, sanitize::collapsed(&task.title));
    format!(
        "Task: {number}\n\n{title}\n{} in {folder}/TODO.md\n\nNext: {} run \"/research {number}\"{}",
        marker(task),
        hints::program(),
        hints::root(),
    )
}

/// The task lists of a project.
struct ProjectTasks {
    specs: Specs,
    folder: &'static str,
}

impl ProjectTasks {
    fn open(root: &Path) -> Result<Self, Failure> {
        let specs = Specs::open(&absolute(root)?).map_err(specs_failure)?;
        let folder = specs.folder().map_err(specs_failure)?;
        Ok(Self { specs, folder })
    }

    fn list(&self, as_json: bool) -> Result<Exit, Failure> {
        let book = self.specs.read().map_err(specs_failure)?;
        let (tasks, disagreements) = (book.tasks(), book.disagreements());
        if as_json {
            print_json(&json!({
                "v": 1, "folder": self.folder, "next_number": book.next_number(), "tasks": tasks,
                "disagreements": disagreements_json(&disagreements), "notices": self.specs.take_notices(),
            }))?;
            return Ok(Exit::Completed);
        }
        self.say_notices(&disagreements);
        print(&table(&tasks))?;
        Ok(Exit::Completed)
    }

    fn show(&self, number: TaskNumber, as_json: bool) -> Result<Exit, Failure> {
        let book = self.specs.read().map_err(specs_failure)?;
        let unknown = || specs_failure(SpecsError::Task(TaskError::Unknown { number }));
        let task = book.task(number).ok_or_else(unknown)?;
        let disagreements = book.disagreements_about(number);
        if as_json {
            let mut object = self.object(&task, &disagreements);
            object["entry"] = book.entry_text(number).into();
            print_json(&object)?;
            return Ok(Exit::Completed);
        }
        self.say_notices(&disagreements);
        print(&paragraph(&task))?;
        Ok(Exit::Completed)
    }

    /// Prints a changed task.
    fn report(
        &self,
        changed: &TaskChangeResult,
        as_json: bool,
        sentence: impl Fn(&Task) -> String,
    ) -> Result<Exit, Failure> {
        let disagreements = &changed.disagreements;
        if as_json {
            let mut object = self.object(&changed.task, disagreements);
            object["from"] = json!(changed.from);
            object["changed"] = changed.is_different.into();
            print_json(&object)?;
            return Ok(Exit::Completed);
        }
        self.say_notices(disagreements);
        print(&format!("{}\n", sentence(&changed.task)))?;
        Ok(Exit::Completed)
    }

    fn object(&self, task: &Task, disagreements: &[TaskDisagreement]) -> Value {
        json!({
            "v": 1, "folder": self.folder, "task": task,
            "next": task.status.map(TaskStatus::next).unwrap_or_default(),
            "disagreements": disagreements_json(disagreements), "notices": self.specs.take_notices(),
        })
    }

    fn say_notices(&self, disagreements: &[TaskDisagreement]) {
        for notice in self.specs.take_notices() {
            say(&format!("adjutant: {notice}"));
        }
        for disagreement in disagreements.iter().take(SAID) {
            say(&format!("adjutant: {}", sanitize::collapsed(&disagreement.to_string())));
        }
        if disagreements.len() > SAID {
            let more = disagreements.len() - SAID;
            say(&format!("adjutant: and {more} more; `adjutant task list --json` has all of them"));
        }
    }
}

fn disagreements_json(disagreements: &[TaskDisagreement]) -> Vec<Value> {
    let object = |it: &TaskDisagreement| {
        json!({
            "number": it.number, "field": it.field, "todo": it.todo, "state": it.state,
            "wins": it.wins, "message": it.to_string(),
        })
    };
    disagreements.iter().map(object).collect()
}

fn numbered(typed: Option<&str>) -> Result<TaskNumber, Failure> {
    TaskNumber::read("task", typed).map_err(|error| {
        Failure::usage(error.to_string()).hint("`adjutant task list` shows the numbers.")
    })
}

fn status(args: &TaskSetArgs) -> Result<TaskStatus, Failure> {
    let words = || TaskStatus::ALL.map(TaskStatus::as_str);
    let known = || format!("Statuses: {}.", words().join(", "));
    let Some(typed) = args.status.as_deref() else {
        return Err(Failure::usage("no status is given").hint(known()));
    };
    if let Some(status) = TaskStatus::read_alias(typed) {
        say(&format!("adjutant: `{typed}` counts as `{status}`"));
    }
    TaskStatus::read(typed).ok_or_else(|| {
        let meant = nearest(typed, words());
        let meant = meant.map(|word| format!(", did you mean `{word}`?")).unwrap_or_default();
        Failure::usage(format!("`{typed}` is not a status{meant}")).hint(known())
    })
}

fn new_task(args: &TaskAddArgs) -> Result<NewTask, Failure> {
    let priority = match args.priority.as_deref() {
        None => TaskPriority::default(),
        Some(typed) => TaskPriority::read(typed).ok_or_else(|| {
            let words = TaskPriority::ALL.map(TaskPriority::as_str).join(", ");
            Failure::usage(format!("`{typed}` is not a priority"))
                .hint(format!("Priorities: {words}."))
        })?,
    };
    Ok(NewTask {
        title: args.title.clone(),
        language: args.language.clone(),
        priority,
        effort: args.effort.clone(),
        description: args.description.clone(),
    })
}

/// Turns an error of the task lists into a failure with a hint.
fn specs_failure(error: SpecsError) -> Failure {
    let (exit, hint) = match &error {
        SpecsError::Task(TaskError::Step { .. }) => (Exit::Refused, None),
        SpecsError::Task(TaskError::Unknown { .. }) => {
            (Exit::Usage, Some("`adjutant task list` shows the tasks there are."))
        }
        SpecsError::Task(TaskError::NoReason { .. }) => {
            (Exit::Usage, Some("Say why with --reason TEXT."))
        }
        SpecsError::Damaged { .. } => (
            Exit::Usage,
            Some("Fix it, or move it away: the next change makes it anew from TODO.md."),
        ),
        SpecsError::Task(
            TaskError::UnknownStatus { .. }
            | TaskError::NeedlessReason { .. }
            | TaskError::Twice { .. }
            | TaskError::NoTitle
            | TaskError::LongTitle { .. }
            | TaskError::LongDescription { .. }
            | TaskError::BadLanguage { .. }
            | TaskError::BadPath { .. }
            | TaskError::NoNumber
            | TaskError::Unwritable { .. },
        )
        | SpecsError::Link { .. }
        | SpecsError::NotFolder { .. }
        | SpecsError::NotText { .. }
        | SpecsError::TooLarge { .. }
        | SpecsError::Overgrown { .. }
        | SpecsError::NotErrors { .. }
        | SpecsError::BadRecord { .. } => (Exit::Usage, None),
        SpecsError::File { .. } | SpecsError::Busy { .. } | SpecsError::Overtaken { .. } => {
            (Exit::Failed, None)
        }
    };
    let failure = Failure::from_error(exit, &error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn change_line(task: &Task, changed: &TaskChangeResult) -> String {
    let marker = |status: Option<TaskStatus>| status.map_or("[?]", TaskStatus::marker);
    let (from, to) = (marker(changed.from), marker(task.status));
    if changed.is_different && from != to {
        format!("Task {}: {from} → {to}", task.number)
    } else if changed.is_different {
        format!("Task {}: {to}, both files brought up to date", task.number)
    } else {
        format!("Task {} is {to} already.", task.number)
    }
}

fn marker(task: &Task) -> String {
    let unknown = || task.unknown_status.as_deref().map(sanitize::collapsed).unwrap_or_default();
    task.status.map_or_else(unknown, |status| status.marker().to_owned())
}

fn table(tasks: &[Task]) -> String {
    if tasks.is_empty() {
        let (program, root) = (hints::program(), hints::root());
        return format!("No tasks yet. Add one: {program} task add \"TITLE\"{root}\n");
    }
    let cells = |task: &Task| {
        let priority = task.priority.map(TaskPriority::as_str).unwrap_or("-").to_owned();
        [
            task.number.to_string(),
            marker(task),
            priority,
            sanitize::collapsed(&task.language),
            sanitize::collapsed(&task.title),
        ]
    };
    let rows: Vec<[String; 5]> = tasks.iter().map(cells).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let [first, second, third, fourth] = [width(0), width(1), width(2), width(3)];
    let line = |[number, marker, priority, language, title]: &[String; 5]| {
        format!(
            "{number:>first$}  {marker:second$}  {priority:third$}  {language:fourth$}  {title}\n"
        )
    };
    rows.iter().map(line).collect()
}

fn paragraph(task: &Task) -> String {
    let mut text = format!("{}. {}\n", task.number, sanitize::collapsed(&task.title));
    let mut say = |name: &str, value: &str| text += &format!("  {name}: {value}\n");
    say("status", &marker(task));
    if let Some(reason) = &task.reason {
        say("reason", &sanitize::collapsed(reason));
    }
    if let Some(priority) = task.priority {
        say("priority", priority.as_str());
    }
    say("language", &sanitize::collapsed(&task.language));
    for (name, value) in [("created", &task.created), ("changed", &task.last_updated)] {
        if let Some(value) = value {
            say(name, &sanitize::collapsed(value));
        }
    }
    for path in &task.artifacts {
        say("artifact", &sanitize::collapsed(path));
    }
    let next = task.status.map(TaskStatus::next).unwrap_or_default();
    if !next.is_empty() {
        let words: Vec<&str> = next.iter().map(|status| status.as_str()).collect();
        say("next", &words.join(", "));
    }
    if let Some(description) = &task.description {
        text += &format!("\n{}\n", sanitize::block(description));
    }
    text
}
