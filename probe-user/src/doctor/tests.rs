use super::host::{CgroupLayout, CpuAccounts, HostFacts, Privilege, Setting, ThreadCounting, TypeInformation};
use super::{HookRow, Known, Refused, Report, Severity};
use crate::attribution::CAUSES;
use crate::counters::Unavailable;
use crate::event::InterfaceId;
use crate::journey::STAGES;
use crate::symbolize::Sandbox;
use crate::target::{Discovery, Gap, Interface, LinkState, Namespace, Offloads, QueueLimits};

fn host() -> HostFacts {
    let privilege = |name| Privilege { name, held: true, needed_for: "a test" };
    HostFacts {
        kernel: "6.12.1".to_owned(),
        architecture: "x86_64".to_owned(),
        possible_cpus: Known::Known(4),
        online_cpus: Known::Known(4),
        btf: Known::Known(TypeInformation { path: "/sys/kernel/btf/vmlinux".into(), size_bytes: 5_515_646 }),
        lockdown: Known::Known("none".to_owned()),
        privileges: Known::Known(
            ["CAP_BPF", "CAP_PERFMON", "CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYSLOG"].map(privilege).into(),
        ),
        memlock: None,
        kernel_symbols: Known::Known(100_000),
        settings: vec![Setting { name: "net.core.bpf_jit_enable", value: Known::Known("1".to_owned()) }],
        cgroups: Known::Known(CgroupLayout::Unified),
        tracefs: Known::Unknown("tracefs is not mounted".to_owned()),
        pressure: Known::Known(true),
        clock_source: Known::Known("tsc".to_owned()),
        cpu_accounts: Known::Known(CpuAccounts { charged: true, slices: true, steal: true, interrupts: false }),
        sandbox: Known::Known(Sandbox { landlock: Some("it is off".to_owned()), ..Sandbox::default() }),
        thread_counters: ThreadCounting { hardware: Some(Unavailable::NoCounter), ..ThreadCounting::default() },
    }
}

fn nic(queues: u32) -> Interface {
    Interface {
        id: InterfaceId { netns: 1, ifindex: 2 },
        name: "eth0".to_owned(),
        kind: "ether".to_owned(),
        peer: None,
        master: None,
        mtu: 1500,
        tx_queues: queues,
        rx_queues: queues,
        queue_limits: None,
        rings: None,
        receive_spread: None,
        up: true,
        state: LinkState::Up,
        outward: true,
        driver: Some("virtio_net".to_owned()),
        offloads: Some(Offloads { gro: true, gso: true, tso: true, lro: false }),
        holders: Vec::new(),
    }
}

fn discovery(queues: u32) -> Discovery {
    let path = "/proc/self/ns/net".into();
    let home = Namespace { cookie: 1, inode: 1, path, name: None, home: true, tgids: Vec::new() };
    Discovery { namespaces: vec![home], interfaces: vec![nic(queues)], ..Discovery::default() }
}

fn hooks() -> Vec<HookRow> {
    let informs = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let refused = Refused {
        attempt: "tp_btf".to_owned(),
        reason: "this kernel has no tracepoint sk_data_ready".to_owned(),
        fix: "use kernel 6.3 or newer".to_owned(),
    };
    let names = ["packet_ingress", "sk_data_ready"].map(str::to_owned);
    let [packets, sockets] = names;
    vec![
        HookRow {
            name: packets,
            informs: informs(&["pnic_rx", "nic.drop"]),
            choice: Some("tcx".to_owned()),
            refused: Vec::new(),
        },
        HookRow { name: sockets, informs: informs(&["sock_enqueue"]), choice: None, refused: vec![refused] },
    ]
}

fn report(host: HostFacts) -> Report {
    Report::assemble(host, discovery(4), hooks())
}

#[test]
fn the_verdict_promises_only_what_attached_hooks_inform() {
    let verdict = report(host()).verdict;
    assert_eq!((verdict.stages, verdict.causes), (vec!["pnic_rx"], vec!["nic.drop"]));
    assert!(verdict.missing_stages.contains(&"sock_enqueue"), "its hook is refused");
    assert!(verdict.missing_stages.contains(&"backend_rx"), "no hook sees it");
    assert!(verdict.missing_causes.contains(&"vm.paused"), "no hook proves it");
    assert_eq!((verdict.missing_stages.len(), verdict.missing_causes.len()), (STAGES.len() - 1, CAUSES.len() - 1));
    assert!(verdict.can_run);
}

#[test]
fn what_the_naming_child_lacks_is_told() {
    let text = report(host()).to_text(120, false);
    assert!(text.contains("user frames         named in a child without Landlock: it is off"), "{text}");
    let whole = HostFacts { sandbox: Known::Known(Sandbox::default()), ..host() };
    assert!(report(whole).to_text(120, false).contains("can only read what it is handed"));
}

