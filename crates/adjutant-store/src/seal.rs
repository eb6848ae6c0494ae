//! The seal of a line: a chained CRC32C checksum as its last JSON field.
//!
//! A sealed line is `{…,"crc":"1a2b3c4d"}` and a line break. The checksum covers the bytes before
//! `,"crc"` and starts from a seed, usually the checksum of the line before. The content of the line does
//! not matter here.
//!
//! Invariant: for the same bytes, different seeds give different checksums (a CRC is a bijection of
//! its seed), so a line that was moved to another place in the chain never passes the check.
//!
//! A `SealError` says why a line is rejected: it has no checksum, or a wrong one.

/// The bytes between the sealed content and the checksum.
const OPENING: &[u8] = br#","crc":""#;
/// The bytes after the checksum, without the line break.
const CLOSING: &[u8] = br#""}"#;
const HEX_DIGITS: usize = 8;

/// The length of a seal without its line break.
pub(crate) const SEAL_LEN: usize = OPENING.len() + HEX_DIGITS + CLOSING.len();

/// Why the seal of a line is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealError {
    /// The line does not end in a seal.
    NoSeal,
    /// The line was changed or moved after it was sealed.
    Mismatch { stored: u32, computed: u32 },
}

/// Returns the seed for the first line of the log called `name`.
pub(crate) fn chain_seed(name: &str) -> u32 {
    crc32c::crc32c(name.as_bytes())
}

/// Appends the seal and a line break to the JSON object that starts at `start` and is not closed yet.
///
/// Returns the checksum, which is the seed of the next line.
pub(crate) fn append_seal(line: &mut Vec<u8>, start: usize, seed: u32) -> u32 {
    let crc = crc32c::crc32c_append(seed, &line[start..]);
    line.extend_from_slice(OPENING);
    line.extend_from_slice(&to_hex(crc));
    line.extend_from_slice(CLOSING);
    line.push(b'\n');
    crc
}

/// Checks the seal of a line, given without its line break. Returns the checksum.
pub(crate) fn check(line: &[u8], seed: u32) -> Result<u32, SealError> {
    let body = line.len().checked_sub(SEAL_LEN).ok_or(SealError::NoSeal)?;
    let stored = read_checksum(&line[body..]).ok_or(SealError::NoSeal)?;
    let computed = crc32c::crc32c_append(seed, &line[..body]);
    if stored == computed { Ok(stored) } else { Err(SealError::Mismatch { stored, computed }) }
}

/// Parses the checksum of a seal of exactly [`SEAL_LEN`] bytes.
pub(crate) fn read_checksum(seal: &[u8]) -> Option<u32> {
    let digits = seal.strip_prefix(OPENING)?.strip_suffix(CLOSING)?;
    from_hex(digits.try_into().ok()?)
}

/// Returns the end of an intact sealed object at the start of `bytes`, if there is one.
///
/// Finds a record whose line break was lost. Takes linear time, because each byte is added to the checksum once.
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

/// Parses eight hex digits. Upper case is refused: a single flipped bit turns `a` into `A`.
fn from_hex(digits: [u8; HEX_DIGITS]) -> Option<u32> {
    digits.iter().try_fold(0, |crc, digit| match digit {
        b'0'..=b'9' => Some(crc << 4 | u32::from(digit - b'0')),
        b'a'..=b'f' => Some(crc << 4 | u32::from(digit - b'a' + 10)),
        _ => None,
    })
}
