//! One reading of the levels of queues, which is made once a second, or five times while checks are slow.

use std::{fs, path::PathBuf, process::Command, time::Instant};

use anyhow::{Context as _, Result, ensure};
use probe_user::{
    host::{interrupt_levels, queue_levels},
    load::{Attachment, Drivers, Netns, levels_of},
};

use crate::{report::Row, samples::Samples};

const ROUNDS: usize = 300;
const NAME: &str = "levels0";

pub(crate) fn run() -> Result<Vec<Row>> {
    let mut rows = vec![timed("backlogs of CPUs, sockets, byte queue limits", || queue_levels().len())?];
    let veth = Veth::new()?;
    let mut drivers = Drivers::default();
    let here = Attachment { netns: None, ifindex: veth.ifindex, name: NAME.to_owned() };
    rows.push(timed("a veth with 8 queues: discipline, link and driver", || counted(&here, &mut drivers))?);
    let path = PathBuf::from(format!("/proc/{}/task/{}/ns/net", std::process::id(), rustix::thread::gettid()));
    let elsewhere = Attachment { netns: Some(Netns::Path(path)), ..here };
    rows.push(timed("the same in a namespace that is entered for it", || counted(&elsewhere, &mut drivers))?);
    rows.push(match device()? {
        Some(bus) => timed("interrupts of a device", || interrupt_levels(NAME, &bus).len())?,
        None => Row::missing("interrupts of a device", "no device here has message interrupts"),
    });
    Ok(rows)
}

fn counted(attachment: &Attachment, drivers: &mut Drivers) -> usize {
    let levels = levels_of(&[attachment], drivers).unwrap_or_default();
    levels.iter().map(|levels| levels.link.len() + levels.driver.counters.len()).sum()
}

/// How long one takes, and how many levels it gives.
fn timed(what: &'static str, mut read: impl FnMut() -> usize) -> Result<Row> {
    let count = read();
    ensure!(count > 0, "{what}: there are none");
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        read();
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let times = Samples::new(times).context("nothing was measured")?;
    Ok(Row::new(what, "µs", times).note(format!("{count} levels")))
}

/// A device on the PCI bus that has message interrupts.
fn device() -> Result<Option<String>> {
    let devices = fs::read_dir("/sys/bus/pci/devices").context("list devices")?;
    let mut names: Vec<_> = devices.flatten().filter(|device| device.path().join("msi_irqs").exists()).collect();
    names.sort_by_key(fs::DirEntry::file_name);
    Ok(names.first().and_then(|device| device.file_name().into_string().ok()))
}

/// A pair that is gone with the value.
struct Veth {
    ifindex: u32,
}

impl Veth {
    fn new() -> Result<Self> {
        let queues = "numrxqueues 8 numtxqueues 8";
        ip(&format!("link add {NAME} {queues} type veth peer name levels1 {queues}"))?;
        ip(&format!("link set {NAME} up"))?;
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
        Ok(Self { ifindex: rustix::net::netdevice::name_to_index(socket, NAME)? })
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // It goes with its namespace otherwise.
        let _ = ip(&format!("link del {NAME}"));
    }
}

fn ip(arguments: &str) -> Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status().context("cannot start ip")?;
    ensure!(status.success(), "ip {arguments} fails");
    Ok(())
}
