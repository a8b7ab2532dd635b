//! The JSON lines that whylag promises, as far as the lab marks them. Fields that are not here
//! may come and go; these may not.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// A health check.
    Journey(Journey),
    /// Requests that did not come.
    Absence(Absence),
    /// What happened at one target.
    Episode(Episode),
    /// Who filled a transmit queue in which checks waited.
    Queue(Queue),
    /// What slow checks lost to a CPU that was behind with receiving.
    Receive(Receive),
    /// Where the halves of a VM's checks went.
    Join(Join),
    /// Every record accounted for.
    Loss(Loss),
    /// The run in one object.
    Summary {},
    /// A kind that came later.
    #[serde(other)]
    Other,
}

/// One health check.
#[derive(Debug, Clone, Deserialize)]
pub struct Journey {
    /// Identity in its run.
    pub id: String,
    /// `replied`, `lost`, `open`, `ambiguous` or `broken`.
    pub outcome: String,
    /// Wall time of its first stage, RFC 3339.
    pub started_at: String,
    /// Time from its first stage to its end.
    pub elapsed_ns: u64,
    /// Whether it is slow.
    pub slow: bool,
    /// The stages that it passed.
    pub stages: Vec<StagePoint>,
    /// Its time, split.
    pub ledger: Vec<Entry>,
    /// The rest.
    pub unexplained_ns: u64,
    /// The conclusion.
    pub verdict: Verdict,
    /// Where it ended, if it is lost.
    #[serde(default, rename = "loss")]
    pub lost_at: Option<Box<LostAt>>,
    /// What is known of its half inside the guest, if halves were joined.
    #[serde(default)]
    pub guest: Option<Box<GuestHalf>>,
}

/// The half of a check inside the guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GuestHalf {
    /// `joined`, or why not.
    pub pairing: String,
    /// From its being given to the VM to its coming back, by the host's clock.
    pub with_vm_ns: Option<u64>,
    /// From its coming in at the guest's NIC to its leaving there, by the guest's clock.
    pub inside_ns: Option<u64>,
    /// The first less the second.
    pub overhead_ns: Option<i64>,
}

impl GuestHalf {
    /// Whether it was joined to the host's.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.pairing == "joined"
    }
}

/// Where the halves of a VM's checks went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Join {
    /// Those of the host.
    pub host: Halves,
    /// Those of the guest.
    pub guest: Halves,
    /// Records that were lost inside the guest.
    pub guest_lost: u64,
}

/// Where the halves of one side went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Halves {
    /// All of them.
    pub halves: u64,
    /// Those with another half that fits.
    pub joined: u64,
    /// Those of which one half proves too little.
    pub doubted: u64,
    /// Those that were longer inside than with the VM.
    pub negative: u64,
    /// Those that ended differently.
    pub mismatched: u64,
    /// Those with the identity of another.
    pub ambiguous: u64,
    /// Those without another half.
    pub alone: u64,
}

impl Halves {
    /// Whether each is counted once.
    #[must_use]
    pub const fn add_up(&self) -> bool {
        let Self { halves, joined, doubted, negative, mismatched, ambiguous, alone } = *self;
        halves == joined + doubted + negative + mismatched + ambiguous + alone
    }
}

/// Where a lost check ended.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LostAt {
    /// The place.
    pub place: String,
    /// The last stage.
    pub stage: String,
    /// What the sender's call returned.
    pub send_result: Option<String>,
    /// The transmit queue that was full.
    #[serde(default)]
    pub queue: Option<u32>,
    /// Who had filled it.
    #[serde(default)]
    pub senders: Vec<Filler>,
    /// Why that is not known.
    #[serde(default)]
    pub senders_unknown: Option<String>,
}

/// One of those who filled a queue.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Filler {
    /// Its name.
    pub comm: String,
    /// Thread.
    pub tid: u32,
    /// Its part of the bytes.
    pub share: f64,
}

