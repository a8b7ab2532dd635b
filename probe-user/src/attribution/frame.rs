//! What a thread waits for, told by the kernel functions it sleeps in.
//!
//! Names of kernel functions come in, a [`Wait`] goes out. Of all frames of a stack the most
//! specific kind decides, not the innermost frame: a wait for a disk inside reclaim is reclaim.
//! A stack without a known frame has no kind; nothing is guessed.

use std::cmp::Ordering;

/// What a sleeping thread waits for, the most specific first: the order is the order of decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Wait {
    /// Stopped, traced or frozen.
    Stopped,
    /// Its own reclaim, compaction, migration, swapping in, or sleep for `memory.high`.
    Reclaim,
    /// A file system's log that the thread itself writes: what it waits for are the log's own pages.
    Log,
    /// Dirty limits, or pages under writeback.
    Writeback,
    /// A transaction or log of a file system.
    Journal,
    /// A block or remote file system request.
    Block,
    /// A kernel lock or an RCU grace period.
    Lock,
    /// A futex.
    Futex,
    /// A pipe, terminal, Unix socket, child or another local peer.
    Peer,
    /// A new connection to be taken from a listening socket.
    Accept,
    /// A connection to another host to be made.
    Connect,
    /// Room in the send buffer of an internet socket.
    SendBuffer,
    /// Data in an internet socket.
    Receive,
    /// One of several files: epoll, poll, select, io_uring.
    Poll,
    /// Time to pass.
    Sleep,
}

impl Wait {
    /// For the host's storage.
    pub(super) const fn is_storage(self) -> bool {
        matches!(self, Self::Log | Self::Writeback | Self::Journal | Self::Block)
    }

    /// The thread's own doing, whoever ends the wait.
    pub(super) const fn own(self) -> bool {
        match self {
            Self::Stopped | Self::Reclaim | Self::Log | Self::Writeback | Self::Journal | Self::Block => true,
            Self::Connect | Self::SendBuffer | Self::Sleep => true,
            Self::Lock | Self::Futex | Self::Peer | Self::Accept | Self::Receive | Self::Poll => false,
        }
    }
}

