//! A test tool whose executions can be counted: each one appends a line to a file.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use adjutant_core::ToolSpec;
use adjutant_engine::{CustomTool, ToolCallResult};
use serde_json::{Value, json};

/// Appends its argument as a line to a file and syncs it before it returns.
///
/// Can wait before and after the append, so that a test can kill the process on either side of it.
#[derive(Clone, Debug)]
pub struct AppendTool {
    file: PathBuf,
    delay: Duration,
}

impl AppendTool {
    /// Appends to `file` without waiting.
    #[must_use]
    pub fn to(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), delay: Duration::ZERO }
    }

    /// Waits this long before the append and again after it.
    #[must_use]
    pub const fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    fn append(&self, line: &str) -> std::io::Result<()> {
        let mut file = File::options().create(true).append(true).open(&self.file)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    }

    fn wait(&self, should_stop: &dyn Fn() -> bool) {
        let until = Instant::now() + self.delay;
        while Instant::now() < until && !should_stop() {
            thread::sleep(Duration::from_millis(1).min(self.delay));
        }
    }
}

impl CustomTool for AppendTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "Append".to_owned(),
            description: "Appends one line to the ledger.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": { "line": { "type": "string" } },
                "required": ["line"],
                "additionalProperties": false,
            }),
        }
    }

    fn run(&self, arguments: &Value, should_stop: &dyn Fn() -> bool) -> ToolCallResult {
        let Some(line) = arguments["line"].as_str() else {
            return ToolCallResult::error("`line` is missing");
        };
        self.wait(should_stop);
        if should_stop() {
            return ToolCallResult::error("stopped before anything was done");
        }
        if let Err(error) = self.append(line) {
            return ToolCallResult::error(error);
        }
        self.wait(should_stop);
        ToolCallResult::ok(format!("appended {line}"))
    }
}
