//! What came or went while a run is on: watched from then on, or no longer.

use super::surroundings::{Difference, Gone, Renamed};
use super::{Live, active_hooks, sees_softirqs};
use crate::clock::MonoNs;
use crate::event::{Fact, InterfaceFact, InterfaceId};
use crate::live::clock;
use crate::load::{Attachment, LoadError, Presence, presence};

impl Live<'_> {
    /// Follows what came or went.
    pub(super) fn adapt(&mut self, change: Difference) {
        let now = clock::now();
        for Gone { attachment, interface, name, reason } in change.gone {
            self.attached.detach_interface(&attachment);
            self.observer.say(&format!("{name} is no longer watched: {reason}"));
            self.push_fact(now, &Fact::Gone { interface, reason });
            self.keep_up();
        }
        for Renamed { before, now: fact } in change.renamed {
            self.observer.say(&format!("{before} is called {} now, and is still watched", fact.name));
            self.push_fact(now, &Fact::Interface(fact));
        }
        for tgid in change.processes {
            self.watch_process(now, tgid);
        }
        for fact in change.holders {
            self.push_fact(now, &fact);
        }
        for (attachment, fact) in change.appeared {
            if !self.watch_interface(now, &attachment, fact) {
                self.surroundings.give_up(&attachment);
            }
            self.keep_up();
        }
        self.watch_levels();
    }

    /// Reads what has come while one of many interfaces was attached or let go, which takes
    /// milliseconds each: the rings would be full before the last. No tick is said, so facts of an
    /// earlier time still find their place.
    fn keep_up(&mut self) {
        self.drain(self.rings.round());
    }

    pub(super) fn watch_process(&mut self, now: MonoNs, tgid: u32) {
        if let Err(error) = self.attached.watch_tgid(tgid) {
            self.say_error(error, &format!("cannot watch process {tgid}"));
        }
        let Self { annotator, counters, stream, observer, .. } = self;
        annotator.process(tgid, &mut |fact| {
            counters.iter_mut().for_each(|counters| counters.note(fact));
            stream.fact(now, fact, &mut |output| observer.see(output));
        });
    }

    /// Watches an interface that appeared; false if it is gone already, as many are that come and go. The
    /// fact comes first: the programs' first packet must find it known.
    fn watch_interface(&mut self, now: MonoNs, attachment: &Attachment, fact: InterfaceFact) -> bool {
        let (name, interface) = (fact.name.clone(), fact.id);
        if !may_be_there(&presence(attachment, interface.netns)) {
            return false;
        }
        let said = format!("also watching {name} ({})", fact.label);
        if sees_softirqs(&self.attached) {
            self.annotator.look_behind_ring(&fact);
        }
        self.push_fact(now, &Fact::Interface(fact));
        let attached = self.attach(now, attachment, interface);
        let is_gone = matches!(attached, Err(LoadError::Netns { .. } | LoadError::Interface { .. }));
        match attached {
            Ok(()) => self.observer.say(&said),
            Err(error) => self.say_error(error, &format!("cannot watch {name}")),
        }
        !is_gone
    }

    /// Attaches the programs to an interface that has been told of, and says since when they run.
    pub(super) fn attach(
        &mut self,
        now: MonoNs,
        attachment: &Attachment,
        interface: InterfaceId,
    ) -> Result<(), LoadError> {
        let before = active_hooks(&self.attached);
        let attached = self.attached.attach_interface(attachment);
        if attached.is_ok() {
            self.push_fact(now, &Fact::Live { interface, since: clock::now() });
        }
        let active = active_hooks(&self.attached);
        if active != before {
            self.push_fact(now, &Fact::Hooks { active });
        }
        attached
    }
}

const fn may_be_there(presence: &Presence) -> bool {
    !matches!(presence, Presence::NoInterface | Presence::NoNamespace | Presence::NoWay)
}
