//! A file system in user space with one file, which is read late on order.
//!
//! It speaks the kernel's protocol, so nothing has to be installed. Not on the leash, as the disk:
//! the mount would outlive it.
//! <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/fuse.h>

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::fault::Armed;
use super::{set_comm, spawn};
use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;

/// Name of the file.
pub(in crate::lab) const FILE: &str = "file";
const CONTENT: &[u8] = &[b'.'; 64];
const ROOT_NODE: u64 = 1;
const FILE_NODE: u64 = 2;
const ENOENT: i32 = -2;
const ENOSYS: i32 = -38;
/// Longest request: what INIT promises to write at most, and headers.
const REQUEST_BYTES: usize = 128 << 10;

/// Options of `lab role fuse`.
#[derive(Debug, clap::Args)]
pub struct FuseArgs {
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
}

/// The mount, until it is dropped.
pub(super) struct Mount(pub(super) PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = unmount(self.0.join("mount"), UnmountFlags::DETACH);
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn fuse(args: FuseArgs) -> Result<()> {
    set_comm("file-server")?;
    rustix::process::setsid().context("leave the terminal")?;
    let point = args.dir.join("mount");
    fs::create_dir_all(&point).with_context(|| format!("create {}", point.display()))?;
    let tidy = Mount(args.dir);
    let kernel = OpenOptions::new().read(true).write(true).open("/dev/fuse").context("open /dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", kernel.as_raw_fd());
    let options = CString::new(options)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("whylag-lab", &point, "fuse", flags, Some(options.as_c_str())).context("mount the file system")?;
    let armed = Arc::new(Armed::default());
    let late = Arc::clone(&armed);
    spawn("file-server", move || serve(kernel, &late))?;
    announce(Announcement::Ready);
    let outcome = obey_orders(|order| {
        if let Order::Fault { ms } = order {
            announce_fault(|| armed.arm(ms));
        }
        Ok(())
    });
    drop(tidy);
    outcome
}

/// Answers until the file system is unmounted.
fn serve(mut kernel: File, late: &Armed) -> Result<()> {
    let mut buffer = vec![0; REQUEST_BYTES];
    loop {
        let length = match kernel.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error() == Some(19) => return Ok(()),
            read => read.context("read a request")?,
        };
        let Some(request) = Request::parse(buffer.get(..length).unwrap_or_default()) else { continue };
        if request.operation == READ
            && let Some(time) = late.take()
        {
            sleep(time);
        }
        if let Some(reply) = request.reply() {
            // A request that was given up meanwhile takes no answer.
            let _ = kernel.write_all(&reply);
        }
    }
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
/// `FOPEN_DIRECT_IO`: every read comes here.
const DIRECT: u32 = 1;

/// A request of the kernel.
struct Request<'a> {
    operation: u32,
    unique: u64,
    node: u64,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(40)?;
        let word = |at: usize| Some(u32::from_ne_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(header.get(at..at + 8)?.try_into().ok()?));
        Some(Self { operation: word(4)?, unique: long(8)?, node: long(16)?, body })
    }

    fn reply(&self) -> Option<Vec<u8>> {
        let (error, body) = match self.operation {
            FORGET | BATCH_FORGET | INTERRUPT => return None,
            INIT => (0, init()),
            LOOKUP if self.body.strip_suffix(&[0]) == Some(FILE.as_bytes()) => (0, entry()),
            LOOKUP => (ENOENT, Vec::new()),
            GETATTR => (0, [words(&[60, 0]), attributes(self.node)].concat()),
            OPEN => (0, words(&[1, u64::from(DIRECT)])),
            READ => (0, CONTENT.to_vec()),
            RELEASE | FLUSH => (0, Vec::new()),
            _ => (ENOSYS, Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).ok()?;
        let mut reply = [length.to_ne_bytes(), error.to_ne_bytes()].concat();
        reply.extend(self.unique.to_ne_bytes());
        reply.extend(body);
        Some(reply)
    }
}

/// `fuse_init_out` of version 7.31.
fn init() -> Vec<u8> {
    let mut reply = Vec::new();
    for word in [7_u32, 31, 0, 0, 0, 64 << 10, 1] {
        reply.extend(word.to_ne_bytes());
    }
    reply.resize(64, 0);
    reply
}

/// `fuse_entry_out` of the file: its node, valid for a minute.
fn entry() -> Vec<u8> {
    [words(&[FILE_NODE, 0, 60, 60, 0]), attributes(FILE_NODE)].concat()
}

/// `fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == ROOT_NODE { (0o040_755_u32, 0) } else { (0o100_644, CONTENT.len() as u64) };
    let mut reply = words(&[node, size, 1, 0, 0, 0]);
    for word in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        reply.extend(word.to_ne_bytes());
    }
    reply
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::{INIT, LOOKUP, Request, attributes, entry};

    #[test]
    fn replies_have_the_kernel_s_sizes() {
        assert_eq!((attributes(1).len(), entry().len()), (88, 128));
        let request = |operation, body| Request { operation, unique: 7, node: 1, body };
        assert_eq!(request(INIT, b"").reply().unwrap().len(), 16 + 64);
        assert_eq!(request(LOOKUP, b"file\0").reply().unwrap().len(), 16 + 128);
        assert_eq!(request(LOOKUP, b"other\0").reply().unwrap().len(), 16);
    }
}
