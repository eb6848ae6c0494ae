//! Repositories, models and files that mean harm, across commands.

mod attempts;
mod injection;