/// A stage that was passed.
#[derive(Debug, Clone, Deserialize)]
pub struct StagePoint {
    /// Its name.
    pub stage: String,
    /// When, from the first stage.
    pub at_ns: u64,
}

/// One part of a check's time.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// Who took it.
    pub cause: String,
    /// How much.
    pub ns: u64,
    /// In which span.
    pub span: String,
    /// Who is behind it.
    pub offender: Option<Offender>,
    /// The waits that lead there.
    pub path: Vec<String>,
    /// What proves it.
    pub evidence: Vec<String>,
}

/// Who filled a transmit queue.
#[derive(Debug, Clone, Deserialize)]
pub struct Queue {
    /// Name of the interface.
    pub interface: Option<String>,
    /// Its number.
    pub queue: u32,
    /// Who sent.
    pub senders: Vec<QueueSender>,
    /// Queues beside it that carried nothing.
    pub idle_queues: Vec<u32>,
    /// What would relieve it.
    pub advice: Vec<Advice>,
}

/// What one sender sent.
#[derive(Debug, Clone, Deserialize)]
pub struct QueueSender {
    /// Its name.
    pub comm: String,
    /// Thread.
    pub tid: u32,
    /// Bytes.
    pub bytes: u64,
}

/// What slow checks lost to a CPU that was behind with receiving.
#[derive(Debug, Clone, Deserialize)]
pub struct Receive {
    /// The CPU.
    pub cpu: u32,
    /// How long they waited for it.
    pub late_ns: u64,
    /// What it took of the time of threads that served them.
    pub taken_ns: u64,
    /// Those threads.
    pub workers: Vec<Worker>,
    /// Who kept it from receiving.
    pub keepers: Vec<Keeper>,
    /// What would relieve it.
    pub advice: Vec<Advice>,
}

/// A thread that served checks.
#[derive(Debug, Clone, Deserialize)]
pub struct Worker {
    /// Its name.
    pub comm: String,
}

/// A thread that kept a CPU from receiving.
#[derive(Debug, Clone, Deserialize)]
pub struct Keeper {
    /// Its name.
    pub comm: String,
    /// Thread.
    pub tid: u32,
    /// cgroup.
    pub cgroup: String,
    /// For how long.
    pub ns: u64,
}

/// What would relieve a queue or a CPU.
#[derive(Debug, Clone, Deserialize)]
pub struct Advice {
    /// What to do.
    pub step: String,
}

/// Who is behind a cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub struct Offender {
    /// Name of the thread.
    pub comm: String,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// cgroup.
    pub cgroup: String,
    /// Device or queueing discipline.
    pub device: String,
}

impl Offender {
    /// Whether it is called `name`: its thread so, or as far as a `-` that ends it, its cgroup or
    /// device in part.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        let family = name.ends_with('-') && self.comm.starts_with(name);
        self.comm == name || family || self.cgroup.contains(name) || self.device.contains(name)
    }
}

/// A conclusion.
#[derive(Debug, Clone, Deserialize)]
pub struct Verdict {
    /// `cause`, `split`, `unresolved` or `healthy`.
    pub status: String,
    /// The cause, if there is one.
    pub cause: Option<String>,
    /// Its part of the delay.
    pub share: Option<f64>,
    /// Why there is none.
    pub reason: Option<String>,
    /// `saturated` or `broken`, if that is proven of the app.
    pub service: Option<String>,
}

/// Requests that were due and did not come.
#[derive(Debug, Clone, Deserialize)]
pub struct Absence {
    /// How many.
    pub requests: u64,
    /// When the first was due, RFC 3339.
    pub due_at: String,
    /// The cause, if it is proven.
    pub cause: Option<String>,
    /// What the host's own NIC lost meanwhile.
    pub nic_lost: Option<u64>,
}

