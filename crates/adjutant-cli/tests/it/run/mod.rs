//! `run`.

mod nested_depth;
mod repairs;
mod safety;
mod verify;
