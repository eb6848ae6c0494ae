//! Integration tests of `adjutant-testkit`.
