//! `--worker` and `gateway`: other agents as workers, driven through the binary with the scripted agent of the testkit.

mod calls;
mod endings;
mod gateway;
mod kills;
mod lifecycle;
mod listing;
mod protocol;
mod site;
