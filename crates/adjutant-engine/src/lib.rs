//! The runtime: the only crate that owns tasks and the clock.
