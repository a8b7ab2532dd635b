//! What the loader tells the programs before they load, as the read-only global `SETTINGS`.

use crate::signature::{MAX_RULES, Rule};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// CPUs that can have a ring.
pub const MAX_CPUS: usize = 1024;

/// An offset that the running kernel's BTF does not have; the program does without.
pub const UNKNOWN_OFFSET: u32 = u32::MAX;

/// Byte offsets of kernel fields, from the running kernel's BTF, named `struct_field`
/// (`percpu`: variables of each CPU, within their section);
/// [`UNKNOWN_OFFSET`] where the kernel has no such field.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[expect(missing_docs, reason = "the name of each field is the kernel's own")]
pub struct Offsets {
    pub sk_buff_head: u32,
    pub sk_buff_data: u32,
    pub sk_buff_tail: u32,
    pub sk_buff_len: u32,
    pub sk_buff_dev: u32,
    pub sk_buff_network_header: u32,
    pub sk_buff_mac_header: u32,
    pub sk_buff_transport_header: u32,
    pub sk_buff_queue_mapping: u32,
    pub sk_buff_protocol: u32,
    pub neighbour_dev: u32,
    pub neighbour_nud_state: u32,
    pub net_device_ifindex: u32,
    pub net_device_nd_net: u32,
    pub net_device_rtnl_link_ops: u32,
    pub rtnl_link_ops_kind: u32,
    pub net_net_cookie: u32,
    pub sock_skc_num: u32,
    pub sock_skc_dport: u32,
    pub sock_skc_daddr: u32,
    pub sock_skc_v6_daddr: u32,
    pub sock_skc_family: u32,
    pub sock_skc_cookie: u32,
    pub sock_sk_protocol: u32,
    pub sock_sk_rmem_alloc: u32,
    pub sock_sk_rcvbuf: u32,
    pub sock_sk_ack_backlog: u32,
    pub sock_sk_max_ack_backlog: u32,
    pub icsk_accept_queue_qlen: u32,
    pub tcp_sock_snd_wnd: u32,
    pub tcp_sock_snd_una: u32,
    pub tcp_sock_snd_nxt: u32,
    pub tcp_sock_write_seq: u32,
    pub tcp_sock_packets_out: u32,
    pub tcp_sock_snd_cwnd: u32,
    pub tcp_sock_mss_cache: u32,
    pub task_pid: u32,
    pub task_tgid: u32,
    pub task_comm: u32,
    pub task_start_time: u32,
    pub task_cpu: u32,
    pub task_state: u32,
    pub task_signal: u32,
    pub signal_live: u32,
    pub task_sched_task_group: u32,
    pub task_preempt_count: u32,
    pub task_se_cfs_rq: u32,
    pub task_se_sum_exec_runtime: u32,
    pub task_sched_info_last_arrival: u32,
    pub cfs_rq_rq: u32,
    pub rq_clock: u32,
    pub rq_prev_steal_time_rq: u32,
    pub rq_prev_irq_time: u32,
    pub percpu_runqueues: u32,
    pub percpu_preempt_count: u32,
    pub task_group_parent: u32,
    pub task_group_cfs_bandwidth: u32,
    pub cfs_bandwidth_nr_throttled: u32,
    pub cfs_bandwidth_throttled_time: u32,
    pub qdisc_handle: u32,
    pub qdisc_flags: u32,
    pub qdisc_ops: u32,
    pub qdisc_ops_id: u32,
    pub qdisc_q_len: u32,
    pub qdisc_qstats_backlog: u32,
    pub qdisc_qstats_drops: u32,
    pub qdisc_qstats_requeues: u32,
    pub qdisc_qstats_overlimits: u32,
    pub netdev_queue_state: u32,
    pub task_mm: u32,
    pub task_files: u32,
    pub files_fdt: u32,
    pub fdtable_max_fds: u32,
    pub fdtable_fd: u32,
    pub file_f_inode: u32,
    pub inode_i_ino: u32,
    pub inode_i_mode: u32,
    pub inode_i_rdev: u32,
    pub inode_i_sb: u32,
    pub super_block_s_dev: u32,
    pub super_block_s_flags: u32,
    pub super_block_s_type: u32,
    pub file_system_type_name: u32,
    pub address_space_host: u32,
    pub pt_regs_call: u32,
    pub pt_regs_first: u32,
    pub request_bio: u32,
    pub request_start_time_ns: u32,
    pub bio_bi_bdev: u32,
    pub block_device_bd_dev: u32,
    pub task_flags: u32,
    pub task_worker_private: u32,
    pub kthread_data: u32,
    pub worker_current_func: u32,
    pub mutex_owner: u32,
    pub rw_semaphore_owner: u32,
    pub pt_regs_ip: u32,
    pub pt_regs_sp: u32,
    pub pt_regs_bp: u32,
    pub sk_buff_sk: u32,
    pub sk_buff_skb_iif: u32,
    pub sk_buff_skb_refdst: u32,
    pub dst_entry_dev: u32,
}

impl Offsets {
    /// Without it the programs do not tell interrupts from what they interrupted.
    pub const fn forget_preempt_count(&mut self) {
        self.task_preempt_count = UNKNOWN_OFFSET;
        self.percpu_preempt_count = UNKNOWN_OFFSET;
    }
}

/// Everything the programs are told.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Settings {
    /// Signatures, the first `rule_count` are in use.
    pub rules: [Rule; MAX_RULES],
    /// Field offsets.
    pub offsets: Offsets,
    /// Number of signatures.
    pub rule_count: u32,
    /// Shortest softirq that is worth a record, nanoseconds.
    pub softirq_min_ns: u64,
    /// 1 to take kernel stacks when a watched thread goes to sleep.
    pub stacks: u32,
    /// 1 to copy stacks of watched threads in user mode.
    pub user_stacks: u32,
    /// Address of the kernel's function that lets go what a throttle held back; 0 if not known.
    pub throttle_work: u64,
    /// Shortest time off the CPU of which the stack is told, nanoseconds.
    pub wait_min_ns: u64,
    /// Most waits of which a CPU tells the stack in a stretch of
    /// [`WAITS_STRETCH_NS`](crate::WAITS_STRETCH_NS).
    pub waits_per_stretch: u64,
    /// 1 to count who sends through the transmit queues of watched interfaces.
    pub senders: u32,
    /// Always 0.
    pub reserved: u32,
}
