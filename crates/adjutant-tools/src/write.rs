//! Write and Edit: what a call would change, and changing exactly that.
//!
//! A call is performed in two steps, with the record of what is about to happen between them:
//! [`prepare`] only looks, [`commit`] changes the files if they are still as they were. Where files may be
//! written was decided before and is handed in. Start at [`prepare`].

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use adjutant_core::tool_call::PATCH;
use adjutant_core::{ContentChange, WriteIntent, WriteScope, content_hash};
use adjutant_formats::patch::{self, FilePatch, HunkProblemKind};
use adjutant_workspace::{FileImage, FileKind, FileTarget, MissingParents, PathError, RelPath};

use crate::args::{CallArguments, ToolArgumentError, brief};
use crate::edit::{EditedText, replace_text, what_differs};
use crate::mask::OPENING;
use crate::output::{ToolCallResult, count};
use crate::toolbox::ToolCallContext;
use crate::{ToolName, show};

/// The most edits that one call may make, because each is searched for in the whole file.
const MAX_EDITS: usize = 100;

/// The folders in which the program keeps the tasks of a project.
const SPECS_FOLDERS: [&str; 2] = [".opencode/specs", ".adjutant/specs"];

/// What there is to do about a call that writes.
#[derive(Debug)]
pub enum PreparedWrite {
    /// Nothing: this is its result.
    Answer(ToolCallResult),
    /// These changes; `before` is all of each file as it is, if there is one.
    Change {
        /// What is to be recorded before it happens.
        intent: WriteIntent,
        /// The contents that will be lost.
        before: Vec<Option<Vec<u8>>>,
    },
}

/// A change of one file that has been worked out and not been made.
struct WritePlan {
    place: FileTarget,
    path: RelPath,
    image: Option<FileImage>,
    content: Vec<u8>,
    /// What the model is told once it is done.
    words: String,
}

/// Why there is no plan, in words for the model.
type WriteErrorText = String;

