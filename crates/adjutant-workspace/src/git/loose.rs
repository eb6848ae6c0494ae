//! Writing small objects into a private git directory without running git.
//!
//! Git reads that directory as an alternate, so that objects which only one call needs are never stored in the
//! repository.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::GitError;
use super::blob::{hasher, id_bytes, id_of};
use super::id::ObjectId;
use crate::private;

/// The header of a zlib stream and of its only block, which is stored without compression.
const ZLIB_STORED: [u8; 3] = [0x78, 0x01, 0x01];

/// The modulus of the Adler-32 checksum.
const ADLER_MODULUS: u32 = 65_521;

/// Stores a commit of `tree` with the parent `parent` in the directory `objects`.
///
/// The date is fixed, so equal arguments give equal ids.
pub(super) fn write_commit(
    objects: &Path,
    tree: &ObjectId,
    parent: &ObjectId,
) -> Result<ObjectId, GitError> {
    let by = "Adjutant <adjutant@localhost> 0 +0000";
    let text =
        format!("tree {tree}\nparent {parent}\nauthor {by}\ncommitter {by}\n\nA side of a merge\n");
    let object = format!("commit {}\0{text}", text.len());
    let mut hash = hasher(id_bytes(tree));
    hash.update(object.as_bytes());
    let id = id_of(&hash.finalize())?;
    store(objects, &id, object.as_bytes()).map_err(GitError::io("writing a temporary commit"))?;
    Ok(id)
}

fn store(objects: &Path, id: &ObjectId, object: &[u8]) -> io::Result<()> {
    let (folder, name) = id.as_str().split_at(2);
    let path = objects.join(name);
    if fs::exists(&path)? {
        return Ok(());
    }
    // Git looks in `folder/name`. A link to the directory itself will do, and is removed faster than a directory.
    match symlink(".", objects.join(folder)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => private::write(&path, zlib_stored(object)?),
    }
}

/// Wraps at most 65,535 bytes in a zlib stream.
fn zlib_stored(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let len = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut stream = ZLIB_STORED.to_vec();
    stream.extend_from_slice(&len.to_le_bytes());
    stream.extend_from_slice(&(!len).to_le_bytes());
    stream.extend_from_slice(bytes);
    stream.extend_from_slice(&adler32(bytes).to_be_bytes());
    Ok(stream)
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut sum, mut sum_of_sums) = (1, 0);
    for byte in bytes {
        sum = (sum + u32::from(*byte)) % ADLER_MODULUS;
        sum_of_sums = (sum_of_sums + sum) % ADLER_MODULUS;
    }
    sum_of_sums << 16 | sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_the_standard_example_is_right() {
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
    }
}