/// Name patterns per kind; a trailing `*` stands for any rest. Names of Linux 5.10 to 7.3.
const FRAMES: &[(Wait, &[&str])] = &[
    (
        Wait::Stopped,
        &[
            "do_signal_stop",
            "ptrace_stop*",
            "do_jobctl_trap",
            "__refrigerator",
            "do_freezer_trap",
            "__do_freezer*",
            "cgroup_enter_frozen",
        ],
    ),
    (
        Wait::Reclaim,
        &[
            "shrink_node*",
            "shrink_lruvec*",
            "shrink_folio_list",
            "shrink_page_list",
            "try_to_free_*",
            "do_try_to_free_pages",
            "reclaim_throttle",
            "throttle_direct_reclaim",
            "throttle_vm_writeout",
            "too_many_isolated",
            "congestion_wait",
            "wait_iff_congested",
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
            "mem_cgroup_oom*",
            "mem_cgroup_out_of_memory",
            "out_of_memory",
            "__alloc_pages_direct_*",
            "try_to_compact_pages",
            "compact_zone*",
            "migrate_pages*",
            "migrate_misplaced_*",
            "migration_entry_wait*",
            "softleaf_entry_wait*",
            "do_swap_page",
            "swapin_readahead",
            "swap_readpage",
            "swap_read_folio*",
            "read_swap_cache_async",
        ],
    ),
    (Wait::Log, &["btrfs_sync_log", "btrfs_commit_transaction*", "btrfs_wait_tree_log_extents"]),
    (
        Wait::Writeback,
        &[
            "balance_dirty_pages*",
            "folio_wait_writeback*",
            "wait_on_page_writeback*",
            "folio_wait_stable",
            "wait_for_stable_page",
            "__filemap_fdatawait_range",
            "filemap_fdatawait*",
            "wb_wait_for_completion",
            "sync_inodes_sb",
            "wait_sb_inodes",
            "writeback_inodes_sb*",
            "try_to_writeback_inodes_sb",
            "__writeback_inodes_sb*",
            "inode_wait_for_writeback",
            "__inode_wait_for_writeback",
        ],
    ),
    (
        Wait::Journal,
        &[
            "jbd2_*",
            "__jbd2_*",
            "start_this_handle",
            "add_transaction_credits",
            "wait_transaction_locked",
            "wait_transaction_switching",
            "do_get_write_access",
            "ext4_fc_commit",
            "ext4_fc_start_update",
            "xlog_*",
            "xfs_log_force*",
            "xfs_log_reserve",
            "xfs_log_regrant",
            "btrfs_wait_for_commit",
            "wait_current_trans",
            "wait_for_commit",
            "f2fs_issue_checkpoint",
            "f2fs_write_checkpoint",
        ],
    ),
    (
        Wait::Block,
        &[
            "io_schedule*",
            "bit_wait_io*",
            "blk_mq_get_tag",
            "blk_mq_freeze_queue_wait*",
            "blk_queue_enter",
            "__bio_queue_enter",
            "blkcg_maybe_throttle*",
            "__blkcg_maybe_throttle*",
            "blk_throtl_*",
            "rq_qos_wait",
            "wbt_wait",
            "ioc_rqos_throttle",
            "submit_bio_wait",
            "blkdev_issue_flush",
            "blk_execute_rq",
            "bio_await*",
            "dio_await_one",
            "__iomap_dio_rw",
            "wait_on_buffer",
            "__wait_on_buffer",
            "folio_wait_bit*",
            "folio_wait_private_2*",
            "__folio_lock*",
            "folio_wait_locked*",
            "wait_on_page_bit*",
            "__lock_page*",
            "wait_for_completion_io*",
            "read_events",
            "do_io_getevents",
            "request_wait_answer",
            "fuse_simple_request",
            "__fuse_simple_request",
            "nfs_wait*",
            "nfs_direct_*",
            "nfs_file_direct_*",
            "nfs4_wait*",
            "rpc_wait_bit_killable",
            "__rpc_execute",
            "ceph_mdsc_wait_request",
            "wait_for_response",
            "compound_send_recv",
            "p9_client_rpc",
        ],
    ),
    (
        Wait::Lock,
        &[
            "__mutex_lock*",
            "mutex_lock*",
            "rwsem_down_*",
            "down_read*",
            "down_write*",
            "__down",
            "__down_common",
            "__down_interruptible",
            "__down_killable",
            "__down_timeout",
            "percpu_down_write",
            "__percpu_down_read",
            "percpu_rwsem_wait",
            "__rt_mutex_slowlock*",
            "rt_mutex_slowlock",
            "rwbase_*",
            "rtlock_slowlock*",
            "rt_spin_lock*",
            "__lock_sock",
            "lock_sock_nested",
            "synchronize_rcu*",
            "synchronize_srcu*",
            "synchronize_net",
            "__synchronize_srcu*",
            "__wait_rcu_gp",
            "wait_rcu_exp_gp",
            "rcu_barrier",
        ],
    ),
    (Wait::Futex, &["futex_*", "__futex_*", "do_futex", "__do_sys_futex", "__x64_sys_futex*", "__arm64_sys_futex*"]),
    (
        Wait::Peer,
        &[
            "pipe_write",
            "anon_pipe_write",
            "fifo_pipe_write",
            "pipe_read",
            "anon_pipe_read",
            "fifo_pipe_read",
            "pipe_wait*",
            "wait_for_partner",
            "wait_for_space",
            "splice_from_pipe*",
            "ipipe_prep*",
            "opipe_prep*",
            "n_tty_read",
            "n_tty_write",
            "file_tty_write*",
            "tty_wait_until_sent",
            "tty_write_lock",
            "unix_*",
            "__unix_*",
            "eventfd_read",
            "inotify_read",
            "fanotify_*",
            "netlink_recvmsg",
            "vsock_*",
            "flock_lock_inode*",
            "posix_lock_inode*",
            "do_lock_file_wait",
            "locks_lock_inode_wait",
            "do_semtimedop",
            "__do_semtimedop",
            "do_msgrcv",
            "do_msgsnd",
            "do_mq_time*",
            "do_wait",
            "__do_wait",
            "do_wait4",
            "kernel_wait4",
            "kernel_waitid*",
            "wait_for_vfork_done",
            "handle_userfault",
        ],
    ),
    (Wait::Accept, &["inet_csk_accept", "inet_csk_wait_for_connect"]),
    (Wait::Connect, &["inet_wait_for_connect", "__inet_stream_connect", "inet_stream_connect"]),
    (
        Wait::SendBuffer,
        &["sk_stream_wait_memory", "sk_stream_wait_connect", "sock_alloc_send_pskb", "sock_wait_for_wmem"],
    ),
    (
        Wait::Receive,
        &[
            "__skb_wait_for_more_packets",
            "__skb_recv_udp",
            "__skb_recv_datagram",
            "skb_recv_datagram",
            "sk_wait_data",
            "tcp_recvmsg*",
            "udp_recvmsg",
            "udpv6_recvmsg",
            "raw_recvmsg",
            "rawv6_recvmsg",
            "ping_recvmsg",
            "packet_recvmsg",
            "mptcp_recvmsg",
        ],
    ),
    (
        Wait::Poll,
        &[
            "ep_poll",
            "do_epoll_wait",
            "do_epoll_pwait*",
            "do_poll*",
            "do_sys_poll",
            "do_select",
            "core_sys_select",
            "poll_schedule_timeout*",
            "io_cqring_wait*",
        ],
    ),
    (Wait::Poll, VHOST),
    (
        Wait::Sleep,
        &[
            "hrtimer_nanosleep",
            "do_nanosleep",
            "common_nsleep*",
            "alarm_timer_nsleep",
            "do_sigtimedwait*",
            "sigsuspend",
            "__do_sys_pause",
            "__x64_sys_pause",
            "__arm64_sys_pause",
            "msleep*",
        ],
    ),
];

