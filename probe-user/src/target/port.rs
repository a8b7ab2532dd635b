//! Which processes own a port: the kernel's socket tables by inode, joined with open files.

use super::process;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// UDP, IP protocol 17.
    Udp,
    /// TCP, IP protocol 6.
    Tcp,
}

impl Transport {
    /// By IP protocol number; `None` for a protocol without ports.
    #[must_use]
    pub const fn from_ip_protocol(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }

    const fn tables(self) -> [&'static str; 2] {
        match self {
            Self::Udp => ["udp", "udp6"],
            Self::Tcp => ["tcp", "tcp6"],
        }
    }
}

/// Owners of a port in the namespace that `inside` share. A process may hold a socket of a
/// namespace it does not live in, so `outside` are asked when none of those inside has it.
pub(super) fn owners(inside: &[u32], outside: &[u32], transport: Transport, port: u16) -> Vec<u32> {
    // Any process shows the same tables; the first may be gone by now.
    let inodes = inside.iter().find_map(|tgid| inodes_at(*tgid, transport, port)).unwrap_or_default();
    let owners = process::holders_of_sockets(inside, &inodes);
    if owners.is_empty() { process::holders_of_sockets(outside, &inodes) } else { owners }
}

fn inodes_at(tgid: u32, transport: Transport, port: u16) -> Option<HashSet<u64>> {
    let open = |table: &str| File::open(format!("/proc/{tgid}/net/{table}")).ok().map(BufReader::new);
    let [v4, v6] = transport.tables().map(open);
    let rows = |table: BufReader<File>| {
        table.lines().map_while(Result::ok).filter_map(move |line| inode_if_bound(&line, port))
    };
    Some(rows(v4?).chain(v6.into_iter().flat_map(rows)).collect())
}

/// The inode in a table's row if its local port is `port`; 0 means that no process has it.
fn inode_if_bound(row: &str, port: u16) -> Option<u64> {
    let mut columns = row.split_ascii_whitespace().skip(1);
    let (_, local) = columns.next()?.rsplit_once(':')?;
    let bound = u16::from_str_radix(local, 16).ok()? == port;
    let inode = columns.nth(7)?.parse().ok()?;
    (bound && inode != 0).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    const ROW: &str = "  35: 0100007F:1F40 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 24567 2 0000000000000000 0";
    const TIME_WAIT: &str = "   1: 0100007F:1F40 0100007F:D2A0 06 00000000:00000000 03:00000D1C 00000000     0        0 0 3 0000000000000000";

    #[test]
    fn a_row_counts_if_its_local_port_is_meant_and_someone_has_it() {
        assert_eq!(inode_if_bound(ROW, 8000), Some(24567));
        assert_eq!(inode_if_bound(ROW, 80), None);
        assert_eq!(inode_if_bound(TIME_WAIT, 8000), None);
        assert_eq!(inode_if_bound("  sl  local_address rem_address   st", 8000), None);
    }

    #[test]
    fn this_process_owns_its_sockets() {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let tcp = TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0")).expect("a listener");
        let own = [std::process::id()];
        let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("an address").port();
        assert_eq!(owners(&own, &[], Transport::Udp, port(udp.local_addr())), own);
        assert_eq!(owners(&own, &[], Transport::Tcp, port(tcp.local_addr())), own);
        let free = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr();
        assert_eq!(owners(&own, &[], Transport::Udp, port(free)), [0u32; 0]);
    }
}
