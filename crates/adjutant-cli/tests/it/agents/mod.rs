//! `agents` and `--agent`.

mod definitions;
