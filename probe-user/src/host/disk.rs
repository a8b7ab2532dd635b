//! Disks, as sysfs shows them.

use super::{DiskFact, HostFact, read};

/// Most disks.
const MOST: usize = 128;
/// What has a size and is no disk.
const NO_DISKS: [&str; 3] = ["ram", "fd", "sr"];

/// The names of those that hold anything.
pub(super) fn all() -> Vec<String> {
    let names = read::names("/sys/block", usize::MAX).into_iter();
    let disks = names.filter(|name| !NO_DISKS.iter().any(|no| name.starts_with(no)) && size(name) > 0);
    disks.take(MOST).collect()
}

/// One of them.
pub(super) fn gather(name: &str) -> HostFact {
    let queue = |file: &str| format!("/sys/block/{name}/queue/{file}");
    let number = |file: &str| read::number(queue(file));
    HostFact::Disk(DiskFact {
        name: name.to_owned(),
        size_bytes: size(name),
        model: read::line(format!("/sys/block/{name}/device/model")),
        scheduler: read::chosen(&read::line(queue("scheduler"))).to_owned(),
        queue_depth: number("nr_requests"),
        hardware_queues: u64::try_from(read::names(format!("/sys/block/{name}/mq"), usize::MAX).len()).ok(),
        rotational: number("rotational") == Some(1),
        wbt_latency_us: number("wbt_lat_usec"),
        write_cache: read::line(queue("write_cache")),
        read_ahead_bytes: number("read_ahead_kb").map(|kib| kib.saturating_mul(1024)),
    })
}

/// sysfs counts in sectors of 512 bytes, whatever the disk does.
fn size(name: &str) -> u64 {
    read::number(format!("/sys/block/{name}/size")).unwrap_or(0).saturating_mul(512)
}