/// What happened at one target.
#[derive(Debug, Clone, Deserialize)]
pub struct Episode {
    /// Checks.
    pub checks: u64,
    /// Slow ones.
    pub slow: u64,
    /// Lost ones.
    pub lost: u64,
    /// By time, the largest first.
    pub causes: Vec<EpisodeCause>,
    /// Stretches in which storage held threads up.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The conclusion over all.
    pub verdict: Verdict,
}

/// A stretch of time in which a device held threads up.
#[derive(Debug, Clone, Deserialize)]
pub struct Stall {
    /// The device and the type of its file system.
    pub device: String,
    /// Checks that it made slow.
    pub checks: u64,
    /// Who is behind it.
    pub offender: Option<Offender>,
    /// Who waited.
    pub victims: Vec<Victim>,
}

/// A thread that waited.
#[derive(Debug, Clone, Deserialize)]
pub struct Victim {
    /// Its name.
    pub comm: String,
}

/// A cause's part in an episode.
#[derive(Debug, Clone, Deserialize)]
pub struct EpisodeCause {
    /// The cause.
    pub cause: String,
    /// Its time in all slow and lost checks.
    pub ns: u64,
}

/// Every record accounted for.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize)]
pub struct Loss {
    /// Records that the kernel programs tried to emit.
    pub emitted: u64,
    /// Records that were read.
    pub received: u64,
    /// Records for which the ring was full.
    pub lost: u64,
    /// Records that came after their turn.
    pub late: u64,
}

impl Journey {
    /// The cause that it is confidently blamed on.
    #[must_use]
    pub fn blamed(&self) -> Option<&str> {
        if self.verdict.status == "cause" { self.verdict.cause.as_deref() } else { None }
    }

    /// Whether entries and rest add up to the check's time.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.ledger.iter().map(|entry| entry.ns).sum::<u64>() + self.unexplained_ns == self.elapsed_ns
    }

    /// Who is behind most of the time in entries of `cause`.
    #[must_use]
    pub fn offender(&self, cause: &str) -> Option<&Offender> {
        let mut times: BTreeMap<&Offender, u64> = BTreeMap::new();
        for entry in self.ledger.iter().filter(|entry| entry.cause == cause) {
            if let Some(offender) = &entry.offender {
                *times.entry(offender).or_default() += entry.ns;
            }
        }
        times.into_iter().max_by_key(|(_, ns)| *ns).map(|(offender, _)| offender)
    }

    /// Time in entries of any of `causes`, ns.
    #[must_use]
    pub fn attributed_ns(&self, causes: &[&str]) -> u64 {
        self.ledger.iter().filter(|entry| causes.contains(&entry.cause.as_str())).map(|entry| entry.ns).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn the_design_s_example_is_read() {
        let text = r#"{"type":"journey","id":"7","signature":"s","target":"tap0","outcome":"replied",
            "started_at":"2020-09-13T12:26:40.000000001Z","elapsed_ns":860,"slow":true,
            "stages":[{"stage":"pnic_rx","at_ns":0,"cpu":1,"queue":0,"ifindex":3,"tid":0}],
            "ledger":[{"cause":"app.futex","ns":800,"span":"hold","offender":{"comm":"rollup","tgid":1,"tid":2,
            "cgroup":"/x"},"path":["app.futex"],"evidence":[]}],"unexplained_ns":60,
            "verdict":{"status":"cause","cause":"app.futex","share":0.93,"reason":null}}"#;
        let Line::Journey(journey) = serde_json::from_str(text).unwrap() else { panic!("not a journey") };
        assert_eq!(journey.blamed(), Some("app.futex"));
        assert!(journey.offender("app.futex").unwrap().is_called("rollup"));
        assert_eq!(journey.offender("app.on_cpu"), None);
        assert_eq!(journey.attributed_ns(&["app.futex"]), 800);
        assert!(journey.is_exact());
        assert!(!super::Journey { unexplained_ns: 61, ..journey }.is_exact());
        assert!(matches!(serde_json::from_str(r#"{"type":"weather"}"#).unwrap(), Line::Other));
    }
}
