//! A configuration file of somebody else: read whole, replaced whole or not at all.
//!
//! Invariant: whoever reads the file sees the old one or the new one, and what was there before the
//! first change stays beside it.

use std::fs::{self, File as StdFile, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, OFlags, Uid};

use super::location::ConfigLocation;
use super::shown;
use crate::exit::{Exit, Failure};
use crate::output::say;

/// How the name of the file as it was ends.
const BEFORE: &str = ".before-adjutant";

/// The most that is read; one client keeps histories in the same file.
const LARGEST: u64 = 64 << 20;

/// A configuration as it was read.
pub(crate) struct ClientConfigFile {
    /// The file itself, at the end of all links.
    path: PathBuf,
    text: String,
    /// None where there is no file yet.
    metadata: Option<Metadata>,
}

impl ClientConfigFile {
    /// Reads a configuration, or finds that there is none yet.
    pub(crate) fn open(place: &ConfigLocation) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Exit::Failed, format!("cannot read {}: {error}", shown(&place.path)))
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

    /// Returns what it holds.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Puts `new` in its place; returns where the old one is kept, when that happened now.
    pub(crate) fn replace(&self, new: &str) -> Result<Option<PathBuf>, Failure> {
        let failed = |error: io::Error| {
            Failure::new(Exit::Failed, format!("cannot write {}: {error}", shown(&self.path)))
        };
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let kept = self.back_up().map_err(failed)?;
        let (temp, file) = self.create_temp().map_err(failed)?;
        let written = self.write(file, new).and_then(|()| self.check_unchanged());
        let written = written.and_then(|()| fs::rename(&temp, &self.path));
        if let Err(error) = written {
            // The error that matters is the one above.
            let _ = fs::remove_file(&temp);
            return Err(failed(error));
        }
        // The name is durable where the folder can be synced; elsewhere it soon is.
        let _ = StdFile::open(folder).and_then(|folder| folder.sync_all());
        Ok(kept)
    }

    /// Keeps the file as it was, unless an older one is kept already.
    fn back_up(&self) -> io::Result<Option<PathBuf>> {
        let Some(metadata) = &self.metadata else { return Ok(None) };
        let mut name = self.path.clone().into_os_string();
        name.push(BEFORE);
        let path = PathBuf::from(name);
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
        // Whole before it has its name: half a file must not count as the one that was.
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
        // Ours alone until it has the mode of the one it replaces.
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

    /// Makes sure that nobody wrote to the file since it was read.
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

/// Follows links, which are named; those of a project must stay within it.
fn resolve_links(place: &ConfigLocation) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| {
        Failure::new(Exit::Failed, format!("cannot find {}: {error}", shown(&place.path)))
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
        let (path, target) = (shown(&place.path), shown(&target));
        let what = format!("{path} leads out of the project, to {target}, and was left alone");
        return Err(Failure::usage(what).hint("Remove the link, or change the file by hand."));
    }
    if is_link {
        say(&format!("adjutant: {} is a link to {}", shown(&place.path), shown(&target)));
    }
    Ok(target)
}

fn read(path: &Path) -> io::Result<(String, Metadata)> {
    // Not blocking: a pipe is refused, not waited for.
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

/// Reads a configuration to look at it; none where there is none.
pub(crate) fn look(path: &Path) -> Result<Option<String>, String> {
    let path = match fs::canonicalize(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    read(&path).map(|(text, _)| Some(text)).map_err(|error| error.to_string())
}
