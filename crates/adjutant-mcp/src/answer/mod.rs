//! What a client is answered: the results of a run, in its form and no larger than the client takes.

pub(crate) mod forms;
pub(crate) mod led;
pub(crate) mod page;
mod render;
pub(crate) mod sizes;

pub(crate) use render::{
    Form, asks, of_cancel, of_failure, of_list, of_run, of_start, of_status, of_verdict, standing,
    state, title,
};
