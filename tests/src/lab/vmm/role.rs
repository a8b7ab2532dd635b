//! The keeper of one guest. Its announcements are those of the guest's server, or of the monitor
//! that does something to the guest; all times are the host's.

use super::super::clock::mono_ns;
use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::super::process::Process;
use super::super::workload::{COLD, ServeFault, set_comm};
use super::qmp::Qmp;
use super::{boot, fetched};
use anyhow::{Context, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use virtual_machine::Image;

/// No fault lasts longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// So much of the guest's memory is dumped, more than may be dirty where that is limited, bytes.
const DUMP_BYTES: u64 = 8 << 20;
/// What a slow disk reads and writes in a second, bytes.
const SLOW_BPS: u64 = 1_024;

/// Options of `lab role vmm`.
#[derive(Debug, clap::Args)]
pub struct VmmArgs {
    /// Its name, one of those that are on this machine at a time.
    #[arg(long)]
    pub(super) name: String,
    /// The tap device, if it has a NIC.
    #[arg(long)]
    pub(super) tap: Option<String>,
    /// Virtual CPUs.
    #[arg(long)]
    pub(super) vcpus: usize,
    /// Queues of its NIC.
    #[arg(long, default_value_t = 1)]
    pub(super) queues: u32,
    /// What to tell `ip` in the guest; can be given several times.
    #[arg(long)]
    pub(super) ip: Vec<String>,
    /// The fault of the guest's server; without one, it is stopped on order.
    #[arg(long)]
    pub(super) fault: Option<ServeFault>,
    /// Work of every check, thousands of multiplications.
    #[arg(long, default_value_t = 0)]
    pub(super) work_rounds: u64,
    /// The same as time of the guest's CPU, ms.
    #[arg(long, default_value_t = 0)]
    pub(super) work_ms: u64,
    /// For so long each packet passes filters when it comes in inside the guest, µs of its CPU.
    #[arg(long, default_value_t = 0)]
    pub(super) packet_us: u64,
    /// The only CPU of the guest that its server runs on.
    #[arg(long)]
    pub(super) cpu: Option<usize>,
    /// The whylag that watches inside the guest, if one does.
    #[arg(long)]
    pub(super) whylag: Option<PathBuf>,
    /// Its arguments; can be given several times.
    #[arg(long, allow_hyphen_values = true)]
    pub(super) inside: Vec<String>,
    /// The host's processors run it, and the kernel moves its packets.
    #[arg(long)]
    pub(super) kvm: bool,
    /// What an order does.
    #[arg(long)]
    trouble: Trouble,
    /// A file on the lab's disk.
    #[arg(long)]
    file: Option<PathBuf>,
}

/// What an order does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Trouble {
    /// It is for the guest's server.
    Serve,
    /// It is for the guest's server, whose disk is slow meanwhile.
    SlowDisk,
    /// The guest is paused.
    Pause,
    /// The guest's memory is dumped to the lab's disk.
    Dump,
    /// A file on the lab's disk becomes a disk of the guest.
    Plug,
}

impl Trouble {
    /// Its name on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::SlowDisk => "slow-disk",
            Self::Pause => "pause",
            Self::Dump => "dump",
            Self::Plug => "plug",
        }
    }
}

/// A guest that is up.
#[derive(Debug)]
struct Machine {
    qmp: Qmp,
    /// Its orders and lines are those of the guest's serial line.
    qemu: Process,
    /// A guest that is reset would read it again.
    _image: Image,
}

pub(in crate::lab) fn vmm(args: &VmmArgs) -> Result<()> {
    set_comm("vmm-keeper")?;
    let mut machine = Machine::start(args)?;
    announce(Announcement::Ready);
    obey_orders(|order| {
        let ms = match order {
            Order::Fault { ms } => ms,
            Order::Count | Order::Stop => return machine.ask(order),
            _ => return Ok(()),
        };
        match args.trouble {
            Trouble::Serve => machine.pass_on(order, |_| Ok(())),
            Trouble::SlowDisk => machine.slow_disk(order, Duration::from_millis(ms)),
            Trouble::Pause => machine.pause(Duration::from_millis(ms)),
            Trouble::Dump => machine.dump(args.file()?),
            Trouble::Plug => machine.plug(args.file()?),
        }
    })
}

