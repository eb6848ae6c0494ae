//! `run`.

mod live_screen;
mod nested_depth;
mod repairs;
mod safety;
mod verify;
