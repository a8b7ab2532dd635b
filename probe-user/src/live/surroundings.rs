//! Interfaces that come and go while a run is on.
//!
//! The kernel says when something changed; what it means is found by looking at the whole host
//! again, in a thread, so that the rings are drained meanwhile. Whether what is watched is still
//! there, and under which name, is asked once a second: interfaces that were named stand in
//! namespaces where nobody listens, and a socket that listened there would keep them alive.

use super::Observer;
use crate::event::{Fact, InterfaceFact, InterfaceId};
use crate::load::{Attachment, Netns, Presence, presence};
use crate::target::{Change, Changes, Chosen, Discovery, Selection, Targets};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, spawn_blocking};

/// A new VM or container makes several changes; they are looked at together.
const SETTLE: Duration = Duration::from_millis(200);
/// How often it is asked whether what is watched is still there.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// What is different.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// To be watched from now on.
    pub(super) appeared: Vec<(Attachment, InterfaceFact)>,
    /// No longer watched, and why not.
    pub(super) gone: Vec<Gone>,
    /// Still watched, under another name.
    pub(super) renamed: Vec<Renamed>,
    /// Processes to be watched from now on, such as the VMM of a new VM.
    pub(super) processes: Vec<u32>,
    /// Taps with the processes that hold them now.
    pub(super) holders: Vec<Fact>,
}

/// An interface that was watched.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) attachment: Attachment,
    pub(super) interface: InterfaceId,
    pub(super) name: String,
    /// For people.
    pub(super) reason: String,
}

/// An interface that has another name now.
#[derive(Debug)]
pub(super) struct Renamed {
    pub(super) before: String,
    pub(super) now: InterfaceFact,
}

/// An interface that is watched.
#[derive(Debug)]
struct Watched {
    attachment: Attachment,
    /// As it is now.
    fact: InterfaceFact,
    /// Nobody is left by whom it could be asked for.
    unreachable: bool,
}

impl Watched {
    fn new(chosen: &Chosen) -> Self {
        Self { attachment: attachment(chosen), fact: chosen.interface.clone(), unreachable: false }
    }

    fn gone(&self, reason: &str) -> Gone {
        let Self { attachment, fact, .. } = self;
        Gone { attachment: attachment.clone(), interface: fact.id, name: fact.name.clone(), reason: reason.to_owned() }
    }

    /// A label that was only the name goes with the name.
    fn rename(&mut self, name: &str) -> Option<Renamed> {
        let before = self.fact.name.clone();
        if before == name {
            return None;
        }
        if self.fact.label == before {
            name.clone_into(&mut self.fact.label);
        }
        name.clone_into(&mut self.fact.name);
        Some(Renamed { before, now: self.fact.clone() })
    }
}

type Present = Vec<((u64, u32), Presence)>;

/// What is around the run.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// `None` when nothing is to be followed: every interface was named.
    changes: Option<Changes>,
    targets: Targets,
    /// What is watched, by namespace and index.
    watched: BTreeMap<(u64, u32), Watched>,
    processes: BTreeSet<u32>,
    holders: BTreeMap<(u64, u32), Vec<u32>>,
    looking: Option<JoinHandle<Option<Selection>>>,
    /// Something changed while a look was under way.
    again: bool,
    asking: Option<JoinHandle<Present>>,
    asked_at: Instant,
    /// The namespace that is the host.
    host: u64,
    /// Something that was watched is gone.
    lost_some: bool,
}

impl Surroundings {
    /// Begins to listen, if interfaces were found rather than named.
    pub(super) fn new(
        targets: &Targets,
        selection: &Selection,
        discovery: &Discovery,
        observer: &mut dyn Observer,
    ) -> Self {
        let host = discovery.namespace(selection.host).filter(|_| selection.automatic);
        let changes = host.and_then(|host| {
            Changes::watch(host).map_err(|error| observer.say(&format!("{:#}", anyhow::Error::from(error)))).ok()
        });
        let watched = selection.chosen.iter().map(|chosen| (key(chosen), Watched::new(chosen))).collect();
        let processes = selection.watch.iter().copied().collect();
        let holders = selection.chosen.iter().map(|chosen| (key(chosen), chosen.holders.clone())).collect();
        Self {
            changes,
            targets: targets.clone(),
            watched,
            processes,
            holders,
            looking: None,
            again: false,
            asking: None,
            asked_at: Instant::now(),
            host: selection.host,
            lost_some: false,
        }
    }

    /// Nothing is watched any more, and nothing new can come: what was named is gone, or nobody
    /// tells of new interfaces.
    pub(super) fn is_deserted(&self) -> bool {
        let Targets { pnic, vnic, pid, container, names, .. } = &self.targets;
        let named = !(pnic.is_empty() && vnic.is_empty() && pid.is_empty() && container.is_empty() && names.is_empty());
        self.lost_some && (named || self.changes.is_none()) && self.watched.values().all(|watched| watched.unreachable)
    }

