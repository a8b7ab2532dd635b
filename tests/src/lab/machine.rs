//! What else the machine was busy with, by the kernel's own counters.

/// Counters of the whole machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine {
    /// Taken by the hypervisor, all CPUs, in ticks of 10 ms.
    steal: u64,
    /// Some task waited for a CPU, µs.
    pressure_us: u64,
}

impl Machine {
    /// As of now; what the kernel does not tell is 0.
    #[must_use]
    pub fn now() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self { steal: steal(&text("/proc/stat")), pressure_us: pressure_us(&text("/proc/pressure/cpu")) }
    }

    /// What has been added since then, and who runs or waits now, for people.
    #[must_use]
    pub fn since(then: Self) -> String {
        let now = Self::now();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        format!(
            "the hypervisor took {} ms of all CPUs; some task waited for a CPU for {} ms; load {}",
            now.steal.saturating_sub(then.steal) * 10,
            now.pressure_us.saturating_sub(then.pressure_us) / 1_000,
            load.split_whitespace().take(4).collect::<Vec<_>>().join(" ")
        )
    }
}

/// The eighth number behind `cpu`.
fn steal(stat: &str) -> u64 {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    all.and_then(|all| all.split_whitespace().nth(7)?.parse().ok()).unwrap_or(0)
}

fn pressure_us(pressure: &str) -> u64 {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "));
    some.and_then(|some| some.rsplit("total=").next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{pressure_us, steal};

    #[test]
    fn the_kernel_s_files_are_read() {
        assert_eq!(steal("cpu  1 2 3 4 5 6 7 808 0 0\ncpu0 1 2 3 4 5 6 7 9 0 0\n"), 808);
        assert_eq!(pressure_us("some avg10=0.00 avg60=1.0 avg300=2.0 total=345\nfull avg10=0.00 total=1\n"), 345);
        assert_eq!((steal(""), pressure_us("")), (0, 0));
    }
}
