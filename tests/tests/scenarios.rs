//! Every case of the lab, live: inject a fault, let whylag watch, mark its verdicts.
//!
//! Needs root and the built `whylag`; `cargo xtask test` names it in `WHYLAG_BIN`. A case is
//! skipped, and says so, without root or on a machine that is not quiet; if a whole run of the
//! suite is skipped on a machine that could have run it, the suite fails.

use anyhow::{Context, Result, bail, ensure};
use probe_tests::lab::case::{CASES, find};
use probe_tests::lab::process::Launcher;
use probe_tests::lab::report::{Report, Tally};
use probe_tests::lab::run::{Run, run};
use probe_tests::lab::score::Mark;
use probe_tests::lab::turn::Turn;
use probe_tests::lab::whylag::{Attach, replay};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A run without enough verdicts is made so often, in case the machine disturbed it. A verdict
/// that is confident and wrong fails at once.
const ATTEMPTS: usize = 2;

macro_rules! scenarios {
    ($($test:ident: $case:literal,)*) => {
        const TESTED: &[&str] = &[$($case),*];
        $(
            #[test]
            fn $test() -> Result<()> {
                check($case)
            }
        )*
    };
}

scenarios! {
    a_quiet_host_is_blamed_for_nothing: "healthy",
    a_check_under_way_at_the_start_is_blamed_for_nothing: "attach-late",
    a_sleeping_handler_is_a_wait_of_its_own: "handler-sleeps",
    a_computing_handler_is_on_cpu: "handler-computes",
    a_check_is_followed_to_the_thread_it_was_handed_to: "other-thread-computes",
    a_lock_is_charged_to_its_computing_holder: "lock-holder-computes",
    a_lock_is_followed_to_its_sleeping_holder: "lock-holder-sleeps",
    a_pool_behind_a_lock_is_charged_to_the_holder: "pool-behind-lock",
    neighbours_on_the_cpu_are_run_queue: "cpu-neighbours",
    a_quota_is_not_run_queue: "cpu-quota",
    a_stopped_server_is_a_wait_of_its_own: "server-stopped",
    two_causes_are_told_apart: "two-causes",
    a_full_log_pipe_is_blocked_io: "log-pipe-full",
    a_late_service_is_a_dependency: "dependency-late",
    a_sync_behind_a_frozen_disk_is_writeback: "disk-frozen",
    a_full_receive_buffer_loses_checks_in_the_socket: "receive-buffer-full",
    a_silent_server_loses_checks_itself: "server-silent",
    a_shaper_is_the_qdisc: "shaper",
    a_full_shaper_drops: "shaper-drops",
    a_client_that_reads_late_is_not_the_host: "client-reads-late",
    a_client_that_sends_late_is_not_the_host: "client-sends-late",
    quiet_tcp_is_blamed_for_nothing: "tcp-healthy",
    a_computing_tcp_handler_is_on_cpu: "tcp-handler-computes",
    a_delayed_acknowledgement_holds_the_answer_in_the_socket: "tcp-delayed-ack",
    a_quiet_pod_is_blamed_for_nothing: "pod-healthy",
    a_sleeping_handler_in_a_pod_is_a_wait_of_its_own: "pod-handler-sleeps",
    a_black_hole_is_forwarding: "route-is-black-hole",
    a_quiet_vm_is_blamed_for_nothing: "vm-healthy",
    a_computing_guest_is_inside_the_vm: "guest-computes",
    a_sleeping_backend_is_not_inside_the_vm: "vm-backend-asleep",
    more_work_than_a_thread_can_do_is_no_broken_server: "server-saturated",
    a_queue_within_the_app_is_not_told_from_a_broken_one: "workers-saturated",
    an_event_loop_that_starves_its_replies_is_on_cpu: "loop-starves-replies",
    a_fair_event_loop_under_the_same_load_is_not_blamed: "loop-is-fair",
    an_event_loop_with_a_budget_is_not_blamed: "loop-has-a-budget",
    a_quiet_redis_is_blamed_for_nothing: "redis-healthy",
    a_redis_that_sleeps_is_a_wait_of_its_own: "redis-sleeps",
    a_script_in_redis_is_on_cpu: "redis-script",
    a_log_of_redis_behind_a_frozen_disk_is_writeback: "redis-log-on-slow-disk",
    a_lock_of_the_interpreter_is_charged_to_its_holder: "python-lock",
    a_quiet_nginx_is_blamed_for_nothing: "nginx-healthy",
    a_stopped_nginx_worker_is_a_wait_of_its_own: "nginx-worker-stopped",
    a_file_of_nginx_on_a_frozen_disk_is_the_block_queue: "nginx-slow-disk",
    a_busy_event_loop_of_node_is_on_cpu: "node-event-loop",
    a_collection_of_garbage_is_charged_to_the_collector: "java-collection",
    a_row_lock_of_postgres_is_charged_to_the_session_that_has_it: "postgres-row-lock",
    a_write_at_the_dirty_limit_is_writeback: "write-throttled",
    a_write_at_the_dirty_limit_names_who_reached_it: "neighbour-writes",
    a_write_at_the_memory_limit_is_reclaim: "write-reclaims",
    a_sync_behind_others_data_is_the_journal: "journal-commit",
    a_read_past_the_cache_is_the_block_queue: "read-past-cache",
    a_fault_on_a_mapped_file_is_the_block_queue: "mapped-file-faults",
    a_frozen_disk_that_nobody_waits_for_is_not_blamed: "disk-not-used",
    a_lock_is_followed_to_its_holder_at_the_dirty_limit: "lock-holder-writes",
    a_pool_is_followed_to_who_filled_the_disk_s_pages: "flush-stalls-pool",
    a_late_file_system_in_user_space_is_the_block_queue: "user-file-late",
    a_reader_of_a_memory_map_holds_a_kernel_lock: "memory-inspected",
    accepted_connections_are_blamed_for_nothing: "connect-healthy",
    a_full_accept_queue_ignores_connection_requests: "accept-queue-full",
    a_request_not_accepted_waits_for_its_reader: "accept-queue-waits",
    a_sleeping_handler_of_connections_is_a_wait_of_its_own: "accepted-handler-sleeps",
    a_black_hole_of_connection_requests_is_forwarding: "connect-black-hole",
    connection_requests_lost_outside_are_not_the_host: "connect-lost-outside",
    a_late_name_server_is_a_dependency: "dns-late",
    a_deaf_name_server_is_a_dependency: "dns-deaf",
    a_half_deaf_name_server_is_a_dependency: "dns-half-deaf",
    a_dropped_answer_is_not_the_name_server: "dns-answer-dropped",
    a_late_rest_of_a_request_is_not_the_host: "request-rest-late",
    a_dropped_rest_of_a_request_is_the_drop: "request-rest-dropped",
    a_client_that_leaves_no_room_is_not_the_host: "client-window-closed",
    quiet_http_is_blamed_for_nothing: "http-healthy",
    a_computing_http_handler_is_on_cpu: "http-handler-computes",
    a_sleeping_http_handler_is_a_wait_of_its_own: "http-handler-sleeps",
    softirq_on_the_worker_s_cpu_is_no_work_of_its_own: "softirq-on-worker-cpu",
    short_softirqs_in_a_long_slice_are_no_work_of_its_own: "short-softirqs-on-worker-cpu",
    a_busy_receive_cpu_delays_and_drops: "backlog-behind-storm",
    a_ring_whose_consumer_is_behind_is_the_transmit_queue: "consumer-behind",
    a_consumer_without_cpu_is_receive_softirq: "consumer-starved",
    a_late_server_elsewhere_is_outside: "server-elsewhere-late",
    a_request_behind_a_shaper_is_not_outside: "asking-behind-shaper",
    a_silent_neighbour_is_forwarding: "neighbour-silent",
    a_failed_neighbour_drops_in_forwarding: "neighbour-fails",
    a_used_up_hop_limit_drops_in_forwarding: "hops-used-up",
    a_slow_device_is_not_its_throttle: "disk-slow",
    a_device_without_a_tag_is_the_block_queue: "disk-queue-full",
    a_sync_behind_the_log_of_xfs_is_the_journal: "xfs-log-commit",
    a_sync_behind_the_log_of_btrfs_is_the_journal: "btrfs-log-commit",
    a_full_accept_queue_of_nginx_ignores_connection_requests: "nginx-accept-queue-full",
    commits_of_postgres_behind_a_frozen_disk_are_storage: "postgres-checkpoint",
    a_firewall_is_no_full_accept_queue: "connect-firewall",
    an_answer_in_two_parts_without_nagle_is_not_held: "tcp-two-parts-at-once",
    a_full_send_buffer_is_the_client_that_does_not_read: "send-buffer-full",
    of_two_services_the_late_one_is_named: "one-of-two-services-late",
    a_kernel_mutex_that_another_holds_is_a_kernel_lock: "kernel-mutex-held",
    a_handler_that_copies_holds_no_kernel_lock: "handler-copies",
    a_chain_of_processes_leads_to_the_one_that_computes: "processes-compute",
    a_chain_of_processes_leads_to_the_one_that_sleeps: "processes-sleep",
    a_chain_of_threads_leads_to_the_one_that_computes: "threads-compute",
    a_chain_of_threads_leads_to_the_one_that_sleeps: "threads-sleep",
    a_server_of_ten_thousand_threads_is_judged: "ten-thousand-threads",
    processes_that_come_and_go_disturb_no_verdict: "processes-come-and-go",
    a_quiet_guest_is_blamed_for_nothing: "guest-healthy",
    a_computing_server_in_a_guest_is_inside_the_guest: "guest-handler-computes",
    a_sleeping_server_in_a_guest_is_inside_the_guest: "guest-handler-sleeps",
    a_slow_disk_of_a_guest_is_inside_the_guest: "guest-disk-slow",
    a_flush_of_the_guest_s_page_cache_is_inside_the_guest: "guest-flushes",
    a_guest_whose_cpu_is_taken_is_stolen_from: "guest-starved",
    a_paused_guest_is_paused: "guest-paused",
    a_guest_that_another_hurts_is_stolen_from: "guest-hurts-guest",
    a_guest_out_of_quota_is_stolen_from: "guest-quota",
    a_frozen_guest_is_paused: "guest-frozen",
    a_main_loop_without_cpu_is_the_backend: "guest-vmm-starved",
    a_full_ring_of_a_tap_drops: "guest-ring-full",
    a_main_loop_that_flushes_is_writeback: "guest-vmm-flushes",
    workers_that_share_a_queue_are_named_with_their_shares: "queue-shared",
    a_full_queue_beside_that_of_the_checks_is_blamed_for_nothing: "queue-of-its-own",
    workers_on_the_only_queue_are_named_with_their_shares: "queue-of-many",
    a_slow_network_is_outside: "path-delays",
    a_slow_queue_of_the_nic_is_not_outside: "nic-delays",
    a_slow_network_before_the_host_is_not_the_host: "path-delays-checks",
    a_network_that_loses_answers_is_outside: "path-loses",
    a_queue_of_the_nic_that_loses_answers_drops: "nic-loses",
    a_full_backlog_drops: "backlog-full",
    a_full_table_of_connections_drops_in_forwarding: "connection-table-full",
    a_rule_of_the_host_drops_in_forwarding: "rule-drops",
    a_rule_elsewhere_is_not_the_host: "rule-drops-elsewhere",
    a_full_table_of_neighbours_drops_in_forwarding: "neighbour-table-full",
    a_neighbour_that_is_learned_again_is_blamed_for_nothing: "neighbour-forgotten",
    a_fair_shaper_is_blamed_for_nothing: "shaper-is-fair",
    a_shaper_that_drops_from_its_head_drops: "shaper-controls-delay",
    a_device_that_completes_late_is_the_block_queue: "device-completes-late",
    a_quiet_bond_is_blamed_for_nothing: "bond-healthy",
    a_sleeping_handler_behind_a_bond_is_a_wait_of_its_own: "bond-handler-sleeps",
    a_shaper_below_a_bond_is_the_qdisc: "bonded-shaper",
    a_quiet_vlan_is_blamed_for_nothing: "vlan-healthy",
    a_shaper_below_a_vlan_is_the_qdisc: "vlan-shaper",
    a_server_that_is_told_of_a_full_shaper_knows: "reply-refused",
    a_send_buffer_without_room_loses_answers: "reply-without-room",
    a_rule_drops_requests: "request-filtered",
    a_rule_drops_answers: "reply-filtered",
    a_wrong_checksum_is_not_the_host: "request-damaged",
    what_is_lost_outside_left_in_time: "asked-lost-outside",
    a_short_ring_drops_what_a_sleeping_backend_leaves: "tap-ring-full",
    a_ring_without_a_queue_before_it_drops: "veth-ring-full",
    a_quiet_bridge_is_blamed_for_nothing: "bridge-healthy",
    a_port_that_does_not_forward_drops: "bridge-port-down",
    requests_that_never_arrive_are_counted: "request-never-arrives",
    what_a_softirq_leaves_waits_for_its_thread: "ksoftirqd-starved",
    a_starved_worker_is_not_a_starved_softirq: "worker-starved-where-received",
    a_long_kernel_read_holds_softirqs_off: "long-kernel-read",
    a_long_kernel_read_keeps_the_worker_from_its_cpu: "kernel-read-on-worker-cpu",
    answers_that_wait_here_are_not_blamed_on_outside: "asking-behind-kernel-read",
    connections_that_a_full_accept_queue_ignores_are_lost_there: "accept-queue-lost",
    connections_that_a_firewall_drops_are_lost_there: "connect-filtered",
    a_rule_drops_requests_before_any_device: "asked-filtered",
    a_rule_delays_connections_before_any_device: "asked-connect-filtered",
    a_quiet_guest_of_kvm_is_blamed_for_nothing: "kvm-healthy",
    a_computing_server_in_a_guest_of_kvm_is_inside_the_guest: "kvm-handler-computes",
    a_sleeping_server_in_a_guest_of_kvm_is_inside_the_guest: "kvm-handler-sleeps",
    a_guest_of_kvm_whose_cpu_is_taken_is_stolen_from: "kvm-starved",
    a_guest_of_kvm_out_of_quota_is_stolen_from: "kvm-quota",
    a_paused_guest_of_kvm_is_paused: "kvm-paused",
    a_vhost_thread_without_cpu_is_the_backend: "kvm-vhost-starved",
    a_limit_of_writes_in_flight_is_the_block_queue: "disk-wbt",
    a_device_without_a_tag_is_no_limit_of_writes: "disk-out-of-tags",
    a_group_that_may_read_little_is_held_back: "disk-io-max",
    a_group_without_budget_waits_for_it: "disk-io-cost",
    a_file_server_that_stops_is_the_block_queue: "nfs-server-stopped",
    a_read_past_the_cache_waits_for_its_file_server: "nfs-read-past-cache",
    a_file_server_that_is_not_asked_is_not_blamed: "nfs-handler-sleeps",
    a_mapped_device_that_is_late_is_the_block_queue: "disk-mapped-late",
    a_quiet_vm_on_a_macvtap_is_blamed_for_nothing: "macvtap-healthy",
    a_computing_guest_on_a_macvtap_is_inside_the_vm: "macvtap-guest-computes",
    a_sleeping_backend_of_a_macvtap_is_not_inside_the_vm: "macvtap-backend-asleep",
    a_full_ring_of_a_macvtap_drops: "macvtap-ring-full",
    a_guest_s_half_is_joined_while_it_is_told: "guest-lock-held-live",
    workers_that_share_a_queue_and_a_cpu_are_told_at_once: "workers-share-queue-and-cpu",
}

