//! `status`, `tree`, `result`, `transcript`, `cost`, `errors`, `log` and `prune`.

mod bad_stores;
mod cost_sums;
mod errors;
pub(crate) mod index;
mod leftovers;
mod log_follow;
mod pager;
mod pipes;
mod terminals;
mod views;
mod widths;
