//! Packets by their address in the kernel: who carries which check now, and who did a moment ago.

use super::check::{Carrier, Check};
use super::slab::Slab;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// Which open check an `sk_buff` carries now.
#[derive(Debug)]
pub(super) struct Carriers {
    hasher: RandomState,
    /// Slot and phase: `slot << 1 | phase`.
    table: HashTable<u64>,
}

impl Carriers {
    pub(super) fn new() -> Self {
        Self { hasher: RandomState::default(), table: HashTable::new() }
    }

    /// The check and phase that an `sk_buff` carries.
    pub(super) fn find(&self, checks: &Slab<Check>, skb: u64) -> Option<(u32, usize)> {
        if skb == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(skb);
        self.table.find(hash, |&entry| carrier(checks, entry).skb == skb).map(|&entry| unpack(entry))
    }

    /// The packet of a check's phase is now `skb`, whoever it carried before.
    pub(super) fn set(&mut self, checks: &mut Slab<Check>, slot: u32, phase: usize, skb: u64) {
        let old = checks[slot].carriers[phase].skb;
        if old == skb {
            return;
        }
        self.unset(checks, slot, phase);
        if let Some((other, other_phase)) = self.find(checks, skb) {
            self.unset(checks, other, other_phase);
            checks[other].carriers[other_phase].skb = 0;
        }
        checks[slot].carriers[phase].skb = skb;
        if skb != 0 {
            let (hasher, checks) = (&self.hasher, &*checks);
            let rehash = |&entry: &u64| hasher.hash_one(carrier(checks, entry).skb);
            self.table.insert_unique(hasher.hash_one(skb), u64::from(slot) << 1 | phase as u64, rehash);
        }
    }

    pub(super) fn forget(&mut self, checks: &Slab<Check>, slot: u32) {
        self.unset(checks, slot, 0);
        self.unset(checks, slot, 1);
    }

    fn unset(&mut self, checks: &Slab<Check>, slot: u32, phase: usize) {
        let skb = checks[slot].carriers[phase].skb;
        let packed = u64::from(slot) << 1 | phase as u64;
        if skb != 0
            && let Ok(entry) = self.table.find_entry(self.hasher.hash_one(skb), |&entry| entry == packed)
        {
            entry.remove();
        }
    }
}

fn carrier(checks: &Slab<Check>, entry: u64) -> &Carrier {
    let (slot, phase) = unpack(entry);
    &checks[slot].carriers[phase]
}

#[expect(clippy::cast_possible_truncation, reason = "a slot was packed from 32 bits")]
const fn unpack(entry: u64) -> (u32, usize) {
    ((entry >> 1) as u32, (entry & 1) as usize)
}

/// What was seen a moment ago, in small tables that newer entries overwrite.
#[derive(Debug)]
pub(super) struct Recent {
    /// Replies that left through a loopback interface: their coming back is no new packet.
    looped: [(u64, MonoNs); 64],
    /// Threads that were seen to send a reply in the send call that they are still in.
    senders: [TaskId; 64],
}

impl Recent {
    pub(super) const fn new() -> Self {
        Self { looped: [(0, MonoNs(0)); 64], senders: [TaskId { tgid: 0, tid: 0 }; 64] }
    }

    pub(super) fn note_looped(&mut self, skb: u64, at: MonoNs) {
        self.looped[skb_place(skb)] = (skb, at);
    }

    pub(super) fn take_looped(&mut self, skb: u64, at: MonoNs) -> bool {
        let place = &mut self.looped[skb_place(skb)];
        let known = skb != 0 && place.0 == skb && at.since(place.1) <= DurNs::from_secs(1);
        if known {
            *place = (0, MonoNs(0));
        }
        known
    }

    pub(super) fn note_sender(&mut self, task: TaskId) {
        self.senders[task.tid as usize % 64] = task;
    }

    pub(super) fn take_sender(&mut self, task: TaskId) -> bool {
        let place = &mut self.senders[task.tid as usize % 64];
        let known = *place == task;
        if known {
            *place = TaskId::default();
        }
        known
    }
}

/// `sk_buff`s lie 256 bytes apart.
const fn skb_place(skb: u64) -> usize {
    (skb >> 8 & 63) as usize
}
