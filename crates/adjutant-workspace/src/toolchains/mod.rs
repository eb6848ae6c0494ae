//! The toolchains of this machine that commands in a sandbox can use.
//!
//! Discovery reads directories and small files; it never runs a program, neither a compiler nor the shim of a version
//! manager. It does not mount anything and does not read the environment: the caller passes both in.
//!
//! Start at [`find_toolchains`]; `table` has one row of data per toolchain, and `rust`, `python`, `node`, `go`,
//! `version_manager` and `system` recognize the layouts. Invariant: a toolchain that looks broken is left out, and
//! finding one never fails.

mod find;
mod found;
mod go;
mod node;
mod python;
mod rust;
mod search;
mod summary;
mod system;
mod table;
mod version_manager;
mod versions;

pub use find::{find_toolchains, is_toolchain_name, toolchain_names, without_toolchains};
pub use found::{FoundToolchain, ToolVersion};
pub use search::ToolchainLookup;
pub use summary::{summary_line, tool_list, tool_summary};
pub use system::SYSTEM_TOOLCHAIN;
