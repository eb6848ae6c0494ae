//! Computes the id that git gives to a file's content without running git; nothing is stored.

use std::io::{self, Read};

use sha1::Sha1;
use sha2::Sha256;
use sha2::digest::DynDigest;

use super::GitError;
use super::id::ObjectId;

/// Bytes of a file that are hashed at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Hexadecimal digits.
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Returns the blob id of the next `len` bytes of `content`; `None` if there are fewer. `like` is any id of the
/// same repository and selects the hash function.
pub(crate) fn blob_id(
    content: &mut dyn Read,
    len: u64,
    like: &ObjectId,
) -> Result<Option<ObjectId>, GitError> {
    let mut hash = hasher(id_bytes(like));
    hash.update(format!("blob {len}\0").as_bytes());
    let mut content = content.take(len);
    let (mut piece, mut left) = (vec![0; PIECE_BYTES], len);
    loop {
        match content.read(&mut piece) {
            Ok(0) if left > 0 => return Ok(None),
            Ok(0) => return id_of(&hash.finalize()).map(Some),
            Ok(count) => {
                hash.update(piece.get(..count).unwrap_or_default());
                left = left.saturating_sub(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(GitError::io("reading a changed file")(error)),
        }
    }
}

/// Returns the hash function for ids of this length.
pub(super) fn hasher(id_bytes: usize) -> Box<dyn DynDigest> {
    if id_bytes == 32 { Box::new(Sha256::default()) } else { Box::new(Sha1::default()) }
}

/// Returns the number of bytes of an id.
pub(super) fn id_bytes(id: &ObjectId) -> usize {
    id.as_str().len() / 2
}

/// Formats a hash as a hexadecimal id.
pub(super) fn id_of(bytes: &[u8]) -> Result<ObjectId, GitError> {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let digits = [byte >> 4, byte & 15].map(usize::from);
        text.extend(digits.iter().filter_map(|digit| HEX.get(*digit)));
    }
    ObjectId::from_bytes(&text)
        .ok_or_else(|| GitError::BadObjectId(String::from_utf8_lossy(&text).into_owned()))
}