/// What a call says about one file.
enum FileRequest<'call> {
    /// Its whole content.
    Whole(&'call CallArguments),
    /// Texts in it that are replaced.
    Edits(&'call CallArguments),
    /// A part of a patch.
    Patch(FilePatch),
}

/// Works out what a call would change.
pub(crate) fn prepare(
    call: &ToolCallContext<'_>,
    tool: ToolName,
    writes: &WriteScope,
) -> PreparedWrite {
    let plans = match plans(call, tool, writes) {
        Ok(plans) => plans,
        Err(objection) => return PreparedWrite::Answer(ToolCallResult::error(objection)),
    };
    let (mut changes, mut before, mut unchanged) = (Vec::new(), Vec::new(), Vec::new());
    for plan in plans {
        let Some(path) = plan.path.as_path().to_str().map(str::to_owned) else {
            return PreparedWrite::Answer(ToolCallResult::error("`file_path` must be valid UTF-8"));
        };
        let old = plan.image.map(|image| image.bytes);
        if old.as_deref() == Some(plan.content.as_slice()) {
            unchanged.push(path);
            continue;
        }
        changes.push(ContentChange {
            path,
            before: old.as_deref().map(content_hash),
            after: Some(content_hash(&plan.content)),
        });
        before.push(old);
    }
    let Some(intent) = WriteIntent::of(changes) else {
        let names: Vec<String> = unchanged.iter().map(|path| format!("`{path}`")).collect();
        let has = if names.len() == 1 { "has this content" } else { "have this content" };
        let text = format!("{} {has} already; nothing was written.", names.join(", "));
        // An agent that writes content which is already there has changed this file as far as its report is concerned.
        return PreparedWrite::Answer(ToolCallResult {
            touched: unchanged,
            ..ToolCallResult::ok(text)
        });
    };
    PreparedWrite::Change { intent, before }
}

/// Makes the changes a call was prepared for; others it does not make.
pub(crate) fn commit(
    call: &ToolCallContext<'_>,
    tool: ToolName,
    writes: &WriteScope,
    intent: &WriteIntent,
    temp: &OsStr,
) -> ToolCallResult {
    let plans = match plans(call, tool, writes) {
        Ok(plans) => plans,
        Err(objection) => return ToolCallResult::error(objection),
    };
    // A file that already has the wanted content is not part of the intent.
    let is_change =
        |plan: &WritePlan| plan.image.as_ref().is_none_or(|image| image.bytes != plan.content);
    let plans: Vec<WritePlan> = plans.into_iter().filter(is_change).collect();
    let is_prepared = |(plan, change): (&WritePlan, &ContentChange)| {
        let before = plan.image.as_ref().map(|image| content_hash(&image.bytes));
        plan.path.as_path() == Path::new(&change.path)
            && before == change.before
            && Some(content_hash(&plan.content)) == change.after
    };
    let unprepared = plans.iter().zip(intent.changes()).find(|both| !is_prepared(*both));
    if let Some((_, change)) = unprepared {
        return changed_meanwhile(&change.path);
    }
    if plans.len() != intent.changes().count() {
        return changed_meanwhile(&intent.change.path);
    }
    let (mut touched, mut words) = (Vec::new(), Vec::new());
    for (plan, change) in plans.into_iter().zip(intent.changes()) {
        let shown = &change.path;
        let made = if (call.should_stop)() {
            Err(format!("stopped before `{shown}` was written"))
        } else {
            make(call, writes, &plan, temp).map_err(|error| not_written(shown, &error))
        };
        match made {
            Ok(()) => {
                touched.push(shown.clone());
                words.push(plan.words);
            }
            Err(why) if touched.is_empty() => return ToolCallResult::error(why),
            Err(why) => {
                let done: Vec<String> = touched.iter().map(|path| format!("`{path}`")).collect();
                let text = format!(
                    "{why}; the patch was applied in part: {} was written, the rest was not. Read the files before \
                     you go on",
                    done.join(", ")
                );
                return ToolCallResult { touched, ..ToolCallResult::error(text) };
            }
        }
    }
    ToolCallResult { touched, ..ToolCallResult::ok(words.join("\n")) }
}

fn changed_meanwhile(path: &str) -> ToolCallResult {
    ToolCallResult::error(format!(
        "`{path}` was changed by someone else in the meantime and was not written; read it again"
    ))
}

/// Writes one file. Its folders are made only now, when everything has been checked.
fn make(
    call: &ToolCallContext<'_>,
    writes: &WriteScope,
    plan: &WritePlan,
    temp: &OsStr,
) -> Result<(), PathError> {
    if plan.image.is_some() {
        return plan.place.replace(&plan.content, plan.image.as_ref(), temp);
    }
    let below = RelPath::new(writable_folder(writes).unwrap_or_default())?;
    let place = call.root.file_target(&below, &plan.path, MissingParents::Create)?;
    place.replace(&plan.content, None, temp)
}

/// Returns the folder below which files may be written; `None` if none may.
fn writable_folder(writes: &WriteScope) -> Option<&str> {
    match writes {
        WriteScope::Nowhere => None,
        WriteScope::Below(folder) => Some(folder.as_str()),
        // In a workspace of its own the root is the workspace.
        WriteScope::Own | WriteScope::Anywhere => Some(""),
    }
}

/// Works out every file that a call would change; changes nothing.
fn plans(
    call: &ToolCallContext<'_>,
    tool: ToolName,
    writes: &WriteScope,
) -> Result<Vec<WritePlan>, WriteErrorText> {
    let below = writable_folder(writes).ok_or("you may not write files")?;
    let args = CallArguments::new(tool, call.arguments).map_err(argument_error)?;
    if !args.has(PATCH) {
        let written = args.required("file_path").map_err(argument_error)?;
        let request = if tool == ToolName::Edit {
            FileRequest::Edits(&args)
        } else {
            FileRequest::Whole(&args)
        };
        return Ok(vec![plan(call, below, &written, request)?]);
    }
    let text = args.required(PATCH).map_err(argument_error)?;
    let mut plans: Vec<WritePlan> = Vec::new();
    for file in patch::parse(&text)?.files {
        let written = file.path().to_owned();
        let unapplied = |why| format!("nothing was changed: {why}");
        let plan = plan(call, below, &written, FileRequest::Patch(file)).map_err(unapplied)?;
        let shown = brief(&written);
        if plans.iter().any(|other| other.path == plan.path) {
            return Err(format!(
                "nothing was changed: the patch names `{shown}` twice; put all its hunks together"
            ));
        }
        let path = plan.path.as_path();
        let clashes = |other: &WritePlan| {
            let other = other.path.as_path();
            other.starts_with(path) || path.starts_with(other)
        };
        if plans.iter().any(clashes) {
            return Err(format!(
                "nothing was changed: the patch names `{shown}` as a file and as a directory"
            ));
        }
        plans.push(plan);
    }
    Ok(plans)
}

fn plan(
    call: &ToolCallContext<'_>,
    below: &str,
    written: &str,
    request: FileRequest<'_>,
) -> Result<WritePlan, WriteErrorText> {
    let refused = |error: &PathError| {
        if matches!(error, PathError::Outside) && !below.is_empty() {
            let shown = brief(written);
            return format!("`{shown}` may not be written; you may write only below `{below}`");
        }
        not_written(written, error)
    };
    let path = call.root.relative(written).map_err(|error| refused(&error))?;
    if is_ours(path.as_path()) {
        return Err(format!(
            "`{}` is kept by adjutant itself; name what you made in your return instead",
            brief(written)
        ));
    }
    let below = RelPath::new(below).map_err(|error| refused(&error))?;
    let place = call.root.file_target(&below, &path, MissingParents::Leave);
    let place = place.map_err(|error| refused(&error))?;
    let max = call.caps.write_bytes;
    let image = place.read(max).map_err(|error| refused(&error))?;
    if matches!(request, FileRequest::Patch(_))
        && image.as_ref().is_some_and(|image| image.mode.is_read_only())
    {
        // Before the first file of the patch is written.
        return Err(refused(&PathError::ReadOnly));
    }
    let shown = show::path(path.as_path());
    let (content, words) = match request {
        FileRequest::Whole(args) => whole_text(args, image.as_ref(), &shown)?,
        FileRequest::Edits(args) => change_text(args, image.as_ref(), &shown, max)?,
        FileRequest::Patch(file) => patched_text(&file, image.as_ref(), &shown)?,
    };
    if content.len() as u64 > max {
        return Err(format!("`{shown}` would have {} bytes; the most is {max}", content.len()));
    }
    Ok(WritePlan { place, path, image, content, words })
}

/// Says whether a file is one of those by which the program keeps the tasks of a project: what stands
/// in them is decided, not written.
fn is_ours(path: &Path) -> bool {
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    let folder = plain.parent().map(Path::as_os_str).unwrap_or_default();
    let is_specs = SPECS_FOLDERS.iter().any(|specs| folder.eq_ignore_ascii_case(specs));
    let name = plain.file_name().map(|name| name.to_string_lossy().to_lowercase());
    is_specs
        && name.is_some_and(|name| {
            ["todo.md", "state.json", "errors.json"].contains(&name.as_str())
                || name.starts_with(".adjutant-pending")
                || name.ends_with(".adjutant-new")
        })
}

fn argument_error(error: ToolArgumentError) -> WriteErrorText {
    error.0
}

fn whole_text(
    args: &CallArguments,
    image: Option<&FileImage>,
    shown: &str,
) -> Result<(Vec<u8>, String), WriteErrorText> {
    let content = args.text("content").map_err(argument_error)?;
    // An empty file is a file; a call that forgot its content is not one for it.
    let content = content.ok_or("`content` is required; it may be empty".to_owned())?;
    check_masks(&content, image)?;
    let done = if image.is_some() { "Replaced" } else { "Created" };
    let lines = count(content.lines().count(), "line");
    let told = format!("{done} `{shown}`: {lines}, {}.", count(content.len(), "byte"));
    Ok((content.into_bytes(), told))
}

/// One text to replace.
struct TextEdit {
    old: String,
    new: String,
    all: bool,
}

impl TextEdit {
    fn read(args: &CallArguments) -> Result<Self, WriteErrorText> {
        let old = args.text("old_string").map_err(argument_error)?;
        if old.as_deref() == Some("") {
            return Err("`old_string` is empty; create files with Write".to_owned());
        }
        let old = match old {
            Some(old) => old,
            None => args.required("old_string").map_err(argument_error)?,
        };
        let new = args.text("new_string").map_err(argument_error)?;
        let new = new.ok_or("`new_string` is required; it may be empty".to_owned())?;
        let all = args.switch("replace_all").map_err(argument_error)?;
        Ok(Self { old, new, all })
    }
}

/// Returns the edits of a call: one, or those of the list `edits`.
fn text_edits(args: &CallArguments) -> Result<Vec<TextEdit>, WriteErrorText> {
    let Some(items) = args.list("edits").map_err(argument_error)? else {
        return Ok(vec![TextEdit::read(args)?]);
    };
    if args.has("old_string") || args.has("new_string") {
        return Err("give either `edits` or `old_string` and `new_string`, not both".to_owned());
    }
    if items.is_empty() || items.len() > MAX_EDITS {
        return Err(format!("`edits` must have 1 to {MAX_EDITS} items, not {}", items.len()));
    }
    let path = args.text("file_path").map_err(argument_error)?;
    let read = |(index, item)| {
        let numbered = |why: WriteErrorText| format!("item {} of `edits`: {why}", index + 1);
        let item = CallArguments::new(ToolName::Edit, item).map_err(argument_error);
        let item = item.map_err(numbered)?;
        let other = item.text("file_path").map_err(argument_error).map_err(numbered)?;
        if item.has("edits") || item.has(PATCH) || (other.is_some() && other != path) {
            return Err(numbered("it must be one edit of the same file".to_owned()));
        }
        TextEdit::read(&item).map_err(numbered)
    };
    items.iter().enumerate().map(read).collect()
}

/// Returns the text of a file that may be edited.
fn text_of<'image>(
    image: Option<&'image FileImage>,
    shown: &str,
) -> Result<&'image str, WriteErrorText> {
    let image = image.ok_or_else(|| {
        format!("`{shown}` does not exist; find paths with Glob, or create it with Write")
    })?;
    match std::str::from_utf8(&image.bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) | Err(_) => Err(format!("`{shown}` is a binary file and was not edited")),
    }
}

