//! The table of kernel fields that the programs read.

use probe_wire::{Offsets, UNKNOWN_OFFSET};

use super::btf::KernelBtf;

/// A field and where to look for it: the first place that exists counts.
#[derive(Debug)]
pub struct Field {
    /// Its name in [`Offsets`].
    pub name: &'static str,
    /// Structure and path, the newest kernels' first.
    pub places: &'static [(&'static str, &'static str)],
    set: fn(&mut Offsets) -> &mut u32,
}

/// One row for each field of [`Offsets`].
macro_rules! fields {
    ($($name:ident: $(($structure:literal, $path:literal)),+;)*) => {
        /// Every field, in the order of [`Offsets`].
        pub const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            places: &[$(($structure, $path)),+],
            set: |offsets| &mut offsets.$name,
        }),*];
    };
}

fields! {
    sk_buff_head: ("sk_buff", "head");
    sk_buff_data: ("sk_buff", "data");
    sk_buff_tail: ("sk_buff", "tail");
    sk_buff_len: ("sk_buff", "len");
    sk_buff_dev: ("sk_buff", "dev");
    sk_buff_network_header: ("sk_buff", "network_header");
    sk_buff_mac_header: ("sk_buff", "mac_header");
    sk_buff_transport_header: ("sk_buff", "transport_header");
    sk_buff_queue_mapping: ("sk_buff", "queue_mapping");
    sk_buff_protocol: ("sk_buff", "protocol");
    net_device_ifindex: ("net_device", "ifindex");
    net_device_nd_net: ("net_device", "nd_net.net");
    neighbour_dev: ("neighbour", "dev");
    neighbour_nud_state: ("neighbour", "nud_state");
    net_device_rtnl_link_ops: ("net_device", "rtnl_link_ops");
    rtnl_link_ops_kind: ("rtnl_link_ops", "kind");
    net_net_cookie: ("net", "net_cookie");
    sock_skc_num: ("sock", "__sk_common.skc_num");
    sock_skc_dport: ("sock", "__sk_common.skc_dport");
    sock_skc_daddr: ("sock", "__sk_common.skc_daddr");
    sock_skc_v6_daddr: ("sock", "__sk_common.skc_v6_daddr");
    sock_skc_family: ("sock", "__sk_common.skc_family");
    sock_skc_cookie: ("sock", "__sk_common.skc_cookie");
    sock_sk_protocol: ("sock", "sk_protocol");
    sock_sk_rmem_alloc: ("sock", "sk_backlog.rmem_alloc");
    sock_sk_rcvbuf: ("sock", "sk_rcvbuf");
    sock_sk_ack_backlog: ("sock", "sk_ack_backlog");
    sock_sk_max_ack_backlog: ("sock", "sk_max_ack_backlog");
    icsk_accept_queue_qlen: ("inet_connection_sock", "icsk_accept_queue.qlen");
    tcp_sock_snd_wnd: ("tcp_sock", "snd_wnd");
    tcp_sock_snd_una: ("tcp_sock", "snd_una");
    tcp_sock_snd_nxt: ("tcp_sock", "snd_nxt");
    tcp_sock_write_seq: ("tcp_sock", "write_seq");
    tcp_sock_packets_out: ("tcp_sock", "packets_out");
    tcp_sock_snd_cwnd: ("tcp_sock", "snd_cwnd");
    tcp_sock_mss_cache: ("tcp_sock", "mss_cache");
    task_pid: ("task_struct", "pid");
    task_tgid: ("task_struct", "tgid");
    task_comm: ("task_struct", "comm");
    task_start_time: ("task_struct", "start_time");
    // the thread's CPU moved into thread_info with 5.16
    task_cpu: ("task_struct", "thread_info.cpu"), ("task_struct", "cpu");
    // renamed with 5.14
    task_state: ("task_struct", "__state"), ("task_struct", "state");
    task_signal: ("task_struct", "signal");
    signal_live: ("signal_struct", "live");
    task_sched_task_group: ("task_struct", "sched_task_group");
    // x86 has it with the CPU's variables instead: by itself, from 6.2 to 6.14 in one structure
    task_preempt_count: ("task_struct", "thread_info.preempt_count");
    task_se_cfs_rq: ("task_struct", "se.cfs_rq");
    task_se_sum_exec_runtime: ("task_struct", "se.sum_exec_runtime");
    task_sched_info_last_arrival: ("task_struct", "sched_info.last_arrival");
    cfs_rq_rq: ("cfs_rq", "rq");
    rq_clock: ("rq", "clock");
    // only in kernels that account it
    rq_prev_steal_time_rq: ("rq", "prev_steal_time_rq");
    rq_prev_irq_time: ("rq", "prev_irq_time");
    percpu_runqueues: (".data..percpu", "runqueues");
    percpu_preempt_count:
        (".data..percpu", "__preempt_count"), (".data..percpu", "pcpu_hot.preempt_count");
    task_group_parent: ("task_group", "parent");
    task_group_cfs_bandwidth: ("task_group", "cfs_bandwidth");
    cfs_bandwidth_nr_throttled: ("cfs_bandwidth", "nr_throttled");
    cfs_bandwidth_throttled_time: ("cfs_bandwidth", "throttled_time");
    qdisc_handle: ("Qdisc", "handle");
    qdisc_flags: ("Qdisc", "flags");
    qdisc_ops: ("Qdisc", "ops");
    qdisc_ops_id: ("Qdisc_ops", "id");
    qdisc_q_len: ("Qdisc", "q.qlen");
    qdisc_qstats_backlog: ("Qdisc", "qstats.backlog");
    qdisc_qstats_drops: ("Qdisc", "qstats.drops");
    qdisc_qstats_requeues: ("Qdisc", "qstats.requeues");
    qdisc_qstats_overlimits: ("Qdisc", "qstats.overlimits");
    netdev_queue_state: ("netdev_queue", "state");
    task_mm: ("task_struct", "mm");
    task_files: ("task_struct", "files");
    files_fdt: ("files_struct", "fdt");
    fdtable_max_fds: ("fdtable", "max_fds");
    fdtable_fd: ("fdtable", "fd");
    file_f_inode: ("file", "f_inode");
    inode_i_ino: ("inode", "i_ino");
    inode_i_mode: ("inode", "i_mode");
    inode_i_rdev: ("inode", "i_rdev");
    inode_i_sb: ("inode", "i_sb");
    super_block_s_dev: ("super_block", "s_dev");
    super_block_s_flags: ("super_block", "s_flags");
    super_block_s_type: ("super_block", "s_type");
    file_system_type_name: ("file_system_type", "name");
    address_space_host: ("address_space", "host");
    // number and first argument of a system call, x86's names
    pt_regs_call: ("pt_regs", "orig_ax");
    pt_regs_first: ("pt_regs", "di");
    request_bio: ("request", "bio");
    request_start_time_ns: ("request", "start_time_ns");
    bio_bi_bdev: ("bio", "bi_bdev");
    block_device_bd_dev: ("block_device", "bd_dev");
    task_flags: ("task_struct", "flags");
    // had another name before 5.17
    task_worker_private: ("task_struct", "worker_private"), ("task_struct", "set_child_tid");
    kthread_data: ("kthread", "data");
    worker_current_func: ("worker", "current_func");
    // the task, and flags in its low bits; a kernel without adaptive spinning has the second only
    mutex_owner: ("mutex", "owner");
    rw_semaphore_owner: ("rw_semaphore", "owner");
    // what unwinding begins with, x86's names
    pt_regs_ip: ("pt_regs", "ip");
    pt_regs_sp: ("pt_regs", "sp");
    pt_regs_bp: ("pt_regs", "bp");
    sk_buff_sk: ("sk_buff", "sk");
    sk_buff_skb_iif: ("sk_buff", "skb_iif");
    sk_buff_skb_refdst: ("sk_buff", "_skb_refdst");
    // shares its place with dev_rcu from 6.18 on
    dst_entry_dev: ("dst_entry", "dev"), ("dst_entry", "dev_rcu");
}

