//! `approvals` and `approve`.

pub(crate) mod inbox;
