//! `undo`.

mod in_place;
