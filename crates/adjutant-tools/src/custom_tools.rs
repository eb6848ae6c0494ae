//! Tools supplied by a program that embeds the engine.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use adjutant_core::message::ToolSpec;
use serde_json::Value;

use crate::output::{ToolCallResult, remark};

/// A tool implemented by the embedding program.
///
/// Agents may call it if the policy's `tools` name it, like any other tool. A call whose result was not
/// recorded before a crash is never repeated; the agent is told that it was interrupted.
pub trait CustomTool: Send + Sync {
    /// Returns the description for models: name, purpose and JSON schema of the arguments.
    fn spec(&self) -> ToolSpec;

    /// Executes a call. May block, but must return soon after `should_stop` returns true.
    ///
    /// Runs on a thread for tools, so calls of several agents can run at once: use a lock where that matters. Only a few
    /// threads exist (four for each run of the crate `adjutant`); further calls, also of built-in tools, wait until one
    /// is free. To call async code, block on a runtime of the program, such as with `Handle::block_on` of tokio.
    ///
    /// `arguments` come from a model and are not validated. A panic becomes an error result for the agent, and the run
    /// goes on.
    fn run(&self, arguments: &Value, should_stop: &dyn Fn() -> bool) -> ToolCallResult;
}

/// The tools of the embedding program.
#[derive(Clone, Default)]
pub(crate) struct CustomTools(Vec<(ToolSpec, Arc<dyn CustomTool>)>);

impl CustomTools {
    pub(crate) fn add(&mut self, tool: Arc<dyn CustomTool>) {
        self.0.push((tool.spec(), tool));
    }

    pub(crate) fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.iter().map(|(spec, _)| spec)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&dyn CustomTool> {
        self.0.iter().find(|(spec, _)| spec.name == name).map(|(_, tool)| tool.as_ref())
    }
}

impl fmt::Debug for CustomTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.specs().map(|spec| &spec.name)).finish()
    }
}

/// Calls a tool of the program. A panic in it becomes an error result.
pub(crate) fn run_caught(
    tool: &dyn CustomTool,
    name: &str,
    arguments: &Value,
    should_stop: &dyn Fn() -> bool,
) -> ToolCallResult {
    // The tool is called again later, but so is a struct whose method has panicked in any other program.
    catch_unwind(AssertUnwindSafe(|| tool.run(arguments, should_stop))).unwrap_or_else(|payload| {
        ToolCallResult::error(format!("the tool `{name}` panicked: {}", panic_message(&*payload)))
    })
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    payload.downcast_ref::<&str>().copied().or_else(owned).unwrap_or("without a message")
}

/// Cuts a result to the size limit of the built-in tools.
pub(crate) fn cut_to_limit(mut output: ToolCallResult, bytes: usize) -> ToolCallResult {
    if output.text.len() > bytes {
        output.text.truncate(output.text.floor_char_boundary(bytes));
        remark(&mut output.text, format_args!("cut after {bytes} bytes"));
    }
    output
}