/// Parts of a device's queue that hold a thread itself back, by the function that does.
const QUEUE_PARTS: &[(&str, &str)] = &[
    ("blk_mq_get_tag", "a free tag of the device's queue"),
    ("wbt_wait", "the device's limit of writes in flight (wbt)"),
    ("__wbt_wait", "the device's limit of writes in flight (wbt)"),
    ("blkcg_iolatency_throttle", "its cgroup's io.latency"),
    ("ioc_rqos_throttle", "its cgroup's io.cost budget"),
    ("blkcg_maybe_throttle*", "its cgroup's debt with the device"),
    ("__blkcg_maybe_throttle*", "its cgroup's debt with the device"),
    ("blk_queue_enter", "the device's frozen queue"),
    ("__bio_queue_enter", "the device's frozen queue"),
];

/// Where the kernel's workers for a VM's devices wait for work: in kernel threads of their own (before 6.4,
/// and from 6.17 on where it is asked for), or in threads of the VMM.
/// <https://github.com/torvalds/linux/blob/v6.18/drivers/vhost/vhost.c> (`vhost_worker_create`)
const VHOST: &[&str] = &["vhost_worker", "vhost_run_work_kthread_list", "vhost_task_fn"];

/// Where a vCPU's thread sleeps because its guest halted.
/// <https://github.com/torvalds/linux/blob/v6.12/virt/kvm/kvm_main.c> (`kvm_vcpu_halt`)
const GUEST_HALTS: &[&str] = &["kvm_vcpu_block", "kvm_vcpu_halt"];
/// The call in which a vCPU's thread runs its guest.
const GUEST_RUN: &str = "kvm_arch_vcpu_ioctl_run";

