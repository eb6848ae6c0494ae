//! Integration tests of `adjutant-core`.

mod contract;
