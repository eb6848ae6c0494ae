//! The first contact: `init` on a terminal and without one, the last sentence of `doctor`, and `update`.

mod init;
mod readiness;
mod served_model;