fn change_text(
    args: &CallArguments,
    image: Option<&FileImage>,
    shown: &str,
    max: u64,
) -> Result<(Vec<u8>, String), WriteErrorText> {
    let edits = text_edits(args)?;
    let original = text_of(image, shown)?;
    let mut text = original.to_owned();
    let (mut numbers, number_of_edits) = (Vec::new(), edits.len());
    for (index, edit) in edits.iter().enumerate() {
        check_masks(&edit.new, image)?;
        if edit.old.contains(OPENING) && !original.contains(OPENING) {
            return Err(format!(
                "`old_string` holds a mark such as `{OPENING}…]`, which stands for a secret you were not shown; \
                 choose text beside it"
            ));
        }
        // Before the text is made: a few edits that double it could need more memory than there is.
        let places = if edit.all { text.matches(edit.old.as_str()).count() as u64 } else { 1 };
        let size = (text.len() as u64)
            .saturating_sub(places.saturating_mul(edit.old.len() as u64))
            .saturating_add(places.saturating_mul(edit.new.len() as u64));
        if size > max {
            return Err(format!("`{shown}` would have {size} bytes; the most is {max}"));
        }
        let edited = replace_text(&text, &edit.old, &edit.new, edit.all).map_err(|why| {
            if number_of_edits == 1 {
                return format!("`{shown}`: {why}");
            }
            format!(
                "`{shown}`, edit {} of {number_of_edits}: {why}. Nothing was changed",
                index + 1
            )
        })?;
        let EditedText { text: after, lines } = edited;
        (text, numbers) = (after, [numbers, lines].concat());
    }
    Ok((text.into_bytes(), replaced(&numbers, "match", shown)))
}

