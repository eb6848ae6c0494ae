//! `demo`.

mod plays;
