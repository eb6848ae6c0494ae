//! `status`, `tree`, `result`, `transcript`, `cost`, `errors`, `log` and `prune`.

mod bad_stores;
mod errors;
mod leftovers;
mod pager;
mod pipes;
mod views;
