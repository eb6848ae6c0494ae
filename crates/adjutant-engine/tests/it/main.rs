//! Integration tests of `adjutant-engine`.