/// Offsets of the running kernel and the names of the fields it does not have.
#[derive(Debug)]
pub struct Resolved {
    /// What the programs are told.
    pub offsets: Offsets,
    /// Fields whose offset is [`UNKNOWN_OFFSET`].
    pub missing: Vec<&'static str>,
}

/// Looks up every field.
#[must_use]
pub fn resolve(btf: &KernelBtf) -> Resolved {
    let mut offsets = Offsets::default();
    let mut missing = Vec::new();
    for field in FIELDS {
        let found = field.places.iter().find_map(|(structure, path)| btf.field_offset(structure, path));
        if found.is_none() {
            missing.push(field.name);
        }
        *(field.set)(&mut offsets) = found.unwrap_or(UNKNOWN_OFFSET);
    }
    Resolved { offsets, missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::HOOKS;
    use zerocopy::IntoBytes;

    #[test]
    fn every_field_of_the_wire_has_one_row() {
        let mut offsets = Offsets::default();
        for (number, field) in (1..).zip(FIELDS) {
            let slot = (field.set)(&mut offsets);
            assert_eq!(*slot, 0, "{} is set twice", field.name);
            *slot = number;
        }
        let words = offsets.as_bytes().chunks_exact(4);
        assert_eq!(words.len(), FIELDS.len());
        assert!(words.into_iter().all(|word| word != [0; 4]));
    }

    #[test]
    fn hooks_need_fields_that_exist() {
        for name in HOOKS.iter().flat_map(|hook| hook.fields) {
            assert!(FIELDS.iter().any(|field| field.name == *name), "{name}");
        }
    }
}
