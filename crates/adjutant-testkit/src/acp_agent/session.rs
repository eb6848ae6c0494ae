//! A session and its file, which lets another process load it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What is kept of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) cwd: PathBuf,
    /// The mode in force, if the agent has modes.
    pub(super) mode: Option<String>,
    /// How many prompts have begun.
    pub(super) prompts: usize,
    /// The updates so far, user messages included; loading replays them.
    pub(super) updates: Vec<Value>,
}

impl Session {
    pub(super) fn new(cwd: PathBuf, mode: Option<String>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let id = format!("session-{}-{since}-{number}", std::process::id());
        Self { id, cwd, mode, prompts: 0, updates: Vec::new() }
    }

    pub(super) fn load(id: &str) -> io::Result<Self> {
        let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_plain {
            return Err(io::Error::other("not a session id of this agent"));
        }
        serde_json::from_slice(&std::fs::read(Self::path(id)?)?).map_err(io::Error::other)
    }

    /// Writes the file. It is renamed into place, because the process may be killed at any time.
    pub(super) fn save(&self) -> io::Result<()> {
        let path = Self::path(&self.id)?;
        let part = path.with_extension("part");
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(&part, serde_json::to_vec(self)?)?;
        std::fs::rename(part, path)
    }

    /// Remembers what the client was shown.
    pub(super) fn remember(&mut self, update: Value) {
        self.updates.push(update);
    }

    pub(super) fn remember_prompt(&mut self, blocks: &Value) {
        self.prompts += 1;
        for content in blocks.as_array().into_iter().flatten() {
            self.remember(json!({"sessionUpdate": "user_message_chunk", "content": content}));
        }
    }

    fn path(id: &str) -> io::Result<PathBuf> {
        let home = std::env::var_os("HOME").ok_or_else(|| io::Error::other("HOME is not set"))?;
        Ok(PathBuf::from(home).join(".acp-agent").join(format!("{id}.json")))
    }
}