/// Frames of tracing and of the scheduler: every sleeping thread has them.
const GLUE: &[&str] = &[
    "bpf_*",
    "__bpf_*",
    "__traceiter_*",
    "trace_*",
    "perf_trace_*",
    "__schedule*",
    "schedule*",
    "preempt_schedule*",
    "__cond_resched*",
    "__SCT__*",
    "__SCK__*",
    "arch_stack_walk*",
    "stack_trace_save*",
    "get_perf_callchain*",
    "wait_woken",
];

/// A kernel function as a frame of a stack, looked up in the tables once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    name: Box<str>,
    wait: Option<Wait>,
    glue: bool,
}

impl Frame {
    /// From a name as in kallsyms, compiler suffixes included.
    pub(super) fn new(symbol: &str) -> Self {
        let name = bare(symbol);
        Self { name: name.into(), wait: kind(name), glue: GLUE.iter().any(|pattern| fits(name, pattern)) }
    }

    /// The name without compiler suffixes.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Every block wait ends in it; a frame further out tells more.
    fn says_little(&self) -> bool {
        self.name.starts_with("io_schedule")
    }
}

/// The kind of wait and the function that tells it, from frames innermost first.
pub(super) fn classify<'a>(frames: impl Iterator<Item = &'a Frame>) -> Option<(Wait, &'a str)> {
    let known = frames.filter_map(|frame| Some((frame.wait?, frame)));
    let best = known.reduce(|best, next| match best.0.cmp(&next.0) {
        Ordering::Less => best,
        Ordering::Equal if !best.1.says_little() => best,
        Ordering::Equal | Ordering::Greater => next,
    });
    best.map(|(wait, frame)| (wait, frame.name()))
}

/// What a thread waits for that a device's queue itself holds back; `None` where no frame tells.
pub(super) fn queue_part<'a>(mut frames: impl Iterator<Item = &'a Frame>) -> Option<&'static str> {
    frames.find_map(|frame| {
        let part = QUEUE_PARTS.iter().find(|(pattern, _)| fits(&frame.name, pattern));
        part.map(|(_, part)| *part)
    })
}

/// Whether a thread sleeps because its guest halted.
pub(super) fn is_guest_halt<'a>(mut frames: impl Iterator<Item = &'a Frame>) -> bool {
    frames.any(|frame| GUEST_HALTS.contains(&frame.name()))
}

/// Whether a thread sleeps inside the kernel's run of a guest, whatever for.
pub(super) fn is_guest_run<'a>(mut frames: impl Iterator<Item = &'a Frame>) -> bool {
    frames.any(|frame| frame.name() == GUEST_RUN || GUEST_HALTS.contains(&frame.name()))
}

/// Whether a thread sleeps as a worker of the kernel's for a VM's devices, whatever for.
pub(super) fn is_vhost<'a>(mut frames: impl Iterator<Item = &'a Frame>) -> bool {
    frames.any(|frame| VHOST.contains(&frame.name()))
}

/// A stack as it is shown, outermost first, from frames innermost first of which some have no
/// name: without the frames of tracing and of the scheduler.
pub(super) fn shown<'a>(frames: impl Iterator<Item = Option<&'a Frame>>) -> Vec<String> {
    // A program that looks at the stack stands innermost, and has no name.
    let own = frames.skip_while(|frame| frame.is_none_or(|frame| frame.glue));
    let own = own.filter(|frame| frame.is_none_or(|frame| !frame.glue));
    let mut shown: Vec<String> = own.map(|frame| frame.map_or("[unknown]", Frame::name).to_owned()).collect();
    shown.reverse();
    shown
}

/// The innermost function that says something of the wait, for frames without a known kind.
pub(super) fn innermost<'a>(mut frames: impl Iterator<Item = &'a Frame>) -> Option<&'a str> {
    frames.find(|frame| !frame.glue).map(Frame::name)
}

