//! Write and Edit: what a call would change, and changing exactly that.
//!
//! A call is performed in two steps, with the record of what is about to happen between them:
//! [`prepare`] only looks, [`commit`] changes the file if it is still as it was. Where files may be
//! written was decided before and is handed in. Start at [`prepare`].

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use adjutant_core::{ContentChange, WriteScope, content_hash};
use adjutant_workspace::{FileImage, FileKind, FileTarget, MissingParents, PathError, RelPath};

use crate::args::{ArgumentNames, CallArguments, ToolArgumentError, brief};
use crate::edit::{EditedText, replace_text};
use crate::mask::OPENING;
use crate::output::{ToolCallResult, count};
use crate::toolbox::ToolCallContext;
use crate::{ToolName, show};

pub(crate) static WRITE_FIELDS: [ArgumentNames; 2] =
    [ArgumentNames::new("file_path", &["path"]), ArgumentNames::new("content", &["text"])];

pub(crate) static EDIT_FIELDS: [ArgumentNames; 4] = [
    ArgumentNames::new("file_path", &["path"]),
    ArgumentNames::new("old_string", &["old_text"]),
    ArgumentNames::new("new_string", &["new_text"]),
    ArgumentNames::new("replace_all", &[]),
];

/// The folders in which the program keeps the tasks of a project.
const SPECS_FOLDERS: [&str; 2] = [".opencode/specs", ".adjutant/specs"];

/// What there is to do about a call that writes.
#[derive(Debug)]
pub enum PreparedWrite {
    /// Nothing: this is its result.
    Answer(ToolCallResult),
    /// This change; `before` is all of the file as it is, if there is one.
    Change {
        /// What is to be recorded before it happens.
        change: ContentChange,
        /// The content that will be lost.
        before: Option<Vec<u8>>,
    },
}

/// A change that has been worked out and not been made.
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

/// Works out what a call would change.
pub(crate) fn prepare(
    call: &ToolCallContext<'_>,
    tool: ToolName,
    writes: &WriteScope,
) -> PreparedWrite {
    let plan = match plan(call, tool, writes, MissingParents::Leave) {
        Ok(plan) => plan,
        Err(objection) => return PreparedWrite::Answer(ToolCallResult::error(objection)),
    };
    let Some(path) = plan.path.as_path().to_str().map(str::to_owned) else {
        return PreparedWrite::Answer(ToolCallResult::error("`file_path` must be valid UTF-8"));
    };
    let before = plan.image.map(|image| image.bytes);
    if before.as_deref() == Some(plan.content.as_slice()) {
        let text = format!("`{path}` has this content already; nothing was written.");
        // An agent that writes content which is already there has changed this file as far as its report is concerned.
        return PreparedWrite::Answer(ToolCallResult {
            touched: vec![path],
            ..ToolCallResult::ok(text)
        });
    }
    let change = ContentChange {
        path,
        before: before.as_deref().map(content_hash),
        after: Some(content_hash(&plan.content)),
    };
    PreparedWrite::Change { change, before }
}

/// Makes the change a call was prepared for; another one it does not make.
pub(crate) fn commit(
    call: &ToolCallContext<'_>,
    tool: ToolName,
    writes: &WriteScope,
    change: &ContentChange,
    temp: &OsStr,
) -> ToolCallResult {
    let plan = match plan(call, tool, writes, MissingParents::Create) {
        Ok(plan) => plan,
        Err(objection) => return ToolCallResult::error(objection),
    };
    let before = plan.image.as_ref().map(|image| content_hash(&image.bytes));
    let after = Some(content_hash(&plan.content));
    let shown = &change.path;
    if before != change.before || after != change.after {
        return ToolCallResult::error(format!(
            "`{shown}` was changed by someone else in the meantime and was not written; read it again"
        ));
    }
    if (call.should_stop)() {
        return ToolCallResult::error(format!("stopped before `{shown}` was written"));
    }
    match plan.place.replace(&plan.content, plan.image.as_ref(), temp) {
        Ok(()) => ToolCallResult { touched: vec![shown.clone()], ..ToolCallResult::ok(plan.words) },
        Err(error) => ToolCallResult::error(not_written(shown, &error)),
    }
}

fn plan(
    call: &ToolCallContext<'_>,
    tool: ToolName,
    writes: &WriteScope,
    folders: MissingParents,
) -> Result<WritePlan, WriteErrorText> {
    let below = match writes {
        WriteScope::Nowhere => return Err("you may not write files".to_owned()),
        WriteScope::Below(folder) => folder.as_str(),
        // In a workspace of its own the root is the workspace.
        WriteScope::Own | WriteScope::Anywhere => "",
    };
    let fields: &'static [ArgumentNames] =
        if tool == ToolName::Edit { &EDIT_FIELDS } else { &WRITE_FIELDS };
    let args = CallArguments::new(tool, call.arguments, fields).map_err(argument_error)?;
    let written = args.required("file_path").map_err(argument_error)?;
    let refused = |error: &PathError| {
        if matches!(error, PathError::Outside) && !below.is_empty() {
            let shown = brief(&written);
            return format!("`{shown}` may not be written; you may write only below `{below}`");
        }
        not_written(&written, error)
    };
    let path = call.root.relative(&written).map_err(|error| refused(&error))?;
    if is_ours(path.as_path()) {
        return Err(format!(
            "`{}` is kept by adjutant itself; name what you made in your return instead",
            brief(&written)
        ));
    }
    let below = RelPath::new(below).map_err(|error| refused(&error))?;
    let place = call.root.file_target(&below, &path, folders).map_err(|error| refused(&error))?;
    let max = call.caps.write_bytes;
    let image = place.read(max).map_err(|error| refused(&error))?;
    let shown = show::path(path.as_path());
    let (content, words) = if tool == ToolName::Edit {
        change_text(&args, image.as_ref(), &shown)?
    } else {
        whole_text(&args, image.as_ref(), &shown)?
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
    args: &CallArguments<'_>,
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

fn change_text(
    args: &CallArguments<'_>,
    image: Option<&FileImage>,
    shown: &str,
) -> Result<(Vec<u8>, String), WriteErrorText> {
    let old = args.required("old_string").map_err(argument_error)?;
    let new = args.text("new_string").map_err(argument_error)?;
    let new = new.ok_or("`new_string` is required; it may be empty".to_owned())?;
    let all = args.switch("replace_all").map_err(argument_error)?;
    let image = image.ok_or_else(|| {
        format!("`{shown}` does not exist; find paths with Glob, or create it with Write")
    })?;
    let text = match std::str::from_utf8(&image.bytes) {
        Ok(text) if !text.contains('\0') => text,
        Ok(_) | Err(_) => return Err(format!("`{shown}` is a binary file and was not edited")),
    };
    check_masks(&new, Some(image))?;
    if old.contains(OPENING) && !text.contains(OPENING) {
        return Err(format!(
            "`old_string` holds a mark such as `{OPENING}…]`, which stands for a secret you were not shown; \
             choose text beside it"
        ));
    }
    let EditedText { text, lines } =
        replace_text(text, &old, &new, all).map_err(|why| format!("`{shown}`: {why}"))?;
    let numbers: Vec<String> = lines.iter().take(10).map(usize::to_string).collect();
    let more = if lines.len() > numbers.len() { ", …" } else { "" };
    let told = format!(
        "Replaced {} in `{shown}` (line {}{more}).",
        count(lines.len(), "match"),
        numbers.join(", ")
    );
    Ok((text.into_bytes(), told))
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
