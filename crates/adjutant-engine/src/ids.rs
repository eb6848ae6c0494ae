//! Making ids from a secure source.

use adjutant_core::ids::SUFFIX_LEN;

/// Where the random part of ids comes from.
pub type Chance = fn() -> Result<[u8; SUFFIX_LEN], getrandom::Error>;

/// Draws from the operating system.
pub(crate) fn system() -> Result<[u8; SUFFIX_LEN], getrandom::Error> {
    let mut bytes = [0; SUFFIX_LEN];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