fn patched_text(
    file: &FilePatch,
    image: Option<&FileImage>,
    shown: &str,
) -> Result<(Vec<u8>, String), WriteErrorText> {
    let hunks = match file {
        FilePatch::Update { hunks, .. } => hunks,
        FilePatch::Add { content, .. } => {
            if image.is_some() {
                return Err(format!("`{shown}` exists; change it with `*** Update File: {shown}`"));
            }
            check_masks(content, None)?;
            let lines = count(content.lines().count(), "line");
            let told = format!("Created `{shown}`: {lines}, {}.", count(content.len(), "byte"));
            return Ok((content.clone().into_bytes(), told));
        }
        FilePatch::Delete { .. } | FilePatch::Move { .. } => {
            return Err(format!(
                "a patch cannot delete or move `{shown}`; use `rm` or `mv` in Run"
            ));
        }
    };
    let text = text_of(image, shown)?;
    let patched = patch::apply(hunks, text).map_err(|problem| {
        let why = match problem.kind {
            HunkProblemKind::NoAnchor(anchor) => {
                format!("the line {:?} after `@@` was not found", brief(&anchor))
            }
            HunkProblemKind::NotFound(old) => {
                let differs = what_differs(text, &old).unwrap_or_default();
                format!("its lines were not found below the hunk before. {differs}")
            }
            HunkProblemKind::Ambiguous(lines) => {
                let lines: Vec<String> = lines.iter().take(10).map(usize::to_string).collect();
                let lines = lines.join(", ");
                format!("its lines occur several times, at line {lines}; add lines around them or after `@@`")
            }
            HunkProblemKind::Unchanged => "it changes nothing".to_owned(),
        };
        format!("`{shown}`, hunk {}: {}", problem.hunk, why.trim_end())
    })?;
    // Lines that the patch leaves alone may hold a mark; only new ones would lose a secret.
    check_masks(&patched.text, image)?;
    Ok((patched.text.into_bytes(), replaced(&patched.lines, "hunk", shown)))
}

