//! Discovery and selection on namespaces, veths and taps made for the purpose. Needs root.

use probe_user::event::{InterfaceId, InterfaceRole};
use probe_user::target::{Change, Changes, Discovery, Interface, Selection, SelectionError, Targets, Transport};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A simulated host with a NIC, a tap and a container, and the peer outside. Removed on drop.
struct Rig {
    tag: String,
    children: Vec<Child>,
}

impl Rig {
    /// `None` with a printed reason if this host does not let us.
    fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to create network namespaces");
            return None;
        }
        let tag = format!("wl{}x{}", std::process::id() % 100_000, NEXT.fetch_add(1, Ordering::Relaxed));
        let rig = Self { tag, children: Vec::new() };
        let [host, peer, pod] = [rig.host(), rig.peer(), rig.pod()];
        for namespace in [&host, &peer, &pod] {
            rig.ip(&format!("netns add {namespace}"));
        }
        rig.ip(&format!("-n {host} link add pnic0 type veth peer name out0 netns {peer}"));
        rig.ip(&format!("-n {host} link add vpod0 type veth peer name eth0 netns {pod}"));
        rig.ip(&format!("-n {host} link add br0 type bridge"));
        rig.ip(&format!("-n {host} tuntap add {} mode tap", rig.tap()));
        for name in ["pnic0", "vpod0", "br0", &rig.tap()] {
            rig.ip(&format!("-n {host} link set {name} up"));
        }
        rig.ip(&format!("-n {peer} link set out0 up"));
        rig.ip(&format!("-n {pod} link set eth0 up"));
        rig.ip(&format!("-n {pod} link set lo up"));
        // The kernel reports a carrier up to a second late.
        wait_for(|| rig.links_are_usable());
        Some(rig)
    }

    fn host(&self) -> String {
        format!("{}h", self.tag)
    }

    fn peer(&self) -> String {
        format!("{}p", self.tag)
    }

    fn pod(&self) -> String {
        format!("{}c", self.tag)
    }

    fn tap(&self) -> String {
        format!("{}t", self.tag)
    }

    fn ip(&self, arguments: &str) {
        let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2");
        assert!(status.success(), "ip {arguments} in {}", self.tag);
    }

    /// A process that lives in the pod's namespace.
    fn inhabit_pod(&mut self) -> u32 {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.pod(), "sleep", "600"]).stdout(Stdio::null());
        let child = command.spawn().expect("a process");
        let tgid = child.id();
        self.children.push(child);
        wait_for(|| std::fs::read_to_string(format!("/proc/{tgid}/comm")).is_ok_and(|comm| comm == "sleep\n"));
        tgid
    }

    /// Runs `task` in a thread inside a namespace.
    fn inside<T: Send>(&self, namespace: &str, task: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{namespace}")).expect("a namespace");
        let enter = || rustix::thread::move_into_link_name_space(file.as_fd(), None).expect("root");
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    enter();
                    task()
                })
                .join()
                .expect("no panic")
        })
    }

    /// Opens the tap as a VMM would.
    fn hold_tap(&self) -> File {
        let file =
            self.inside(&self.host(), || File::options().read(true).write(true).open("/dev/net/tun").expect("tun"));
        let name = self.tap();
        self.inside(&self.host(), || set_interface(&file, &name));
        file
    }

    fn links_are_usable(&self) -> bool {
        let discovery = Discovery::scan();
        let host = discovery.namespaces.iter().find(|place| place.name == Some(self.host())).expect("the host");
        let mut veths = discovery.interfaces_in(host.cookie).filter(|interface| interface.kind == "veth");
        veths.all(Interface::is_usable)
    }

    fn id(&self, discovery: &Discovery, namespace: &str, name: &str) -> InterfaceId {
        let place =
            discovery.namespaces.iter().find(|place| place.name.as_deref() == Some(namespace)).expect(namespace);
        discovery.interfaces_in(place.cookie).find(|interface| interface.name == name).expect(name).id
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for namespace in [self.host(), self.peer(), self.pod()] {
            let _ = Command::new("ip").args(["netns", "del", &namespace]).stderr(Stdio::null()).status();
        }
    }
}

