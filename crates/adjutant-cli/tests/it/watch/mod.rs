//! `watch`.

mod following;
mod full_screen;
