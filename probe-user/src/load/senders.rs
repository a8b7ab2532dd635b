//! What was counted of senders, read out of the programs' maps.

use aya::maps::{Array, HashMap, MapError, PerCpuArray, PerCpuHashMap};
use probe_wire::{DEVICE_BITS, NearSenders, Sender, SentCount, SentKey, Uncounted};
use zerocopy::transmute;

use super::{Attached, LoadError, object};

const KEY: usize = size_of::<SentKey>() / 8;
const COUNT: usize = size_of::<SentCount>() / 8;
const NEAR: usize = size_of::<NearSenders>() / 8;
const SENDER: usize = size_of::<Sender>() / 8;

const DEVICE_WORDS: usize = DEVICE_BITS as usize / 64;

/// For each sender and flow the counts of each CPU.
type Counts = std::collections::HashMap<SentKey, Vec<SentCount>>;

/// What was counted until a moment: for each sender, flow and queue the counts of each CPU.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SentRound {
    /// What.
    pub counts: Vec<(SentKey, Vec<SentCount>)>,
    /// What found no room, on all CPUs since attach.
    pub uncounted: Uncounted,
}

impl Attached {
    /// Whether senders are counted.
    #[must_use]
    pub const fn counts_senders(&self) -> bool {
        self.senders
    }

    /// From now on packets count for the next reading. Programs that have begun may still count for
    /// the one before: a moment is to pass until [`sent`](Self::sent) reads that.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to write the map.
    pub fn turn_senders(&mut self, turn: u32) -> Result<(), LoadError> {
        let name = ".data.turn";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        Array::<_, u64>::try_from(map).map_err(failed)?.set(0, u64::from(turn), 0).map_err(failed)
    }

    /// Takes out what was counted in the turn before this one. Each turn is to be read before the next
    /// begins.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read or to empty a map.
    pub fn sent(&mut self, turn: u32) -> Result<SentRound, LoadError> {
        let mut counts = self.sent_elsewhere(turn)?;
        if self.sent_turn != turn {
            self.add_near(turn.wrapping_sub(1), &mut counts)?;
            self.sent_turn = turn;
        }
        Ok(SentRound { counts: counts.into_iter().collect(), uncounted: self.uncounted()? })
    }

    /// Takes out of the map what is there of other turns than this one.
    fn sent_elsewhere(&mut self, turn: u32) -> Result<Counts, LoadError> {
        let name = "SENT";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        let mut sent = PerCpuHashMap::<_, [u64; KEY], [u64; COUNT]>::try_from(map).map_err(failed)?;
        // An entry that appears meanwhile may end the walk early; what it left is of this turn, or
        // is read the next time.
        let keys: Vec<[u64; KEY]> = sent.keys().filter_map(Result::ok).collect();
        let mut counts = Counts::new();
        for words in keys {
            let key: SentKey = transmute!(words);
            if key.turn == turn % 2 {
                continue;
            }
            match sent.get(&words, 0) {
                Ok(values) => counts.insert(key, values.iter().map(|value| transmute!(*value)).collect()),
                Err(MapError::KeyNotFound) => continue,
                Err(error) => return Err(failed(error)),
            };
            sent.remove(&words).map_err(failed)?;
        }
        Ok(counts)
    }

    /// Adds what each CPU counted in a turn by itself.
    fn add_near(&self, turn: u32, counts: &mut Counts) -> Result<(), LoadError> {
        let name = "NEAR";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map(name).ok_or(LoadError::Incomplete { name })?;
        let near = PerCpuArray::<_, [u64; NEAR]>::try_from(map).map_err(failed)?;
        let values = near.get(&(turn % 2), 0).map_err(failed)?;
        for (cpu, words) in values.iter().enumerate() {
            let NearSenders { senders, .. } = transmute!(*words);
            for sender in senders.iter().filter(|sender| sender.packets > 0 && sender.turn == turn) {
                let row = counts.entry(sender.key()).or_insert_with(|| vec![SentCount::default(); values.len()]);
                if let Some(count) = row.get_mut(cpu) {
                    count.packets += sender.packets;
                    count.bytes += sender.bytes;
                }
            }
        }
        Ok(())
    }

    fn uncounted(&self) -> Result<Uncounted, LoadError> {
        let name = "UNCOUNTED";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map(name).ok_or(LoadError::Incomplete { name })?;
        let rows = PerCpuArray::<_, [u64; 2]>::try_from(map).map_err(failed)?;
        let values = rows.get(&0, 0).map_err(failed)?;
        let sum = values.iter().fold([0, 0], |[packets, bytes], row| [packets + row[0], bytes + row[1]]);
        Ok(transmute!(sum))
    }

    /// Who sends through the socket of this cookie, if that was seen.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read the map.
    pub fn sender(&self, socket: u64) -> Result<Option<Sender>, LoadError> {
        let name = "SENDERS";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map(name).ok_or(LoadError::Incomplete { name })?;
        let senders = HashMap::<_, u64, [u64; SENDER]>::try_from(map).map_err(failed)?;
        match senders.get(&socket, 0) {
            Ok(words) => Ok(Some(transmute!(words))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Tells the programs which interfaces are watched, by their indexes.
    pub(super) fn tell_devices(&mut self) -> Result<(), LoadError> {
        let name = ".data.devices";
        let failed = |source| object::map_error(name, source);
        let mut words = [0_u64; DEVICE_WORDS];
        for interface in &self.interfaces {
            let bit = interface.attachment.ifindex % DEVICE_BITS;
            if let Some(word) = words.get_mut(bit as usize / 64) {
                *word |= 1 << (bit % 64);
            }
        }
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        Array::<_, [u64; DEVICE_WORDS]>::try_from(map).map_err(failed)?.set(0, words, 0).map_err(failed)
    }
}
