//! `watch`.

mod following;
