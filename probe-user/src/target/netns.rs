//! Network namespaces: where they are, and entering them to ask what they hold.
//!
//! Entering changes the calling thread for good, so all of it happens in a thread that ends
//! afterwards; no other thread of whylag ever leaves its namespace.

use super::link::{self, EthtoolTables, Link};
use super::model::{Gap, Namespace};
use super::netlink::Socket;
use super::process::{Process, as_root, inode_of_link};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories whose files are namespaces: iproute2's and Docker's.
const DIRECTORIES: [&str; 2] = ["/run/netns", "/run/docker/netns"];
const OWN: &str = "/proc/thread-self/ns/net";

/// A namespace and what its kernel tables hold.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) namespace: Namespace,
    pub(super) links: Vec<Link>,
    pub(super) outward: Vec<u32>,
    pub(super) ethtool: EthtoolTables,
    /// Inode of a namespace by the number this one knows it by.
    pub(super) neighbours: HashMap<i32, u64>,
}

/// Every reachable namespace with its contents; the home namespace is the first.
pub(super) fn read_all(processes: &[Process]) -> (Vec<Contents>, Vec<Gap>) {
    let places = places(processes);
    let reader = std::thread::Builder::new().name("whylag-netns".to_owned());
    let read = |places: Vec<Namespace>| move || read_in_turn(&places);
    let gap = |reason: &str| Gap { what: "network namespaces".to_owned(), reason: reason.to_owned() };
    match reader.spawn(read(places)).map(std::thread::JoinHandle::join) {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => (Vec::new(), vec![gap("the thread that enters them ended early")]),
        Err(error) => (Vec::new(), vec![gap(&error.to_string())]),
    }
}

/// Namespaces by inode: home, named ones, then those that only processes hold.
fn places(processes: &[Process]) -> Vec<Namespace> {
    let mut found: BTreeMap<u64, Namespace> = BTreeMap::new();
    let home = fs::read_link(OWN).ok().and_then(|link| inode_of_link(&link));
    if let Some(inode) = home {
        found.insert(inode, place(inode, PathBuf::from("/proc/self/ns/net"), None));
    }
    for (inode, path, name) in DIRECTORIES.iter().flat_map(|directory| named(Path::new(directory))) {
        let known = found.entry(inode).or_insert_with(|| place(inode, path, None));
        known.name.get_or_insert(name);
    }
    for process in processes {
        let Some(inode) = process.netns else { continue };
        let path = || PathBuf::from(format!("/proc/{}/ns/net", process.tgid));
        found.entry(inode).or_insert_with(|| place(inode, path(), None)).tgids.push(process.tgid);
    }
    let mut places: Vec<_> = found.into_values().collect();
    for place in &mut places {
        place.home = Some(place.inode) == home;
    }
    places.sort_by_key(|place| !place.home);
    places
}

const fn place(inode: u64, path: PathBuf, name: Option<String>) -> Namespace {
    Namespace { cookie: 0, inode, path, name, home: false, tgids: Vec::new() }
}

/// Files of a directory that are namespaces, not left-over mount points.
fn named(directory: &Path) -> Vec<(u64, PathBuf, String)> {
    let Ok(nsfs) = fs::metadata(OWN).map(|own| own.dev()) else { return Vec::new() };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let namespace = |entry: fs::DirEntry| {
        let metadata = fs::metadata(entry.path()).ok().filter(|metadata| metadata.dev() == nsfs)?;
        Some((metadata.ino(), entry.path(), entry.file_name().to_string_lossy().into_owned()))
    };
    entries.filter_map(namespace).collect()
}

fn read_in_turn(places: &[Namespace]) -> (Vec<Contents>, Vec<Gap>) {
    let (mut found, mut gaps) = (Vec::new(), Vec::new());
    for place in places {
        match read_one(place, places) {
            Ok(contents) => found.push(contents),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => gaps.push(Gap {
                what: format!("network namespace {}", place.display_name()),
                reason: format!("cannot enter it: {error}{}", as_root("CAP_SYS_ADMIN")),
            }),
        }
    }
    (found, gaps)
}

fn read_one(place: &Namespace, places: &[Namespace]) -> io::Result<Contents> {
    enter(place)?;
    let route = Socket::open(None, 0)?;
    let links = link::links(&route)?;
    let cookie = cookie(route.as_fd()).unwrap_or(place.inode);
    Ok(Contents {
        namespace: Namespace { cookie, ..place.clone() },
        outward: link::outward(&route),
        ethtool: EthtoolTables::read().unwrap_or_default(),
        neighbours: neighbours(&route, &links, places),
        links,
    })
}

/// Moves the calling thread into a namespace; needs no privilege when it is there already.
fn enter(place: &Namespace) -> io::Result<()> {
    if fs::read_link(OWN).ok().and_then(|link| inode_of_link(&link)) == Some(place.inode) {
        return Ok(());
    }
    let file = File::open(&place.path)?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Opens a route socket in a namespace that hears the multicast `groups`, from a thread that
/// ends afterwards.
pub(super) fn socket_in(place: &Namespace, groups: u32) -> io::Result<Socket> {
    let place = place.clone();
    let opener = std::thread::Builder::new().name("whylag-netns".to_owned());
    let open = opener.spawn(move || enter(&place).and_then(|()| Socket::open(None, groups)))?;
    open.join().map_err(|_| io::Error::other("the thread that enters the namespace ended early"))?
}

/// Inodes of the namespaces behind the numbers that `links` use. The home namespace is asked
/// about first, since nearly every veth of a container leads there.
fn neighbours(route: &Socket, links: &[Link], places: &[Namespace]) -> HashMap<i32, u64> {
    let mut wanted: HashSet<i32> = links.iter().filter_map(|link| link.link?.1).collect();
    let mut found = HashMap::new();
    for place in places {
        if wanted.is_empty() {
            break;
        }
        let number = File::open(&place.path).ok().and_then(|file| link::namespace_number(route, &file));
        if let Some(number) = number.filter(|number| wanted.remove(number)) {
            found.insert(number, place.inode);
        }
    }
    found
}

/// Cookie of a socket's namespace; `None` before Linux 5.14.
pub(crate) fn cookie(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut cookie = 0u64;
    let mut len = libc::socklen_t::try_from(size_of::<u64>()).ok()?;
    #[expect(unsafe_code, reason = "no safe crate offers SO_NETNS_COOKIE")]
    // SAFETY: the pointers are to `cookie` and `len`, which live through the call, and `len` is
    // the size of `cookie`, so the kernel writes no further.
    let result = unsafe {
        let value = std::ptr::from_mut(&mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, value, &raw mut len)
    };
    (result == 0).then_some(cookie)
}
