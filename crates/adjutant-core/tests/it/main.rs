//! Integration tests of `adjutant-core`.
