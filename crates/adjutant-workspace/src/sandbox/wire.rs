//! Messages between the engine, the namespace holder and the sandbox's first process.
//!
//! A message is its length in four bytes, then JSON; file descriptors are attached to the length. Nothing is passed
//! in arguments or environment variables, which other processes can read.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message that is accepted; a plan with a long command and environment is far shorter.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// The most file descriptors in one message.
const MAX_FILES: usize = 4;

/// A string of the operating system, which need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum OsText {
    /// The usual case.
    Utf8(String),
    /// Any other bytes.
    Raw(Vec<u8>),
}

impl OsText {
    pub(crate) fn new(text: impl AsRef<OsStr>) -> Self {
        let text = text.as_ref();
        match text.to_str() {
            Some(text) => Self::Utf8(text.to_owned()),
            None => Self::Raw(text.as_bytes().to_vec()),
        }
    }

    pub(crate) fn as_os(&self) -> OsString {
        match self {
            Self::Utf8(text) => OsString::from(text),
            Self::Raw(bytes) => OsString::from_vec(bytes.clone()),
        }
    }

    pub(crate) fn as_path(&self) -> PathBuf {
        PathBuf::from(self.as_os())
    }
}

impl From<&Path> for OsText {
    fn from(path: &Path) -> Self {
        Self::new(path)
    }
}

/// Sends one message with file descriptors.
pub(crate) fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let head = length.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent =
        retry(|| sendmsg(&socket, &[IoSlice::new(&head)], &mut control, SendFlags::NOSIGNAL))?;
    let mut stream = SocketStream(socket.as_fd());
    stream.write_all(head.get(sent..).unwrap_or_default())?;
    stream.write_all(&body)
}

/// Receives one message with its file descriptors; `None` if the other side closed the connection.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut head = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = retry(|| {
        let into = &mut [IoSliceMut::new(&mut head)];
        recvmsg(&socket, into, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?
    .bytes;
    if got == 0 {
        return Ok(None);
    }
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    let mut stream = SocketStream(socket.as_fd());
    stream.read_exact(head.get_mut(got..).unwrap_or_default())?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some((serde_json::from_slice(&body)?, files)))
}

/// Creates a connected pair of sockets that child processes do not inherit.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let kind = rustix::net::SocketType::STREAM;
    Ok(rustix::net::socketpair(rustix::net::AddressFamily::UNIX, kind, flags, None)?)
}

/// Returns the next file descriptor of a message.
pub(crate) fn next_file(files: &mut impl Iterator<Item = OwnedFd>) -> io::Result<File> {
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "an open file is missing");
    files.next().map(File::from).ok_or_else(missing)
}

/// A socket as a stream; writing to a closed one is an error, never a SIGPIPE.
struct SocketStream<'fd>(BorrowedFd<'fd>);

impl Read for SocketStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(retry(|| rustix::io::read(self.0, &mut *buffer))?)
    }
}

impl Write for SocketStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry(|| rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            done => return done,
        }
    }
}
