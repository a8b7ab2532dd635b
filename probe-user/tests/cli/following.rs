//! NICs that appear, get another name, go elsewhere or are another one than before, while whylag watches:
//! checks that pass them are seen there. Needs root.

use crate::live::{Attached, Pod, World, ip, of_type};
use serde_json::Value;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// What a check passes that a server in a pod answers.
pub(crate) const STAGES: [&str; 10] = [
    "pnic_rx",
    "vnic_tx",
    "guest_rx",
    "sock_enqueue",
    "sock_read",
    "app_send",
    "guest_tx",
    "vnic_rx",
    "pnic_queue",
    "pnic_xmit",
];
const CHECKS: u32 = 100;
/// Behind so many more answers, those of all checks before have come.
const ON_THEIR_WAY: u32 = 20;
/// Until so many have been sent, 5 ms apart, or one is answered.
const SENT_WITHIN: Duration = Duration::from_secs(20);

/// A stretch of time in which every check is to be seen everywhere.
pub(crate) struct Stretch {
    what: &'static str,
    from: String,
    to: String,
}

impl Stretch {
    /// From when the pod answers again until a hundred checks have been sent; when this returns, those are
    /// answered, too.
    pub(crate) fn of(what: &'static str, pod: &Pod<'_>) -> Self {
        grows(&pod.answered, 1);
        let from = now();
        grows(&pod.sent, CHECKS);
        let to = now();
        grows(&pod.answered, ON_THEIR_WAY);
        Self { what, from, to }
    }

    /// The first check may have been on its way, and the last has not come at its end. What the server had
    /// not read yet as the pod was watched hides which of its reads is of which check, until it has caught up.
    pub(crate) fn holds(&self, text: &str) {
        let journeys = of_type(text, "journey");
        let within = |line: &&Value| {
            let at = line["started_at"].as_str().unwrap();
            self.from.as_str() < at && at < self.to.as_str()
        };
        let journeys: Vec<&Value> = journeys.iter().filter(within).collect();
        let what = self.what;
        assert!(journeys.len() + 2 >= CHECKS as usize, "{what}: {} checks of {CHECKS}", journeys.len());
        for (number, journey) in journeys.into_iter().enumerate() {
            let all_but_its_read = || STAGES.into_iter().filter(|stage| *stage != "sock_read");
            let behind_others = number < ON_THEIR_WAY as usize && all_but_its_read().eq(stages(journey));
            assert!(behind_others || stages(journey) == STAGES, "{what}: {journey}");
            assert_eq!(journey["outcome"], "replied", "{what}: {journey}");
        }
    }
}

/// The stages that a check has passed.
pub(crate) fn stages(journey: &Value) -> Vec<&str> {
    journey["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].as_str().unwrap()).collect()
}

/// Waits until a count has grown by so many.
fn grows(count: &AtomicU32, by: u32) {
    let until = count.load(Ordering::Relaxed) + by;
    let asked = Instant::now();
    while count.load(Ordering::Relaxed) < until {
        assert!(asked.elapsed() < SENT_WITHIN, "{by} checks more within {SENT_WITHIN:?}");
        sleep(Duration::from_millis(5));
    }
}

fn now() -> String {
    humantime::format_rfc3339_nanos(SystemTime::now()).to_string()
}

/// `ip`, in a world's host.
pub(crate) fn on(world: &World, arguments: &str) {
    ip(&format!("-n {} {arguments}", world.host));
}

#[test]
fn a_pod_that_comes_while_whylag_watches_is_one_of_its_guests() {
    for choice in [&[][..], &["--pnic", "v0"]] {
        let Some(world) = World::new() else { return };
        on(&world, "route add default via 10.79.0.2");
        let mut attached = Attached::new(&world, &[choice, &["--duration", "120s"]].concat());
        let reading = attached.read_on();
        let pod = Pod::new(&world);
        attached.says_all(&["also watching p0", "also watching v0"]);
        let stretch = Stretch::of("a pod that has come", &pod);
        attached.interrupt();
        let text = reading.join().unwrap();
        assert_eq!(attached.end().1, 0);
        stretch.holds(&text);
    }
}

#[test]
fn another_nic_of_the_same_name_and_index_is_watched_anew() {
    const INDEX: &str = "index 4000 ";
    let Some(world) = World::new() else { return };
    let pod = Pod::apart(&world);
    pod.link(INDEX);
    let mut attached = Attached::new(&world, &["--pnic", "v0", "--duration", "120s"]);
    let reading = attached.read_on();
    let mut stretches = vec![Stretch::of("the first", &pod)];
    for what in ["the second", "the third"] {
        on(&world, "link del p0");
        pod.link(INDEX);
        attached.says_all(&["p0 is no longer watched", "also watching p0", "also watching v0"]);
        stretches.push(Stretch::of(what, &pod));
    }
    attached.interrupt();
    let text = reading.join().unwrap();
    assert_eq!(attached.end().1, 0);
    stretches.iter().for_each(|stretch| stretch.holds(&text));
}

#[test]
fn a_nic_is_followed_through_names_bridges_and_namespaces() {
    let Some(world) = World::new() else { return };
    let pod = Pod::new(&world);
    let mut attached = Attached::new(&world, &["--pnic", "v0", "--duration", "120s"]);
    let reading = attached.read_on();
    let mut stretches = Vec::new();

    on(&world, "link set p0 name q0");
    attached.says("p0 is called q0 now");
    stretches.push(Stretch::of("under another name", &pod));

    on(&world, "link set v0 name v7");
    attached.says("v0 is called v7 now");
    on(&world, "link del q0");
    pod.link("");
    attached.says_all(&["also watching p0", "also watching v0"]);
    stretches.push(Stretch::of("a new one, after the host's NIC got another name", &pod));

    on(&world, "link add br9 type bridge");
    on(&world, "addr flush dev p0");
    on(&world, "link set p0 master br9");
    pod.address("br9");
    stretches.push(Stretch::of("as a port of a bridge", &pod));

    on(&world, "link del br9");
    on(&world, &format!("link set p0 netns {}", world.peer));
    // Its other end is no guest's meanwhile; until that is told, it may as well stay watched.
    attached.says_all(&["p0 is no longer watched", "v0 is no longer watched"]);
    ip(&format!("-n {} link set p0 netns {}", world.peer, world.host));
    pod.address("p0");
    attached.says_all(&["also watching p0", "also watching v0"]);
    stretches.push(Stretch::of("back from another namespace", &pod));

    attached.interrupt();
    let text = reading.join().unwrap();
    assert_eq!(attached.end().1, 0);
    stretches.iter().for_each(|stretch| stretch.holds(&text));
}
