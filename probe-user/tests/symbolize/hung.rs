//! Files that do not answer: they cost their own names and no others.

use super::asking::{ask, handed, symbolizer};
use super::files::{file, root};
use super::programs::{C, addresses, build};
use probe_user::stack::Nameless;
use probe_user::stack::wanted::{PerfMap, ProcessRoot, Source};
use rustix::fs::{Mode, OFlags, mkfifoat, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mount of a file system in user space whose files cannot be read: it takes each request to
/// read, and answers none. Everything else it answers. <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/fuse.h>
struct Silent(PathBuf);

impl Silent {
    fn mount(point: &Path) -> Option<Self> {
        let kernel = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", kernel.as_raw_fd());
        let (options, flags) = (CString::new(options).ok()?, MountFlags::NOSUID | MountFlags::NODEV);
        mount("silent", point, "fuse", flags, Some(options.as_c_str())).ok()?;
        std::thread::spawn(move || answer(kernel));
        Some(Self(point.to_owned()))
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

fn answer(mut kernel: File) {
    let mut request = vec![0; 128 << 10];
    // The mount's end is an error.
    while kernel.read(&mut request).is_ok_and(|length| length >= 40) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let body = match word(4) {
            // INIT: version 7.31, 64 KiB to write.
            26 => [[7, 31, 0, 0, 0, 64 << 10, 1].as_slice(), &[0; 9]].concat(),
            // LOOKUP: node 2, valid for a minute.
            1 => [[2, 0, 0, 0, 60, 0, 60, 0, 0, 0].as_slice(), &attributes(2)].concat(),
            // GETATTR.
            3 => [[60, 0, 0, 0].as_slice(), &attributes(word(16))].concat(),
            // OPEN: every read comes here.
            14 => vec![1, 0, 1, 0],
            // RELEASE, FLUSH.
            18 | 25 => Vec::new(),
            // READ and the rest.
            _ => continue,
        };
        let header = [u32::try_from(16 + body.len() * 4).unwrap(), 0, word(8), word(12)];
        let reply: Vec<u8> = header.iter().chain(&body).flat_map(|word| word.to_ne_bytes()).collect();
        let _ = kernel.write_all(&reply);
    }
}

fn attributes(node: u32) -> Vec<u32> {
    let (mode, size) = if node == 1 { (0o040_755, 0) } else { (0o100_644, 1 << 20) };
    vec![node, 0, size, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]
}

#[test]
fn a_file_system_that_never_answers_costs_its_own_names_only() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("mount");
    std::fs::create_dir(&point).unwrap();
    let Some(silent) = Silent::mount(&point) else {
        return println!("skipped: mounting a file system in user space takes root and /dev/fuse");
    };
    let program = build(dir.path(), ("plain.c", C), &["cc", "-O1"]);
    let (place, mut symbolizer) = (addresses(&program, "opaque").start, symbolizer());
    let (hung, good) = (file(&point.join("file"), ""), file(&program, ""));
    for _ in 0..2 {
        let named = ask(&mut symbolizer, &hung, &[place, place + 1]);
        assert!(named.iter().all(|named| named.unknown == Some(Nameless::GaveUp)), "{named:?}");
        assert_eq!(ask(&mut symbolizer, &good, &[place])[0].functions[0].name, "opaque");
    }
    drop(silent);
}

#[test]
fn a_perf_map_on_a_file_system_that_never_answers_costs_its_own_names_only() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("tmp");
    std::fs::create_dir(&point).unwrap();
    let Some(silent) = Silent::mount(&point) else {
        return println!("skipped: mounting a file system in user space takes root and /dev/fuse");
    };
    let process = Arc::new(ProcessRoot { root: Some(root(dir.path())) });
    let map = Arc::new(Source::PerfMap(PerfMap { tgid: 7, own_tgid: 7, uid: 0, process }));
    let mut symbolizer = symbolizer();
    assert_eq!(ask(&mut symbolizer, &map, &[1])[0].unknown, Some(Nameless::GaveUp));
    drop(silent);
}

#[test]
fn a_fifo_is_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let here = root(dir.path());
    mkfifoat(&here, "fifo", Mode::RUSR | Mode::WUSR).unwrap();
    let fifo = open(dir.path().join("fifo"), OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let named = ask(&mut symbolizer(), &handed(fifo, "", None), &[1]);
    assert_eq!(named[0].unknown, Some(Nameless::Damaged));
}
