//! The table of hooks. The loader, `doctor` and the reference are derived from it.

/// Which way packets pass an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Into the host, or out of the VM or pod behind the interface.
    Ingress,
    /// Out of the host, or into the VM or pod.
    Egress,
}

/// A way to attach a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Attach {
    /// A TCX link on each interface, before the programs that are there. Kernel 6.6. The kernel
    /// removes it when the process ends, however it ends.
    Tcx(Direction),
    /// A classifier on each interface's `clsact`, which is added if it is not there. Outlives a
    /// process that is killed.
    Clsact(Direction),
    /// A BTF-typed raw tracepoint with at least this many arguments.
    BtfTracepoint {
        /// The kernel's name of it.
        tracepoint: &'static str,
        /// Arguments that the program reads.
        arguments: u32,
    },
    /// A tracepoint as its format tells it, for those of modules: their types are not the kernel's.
    Tracepoint {
        /// The folder of it.
        category: &'static str,
        /// The kernel's name of it.
        tracepoint: &'static str,
        /// Names that the first field behind the common ones may have, of 4 bytes; none if no field is read.
        first: &'static [&'static str],
    },
    /// Called at the end of the program of a hook that it needs, which is on the same tracepoint: a
    /// tracepoint with one program costs half of one with two.
    TailCall {
        /// The tracepoint.
        tracepoint: &'static str,
        /// Arguments that the program reads.
        arguments: u32,
        /// The map through which it is called.
        map: &'static str,
    },
    /// The clock of each CPU, some times a second.
    CpuClock,
}

impl Attach {
    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcx(_) => "tcx",
            Self::Clsact(_) => "clsact",
            Self::BtfTracepoint { .. } => "tp_btf",
            Self::Tracepoint { .. } => "tracepoint",
            Self::TailCall { .. } => "tail_call",
            Self::CpuClock => "perf_event",
        }
    }
}

/// A program and how it is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The program's name in the object; on interfaces, that for frames with an Ethernet header.
    pub program: &'static str,
    /// How.
    pub attach: Attach,
}

/// What a hook costs, in ns of a run of its program on the machine of `docs/measuring.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Runs for a watched packet or process only, or a few times a second.
    Rare,
    /// Runs often and rejects in about 30 ns what is not watched.
    Filtered,
    /// Reads the clock on every run, about 100 ns.
    Timed,
}

/// A row of the table.
#[derive(Debug)]
pub struct Hook {
    /// The public name.
    pub name: &'static str,
    /// Programs and ways to attach them, the preferred first.
    pub choices: &'static [Choice],
    /// Fields of [`Offsets`](probe_wire::Offsets) without which it would tell nonsense.
    pub fields: &'static [&'static str],
    /// Hooks without which it would tell nonsense; they stand before it.
    pub needs: &'static [&'static str],
    /// Stages and causes that it informs, by their public names.
    pub informs: &'static [&'static str],
    /// What it tells, in a sentence.
    pub tells: &'static str,
    /// What it costs.
    pub cost: Cost,
    /// Whether nothing useful is left without it.
    pub required: bool,
    /// Whether it is attached only once a tap is among the interfaces, because it costs every
    /// packet of the host something.
    pub only_with_tap: bool,
}

/// A row for a tracepoint that every supported kernel passes alike.
macro_rules! tracepoint {
    ($program:literal, $tracepoint:literal, $arguments:literal) => {
        Choice { program: $program, attach: Attach::BtfTracepoint { tracepoint: $tracepoint, arguments: $arguments } }
    };
}

