//! Interfaces that come and go while a run is on.
//!
//! The kernel says when something changed; what it means is found by looking at the whole host
//! again, in a thread, so that the rings are drained meanwhile. Whether what is watched is still
//! there, under which name, and whether the programs are still on it, is asked once a second, and
//! right behind each look: interfaces that were named stand in namespaces where nobody listens, and a
//! socket that listened there would keep them alive. An index, and a name, may be another
//! interface's by now; the programs that are missing there tell so.

use super::Observer;
use crate::event::{Fact, InterfaceFact, InterfaceId};
use crate::load::{Attached, Attachment, Mark, Netns, Presence, presences};
use crate::target::{Change, Changes, Chosen, Discovery, Selection, Targets};
use std::collections::{BTreeMap, BTreeSet};
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

/// Namespace and index of an interface.
type Key = (u64, u32);

/// An interface that is watched.
#[derive(Debug)]
struct Watched {
    attachment: Attachment,
    /// As it is now.
    fact: InterfaceFact,
    /// Nobody is left by whom it could be asked for.
    unreachable: bool,
    /// Number of its life: of two interfaces that had one index, an answer is about the one that was
    /// asked for.
    life: u64,
}

impl Watched {
    fn new(chosen: &Chosen, life: u64) -> Self {
        Self { attachment: attachment(chosen), fact: chosen.interface.clone(), unreachable: false, life }
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

/// A question whether a watched interface is still there.
#[derive(Debug)]
struct Question {
    key: Key,
    life: u64,
    attachment: Attachment,
    mark: Option<Mark>,
}

/// Asks in each namespace for all that is watched there at once.
fn answers(mut questions: Vec<Question>) -> Vec<Answer> {
    let place = |question: &Question| (question.key.0, question.attachment.netns.as_ref().map(Netns::path));
    questions.sort_by_cached_key(place);
    let mut answers = Vec::with_capacity(questions.len());
    for there in questions.chunk_by(|one, other| place(one) == place(other)) {
        let Some(Question { key: (netns, _), attachment, .. }) = there.first() else { continue };
        let interfaces: Vec<_> = there.iter().map(|it| (it.attachment.ifindex, it.mark.as_ref())).collect();
        let presences = presences(attachment.netns.as_ref(), *netns, &interfaces);
        let answer = |(question, presence): (&Question, _)| Answer { key: question.key, life: question.life, presence };
        answers.extend(there.iter().zip(presences).map(answer));
    }
    answers
}

#[derive(Debug)]
struct Answer {
    key: Key,
    life: u64,
    presence: Presence,
}

/// What a look at the host has shown.
#[derive(Debug)]
struct Look {
    answers: Vec<Answer>,
    /// `None` if the host is gone.
    selection: Option<Selection>,
    /// Every interface that was seen, watched or not.
    seen: BTreeSet<Key>,
}

/// What is around the run.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// `None` when nothing is to be followed: every interface was named.
    changes: Option<Changes>,
    targets: Targets,
    /// What was chosen at first.
    selection: Selection,
    /// What is watched.
    watched: BTreeMap<Key, Watched>,
    lives: u64,
    processes: BTreeSet<u32>,
    holders: BTreeMap<Key, Vec<u32>>,
    looking: Option<JoinHandle<Look>>,
    /// Something changed while a look was under way.
    again: bool,
    asking: Option<JoinHandle<Vec<Answer>>>,
    asked_at: Instant,
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
        let host = discovery.namespace(selection.host).filter(|_| selection.searched.guests);
        let changes = host.and_then(|host| {
            let listening = Changes::since(discovery, host);
            listening.map_err(|error| observer.say(&format!("{:#}", anyhow::Error::from(error)))).ok()
        });
        let lives = (0..).zip(&selection.chosen);
        let watched: BTreeMap<_, _> = lives.map(|(life, chosen)| (key(chosen), Watched::new(chosen, life))).collect();
        let processes = selection.watch.iter().copied().collect();
        let holders = selection.chosen.iter().map(|chosen| (key(chosen), chosen.holders.clone())).collect();
        Self {
            changes,
            targets: targets.clone(),
            selection: selection.clone(),
            lives: watched.len() as u64,
            watched,
            processes,
            holders,
            looking: None,
            again: false,
            asking: None,
            asked_at: Instant::now(),
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

    /// Whether an interface is watched.
    pub(super) fn is_watched(&self, interface: InterfaceId) -> bool {
        self.watched.contains_key(&(interface.netns, interface.ifindex))
    }

    /// Where the programs are attached, by interface and name.
    pub(super) fn attachments(&self) -> Vec<(InterfaceId, String, Attachment)> {
        let attachment = |watched: &Watched| (watched.fact.id, watched.fact.name.clone(), watched.attachment.clone());
        self.watched.values().map(attachment).collect()
    }

    /// The programs could not be attached to this interface. The next change brings it up again.
    pub(super) fn give_up(&mut self, attachment: &Attachment) {
        self.watched.retain(|_, watched| watched.attachment != *attachment);
    }

    /// What is different since the last call; `attached` tells by what the programs of an interface
    /// are known there. Does not wait.
    pub(super) async fn change(&mut self, attached: &Attached) -> Option<Difference> {
        self.listen().await;
        if self.again && self.looking.is_none() {
            self.again = false;
            let (targets, selection, questions) =
                (self.targets.clone(), self.selection.clone(), self.questions(attached));
            let names = self.names();
            self.looking = Some(spawn_blocking(move || look(&targets, &selection, names, questions)));
        }
        if let Some(finished) = self.looking.take_if(|looking| looking.is_finished()) {
            return Some(self.compare(finished.await.ok()?));
        }
        if self.asking.is_none() && self.asked_at.elapsed() >= ASK_EVERY {
            self.asked_at = Instant::now();
            let questions = self.questions(attached);
            self.asking = Some(spawn_blocking(move || answers(questions)));
        }
        let answered = self.asking.take_if(|asking| asking.is_finished())?;
        Some(self.take_in(answered.await.ok()?))
    }

    /// A process took a packet out of a tap's ring. If it is none that is known to hold one, a VM has come
    /// that opened its tap later: of a macvtap the kernel does not tell that.
    pub(super) fn took(&mut self, tgid: u32) {
        self.again |= self.changes.is_some() && !self.holders.values().flatten().any(|holder| *holder == tgid);
    }

    fn questions(&self, attached: &Attached) -> Vec<Question> {
        let marks = attached.marks();
        let question = |(key, watched): (&Key, &Watched)| {
            let Watched { attachment, life, .. } = watched;
            let mark = marks.get(attachment).copied().cloned();
            Question { key: *key, life: *life, attachment: attachment.clone(), mark }
        };
        self.watched.iter().map(question).collect()
    }

    /// The host's interfaces that are watched, as they were called at last.
    fn names(&self) -> BTreeMap<Key, String> {
        let host = self.watched.iter().filter(|(key, _)| key.0 == self.selection.host);
        host.map(|(key, watched)| (*key, watched.fact.name.clone())).collect()
    }

    /// Compares what is watched with what is still there.
    fn take_in(&mut self, answers: Vec<Answer>) -> Difference {
        let mut difference = Difference::default();
        self.targets = renamed(&self.targets, &self.names(), &answers);
        for Answer { key, life, presence } in answers {
            let Some(watched) = self.watched.get_mut(&key).filter(|watched| watched.life == life) else { continue };
            watched.unreachable = presence == Presence::NoWay;
            let reason = match &presence {
                Presence::Named(name) => {
                    difference.renamed.extend(watched.rename(name));
                    continue;
                }
                Presence::Bare(_) => "another interface took its place, or the programs were taken off it",
                Presence::NoInterface => "it was removed, or moved away",
                Presence::NoNamespace => "its network namespace was removed",
                Presence::NoWay | Presence::Unknown => continue,
            };
            difference.gone.push(watched.gone(reason));
            self.end(key, &presence, &mut difference);
        }
        difference
    }

    /// An interface is gone. If one is there under its name, that is what was meant, too; where
    /// interfaces are searched for, the next look tells.
    fn end(&mut self, key: Key, presence: &Presence, difference: &mut Difference) {
        let Some(watched) = self.watched.remove(&key) else { return };
        self.lost_some = true;
        match presence {
            Presence::Bare(_) if self.changes.is_some() => self.again = true,
            Presence::Bare(name) if *name == watched.fact.name => {
                self.lives += 1;
                difference.appeared.push((watched.attachment.clone(), watched.fact.clone()));
                self.watched.insert(key, Watched { life: self.lives, ..watched });
                return;
            }
            // What listens there hears of nothing new.
            Presence::NoNamespace if key.0 == self.selection.host => self.changes = None,
            _ => {}
        }
        self.holders.remove(&key);
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

    /// Compares what is watched with what there is to watch. What a look has missed, as a table that
    /// changed while it was read, is still watched.
    fn compare(&mut self, Look { answers, selection, seen }: Look) -> Difference {
        let mut difference = self.take_in(answers);
        let Some(selection) = selection else { return difference };
        let now: BTreeMap<_, _> = selection.chosen.iter().map(|chosen| (key(chosen), chosen)).collect();
        let no_more = |key: &Key| seen.contains(key) && !now.contains_key(key);
        for (_, watched) in self.watched.extract_if(.., |key, _| no_more(key)) {
            difference.gone.push(watched.gone("it was switched off, or leads elsewhere"));
            self.lost_some = true;
        }
        self.holders.retain(|key, _| self.watched.contains_key(key));
        for (key, chosen) in now {
            let before = self.holders.insert(key, chosen.holders.clone());
            if before.unwrap_or_default() != chosen.holders {
                difference.holders.extend(holders(chosen));
            }
            self.watched.entry(key).or_insert_with(|| {
                self.lives += 1;
                difference.appeared.push((attachment(chosen), chosen.interface.clone()));
                Watched::new(chosen, self.lives)
            });
        }
        let new = selection.watch.iter().filter(|tgid| !self.processes.contains(tgid));
        difference.processes = new.copied().collect();
        self.processes = selection.watch.iter().copied().collect();
        difference
    }
}

/// Looks at the whole host, then for each interface that is watched.
fn look(targets: &Targets, before: &Selection, names: BTreeMap<Key, String>, questions: Vec<Question>) -> Look {
    std::thread::sleep(SETTLE);
    let discovery = Discovery::scan();
    let answers = answers(questions);
    let targets = renamed(targets, &names, &answers);
    let seen = discovery.interfaces.iter().map(|interface| (interface.id.netns, interface.id.ifindex));
    Look { selection: before.again(&targets, &discovery), seen: seen.collect(), answers }
}

/// What was named, by the names of now: a name means the interface that had it.
fn renamed(targets: &Targets, names: &BTreeMap<Key, String>, answers: &[Answer]) -> Targets {
    let renaming = |answer: &Answer| match (names.get(&answer.key), &answer.presence) {
        (Some(before), Presence::Named(now)) if before != now => Some((before.clone(), now.clone())),
        _ => None,
    };
    targets.renamed(&answers.iter().filter_map(renaming).collect())
}

const fn key(chosen: &Chosen) -> Key {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::InterfaceRole;
    use crate::target::Searched;

    const HOST: u64 = 1;

    fn chosen(ifindex: u32, name: &str) -> Chosen {
        let (name, label) = (name.to_owned(), name.to_owned());
        let (id, role) = (InterfaceId { netns: HOST, ifindex }, InterfaceRole::PhysicalNic);
        let interface = InterfaceFact { id, name, role, label, kind: "veth".to_owned(), tx_queues: 1, rx_queues: 1 };
        Chosen { interface, netns_path: "/run/netns/host".into(), why: String::new(), holders: Vec::new() }
    }

    fn selection(chosen: Vec<Chosen>) -> Selection {
        let searched = Searched { physical: false, guests: true };
        let (watch, namespaces, reasons) = (Vec::new(), vec![HOST], Vec::new());
        Selection { chosen, watch, namespaces, host: HOST, searched, reasons }
    }

    /// A run that watches `v0`, named, and hears of nothing.
    fn around() -> Surroundings {
        let selection = selection(vec![chosen(2, "v0")]);
        let watched = selection.chosen.iter().map(|chosen| (key(chosen), Watched::new(chosen, 0))).collect();
        Surroundings {
            changes: None,
            targets: Targets { pnic: vec!["v0".to_owned()], ..Targets::default() },
            selection,
            watched,
            lives: 1,
            processes: BTreeSet::new(),
            holders: BTreeMap::new(),
            looking: None,
            again: false,
            asking: None,
            asked_at: Instant::now(),
            lost_some: false,
        }
    }

    fn answer(ifindex: u32, life: u64, presence: Presence) -> Answer {
        Answer { key: (HOST, ifindex), life, presence }
    }

    /// What a look shows: what is chosen, and of what is watched the answers.
    fn look_at(answers: Vec<Answer>, chosen: Vec<Chosen>) -> Look {
        Look { answers, seen: chosen.iter().map(key).collect(), selection: Some(selection(chosen)) }
    }

    fn names(difference: &Difference) -> (Vec<&str>, Vec<&str>) {
        let gone = difference.gone.iter().map(|gone| gone.name.as_str()).collect();
        (gone, difference.appeared.iter().map(|(_, fact)| fact.name.as_str()).collect())
    }

    #[test]
    fn another_interface_of_the_same_name_and_index_is_watched_in_its_place() {
        let mut around = around();
        let difference = around.take_in(vec![answer(2, 0, Presence::Bare("v0".to_owned()))]);
        assert_eq!(names(&difference), (vec!["v0"], vec!["v0"]));
        // An answer about the one before is none about this one.
        let difference = around.take_in(vec![answer(2, 0, Presence::NoInterface)]);
        assert_eq!(names(&difference), (vec![], vec![]));
        let difference = around.take_in(vec![answer(2, 2, Presence::NoInterface)]);
        assert_eq!(names(&difference), (vec!["v0"], vec![]));
        assert!(around.is_deserted());
    }

    #[test]
    fn another_interface_of_the_same_index_is_watched_only_if_it_is_wanted() {
        let bare = || vec![answer(2, 0, Presence::Bare("p0".to_owned()))];
        assert_eq!(names(&around().take_in(bare())), (vec!["v0"], vec![]));
        let difference = around().compare(look_at(bare(), vec![chosen(2, "p0")]));
        assert_eq!(names(&difference), (vec!["v0"], vec!["p0"]));
        assert!(difference.renamed.is_empty());
    }

    #[test]
    fn what_a_look_did_not_see_is_still_watched_if_it_is_there() {
        let mut around = around();
        let there = || vec![answer(2, 0, Presence::Named("v0".to_owned()))];
        assert_eq!(names(&around.compare(look_at(there(), vec![]))), (vec![], vec![]));
        // It was seen, and is not to be watched any more.
        let seen = Look { seen: [(HOST, 2)].into(), ..look_at(there(), vec![]) };
        assert_eq!(names(&around.compare(seen)), (vec!["v0"], vec![]));
    }

    #[test]
    fn what_was_named_is_meant_under_its_new_name_too() {
        let mut around = around();
        let difference = around.take_in(vec![answer(2, 0, Presence::Named("v9".to_owned()))]);
        assert_eq!((difference.renamed.len(), around.targets.pnic), (1, vec!["v9".to_owned()]));
    }

    #[test]
    fn what_could_not_be_watched_is_tried_again_after_the_next_change() {
        let mut around = around();
        let difference = around.compare(look_at(vec![], vec![chosen(2, "v0"), chosen(3, "p0")]));
        assert_eq!(names(&difference), (vec![], vec!["p0"]));
        around.give_up(&difference.appeared[0].0);
        let difference = around.compare(look_at(vec![], vec![chosen(2, "v0"), chosen(3, "p0")]));
        assert_eq!(names(&difference), (vec![], vec!["p0"]));
    }
}
