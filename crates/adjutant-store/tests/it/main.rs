//! Integration tests of `adjutant-store`.