/// Every hook, in the order in which they are attached: what later ones rely on comes first.
pub const HOOKS: &[Hook] = &[
    Hook {
        name: "softirq_exit",
        choices: &[tracepoint!("softirq_exit", "softirq_exit", 1)],
        fields: &[],
        needs: &[],
        informs: &["nic.rx_softirq", "host.cpu_gap"],
        tells: "how long softirqs take, each and in all",
        cost: Cost::Timed,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "softirq_entry",
        choices: &[tracepoint!("softirq_entry", "softirq_entry", 1)],
        fields: &[],
        needs: &["softirq_exit"],
        informs: &["nic.rx_softirq", "host.cpu_gap"],
        tells: "which softirq a CPU is in",
        cost: Cost::Timed,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "softirq_raise",
        choices: &[tracepoint!("softirq_raise", "softirq_raise", 1)],
        fields: &["task_sched_info_last_arrival"],
        needs: &["softirq_entry"],
        informs: &["nic.rx_softirq"],
        tells: "for how long received packets wait until their CPU takes them in, and on top of what it does then",
        cost: Cost::Timed,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "sched_process_exit",
        choices: &[tracepoint!("sched_exit", "sched_process_exit", 1)],
        fields: &["task_tgid", "task_signal", "signal_live"],
        needs: &[],
        informs: &["app.on_cpu", "app.runqueue"],
        tells: "the end of a watched thread or process",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "sched_process_fork",
        choices: &[tracepoint!("sched_fork", "sched_process_fork", 2)],
        fields: &["task_tgid", "task_pid"],
        needs: &[],
        informs: &["app.on_cpu", "app.runqueue"],
        tells: "threads and children of watched processes, which are watched too",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "sched_switch",
        // The state became the fourth argument with 5.18.
        choices: &[tracepoint!("sched_switch", "sched_switch", 4), tracepoint!("switch_old", "sched_switch", 3)],
        fields: &["task_tgid", "task_pid"],
        needs: &[],
        informs: &[
            "app.on_cpu",
            "app.runqueue",
            "app.quota_throttle",
            "app.futex",
            "app.blocked_io",
            "app.self_wait",
            "storage.writeback",
            "storage.journal",
            "storage.block_queue",
            "memory.reclaim",
            "kernel.lock",
        ],
        tells: "when watched threads run and wait, in which kernel function, and who ran instead",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "sched_waking",
        choices: &[tracepoint!("sched_waking", "sched_waking", 1)],
        fields: &["task_tgid", "task_pid"],
        needs: &[],
        informs: &["app.runqueue", "app.futex", "app.blocked_io"],
        tells: "who ends a watched thread's wait",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "sk_data_ready",
        choices: &[tracepoint!("sk_data_ready", "sk_data_ready", 1)],
        fields: &["sock_skc_num", "sock_sk_protocol"],
        needs: &[],
        informs: &["sock_enqueue", "app.socket_queue"],
        tells: "a check is in its socket's receive queue, and how full that is",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "sock_recv_length",
        choices: &[tracepoint!("sock_recv", "sock_recv_length", 3)],
        fields: &["task_tgid"],
        needs: &[],
        informs: &["sock_read", "dependency.dns", "dependency.remote"],
        tells: "which thread took a check from its socket, or another service's answer",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "sock_send_length",
        choices: &[tracepoint!("sock_send", "sock_send_length", 3)],
        fields: &["task_tgid"],
        needs: &[],
        informs: &["app_send", "dependency.dns", "dependency.remote"],
        tells: "which thread sent a check or its reply, or asked another service",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "net_dev_start_xmit",
        choices: &[tracepoint!("start_xmit", "net_dev_start_xmit", 2)],
        fields: &[],
        needs: &[],
        informs: &["pnic_xmit", "nic.tx_queue"],
        tells: "a check is handed to the driver, and on which queue",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "qdisc_enqueue",
        choices: &[tracepoint!("qdisc_enqueue", "qdisc_enqueue", 3)],
        fields: &[],
        needs: &[],
        informs: &["nic.qdisc", "nic.tx_queue"],
        tells: "a check begins to wait in a queueing discipline, and how full that is",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "qdisc_dequeue",
        choices: &[tracepoint!("qdisc_dequeue", "qdisc_dequeue", 4)],
        fields: &[],
        needs: &[],
        informs: &["nic.qdisc", "nic.tx_queue"],
        tells: "a check leaves a queueing discipline",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "kfree_skb",
        // The reason came with 5.17.
        choices: &[tracepoint!("kfree_skb", "kfree_skb", 3), tracepoint!("kfree_skb_old", "kfree_skb", 2)],
        fields: &["sk_buff_head", "sk_buff_tail", "sk_buff_network_header"],
        needs: &[],
        informs: &["nic.drop", "host.forwarding", "app.socket_queue"],
        tells: "where and why the kernel drops a check",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "neigh_update",
        choices: &[tracepoint!("neigh_update", "neigh_update", 3)],
        fields: &["neighbour_nud_state", "neighbour_dev", "net_device_nd_net", "net_net_cookie"],
        needs: &[],
        informs: &["host.forwarding"],
        tells: "a neighbour's link address is known for which packets waited",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "consume_skb",
        // The place came with 6.3.
        choices: &[tracepoint!("consume_skb", "consume_skb", 2), tracepoint!("consume_skb_old", "consume_skb", 1)],
        fields: &["net_device_rtnl_link_ops", "rtnl_link_ops_kind"],
        needs: &[],
        informs: &["backend_rx", "vm.backend", "vm.guest_internal"],
        tells: "which thread of a VM's backend takes a check out of the tap's ring",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: true,
    },
    Hook {
        name: "file_wait",
        choices: &[Choice {
            program: "file_wait",
            attach: Attach::TailCall { tracepoint: "sched_switch", arguments: 4, map: "FILE_WAITS" },
        }],
        fields: &[
            "task_tgid",
            "task_files",
            "files_fdt",
            "fdtable_fd",
            "file_f_inode",
            "inode_i_sb",
            "super_block_s_dev",
            "pt_regs_call",
            "pt_regs_first",
        ],
        needs: &["sched_switch"],
        informs: &["storage.writeback", "storage.journal", "storage.block_queue", "app.futex"],
        tells: "the file system and device of the file that a watched thread waits for, or the futex",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "mm_filemap_fault",
        choices: &[tracepoint!("filemap_fault", "mm_filemap_fault", 1)],
        fields: &["address_space_host", "inode_i_sb", "super_block_s_dev"],
        needs: &[],
        informs: &["storage.block_queue"],
        tells: "the mapped file in which a watched thread faults a page in",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    // Folios came with 5.18.
    Hook {
        name: "writeback_dirty_folio",
        choices: &[
            tracepoint!("dirty_folio", "writeback_dirty_folio", 2),
            tracepoint!("dirty_page", "writeback_dirty_page", 2),
        ],
        fields: &["address_space_host", "inode_i_sb", "super_block_s_dev"],
        needs: &[],
        informs: &["storage.writeback"],
        tells: "who makes pages of files dirty, by a sample",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "mm_vmscan_direct_reclaim_begin",
        choices: &[tracepoint!("reclaim_begin", "mm_vmscan_direct_reclaim_begin", 1)],
        fields: &[],
        needs: &[],
        informs: &["memory.reclaim"],
        tells: "a watched thread begins to look for memory itself",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "mm_vmscan_direct_reclaim_end",
        choices: &[tracepoint!("reclaim_end", "mm_vmscan_direct_reclaim_end", 1)],
        fields: &[],
        needs: &[],
        informs: &["memory.reclaim"],
        tells: "for how long, and how much it freed",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "mm_vmscan_memcg_reclaim_begin",
        choices: &[tracepoint!("memcg_begin", "mm_vmscan_memcg_reclaim_begin", 1)],
        fields: &[],
        needs: &[],
        informs: &["memory.reclaim"],
        tells: "a watched thread begins to look for memory of its cgroup",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "mm_vmscan_memcg_reclaim_end",
        choices: &[tracepoint!("memcg_end", "mm_vmscan_memcg_reclaim_end", 1)],
        fields: &[],
        needs: &[],
        informs: &["memory.reclaim"],
        tells: "for how long, and how much it freed",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    // The request is the only argument since 5.11.
    Hook {
        name: "block_rq_complete",
        choices: &[tracepoint!("rq_complete", "block_rq_complete", 3)],
        fields: &["request_bio", "task_pid"],
        needs: &["sched_waking"],
        informs: &["storage.block_queue"],
        tells: "the end of a block request, and which watched thread that wakes",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "block_rq_issue",
        choices: &[tracepoint!("rq_issue", "block_rq_issue", 1)],
        fields: &["request_bio"],
        needs: &["block_rq_complete"],
        informs: &["storage.block_queue"],
        tells: "when the scheduler handed such a request to the driver",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "block_bio_queue",
        choices: &[tracepoint!("bio_queue", "block_bio_queue", 1)],
        fields: &["bio_bi_bdev", "block_device_bd_dev", "task_tgid"],
        needs: &["block_rq_issue"],
        informs: &["storage.block_queue"],
        tells: "when it was queued, on which device, and whether a throttle had held it back",
        cost: Cost::Filtered,
        required: false,
        only_with_tap: false,
    },
    // Lock contention came with 5.19.
    Hook {
        name: "contention_end",
        choices: &[tracepoint!("lock_end", "contention_end", 1)],
        fields: &["task_sched_info_last_arrival"],
        needs: &["sched_switch", "softirq_entry"],
        informs: &["kernel.lock", "app.on_cpu"],
        tells: "for how long a watched thread waited for a kernel lock on the CPU",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "contention_begin",
        choices: &[tracepoint!("lock_begin", "contention_begin", 2)],
        fields: &["task_sched_info_last_arrival"],
        needs: &["contention_end"],
        informs: &["kernel.lock", "app.on_cpu"],
        tells: "that a watched thread waits for a kernel lock, and who has that, if it is a mutex or semaphore",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "kvm_entry",
        choices: &[Choice {
            program: "kvm_entry",
            attach: Attach::Tracepoint { category: "kvm", tracepoint: "kvm_entry", first: &[] },
        }],
        fields: &["task_sched_info_last_arrival"],
        needs: &["sched_switch"],
        informs: &["vm.vcpu_steal", "vm.guest_internal"],
        tells: "for how long the host handled exits of a guest on its vCPU's thread",
        cost: Cost::Timed,
        required: false,
        only_with_tap: true,
    },
    Hook {
        name: "kvm_exit",
        choices: &[Choice {
            program: "kvm_exit",
            // arm64 calls it `ret`.
            attach: Attach::Tracepoint { category: "kvm", tracepoint: "kvm_exit", first: &["exit_reason", "ret"] },
        }],
        fields: &["task_sched_info_last_arrival"],
        needs: &["kvm_entry"],
        informs: &["vm.vcpu_steal", "vm.guest_internal"],
        tells: "when a guest left its CPU to the host, and why",
        cost: Cost::Timed,
        required: false,
        only_with_tap: true,
    },
    Hook {
        name: "cpu_clock",
        choices: &[Choice { program: "cpu_clock", attach: Attach::CpuClock }],
        fields: &["task_tgid", "task_pid", "task_mm", "task_flags", "pt_regs_ip", "pt_regs_sp", "pt_regs_bp"],
        needs: &["sched_switch"],
        informs: &["app.on_cpu"],
        tells: "in which code watched threads are on a CPU; only if stacks of user code are taken",
        cost: Cost::Rare,
        required: false,
        only_with_tap: false,
    },
    Hook {
        name: "packet_ingress",
        choices: &[
            Choice { program: "stamp_ingress", attach: Attach::Tcx(Direction::Ingress) },
            Choice { program: "stamp_ingress", attach: Attach::Clsact(Direction::Ingress) },
        ],
        fields: &["sk_buff_dev", "net_device_nd_net", "net_net_cookie"],
        needs: &[],
        informs: &["pnic_rx", "guest_rx", "vnic_rx", "vm.guest_internal", "external.outside_host", "app.socket_queue"],
        tells: "a check comes in through an interface, and that its listener has no room for it",
        cost: Cost::Filtered,
        required: true,
        only_with_tap: false,
    },
    Hook {
        name: "packet_egress",
        choices: &[
            Choice { program: "stamp_egress", attach: Attach::Tcx(Direction::Egress) },
            Choice { program: "stamp_egress", attach: Attach::Clsact(Direction::Egress) },
        ],
        fields: &["sk_buff_dev", "net_device_nd_net", "net_net_cookie"],
        needs: &[],
        informs: &["vnic_tx", "guest_tx", "pnic_queue"],
        tells: "a check goes out through an interface",
        cost: Cost::Filtered,
        required: true,
        only_with_tap: false,
    },
];

/// The hook of this public name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Hook> {
    HOOKS.iter().find(|hook| hook.name == name)
}
