//! Integration tests of `adjutant-cli`.
