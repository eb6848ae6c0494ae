//! Integration tests of `adjutant-view`.
