//! What the server hands to the process of a run beside what is asked: the claim on the call, and whose
//! the run is.
//!
//! The claim travels as the open file it is, with its lock, over the socket that is the process's
//! standard input. So the lock outlives the server: whoever makes the call again waits until the process
//! has noted its run in the claim, or is gone. It notes it before anything of the run is recorded, so that
//! nothing is paid for that the call would not find.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use adjutant_core::RunId;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::runs::owner::Owner;
use crate::start::calls::{Claim, note};

/// The longest message taken; it holds a hash and a number.
const MESSAGE_BYTES: usize = 1024;

#[derive(Deserialize, Serialize)]
struct Message {
    owner: Option<Owner>,
    bytes: usize,
}

/// Returns our end of a socket, and the one that becomes the standard input of a process, on which the
/// claim waits for it; so many bytes will follow.
pub(crate) fn hand(
    claim: &Claim,
    owner: Option<&Owner>,
    bytes: usize,
) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let body = serde_json::to_vec(&Message { owner: owner.cloned(), bytes })?;
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let head = length.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [claim.file().as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Nothing is in the socket yet, so that it takes all of it at once.
    let all = [IoSlice::new(&head), IoSlice::new(&body)];
    let sent = retry(|| sendmsg(&ours, &all, &mut control, SendFlags::NOSIGNAL))?;
    if sent < head.len() + body.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok((ours, theirs))
}

/// What the process of a run was handed by the server that started it.
#[derive(Debug)]
pub struct Handed {
    claim: File,
    owner: Option<Owner>,
    bytes: usize,
}

impl Handed {
    /// Takes it from standard input, of which nothing may have been read; none where no server is behind it.
    pub fn receive() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        let mut head = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry(|| {
            let into = &mut [IoSliceMut::new(&mut head)];
            recvmsg(&stdin, into, &mut control, RecvFlags::CMSG_CLOEXEC)
        });
        let got = match received {
            Err(Errno::NOTSOCK) => return Ok(None),
            received => received?.bytes,
        };
        let claim = control.drain().find_map(|message| {
            let RecvAncillaryMessage::ScmRights(mut files) = message else { return None };
            files.next().map(File::from)
        });
        let claim = claim.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut stdin = stdin.lock();
        stdin.read_exact(head.get_mut(got..).unwrap_or_default())?;
        let length = u32::from_le_bytes(head) as usize;
        if length > MESSAGE_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; length];
        stdin.read_exact(&mut body)?;
        let Message { owner, bytes } = serde_json::from_slice(&body)?;
        Ok(Some(Self { claim, owner, bytes }))
    }

    /// How many bytes the server meant to send; one that is killed sends fewer.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes the run in this folder, whose it is and what began it, and gives the claim up.
    pub fn keep(self, run: RunId, folder: &Path) -> io::Result<()> {
        if let Some(owner) = &self.owner {
            owner.mark(folder)?;
        }
        note(&self.claim, run)
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}
