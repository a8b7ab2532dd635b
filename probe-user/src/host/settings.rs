//! Settings that change how a host treats packets, pages, threads and disks.

use super::{HostFact, SettingFact, read};

/// As sysctl writes them. What a kernel does not have is left out.
const SYSCTLS: &[&str] = &[
    "kernel.bpf_stats_enabled",
    "kernel.numa_balancing",
    "kernel.nmi_watchdog",
    "kernel.perf_event_max_sample_rate",
    "kernel.perf_event_paranoid",
    "kernel.pid_max",
    "kernel.printk",
    "kernel.sched_autogroup_enabled",
    "kernel.sched_cfs_bandwidth_slice_us",
    "kernel.sched_child_runs_first",
    "kernel.sched_energy_aware",
    "kernel.sched_latency_ns",
    "kernel.sched_migration_cost_ns",
    "kernel.sched_min_granularity_ns",
    "kernel.sched_rr_timeslice_ms",
    "kernel.sched_rt_period_us",
    "kernel.sched_rt_runtime_us",
    "kernel.sched_schedstats",
    "kernel.sched_wakeup_granularity_ns",
    "kernel.threads-max",
    "kernel.timer_migration",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.gro_normal_batch",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.neigh.default.gc_thresh1",
    "net.ipv4.neigh.default.gc_thresh2",
    "net.ipv4.neigh.default.gc_thresh3",
    "net.ipv4.neigh.default.unres_qlen_bytes",
    "net.ipv4.tcp_abort_on_overflow",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_retries2",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
    "net.netfilter.nf_conntrack_buckets",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
    "vm.compaction_proactiveness",
    "vm.dirty_background_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_bytes",
    "vm.dirty_expire_centisecs",
    "vm.dirty_ratio",
    "vm.dirty_writeback_centisecs",
    "vm.min_free_kbytes",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.page-cluster",
    "vm.swappiness",
    "vm.vfs_cache_pressure",
    "vm.watermark_scale_factor",
    "vm.zone_reclaim_mode",
];

/// Below /sys; of a choice in brackets, what is chosen.
const FILES: &[&str] = &[
    "devices/system/cpu/cpu0/cpufreq/scaling_driver",
    "devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "devices/system/cpu/cpuidle/current_driver",
    "devices/system/cpu/cpuidle/current_governor",
    "devices/system/cpu/isolated",
    "devices/system/cpu/nohz_full",
    "devices/system/cpu/smt/control",
    "kernel/mm/ksm/run",
    "kernel/mm/transparent_hugepage/defrag",
    "kernel/mm/transparent_hugepage/enabled",
];

/// All that this kernel has.
pub(super) fn gather() -> HostFact {
    let sysctls = SYSCTLS.iter().map(|name| (name, read::line(sysctl(name))));
    let files = FILES.iter().map(|name| (name, read::chosen(&read::line(format!("/sys/{name}"))).to_owned()));
    let known = sysctls.chain(files).filter(|(_, value)| !value.is_empty());
    HostFact::Settings {
        settings: known.map(|(name, value)| SettingFact { name: (*name).to_owned(), value }).collect(),
    }
}

fn sysctl(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}