/// `TUNSETIFF` with `IFF_TAP | IFF_NO_PI`.
fn set_interface(file: &File, name: &str) {
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&0x1002u16.to_ne_bytes());
    // SAFETY: the request is a `struct ifreq` of 40 bytes that outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn wait_for(condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "the condition did not come true within 20 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn roles(selection: &Selection) -> Vec<(String, InterfaceRole)> {
    selection.chosen.iter().map(|chosen| (chosen.interface.name.clone(), chosen.interface.role)).collect()
}

fn in_host(rig: &Rig) -> Targets {
    Targets { netns: Some(rig.host()), ..Targets::default() }
}

#[test]
fn links_are_found_with_their_kinds_and_other_ends() {
    let Some(rig) = Rig::new() else { return };
    let discovery = Discovery::scan();
    let get = |namespace: &str, name: &str| -> &Interface {
        discovery.interface(rig.id(&discovery, namespace, name)).expect("found above")
    };
    let pnic = get(&rig.host(), "pnic0");
    assert_eq!((pnic.kind.as_str(), pnic.mtu, pnic.up), ("veth", 1500, true));
    assert_eq!(discovery.veth_peer(pnic).map(|peer| peer.id), Some(rig.id(&discovery, &rig.peer(), "out0")));
    let eth0 = get(&rig.pod(), "eth0");
    assert_eq!(discovery.veth_peer(eth0).map(|peer| peer.name.as_str()), Some("vpod0"));
    assert_eq!(get(&rig.host(), &rig.tap()).kind, "tap");
    assert_eq!(get(&rig.host(), "br0").kind, "bridge");
    assert_eq!(get(&rig.pod(), "lo").kind, "loopback");
    let cookies: std::collections::HashSet<_> = discovery.namespaces.iter().map(|place| place.cookie).collect();
    assert_eq!(cookies.len(), discovery.namespaces.len(), "cookies are unique");
}

#[test]
fn whoever_holds_a_tap_is_a_vm() {
    let Some(rig) = Rig::new() else { return };
    let held = rig.hold_tap();
    let discovery = Discovery::scan();
    let tap = rig.id(&discovery, &rig.host(), &rig.tap());
    let holders = &discovery.interface(tap).expect("the tap").holders;
    assert_eq!(*holders, [std::process::id()]);
    let machine = discovery.machines.iter().find(|machine| machine.taps.contains(&tap)).expect("a machine");
    assert_eq!(machine.tgid, std::process::id());
    drop(held);
    let discovery = Discovery::scan();
    assert_eq!(discovery.interface(tap).expect("the tap").holders, [0u32; 0]);
}

/// A macvtap tells of its file by nothing but the number of its device.
#[test]
fn whoever_holds_a_macvtap_is_a_vm_too() {
    let Some(rig) = Rig::new() else { return };
    let index = std::process::id();
    let link = format!("-n {} link add link pnic0 name vm0 index {index} type macvtap", rig.host());
    if !Command::new("ip").args(link.split(' ')).status().expect("iproute2").success() {
        return println!("skipped: this kernel has no macvtap");
    }
    rig.ip(&format!("-n {} link set vm0 up", rig.host()));
    let open = || File::options().read(true).write(true).open(format!("/dev/tap{index}")).expect("the macvtap's file");
    let held = [open(), open()];
    let discovery = Discovery::scan();
    let id = rig.id(&discovery, &rig.host(), "vm0");
    let macvtap = discovery.interface(id).expect("the macvtap");
    assert_eq!((macvtap.kind.as_str(), &*macvtap.holders), ("macvtap", &[std::process::id()][..]));
    assert_eq!(macvtap.rx_queues, 2, "each file is a queue");
    let machine = discovery.machines.iter().find(|machine| machine.taps.contains(&id)).expect("a machine");
    assert_eq!(machine.tgid, std::process::id());
    let selection = Selection::choose(&in_host(&rig), &discovery).expect("a selection");
    assert!(roles(&selection).contains(&("vm0".to_owned(), InterfaceRole::VirtualNic)), "{selection:?}");
    drop(held);
    assert_eq!(Discovery::scan().interface(id).expect("the macvtap").holders, [0u32; 0]);
}