/// Cases that are left to `lab run` and `lab score`, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("guest-server-stopped", "a boot for what guest-handler-sleeps shows too"),
    ("guest-crowded-out", "a boot for what guest-hurts-guest shows too"),
    ("guest-queues-starved", "a boot for what guest-vmm-starved shows too"),
    ("guest-vmm-disk-frozen", "a boot for what guest-vmm-flushes shows too"),
    ("guest-lock-held", "a boot for what guest-lock-held-live shows too"),
    ("guest-crowd-on-worker-cpu", "a boot for the twin of one that is left out"),
    ("guest-softirq-on-worker-cpu", "how much the flood leaves of the guest's CPU depends on the machine"),
    ("guest-softirq-elsewhere", "two virtual CPUs and the flood need a machine that has nothing else to do"),
];

#[test]
fn every_case_is_tested() {
    let left_out: Vec<&str> = LEFT_OUT.iter().map(|(name, _)| *name).collect();
    let is_here = |name: &&str| TESTED.contains(name) || left_out.contains(name);
    let missing: Vec<&str> = CASES.iter().map(|case| case.name).filter(|name| !is_here(name)).collect();
    assert!(missing.is_empty(), "no test for {missing:?}");
    for (name, why) in LEFT_OUT {
        assert!(find(name).is_some() && !TESTED.contains(name), "{name} is left out: {why}");
    }
}