impl VmmArgs {
    /// Whether the guest has a disk.
    pub(super) fn has_disk(&self) -> bool {
        self.trouble == Trouble::SlowDisk
    }

    fn file(&self) -> Result<&Path> {
        self.file.as_deref().context("--file is needed")
    }
}

impl Machine {
    fn start(args: &VmmArgs) -> Result<Self> {
        let (store, emulator, kernel) = fetched()?;
        let image = boot::image(args, &store, &kernel)?;
        let (qemu, monitor) = boot::boot(args, &emulator, &kernel, &image)?;
        Ok(Self { qmp: Qmp::connect(&monitor)?, qemu, _image: image })
    }

    /// Stops the guest for a while, by the time of the events that QEMU tells of it.
    fn pause(&mut self, time: Duration) -> Result<()> {
        self.qmp.execute("stop", json!({}))?;
        let began = self.qmp.await_event("STOP");
        sleep(time);
        self.qmp.execute("cont", json!({}))?;
        announce(Announcement::FaultBegan { at_ns: began? });
        announce(Announcement::FaultEnded { at_ns: self.qmp.await_event("RESUME")? });
        Ok(())
    }

    /// QEMU's main loop writes it, and runs nothing else meanwhile.
    fn dump(&mut self, file: &Path) -> Result<()> {
        let mut outcome = Ok(());
        let dump = json!({ "val": 0, "size": DUMP_BYTES, "filename": file });
        announce_fault(|| outcome = self.qmp.execute("pmemsave", dump));
        outcome
    }

    /// QEMU's main loop reads its first bytes past the page cache, to find how they must lie in
    /// memory, and runs nothing else meanwhile.
    fn plug(&mut self, file: &Path) -> Result<()> {
        let mut outcome = Ok(());
        let file = file.with_file_name(COLD);
        let disk = json!({ "driver": "file", "node-name": "late", "filename": file, "cache": { "direct": true } });
        announce_fault(|| outcome = self.qmp.execute("blockdev-add", disk));
        outcome
    }

    /// A request is on its way already, so that the guest's own is held back until the limit is
    /// lifted.
    fn slow_disk(&mut self, order: Order, time: Duration) -> Result<()> {
        self.limit_disk(SLOW_BPS)?;
        let read = format!("qemu-io {} \"read 0 64k\"", boot::DISK);
        self.qmp.execute("human-monitor-command", json!({ "command-line": read }))?;
        self.pass_on(order, |machine| {
            sleep(time);
            machine.limit_disk(0)
        })
    }

    fn limit_disk(&mut self, bps: u64) -> Result<()> {
        let no = json!(0);
        let limits = json!({
            "device": boot::DISK, "bps": bps, "bps_rd": no, "bps_wr": no, "iops": no, "iops_rd": no, "iops_wr": no,
        });
        self.qmp.execute("block_set_io_throttle", limits)
    }

    /// Passes an order on that is no fault, and what is announced of it back.
    fn ask(&self, order: Order) -> Result<()> {
        self.qemu.order(order)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = boot::hear(&self.qemu, deadline)?;
            if matches!(said, Announcement::Counted(_) | Announcement::Done) {
                announce(said);
                return Ok(());
            }
        }
    }

    /// Passes an order on to the guest's server, and what it announces of it back.
    fn pass_on(&mut self, order: Order, mut meanwhile: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.qemu.order(order)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match boot::hear(&self.qemu, deadline)? {
                Announcement::FaultBegan { .. } => {
                    announce(Announcement::FaultBegan { at_ns: mono_ns() });
                    meanwhile(self)?;
                }
                Announcement::FaultEnded { .. } => {
                    announce(Announcement::FaultEnded { at_ns: mono_ns() });
                    return Ok(());
                }
                _ => {}
            }
        }
    }
}
