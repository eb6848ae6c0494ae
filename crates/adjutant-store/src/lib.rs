//! The journal: append, read back, lock, checkpoint, prune.