#[test]
fn a_replay_repeats_the_live_run_to_the_byte() -> Result<()> {
    let Some(whylag) = whylag()? else { return Ok(()) };
    let _turn = Turn::take()?;
    let recording = Recording::new("replay");
    let attach = Attach { binary: whylag.to_owned(), record: Some(recording.0.clone()), send: None };
    let case = find("lock-holder-computes").context("a case of the table")?;
    let Run::Done(observed) = run(&launcher(), case, Some(&attach))? else {
        note("a_replay_repeats_the_live_run_to_the_byte skipped: the machine is not quiet");
        return Ok(());
    };
    let said = observed.said.context("whylag took part")?;
    let replayed = replay(whylag, &recording.0)?;
    let is_journey = |line: &&str| line.starts_with(r#"{"type":"journey""#);
    let replayed: Vec<&str> = replayed.iter().map(String::as_str).filter(is_journey).collect();
    let live = said.journey_lines();
    ensure!(!live.is_empty(), "the live run shows no journey");
    ensure!(live.len() == replayed.len(), "{} journeys live, {} replayed", live.len(), replayed.len());
    let differing = live.iter().zip(&replayed).find(|(live, replayed)| live != replayed);
    ensure!(differing.is_none(), "live and replayed differ: {differing:#?}");
    Ok(())
}

/// The folded delay graph of a case, if the machine let it run.
fn graph_of(name: &str) -> Result<Option<String>> {
    let Some(whylag) = whylag()? else { return Ok(None) };
    let _turn = Turn::take()?;
    let recording = Recording::new(name);
    let attach = Attach { binary: whylag.to_owned(), record: Some(recording.0.clone()), send: None };
    let case = find(name).context("a case of the table")?;
    let Run::Done(_) = run(&launcher(), case, Some(&attach))? else {
        note(&format!("the graph of {name} skipped: the machine is not quiet"));
        return Ok(None);
    };
    let mut flame = Command::new(whylag);
    let output = flame.arg("flame").arg(&recording.0).args(["--format", "folded"]).output().context("start whylag")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(String::from_utf8(output.stdout)?))
}

