//! Checks on the workspace itself, run as tests.