    /// The interfaces that are watched.
    pub(super) fn interfaces(&self) -> HashSet<InterfaceId> {
        self.watched.values().map(|watched| watched.fact.id).collect()
    }

    /// Where the programs are attached, by interface and name.
    pub(super) fn attachments(&self) -> Vec<(InterfaceId, String, Attachment)> {
        let attachment = |watched: &Watched| (watched.fact.id, watched.fact.name.clone(), watched.attachment.clone());
        self.watched.values().map(attachment).collect()
    }

    /// What is different since the last call. Does not wait.
    pub(super) async fn change(&mut self) -> Option<Difference> {
        self.listen().await;
        if self.again && self.looking.is_none() {
            self.again = false;
            let targets = self.targets.clone();
            self.looking = Some(spawn_blocking(move || look(&targets)));
        }
        if let Some(finished) = self.looking.take_if(|looking| looking.is_finished()) {
            return Some(self.compare(&finished.await.ok()??));
        }
        if self.asking.is_none() && self.asked_at.elapsed() >= ASK_EVERY {
            self.asked_at = Instant::now();
            let watched = self.watched.iter().map(|(key, watched)| (*key, watched.attachment.clone()));
            let watched: Vec<_> = watched.collect();
            let ask = |(key, attachment): ((u64, u32), Attachment)| (key, presence(&attachment, key.0));
            self.asking = Some(spawn_blocking(move || watched.into_iter().map(ask).collect()));
        }
        let answered = self.asking.take_if(|asking| asking.is_finished())?;
        Some(self.take_in(answered.await.ok()?))
    }

    /// Compares what is watched with what is still there.
    fn take_in(&mut self, present: Present) -> Difference {
        let mut difference = Difference::default();
        for (key, presence) in present {
            let Some(watched) = self.watched.get_mut(&key) else { continue };
            watched.unreachable = presence == Presence::NoWay;
            let reason = match &presence {
                Presence::Named(name) => {
                    difference.renamed.extend(watched.rename(name));
                    continue;
                }
                Presence::NoInterface => "it was removed, or moved away",
                Presence::NoNamespace => "its network namespace was removed",
                Presence::NoWay | Presence::Unknown => continue,
            };
            difference.gone.push(watched.gone(reason));
            self.watched.remove(&key);
            self.holders.remove(&key);
            self.lost_some = true;
            if presence == Presence::NoNamespace && key.0 == self.host {
                // What listens there hears of nothing new.
                self.changes = None;
            }
        }
        difference
    }

    /// Takes in what the kernel has said by now.
    async fn listen(&mut self) {
        let Some(changes) = &mut self.changes else { return tokio::task::yield_now().await };
        loop {
            let heard = tokio::select! {
                biased;
                heard = changes.next() => heard,
                () = tokio::task::yield_now() => return,
            };
            match heard {
                Ok(Change::Appeared { .. } | Change::Vanished { .. } | Change::Unknown) => self.again = true,
                Err(_) => return self.changes = None,
            }
        }
    }

    fn compare(&mut self, selection: &Selection) -> Difference {
        let now: BTreeMap<_, _> = selection.chosen.iter().map(|chosen| (key(chosen), chosen)).collect();
        let mut difference = Difference::default();
        let lost_some = &mut self.lost_some;
        self.watched.retain(|key, watched| {
            let Some(chosen) = now.get(key) else {
                difference.gone.push(watched.gone("it was removed, moved away or switched off"));
                *lost_some = true;
                return false;
            };
            difference.renamed.extend(watched.rename(&chosen.interface.name));
            true
        });
        self.holders.retain(|key, _| now.contains_key(key));
        for (key, chosen) in now {
            let before = self.holders.insert(key, chosen.holders.clone());
            if before.unwrap_or_default() != chosen.holders {
                difference.holders.extend(holders(chosen));
            }
            self.watched.entry(key).or_insert_with(|| {
                difference.appeared.push((attachment(chosen), chosen.interface.clone()));
                Watched::new(chosen)
            });
        }
        let new = selection.watch.iter().filter(|tgid| !self.processes.contains(tgid));
        difference.processes = new.copied().collect();
        self.processes = selection.watch.iter().copied().collect();
        difference
    }
}

fn look(targets: &Targets) -> Option<Selection> {
    std::thread::sleep(SETTLE);
    Selection::choose(targets, &Discovery::scan()).ok()
}

const fn key(chosen: &Chosen) -> (u64, u32) {
    (chosen.interface.id.netns, chosen.interface.id.ifindex)
}

/// Who holds a chosen interface, if it is a tap.
pub(super) fn holders(chosen: &Chosen) -> Option<Fact> {
    let Chosen { interface, holders, .. } = chosen;
    (!holders.is_empty()).then(|| Fact::Holders { interface: interface.id, tgids: holders.clone() })
}

/// Where to attach for a chosen interface.
pub(super) fn attachment(chosen: &Chosen) -> Attachment {
    Attachment {
        netns: Some(Netns::Path(chosen.netns_path.clone())),
        ifindex: chosen.interface.id.ifindex,
        name: chosen.interface.name.clone(),
    }
}