/// Of the time in towers that begin so, the part in those that contain `function`, in percent.
fn percent_within(graph: &str, below: &str, function: &str) -> u64 {
    let time = |line: &str| line.rsplit_once(' ').and_then(|(_, time)| time.parse::<u64>().ok()).unwrap_or(0);
    let towers: Vec<&str> = graph.lines().filter(|line| line.contains(below)).collect();
    let whole: u64 = towers.iter().map(|line| time(line)).sum();
    let within: u64 = towers.iter().filter(|line| line.contains(function)).map(|line| time(line)).sum();
    within * 100 / whole.max(1)
}

#[test]
fn the_graph_of_a_starved_loop_shows_what_it_receives_instead() -> Result<()> {
    let Some(graph) = graph_of("loop-starves-replies")? else { return Ok(()) };
    let percent = percent_within(&graph, "thread;hold;app.on_cpu;thread media-loop;", "::Media::take;");
    ensure!(percent >= 80, "only {percent} % of its time on the CPU is in the receive loop: {graph}");
    Ok(())
}

#[test]
fn the_graph_of_a_mutex_shows_waiter_and_owner_in_one_tower() -> Result<()> {
    let Some(graph) = graph_of("lock-holder-computes")? else { return Ok(()) };
    let waits = ";app.futex;thread echo-worker-0;";
    let percent = percent_within(&graph, waits, "futex_wait_[k];");
    ensure!(percent >= 80, "only {percent} % is waiting in the kernel: {graph}");
    let both = graph.lines().filter(|line| {
        let owner = line.split_once(";waker stats-rollup;").filter(|(waiter, _)| waiter.contains(waits));
        owner.is_some_and(|(waiter, owner)| waiter.contains("::Server::handle;") && owner.contains("::roll_up"))
    });
    ensure!(both.count() > 0, "no tower has both: {graph}");
    Ok(())
}