#[test]
fn counters_that_are_missing_are_told_with_the_fix() {
    let said = |thread_counters| {
        let text = report(HostFacts { thread_counters, ..host() }).to_text(120, false);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let partly = said(host().thread_counters);
    assert!(partly.contains("instructions are not counted: this machine has no hardware counters; fix: "), "{partly}");
    let refused = Some(Unavailable::NotAllowed);
    let nothing = said(ThreadCounting { software: refused, hardware: refused });
    assert!(nothing.contains("thread counters not counted: the kernel does not allow it; fix: "), "{nothing}");
    assert!(nothing.contains("sudo sysctl kernel.perf_event_paranoid=1"), "{nothing}");
    assert!(!said(ThreadCounting::default()).contains("not counted"));
}

#[test]
fn a_refused_hook_is_a_problem_with_its_fix() {
    let problems = report(host()).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].severity, Severity::Limits);
    assert_eq!(problems[0].fix, "use kernel 6.3 or newer");
}

#[test]
fn what_blocks_comes_first_and_says_so() {
    let mut facts = host();
    facts.btf = Known::Unknown("/sys/kernel/btf/vmlinux: not found".to_owned());
    facts.settings[0].value = Known::Known("0".to_owned());
    facts.lockdown = Known::Known("confidentiality".to_owned());
    facts.privileges = Known::Known(vec![Privilege { name: "CAP_NET_ADMIN", held: false, needed_for: "a test" }]);
    let report = report(facts);
    assert!(!report.can_run());
    let severities: Vec<_> = report.problems.iter().map(|problem| problem.severity).collect();
    assert_eq!(severities.iter().filter(|severity| **severity == Severity::Blocks).count(), 3);
    assert!(severities.is_sorted());
    assert!(report.problems.iter().any(|problem| problem.fix == "sudo sysctl net.core.bpf_jit_enable=1"));
}

/// The fix for a NIC with one queue on a host with so many CPUs.
fn one_queue(cpus: u32, limits: Option<(u32, u32)>) -> String {
    let mut discovery = discovery(1);
    discovery.interfaces[0].queue_limits = limits.map(|(combined, rx)| QueueLimits { combined, rx });
    let report = Report::assemble(HostFacts { online_cpus: Known::Known(cpus), ..host() }, discovery, Vec::new());
    assert_eq!(report.problems.len(), 1);
    report.problems[0].fix.clone()
}

#[test]
fn a_nic_with_one_queue_gets_only_what_it_can_have() {
    let rps = |mask: &str| format!("as root: echo {mask} > /sys/class/net/eth0/queues/rx-0/rps_cpus");
    assert_eq!(one_queue(4, Some((8, 0))), "sudo ethtool -L eth0 combined 4");
    assert_eq!(one_queue(4, Some((2, 0))), "sudo ethtool -L eth0 combined 2");
    assert_eq!(one_queue(4, Some((0, 4))), "sudo ethtool -L eth0 rx 4");
    assert_eq!(one_queue(2, Some((1, 0))), rps("3"));
    assert_eq!(one_queue(4, None), rps("f"));
    assert_eq!(one_queue(36, None), rps("f,ffffffff"));
}

#[test]
fn receive_work_that_software_spreads_is_no_problem() {
    let mut discovery = discovery(1);
    discovery.interfaces[0].receive_spread = Some("0000,00000003".to_owned());
    assert_eq!(Report::assemble(host(), discovery, Vec::new()).problems, []);
}

#[test]
fn unknown_is_shown_with_its_reason_in_text_and_json() {
    let report = report(host());
    let text = report.to_text(80, false);
    assert!(text.contains("tracefs             unknown: tracefs is not mounted"), "{text}");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["type"], "doctor");
    assert_eq!(json["host"]["tracefs"]["unknown"], "tracefs is not mounted");
    assert_eq!(json["host"]["btf"]["known"]["size_bytes"], 5_515_646);
    assert_eq!(json["interfaces"][0]["mtu_bytes"], 1500);
}

#[test]
fn text_keeps_to_eighty_columns_and_has_no_colour_unless_asked() {
    let report = report(host());
    let text = report.to_text(80, false);
    let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert_eq!(long, [""; 0]);
    assert!(!text.contains('\x1b'));
    assert!(report.to_text(80, true).contains("\x1b[33m"));
    assert!(text.lines().all(|line| line == line.trim_end()));
}

#[test]
fn a_name_cannot_command_the_terminal() {
    let mut discovery = discovery(4);
    discovery.interfaces[0].name = "e\x1b[2J0".to_owned();
    discovery.gaps.push(Gap { what: "\x07bell".to_owned(), reason: "a\nb".to_owned() });
    let text = Report::assemble(host(), discovery, Vec::new()).to_text(80, false);
    assert!(!text.contains(['\x1b', '\x07']), "{text}");
    assert!(text.contains("?bell: a?b"));
}

#[test]
fn the_running_host_can_be_reported_by_anyone() {
    let report = Report::gather(Vec::new());
    assert!(!report.host.kernel.is_empty());
    assert!(report.to_text(80, false).contains("Kernel and privileges"));
}
