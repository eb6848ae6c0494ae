//! `task`.

mod list;