/// The lock takes twice as long as the stop, and twice as many checks wait for it: four times
/// the time.
#[test]
fn two_causes_are_ranked_by_their_time() -> Result<()> {
    let Some(whylag) = whylag()? else { return Ok(()) };
    let _turn = Turn::take()?;
    let attach = Attach { binary: whylag.to_owned(), record: None, send: None };
    let case = find("two-causes").context("a case of the table")?;
    let Run::Done(observed) = run(&launcher(), case, Some(&attach))? else {
        note("two_causes_are_ranked_by_their_time skipped: the machine is not quiet");
        return Ok(());
    };
    let said = observed.said.context("whylag took part")?;
    let [episode] = said.episodes.as_slice() else { bail!("one target, but {} episodes", said.episodes.len()) };
    let [lock, stop, ..] = episode.causes.as_slice() else { bail!("two causes, but {:?}", episode.causes) };
    ensure!((lock.cause.as_str(), stop.cause.as_str()) == ("app.futex", "app.self_wait"), "{:?}", episode.causes);
    ensure!((2..=6).contains(&(lock.ns / stop.ns.max(1))), "{:?}", episode.causes);
    Ok(())
}

/// All that wait for one device at one time are one event.
#[test]
fn a_flush_that_stalls_a_pool_is_one_event_with_all_its_victims() -> Result<()> {
    let Some(whylag) = whylag()? else { return Ok(()) };
    let _turn = Turn::take()?;
    let attach = Attach { binary: whylag.to_owned(), record: None, send: None };
    let case = find("flush-stalls-pool").context("a case of the table")?;
    let Run::Done(observed) = run(&launcher(), case, Some(&attach))? else {
        note("a_flush_that_stalls_a_pool_is_one_event_with_all_its_victims skipped: the rig cannot run here");
        return Ok(());
    };
    let said = observed.said.context("whylag took part")?;
    let [episode] = said.episodes.as_slice() else { bail!("one target, but {} episodes", said.episodes.len()) };
    let [stall] = episode.stalls.as_slice() else { bail!("one stall, but {:?}", episode.stalls) };
    let mut victims: Vec<&str> = stall.victims.iter().map(|victim| victim.comm.as_str()).collect();
    victims.sort_unstable();
    let workers = ["echo-worker-0", "echo-worker-1", "echo-worker-2", "echo-worker-3", "stats-rollup"];
    ensure!(victims == workers, "{stall:?}");
    ensure!(stall.device.contains("loop") && stall.device.contains("ext4"), "{stall:?}");
    ensure!(stall.offender.as_ref().is_some_and(|offender| offender.comm == "bulk-writer"), "{stall:?}");
    ensure!(stall.checks >= 4, "{stall:?}");
    Ok(())
}

