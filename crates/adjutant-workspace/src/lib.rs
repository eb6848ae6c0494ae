//! Where agents work: the root directory handle and confined paths.
