//! Integration tests of `adjutant-model`.
