//! Hostile repositories, models and files, across commands.

mod attempts;
mod injection;
