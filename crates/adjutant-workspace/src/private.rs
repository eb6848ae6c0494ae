//! Adjutant's own directories and files: mode 0700 and 0600 whatever the umask, and never through a symbolic link.
//!
//! Everything that this crate keeps in the state directory is created here, except the files of bases, layers and
//! work trees, which have the modes of a checkout.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Creates a directory, which must not exist.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIR_MODE).create(path)?;
    // The umask may have removed permissions of the owner.
    fs::set_permissions(path, Permissions::from_mode(DIR_MODE))
}

/// Creates a directory and its missing parents. An existing directory that is open to others is made private.
pub(crate) fn ensure_dir(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            return match found.permissions().mode() & 0o777 {
                DIR_MODE => Ok(()),
                // Created by an earlier version or by the user; its owner was checked when the state directory was
                // opened.
                _ => fs::set_permissions(path, Permissions::from_mode(DIR_MODE)),
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Ok(_) if path.is_dir() => return Ok(()),
        Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
        Err(error) => return Err(error),
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty())
        && !parent.is_dir()
    {
        ensure_dir(parent)?;
    }
    match create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Opens a lock file, creating it if it is missing. Refuses anything but a regular file, without blocking on a
/// pipe.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::CREATE)
}

/// Opens a file for writing and truncates it.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    let file = open(path, OFlags::WRONLY | OFlags::CREATE)?;
    file.set_len(0)?;
    Ok(file)
}

/// Replaces the content of a file.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    create_file(path)?.write_all(bytes.as_ref())
}

/// Makes a file that git wrote private.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(FILE_MODE))
}

/// Opens a directory to lock it.
pub(crate) fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(FILE_MODE);
    let file = File::from(rustix::fs::open(path, flags, mode)?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if found.permissions().mode() & 0o7777 != FILE_MODE {
        rustix::fs::fchmod(&file, mode)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_a_pipe_and_a_device_in_place_of_a_lock_file_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "mine").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("nothing", at("dangling")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), fifo, Mode::RWXU, 0).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["link", "dangling", "pipe", "folder"] {
            assert!(open_lock(&at(name)).is_err(), "{name}");
            assert!(write(&at(name), "x").is_err(), "{name}");
        }
        assert!(open_lock(Path::new("/dev/tty")).is_err());
        assert!(open_lock(Path::new("/dev/null")).is_err());
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "mine");
        assert!(!at("nothing").exists());
        open_lock(&at("lock")).unwrap();
    }

    #[test]
    fn directories_and_files_are_made_private_even_existing_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (open, file) = (folder.path().join("open"), folder.path().join("open/file"));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        fs::write(&file, "long text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        ensure_dir(&open).unwrap();
        ensure_dir(&open.join("a/b")).unwrap();
        write(&file, "short").unwrap();
        for path in [&open, &open.join("a"), &open.join("a/b")] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        assert_eq!((mode(&file), fs::read_to_string(&file).unwrap()), (0o600, "short".to_owned()));
    }
}