fn replaced(lines: &[usize], noun: &str, shown: &str) -> String {
    let numbers: Vec<String> = lines.iter().take(10).map(usize::to_string).collect();
    let more = if lines.len() > numbers.len() { ", …" } else { "" };
    let what = count(lines.len(), noun);
    format!("Replaced {what} in `{shown}` (line {}{more}).", numbers.join(", "))
}

/// Refuses to write the mark of a secret where the secret itself would be lost, or a false one left.
fn check_masks(content: &str, image: Option<&FileImage>) -> Result<(), WriteErrorText> {
    let held = image.is_some_and(|image| {
        image.bytes.windows(OPENING.len()).any(|part| part == OPENING.as_bytes())
    });
    if content.contains(OPENING) && !held {
        return Err(format!(
            "the text holds a mark such as `{OPENING}…]`, which stands for a secret you were not shown; it would \
             be lost. Use Edit on the lines around it"
        ));
    }
    Ok(())
}

fn not_written(written: &str, error: &PathError) -> String {
    let shown = brief(written);
    if let PathError::NotRegular(FileKind::Directory) = error {
        return format!("`{shown}` is a directory; name a file");
    }
    if let PathError::NotDirectory = error {
        return format!("`{shown}` cannot be: a part of it is a file, not a directory");
    }
    if let PathError::PermissionDenied = error {
        return format!("permission to write `{shown}` was denied");
    }
    if let PathError::Io(source) = error {
        return format!("`{shown}` could not be written: {source}");
    }
    show::path_error(written, error)
}
