//! `cancel`, `wait` and `tell`.

mod live_runs;
mod socket;
