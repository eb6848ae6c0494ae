//! `check`, `parse`, `validate` and `policy`.

pub(crate) mod judging;
