//! Reads and replaces the configuration file of an MCP client.
//!
//! Invariant: a reader sees the old content or the new content, never a mix, and the content before the first change
//! is kept in a backup beside the file.

use std::fs::{self, File as StdFile, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, OFlags, Uid};

use super::display_path;
use super::location::ConfigLocation;
use crate::exit::{Exit, Failure};
use crate::output::say;

/// The suffix of the backup.
const BEFORE: &str = ".before-adjutant";

/// The largest file that is read. Large, because one client keeps histories in the same file.
const LARGEST: u64 = 64 << 20;

/// A configuration file as it was read.
pub(crate) struct ClientConfigFile {
    /// The path after symbolic links are resolved.
    path: PathBuf,
    text: String,
    /// `None` if the file does not exist yet.
    metadata: Option<Metadata>,
}

impl ClientConfigFile {
    /// Reads a configuration file. A missing file is empty.
    pub(crate) fn open(place: &ConfigLocation) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(
                Exit::Failed,
                format!("cannot read {}: {error}", display_path(&place.path)),
            )
        };
        let path = resolve_links(place)?;
        match read(&path) {
            Ok((text, metadata)) => Ok(Self { path, text, metadata: Some(metadata) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { path, text: String::new(), metadata: None })
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Returns the content.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the content. Returns the path of the backup if it was made now.
    pub(crate) fn replace(&self, new: &str) -> Result<Option<PathBuf>, Failure> {
        let failed = |error: io::Error| {
            Failure::new(
                Exit::Failed,
                format!("cannot write {}: {error}", display_path(&self.path)),
            )
        };
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let kept = self.back_up().map_err(failed)?;
        let (temp, file) = self.create_temp().map_err(failed)?;
        let written = self.write(file, new).and_then(|()| self.check_unchanged());
        let written = written.and_then(|()| fs::rename(&temp, &self.path));
        if let Err(error) = written {
            // The error above matters more than one of this cleanup.
            let _ = fs::remove_file(&temp);
            return Err(failed(error));
        }
        // Best effort: some file systems cannot fsync a directory.
        let _ = StdFile::open(folder).and_then(|folder| folder.sync_all());
        Ok(kept)
    }

    /// Makes a backup, unless there is one already.
    fn back_up(&self) -> io::Result<Option<PathBuf>> {
        let Some(metadata) = &self.metadata else { return Ok(None) };
        let mut name = self.path.clone().into_os_string();
        name.push(BEFORE);
        let path = PathBuf::from(name);
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        // Written to a temporary file first, so that a partial copy never has the name of the backup.
        let (temp, mut file) = self.create_temp()?;
        let written = file.write_all(self.text.as_bytes());
        let written = written.and_then(|()| file.set_permissions(metadata.permissions()));
        let named =
            written.and_then(|()| file.sync_all()).and_then(|()| fs::hard_link(&temp, &path));
        fs::remove_file(&temp)?;
        match named {
            Ok(()) => Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create_temp(&self) -> io::Result<(PathBuf, StdFile)> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temp = self.path.with_file_name(format!(".{name}.adjutant-{}", std::process::id()));
        // Private until it gets the mode of the file it replaces.
        let mode = if self.metadata.is_some() { 0o600 } else { 0o666 };
        let file = StdFile::options().write(true).create_new(true).mode(mode).open(&temp)?;
        Ok((temp, file))
    }

    fn write(&self, mut file: StdFile, new: &str) -> io::Result<()> {
        file.write_all(new.as_bytes())?;
        if let Some(old) = &self.metadata {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
                let (uid, gid) = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
                rustix::fs::fchown(&file, Some(uid), Some(gid))?;
            }
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.sync_all()
    }

    /// Fails if the file was changed since it was read.
    fn check_unchanged(&self) -> io::Result<()> {
        let is_same = match read(&self.path) {
            Ok((text, _)) => self.metadata.is_some() && text == self.text,
            Err(error) => error.kind() == io::ErrorKind::NotFound && self.metadata.is_none(),
        };
        if is_same {
            return Ok(());
        }
        Err(io::Error::other("it changed meanwhile; close the client and try again"))
    }
}

/// Resolves symbolic links and prints where they lead. Links in a project must stay inside it.
fn resolve_links(place: &ConfigLocation) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| {
        Failure::new(Exit::Failed, format!("cannot find {}: {error}", display_path(&place.path)))
    };
    let is_link = fs::symlink_metadata(&place.path).is_ok_and(|it| it.is_symlink());
    let target = if is_link {
        fs::canonicalize(&place.path).map_err(failed)?
    } else {
        match place.path.parent().map(fs::canonicalize) {
            Some(Ok(folder)) => folder.join(place.path.file_name().unwrap_or_default()),
            Some(Err(_)) | None => return Ok(place.path.clone()),
        }
    };
    let within = place.within.as_ref().map(fs::canonicalize).transpose().map_err(failed)?;
    if within.is_some_and(|root| !target.starts_with(root)) {
        let (path, target) = (display_path(&place.path), display_path(&target));
        let what = format!("{path} leads out of the project, to {target}, and was left alone");
        return Err(Failure::usage(what).hint("Remove the link, or change the file by hand."));
    }
    if is_link {
        say(&format!(
            "adjutant: {} is a link to {}",
            display_path(&place.path),
            display_path(&target)
        ));
    }
    Ok(target)
}

fn read(path: &Path) -> io::Result<(String, Metadata)> {
    // Non-blocking, so that opening a pipe does not hang before it is refused.
    let flags =
        i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).map_err(io::Error::other)?;
    let file = StdFile::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > LARGEST {
        return Err(io::Error::other("it has more than 64 MiB"));
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
    Ok((text, metadata))
}

/// Reads a configuration without changing it; `None` if it does not exist.
pub(crate) fn read_unlocked(path: &Path) -> Result<Option<String>, String> {
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    read(&path).map(|(text, _)| Some(text)).map_err(|error| error.to_string())
}
