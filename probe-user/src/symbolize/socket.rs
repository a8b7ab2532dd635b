//! Packets with open files between parent and child.

use super::message::MAX_MESSAGE;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
pub(super) use rustix::net::SendFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    recvmsg, sendmsg,
};
use rustix::time::Timespec;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most files that come with a packet: the mapped one, and its debug file.
const MAX_FILES: usize = 2;
/// How long a wait lasts before it is looked whether it is still wanted.
const SLICE: Duration = Duration::from_millis(50);

/// Sends one value; the other side gets the files too. Waits for room, if told so.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    value: &impl Serialize,
    files: &[BorrowedFd<'_>],
    how: SendFlags,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, how | SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(Into::into),
        }
    }
}

/// The next value and the files that came with it; blocks. The other side's end is an error.
pub(super) fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let files: Vec<OwnedFd> = control.drain().filter_map(files_of).flatten().collect();
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default())?, files))
}

fn files_of(message: RecvAncillaryMessage<'_>) -> Option<impl Iterator<Item = OwnedFd>> {
    match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    }
}

/// Waits until there is something to receive, at most until the deadline, and only as long as
/// `wanted` says so.
pub(super) fn wait(socket: BorrowedFd<'_>, deadline: Instant, wanted: &impl Fn() -> bool) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !wanted() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if readable(socket, left.min(SLICE))? {
            return Ok(());
        }
    }
}

/// Whether there is something to read before the time is over.
pub(super) fn readable(file: impl AsFd, time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
