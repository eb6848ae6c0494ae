//! The seal on a line: a chained CRC32C at a fixed place, the end.
//!
//! A sealed line is `{…,"crc":"1a2b3c4d"}` and a line break; the checksum covers the bytes before
//! the `,"crc"` and starts from a seed. What the line says is of no concern here.
//!
//! Invariant: for fixed bytes, different seeds give different checksums (a CRC is a bijection of
//! its seed), so a line that moved to another place in a chain never passes.

/// What follows the sealed bytes, up to the checksum.
const OPENING: &[u8] = br#","crc":""#;
/// What follows the checksum, without the line break.
const CLOSING: &[u8] = br#""}"#;
const HEX_DIGITS: usize = 8;

/// The length of a seal without its line break.
pub(crate) const SEAL_LEN: usize = OPENING.len() + HEX_DIGITS + CLOSING.len();

/// Says why a line is not what was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealError {
    /// The line does not end in a seal.
    NoSeal,
    /// The line's bytes or its place in the chain changed.
    Mismatch { stored: u32, computed: u32 },
}

/// Returns the seed of a chain that belongs to `name` alone.
pub(crate) fn chain_seed(name: &str) -> u32 {
    crc32c::crc32c(name.as_bytes())
}

/// Appends seal and line break to the object that begins at `start` and is still open.
///
/// Returns the checksum, which seeds the next line.
pub(crate) fn append_seal(line: &mut Vec<u8>, start: usize, seed: u32) -> u32 {
    let crc = crc32c::crc32c_append(seed, &line[start..]);
    line.extend_from_slice(OPENING);
    line.extend_from_slice(&to_hex(crc));
    line.extend_from_slice(CLOSING);
    line.push(b'\n');
    crc
}

/// Checks a line without its line break; returns its checksum.
pub(crate) fn check(line: &[u8], seed: u32) -> Result<u32, SealError> {
    let body = line.len().checked_sub(SEAL_LEN).ok_or(SealError::NoSeal)?;
    let stored = read_checksum(&line[body..]).ok_or(SealError::NoSeal)?;
    let computed = crc32c::crc32c_append(seed, &line[..body]);
    if stored == computed { Ok(stored) } else { Err(SealError::Mismatch { stored, computed }) }
}

/// Reads the checksum of a seal, given exactly the seal's bytes.
pub(crate) fn read_checksum(seal: &[u8]) -> Option<u32> {
    let digits = seal.strip_prefix(OPENING)?.strip_suffix(CLOSING)?;
    from_hex(digits.try_into().ok()?)
}

/// Returns where an intact sealed object at the front of `bytes` ends, if there is one.
///
/// Finds the record that lost its line break; linear, as each byte is summed once.
pub(crate) fn intact_prefix(bytes: &[u8], seed: u32) -> Option<usize> {
    let (mut summed, mut crc) = (0, seed);
    for body in 0..=bytes.len().checked_sub(SEAL_LEN)? {
        if !bytes[body..].starts_with(OPENING) {
            continue;
        }
        crc = crc32c::crc32c_append(crc, &bytes[summed..body]);
        summed = body;
        if read_checksum(&bytes[body..body + SEAL_LEN]) == Some(crc) {
            return Some(body + SEAL_LEN);
        }
    }
    None
}

fn to_hex(crc: u32) -> [u8; HEX_DIGITS] {
    let mut digits = [0; HEX_DIGITS];
    for (digit, byte) in digits.chunks_exact_mut(2).zip(crc.to_be_bytes()) {
        digit[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        digit[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    digits
}

/// Reads eight digits. Capitals are damage: one flipped bit turns `a` into `A`.
fn from_hex(digits: [u8; HEX_DIGITS]) -> Option<u32> {
    digits.iter().try_fold(0, |crc, digit| match digit {
        b'0'..=b'9' => Some(crc << 4 | u32::from(digit - b'0')),
        b'a'..=b'f' => Some(crc << 4 | u32::from(digit - b'a' + 10)),
        _ => None,
    })
}
