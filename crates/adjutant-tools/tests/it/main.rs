//! Integration tests of `adjutant-tools`.