#[test]
fn a_simulated_host_is_chosen_whole() {
    let Some(rig) = Rig::new() else { return };
    let discovery = Discovery::scan();
    let selection = Selection::choose(&in_host(&rig), &discovery).expect("a selection");
    let expected = ["pnic0", "vpod0"].map(|name| (name.to_owned(), InterfaceRole::PhysicalNic));
    assert_eq!(roles(&selection), expected);
    let named = Targets { pnic: vec!["pnic0".to_owned()], vnic: vec!["vpod0=web".to_owned()], ..in_host(&rig) };
    let selection = Selection::choose(&named, &discovery).expect("a selection");
    let expected =
        [("pnic0", InterfaceRole::PhysicalNic), ("vpod0", InterfaceRole::VirtualNic), ("eth0", InterfaceRole::Inner)];
    assert_eq!(roles(&selection), expected.map(|(name, role)| (name.to_owned(), role)));
    assert_eq!(selection.chosen[2].interface.label, "web");
    assert!(!selection.searched.guests);
}

#[test]
fn a_process_leads_to_both_ends_of_its_veth() {
    let Some(mut rig) = Rig::new() else { return };
    let tgid = rig.inhabit_pod();
    let discovery = Discovery::scan();
    let targets = Targets { pnic: vec!["pnic0".to_owned()], pid: vec![tgid], ..in_host(&rig) };
    let selection = Selection::choose(&targets, &discovery).expect("a selection");
    let names: Vec<_> = roles(&selection).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["pnic0", "vpod0", "eth0"]);
    assert_eq!(selection.watch, [tgid]);
    let found = Targets { pnic: vec!["pnic0".to_owned()], ..in_host(&rig) };
    let found = Selection::choose(&found, &discovery).expect("a selection");
    assert_eq!(roles(&found), roles(&selection), "an inhabited veth is found without being named");
    assert!(found.searched.guests);
}

#[test]
fn a_process_apart_from_the_host_brings_its_own_host() {
    let Some(mut rig) = Rig::new() else { return };
    let tgid = rig.inhabit_pod();
    let discovery = Discovery::scan();
    let selection = Selection::choose(&Targets { pid: vec![tgid], ..Targets::default() }, &discovery);
    assert_eq!(roles(&selection.expect("a selection")), [("eth0".to_owned(), InterfaceRole::PhysicalNic)]);
    let elsewhere = Targets { netns: Some(rig.peer()), pid: vec![tgid], ..Targets::default() };
    let error = Selection::choose(&elsewhere, &discovery).expect_err("no link joins them");
    assert!(matches!(error, SelectionError::Apart { .. }), "{error}");
}

#[test]
fn owners_of_a_port_are_found_in_their_namespace_only() {
    let Some(mut rig) = Rig::new() else { return };
    rig.inhabit_pod();
    let socket = rig.inside(&rig.pod(), || UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let port = socket.local_addr().expect("an address").port();
    let discovery = Discovery::scan();
    let cookie = |namespace: String| {
        discovery.namespaces.iter().find(|place| place.name.as_deref() == Some(&namespace)).map(|place| place.cookie)
    };
    let pod = cookie(rig.pod()).expect("the pod");
    assert_eq!(discovery.owners_of_port(pod, Transport::Udp, port), [std::process::id()]);
    assert_eq!(discovery.owners_of_port(pod, Transport::Tcp, port), [0u32; 0]);
    let host = cookie(rig.host()).expect("the host");
    assert_eq!(discovery.owners_of_port(host, Transport::Udp, port), [0u32; 0]);
}

#[test]
fn a_tap_is_heard_of_when_a_vm_opens_it_and_when_the_vm_ends() {
    let Some(rig) = Rig::new() else { return };
    let discovery = Discovery::scan();
    let place = discovery.namespaces.iter().find(|place| place.name == Some(rig.host())).expect("the host");
    let tap = rig.id(&discovery, &rig.host(), &rig.tap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut changes = Changes::since(&discovery, place).expect("rtnetlink");
        // The veths may still be reporting that they came up.
        let mut of_tap = async || loop {
            let change = tokio::time::timeout(Duration::from_secs(20), changes.next()).await.expect("in time");
            match change.expect("rtnetlink") {
                Change::Appeared { id, .. } if id == tap => break "appeared",
                Change::Vanished { id, .. } if id == tap => break "vanished",
                Change::Appeared { .. } | Change::Vanished { .. } | Change::Unknown => {}
            }
        };
        let held = rig.hold_tap();
        assert_eq!(of_tap().await, "appeared");
        drop(held);
        assert_eq!(of_tap().await, "vanished");
    });
}
