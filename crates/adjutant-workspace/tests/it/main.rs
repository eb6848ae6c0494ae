//! Integration tests of `adjutant-workspace`.