/// Runs a case until it is settled, and fails if it is not right.
fn check(name: &str) -> Result<()> {
    let Some(whylag) = whylag()? else { return Ok(()) };
    let case = find(name).with_context(|| format!("no case is called {name}"))?;
    let attach = Attach { binary: whylag.to_owned(), record: None, send: None };
    let turn = Turn::take()?;
    let mut report = None;
    for _ in 0..ATTEMPTS {
        let marked = Report::new(case, &run(&launcher(), case, Some(&attach))?)?;
        note(&marked.text());
        let settled = matches!(marked.mark, Some(Mark::Right | Mark::Wrong) | None);
        report = Some(marked);
        if settled {
            break;
        }
    }
    drop(turn);
    let report = report.context("a case is attempted")?;
    let right = matches!(report.mark, Some(Mark::Right) | None);
    match case.gap {
        None => ensure!(right, "{}", report.text()),
        Some(gap) if report.mark == Some(Mark::Right) => bail!("{name} is right, so this is no gap any more: {gap}"),
        Some(gap) => note(&format!("{name}: known gap: {gap}")),
    }
    count(report.mark)
}

/// Counts the marks; the last test to end fails if there was nothing but skips.
fn count(mark: Option<Mark>) -> Result<()> {
    static TALLY: Mutex<Tally> = Mutex::new(Tally::NONE);
    let mut tally = TALLY.lock().unwrap_or_else(PoisonError::into_inner);
    tally.add(mark);
    ensure!(tally.skipped < TESTED.len(), "all {} cases were skipped", TESTED.len());
    Ok(())
}

/// Says it even when the test passes and its output is captured.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn launcher() -> Launcher {
    Launcher { lab: PathBuf::from(env!("CARGO_BIN_EXE_lab")) }
}

/// The binary to test, built if it is not named; `None`, with the reason printed, without root.
fn whylag() -> Result<Option<&'static Path>> {
    static BINARY: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    if !is_root() {
        note("skipped: namespaces and kernel programs need root");
        return Ok(None);
    }
    let binary = BINARY.get_or_init(|| named_or_built().map_err(|error| format!("{error:#}")));
    match binary {
        Ok(path) => Ok(Some(path)),
        Err(error) => bail!("{error}"),
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn named_or_built() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("WHYLAG_BIN").map(PathBuf::from) {
        ensure!(named.exists(), "WHYLAG_BIN names {}, which does not exist", named.display());
        return Ok(named);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "-p", "probe-user"]).status().context("start cargo")?;
    ensure!(built.success(), "cargo build -p probe-user failed; run cargo xtask setup first");
    Ok(Path::new(env!("CARGO_BIN_EXE_lab")).with_file_name("whylag"))
}

/// A file that is removed when the test ends.
struct Recording(PathBuf);

impl Recording {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("whylag-{name}-{}.whylag-recording", std::process::id())))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
