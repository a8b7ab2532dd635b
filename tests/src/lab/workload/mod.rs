//! The programs of the lab: servers, clients and troublemakers, each a role of the one binary.
//!
//! Each announces when it is ready, takes its fault as an order, and announces when the fault
//! began and ended, so that nothing has to be guessed from the outside.

mod backend;
mod chain;
mod client;
mod count;
mod crowd;
mod datagram;
mod disk;
mod event_loop;
mod fault;
mod file;
mod filter;
mod flood;
mod fuse;
mod hog;
mod inspect;
mod look_up;
mod mapper;
mod memory;
mod nfs;
mod ping;
mod position;
mod receive;
mod resolver;
mod serve;
mod ship;
mod slow_device;
mod stop;
mod vm;

pub use client::{ClientArgs, PAYLOAD_BYTES, PORT, signature};
use client::{HTTP_PATH_BYTES, MARK};
pub use disk::Medium;
pub(super) use disk::{THROTTLE as DISK_THROTTLE, number as device_number};
pub use event_loop::EventLoop;
pub(super) use file::COLD;
pub(super) use fuse::FILE as SERVED_FILE;
pub use mapper::mapper_tools;
pub use serve::{ServeArgs, ServeFault};
pub use slow_device::Hold;
pub use vm::{VmFault, open_tap, turn_round};

use super::message::{Announcement, announce};
use super::software::{ask, host, provoke};
use super::vmm::{role as vmm, watched};
use anyhow::{Context, Result};
use std::ffi::CString;
use std::io::{self, Read};

/// A role of the binary.
#[derive(Debug, clap::Subcommand)]
pub enum Role {
    /// Keeps a namespace alive.
    Hold,
    /// Answers health checks.
    Serve(ServeArgs),
    /// Sends health checks.
    Client(ClientArgs),
    /// Answers late.
    Backend(backend::BackendArgs),
    /// Answers questions for names late.
    Resolver(resolver::ResolverArgs),
    /// Provides a disk whose writes can be frozen.
    Disk(disk::DiskArgs),
    /// Provides a device that takes long over each request.
    SlowDevice(slow_device::SlowDeviceArgs),
    /// Provides a file system that answers late.
    Fuse(fuse::FuseArgs),
    /// Provides a file system of the network that answers late.
    Nfs(nfs::NfsArgs),
    /// Makes packets expensive to receive.
    Filter(filter::FilterArgs),
    /// Sends bulk traffic.
    Flood(flood::FloodArgs),
    /// Asks for echoes.
    Ping(ping::PingArgs),
    /// Computes.
    Hog(hog::HogArgs),
    /// Answers over a socket, once the next in its chain has.
    Relay(chain::RelayArgs),
    /// Looks at the memory of a process.
    Inspect(inspect::InspectArgs),
    /// Looks through a table of the kernel's.
    LookUp,
    /// Reads an access log from its standard input.
    Ship,
    /// Answers health checks, and is stopped.
    Stop,
    /// Hosts a real server.
    Host(host::HostArgs),
    /// Sends health checks to a real server.
    Ask(ask::AskArgs),
    /// Asks a real server for something that takes long.
    Provoke(provoke::ProvokeArgs),
    /// Plays a virtual machine behind a tap device.
    Vm(vm::VmArgs),
    /// Keeps a virtual machine behind a tap device.
    Vmm(vmm::VmmArgs),
    /// Answers health checks inside a guest, beside a whylag that is sent to its host.
    Watched(watched::WatchedArgs),
    /// Keeps in a file what is sent to it.
    Receive(receive::ReceiveArgs),
}

impl Role {
    /// Plays it until the lab closes standard input.
    ///
    /// # Errors
    /// It cannot do its work.
    pub fn play(self) -> Result<()> {
        match self {
            Self::Hold => hold(),
            Self::Serve(args) => serve::serve(args),
            Self::Client(args) => client::client(args),
            Self::Backend(args) => backend::backend(&args),
            Self::Resolver(args) => resolver::resolver(&args),
            Self::Disk(args) => disk::disk(args),
            Self::SlowDevice(args) => slow_device::slow_device(&args),
            Self::Fuse(args) => fuse::fuse(args),
            Self::Nfs(args) => nfs::nfs(args),
            Self::Filter(args) => filter::filter(&args),
            Self::Flood(args) => flood::flood(args),
            Self::Ping(args) => ping::ping(&args),
            Self::Hog(args) => hog::hog(&args),
            Self::Relay(args) => chain::relay(&args),
            Self::Inspect(args) => inspect::inspect(&args),
            Self::LookUp => look_up::look_up(),
            Self::Ship => ship::ship(),
            Self::Stop => stop::stop(),
            Self::Host(args) => host::host(args),
            Self::Ask(args) => ask::ask(args),
            Self::Provoke(args) => provoke::provoke(&args),
            Self::Vm(args) => vm::vm(&args),
            Self::Vmm(args) => vmm::vmm(&args),
            Self::Watched(args) => watched::watched(&args),
            Self::Receive(args) => receive::receive(&args),
        }
    }
}

fn hold() -> Result<()> {
    set_comm("netns-holder")?;
    announce(Announcement::Ready);
    io::stdin().read_to_end(&mut Vec::new()).context("wait for the lab's end")?;
    Ok(())
}

/// Names the calling thread, as `top` and whylag show it.
pub(super) fn set_comm(name: &str) -> Result<()> {
    rustix::thread::set_name(&CString::new(name)?).context("name the thread")
}

/// Starts a named thread; if its work fails, so does the process.
pub(super) fn spawn(name: &str, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let report = name.to_owned();
    let run = move || {
        if let Err(error) = work() {
            eprintln!("lab: {report}: {error:#}");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).with_context(|| format!("start {name}"))?;
    Ok(())
}