fn kind(name: &str) -> Option<Wait> {
    FRAMES.iter().find(|(_, patterns)| patterns.iter().any(|pattern| fits(name, pattern))).map(|(wait, _)| *wait)
}

fn fits(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// The name without what compilers append: `.isra.0`, `.constprop.0`, `.part.0`, `.cold`.
fn bare(name: &str) -> &str {
    match name.find('.') {
        Some(dot) if dot > 0 => name.get(..dot).unwrap_or(name),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, Wait, classify, innermost, is_guest_halt, is_guest_run, is_vhost, shown};

    fn frames(stack: &str) -> Vec<Frame> {
        stack.split(' ').map(Frame::new).collect()
    }

    /// Stacks innermost first, separated by spaces.
    const STACKS: &[(&str, Wait)] = &[
        ("__schedule schedule futex_wait_queue_me futex_wait do_futex __x64_sys_futex do_syscall_64", Wait::Futex),
        ("bpf_prog_1 __traceiter_sched_switch __schedule schedule futex_do_wait __futex_wait futex_wait", Wait::Futex),
        ("__schedule schedule rt_mutex_slowlock_block rt_mutex_wait_proxy_lock futex_lock_pi do_futex", Wait::Futex),
        ("__schedule schedule pipe_write vfs_write ksys_write", Wait::Peer),
        ("__schedule schedule anon_pipe_write vfs_write ksys_write", Wait::Peer),
        ("__schedule schedule_timeout __skb_wait_for_more_packets __unix_dgram_recvmsg sock_recvmsg", Wait::Peer),
        ("__schedule schedule_timeout sock_alloc_send_pskb unix_stream_sendmsg", Wait::Peer),
        ("__schedule schedule_timeout sock_alloc_send_pskb __ip_append_data udp_sendmsg", Wait::SendBuffer),
        ("__schedule schedule_timeout wait_woken sk_stream_wait_memory tcp_sendmsg_locked", Wait::SendBuffer),
        ("__schedule schedule_timeout __skb_wait_for_more_packets __skb_recv_udp udp_recvmsg", Wait::Receive),
        ("__schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg", Wait::Receive),
        ("__schedule schedule __lock_sock lock_sock_nested tcp_recvmsg", Wait::Lock),
        ("__schedule schedule_timeout inet_csk_accept inet_accept", Wait::Accept),
        ("__schedule schedule_timeout wait_woken inet_wait_for_connect __inet_stream_connect", Wait::Connect),
        ("__schedule schedule schedule_hrtimeout_range_clock ep_poll do_epoll_wait", Wait::Poll),
        ("__schedule schedule schedule_hrtimeout_range_clock do_sys_poll __x64_sys_poll", Wait::Poll),
        ("__schedule schedule schedule_hrtimeout_range_clock poll_schedule_timeout.constprop.0 do_select", Wait::Poll),
        ("__schedule schedule do_nanosleep hrtimer_nanosleep common_nsleep", Wait::Sleep),
        (
            "__schedule schedule io_schedule folio_wait_bit_common folio_wait_writeback file_write_and_wait",
            Wait::Writeback,
        ),
        (
            "__schedule schedule io_schedule_timeout balance_dirty_pages balance_dirty_pages_ratelimited_flags",
            Wait::Writeback,
        ),
        ("__schedule schedule jbd2_log_wait_commit jbd2_complete_transaction ext4_sync_file", Wait::Journal),
        ("__schedule schedule wait_transaction_locked add_transaction_credits start_this_handle", Wait::Journal),
        ("__schedule schedule xlog_wait_on_iclog xfs_log_force_seq xfs_file_fsync vfs_fsync_range", Wait::Journal),
        (
            "__schedule schedule io_schedule folio_wait_bit_common folio_wait_writeback btrfs_wait_tree_log_extents \
             btrfs_sync_log btrfs_sync_file",
            Wait::Log,
        ),
        ("__schedule schedule io_schedule folio_wait_bit_common filemap_get_pages filemap_read", Wait::Block),
        ("__schedule schedule io_schedule blk_mq_get_tag __blk_mq_alloc_requests shrink_node.isra.0", Wait::Reclaim),
        ("__schedule schedule schedule_preempt_disabled __mutex_lock.constprop.0 ext4_file_write_iter", Wait::Lock),
        ("__schedule schedule rwsem_down_read_slowpath down_read do_user_addr_fault", Wait::Lock),
        ("__schedule schedule vhost_worker kthread ret_from_fork", Wait::Poll),
        ("__schedule schedule vhost_task_fn ret_from_fork", Wait::Poll),
        ("__schedule schedule vhost_run_work_kthread_list kthread ret_from_fork", Wait::Poll),
        ("__schedule schedule_preempt_disabled __mutex_lock handle_rx vhost_worker kthread", Wait::Lock),
        ("__schedule schedule do_signal_stop get_signal arch_do_signal_or_restart", Wait::Stopped),
        ("__schedule schedule __refrigerator get_signal", Wait::Stopped),
    ];

    #[test]
    fn the_most_specific_frame_names_the_wait() {
        for (stack, wait) in STACKS {
            assert_eq!(classify(frames(stack).iter()).map(|(wait, _)| wait), Some(*wait), "{stack}");
        }
    }

    #[test]
    fn a_halted_guest_and_a_fault_of_a_running_one_are_told_apart() {
        let halted = frames("__schedule schedule kvm_vcpu_block kvm_vcpu_halt vcpu_run kvm_arch_vcpu_ioctl_run");
        assert!(is_guest_halt(halted.iter()) && is_guest_run(halted.iter()));
        let faults = frames(
            "__schedule io_schedule folio_wait_bit_common filemap_fault npf_interception kvm_arch_vcpu_ioctl_run",
        );
        assert!(!is_guest_halt(faults.iter()) && is_guest_run(faults.iter()));
        assert_eq!(classify(faults.iter()).map(|(wait, _)| wait), Some(Wait::Block));
        assert!(!is_guest_run(frames("__schedule schedule futex_do_wait do_futex").iter()));
    }

    #[test]
    fn a_worker_of_vhost_is_one_whatever_it_waits_for() {
        assert!(is_vhost(frames("__schedule schedule vhost_task_fn ret_from_fork").iter()));
        assert!(is_vhost(frames("__schedule __mutex_lock handle_rx vhost_run_work_list vhost_task_fn").iter()));
        assert!(!is_vhost(frames("__schedule schedule do_poll __x64_sys_ppoll vhost_net_ioctl").iter()));
    }

    #[test]
    fn the_function_that_says_most_is_named() {
        let stack = "__schedule schedule io_schedule blk_mq_get_tag submit_bio_wait";
        assert_eq!(classify(frames(stack).iter()), Some((Wait::Block, "blk_mq_get_tag")));
    }

    #[test]
    fn a_stack_is_shown_from_the_system_call_inwards_without_what_every_sleeper_has() {
        let stack = frames("bpf_get_stack __schedule schedule futex_wait_queue do_futex.cold __x64_sys_futex");
        let nameless = [None].into_iter().chain(stack.iter().map(Some));
        assert_eq!(shown(nameless), ["__x64_sys_futex", "do_futex", "futex_wait_queue"]);
        let middle = [stack.get(3), None, stack.get(5)];
        assert_eq!(shown(middle.into_iter()), ["__x64_sys_futex", "[unknown]", "futex_wait_queue"]);
        assert!(shown([None, None].into_iter()).is_empty(), "without any name there is nothing to show");
    }

    #[test]
    fn an_unknown_stack_has_no_kind_but_its_innermost_name() {
        let stack = frames("bpf_get_stack __schedule schedule_timeout some_driver_wait.cold vfs_ioctl");
        assert_eq!(classify(stack.iter()), None);
        assert_eq!(innermost(stack.iter()), Some("some_driver_wait"));
    }
}
