//! Netlink: one request out, the kernel's messages in, as bytes and attributes.
//!
//! Knows nothing of links or namespaces. Every length comes from the kernel and is still checked:
//! a short or wrong message ends the iteration, it never panics.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS_ONE: u16 = 0x1 | 0x4;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const FLAGS_DUMP: u16 = 0x1 | 0x300;
/// `NLMSG_ERROR`, also the acknowledgement.
const ERROR: u16 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of `struct nlattr`.
const ATTRIBUTE: usize = 4;
/// Marks an attribute that holds attributes (`NLA_F_NESTED`).
const NESTED: u16 = 0x8000;
/// `NLA_F_NESTED | NLA_F_NET_BYTEORDER`: not part of the number.
const TYPE_FLAGS: u16 = 0xc000;
/// `NLM_F_DUMP_INTR`: the table changed while it was read.
const INTERRUPTED: u16 = 0x10;
/// How often a table is read anew before one that changed meanwhile has to do.
const DUMP_TRIES: usize = 5;
/// The kernel sends at most 32 KiB at once into a buffer this large.
const BUFFER_BYTES: usize = 64 * 1024;

/// A netlink socket. It belongs to the network namespace it was opened in, and keeps that
/// namespace alive: hold it no longer than needed.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

/// One message of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) payload: Vec<u8>,
}

impl Socket {
    /// Opens a socket of `protocol` (`None`: `NETLINK_ROUTE`) that hears the multicast `groups`.
    pub(super) fn open(protocol: Option<Protocol>, groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self(fd))
    }

    /// Asks one question; the answers up to the acknowledgement.
    pub(super) fn ask(&self, kind: u16, payload: &[u8]) -> io::Result<Vec<Message>> {
        self.exchange(kind, FLAGS_ONE, payload)
    }

    /// Asks for a whole table, anew if it changed while it was read.
    pub(super) fn dump(&self, kind: u16, payload: &[u8]) -> io::Result<Vec<Message>> {
        let mut table = self.exchange(kind, FLAGS_DUMP, payload)?;
        for _ in 1..DUMP_TRIES {
            if table.iter().all(|message| message.flags & INTERRUPTED == 0) {
                break;
            }
            table = self.exchange(kind, FLAGS_DUMP, payload)?;
        }
        Ok(table)
    }

    fn exchange(&self, kind: u16, flags: u16, payload: &[u8]) -> io::Result<Vec<Message>> {
        rustix::net::send(&self.0, &request(kind, flags, payload), SendFlags::empty())?;
        let mut messages = Vec::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let (len, _) = rustix::net::recv(&self.0, &mut buffer, RecvFlags::empty())?;
            if take_answers(&buffer[..len.min(BUFFER_BYTES)], &mut messages)? {
                return Ok(messages);
            }
        }
    }

    /// What has arrived on the multicast groups; empty when nothing has. `ENOBUFS` says that
    /// the kernel had to throw messages away.
    pub(super) fn heard(&self) -> io::Result<Vec<Message>> {
        let mut buffer = vec![0; BUFFER_BYTES];
        match rustix::net::recv(&self.0, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((len, _)) => Ok(messages(&buffer[..len.min(BUFFER_BYTES)]).collect()),
            Err(rustix::io::Errno::AGAIN) => Ok(Vec::new()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Takes over the messages of one datagram; true when the exchange is complete.
fn take_answers(datagram: &[u8], into: &mut Vec<Message>) -> io::Result<bool> {
    for message in messages(datagram) {
        match message.kind {
            ERROR => return acknowledged(&message.payload).map(|()| true),
            DONE => return Ok(true),
            _ => into.push(message),
        }
    }
    Ok(false)
}

/// `struct nlmsgerr` starts with a negative errno, or 0 for "done as asked".
fn acknowledged(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes)) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
    }
}

fn request(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER + payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(payload);
    bytes
}

/// Messages of one datagram.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message> {
    std::iter::from_fn(move || {
        let len = u32_at(bytes, 0)? as usize;
        let (kind, flags) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        let payload = bytes.get(HEADER..len)?.to_vec();
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, flags, payload })
    })
}

/// Attributes after a header of `skip` bytes: number and value.
pub(super) fn attributes(payload: &[u8], skip: usize) -> impl Iterator<Item = (u16, &[u8])> {
    let mut bytes = payload.get(skip..).unwrap_or_default();
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & !TYPE_FLAGS;
        let value = bytes.get(ATTRIBUTE..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Value of the first attribute of a number.
pub(super) fn attribute(payload: &[u8], skip: usize, kind: u16) -> Option<&[u8]> {
    attributes(payload, skip).find_map(|(number, value)| (number == kind).then_some(value))
}

/// Appends an attribute.
pub(super) fn push_attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(ATTRIBUTE + value.len()).unwrap_or(u16::MAX);
    to.extend(len.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Appends an attribute that holds attributes.
pub(super) fn push_nested(to: &mut Vec<u8>, kind: u16, inner: &[u8]) {
    push_attribute(to, kind | NESTED, inner);
}

/// Text up to the first NUL.
pub(super) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Number of four bytes at an offset.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

/// Number of two bytes at an offset.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_a_round_trip_and_padding() {
        let mut bytes = vec![9; 4];
        push_attribute(&mut bytes, 3, b"eth0\0");
        push_nested(&mut bytes, 18, &[1, 2, 3]);
        let read: Vec<_> = attributes(&bytes, 4).collect();
        assert_eq!(read, [(3, b"eth0\0".as_slice()), (18, [1, 2, 3].as_slice())]);
        assert_eq!(text(read[0].1), "eth0");
    }

    #[test]
    fn wrong_lengths_end_the_iteration() {
        assert_eq!(attributes(&[255, 255, 1, 0, 7], 0).count(), 0);
        assert_eq!(attributes(&[0, 0, 1, 0, 7], 0).count(), 0);
        assert_eq!(attributes(&[], 12).count(), 0);
        assert_eq!(messages(&[3, 0, 0, 0, 0, 0, 0, 0]).count(), 0);
    }

    #[test]
    fn an_error_message_becomes_its_errno() {
        let datagram = request(ERROR, 0, &(-19i32).to_ne_bytes());
        let error = take_answers(&datagram, &mut Vec::new()).expect_err("errno 19");
        assert_eq!(error.raw_os_error(), Some(19));
        assert!(take_answers(&request(ERROR, 0, &[0; 4]), &mut Vec::new()).expect("acknowledged"));
    }
}
