//! What was counted of senders, read out of the programs' maps.

use aya::maps::{Array, HashMap, MapError, PerCpuArray, PerCpuHashMap};
use probe_wire::{DEVICE_BITS, Sender, SentCount, SentKey, Uncounted};
use zerocopy::transmute;

use super::{Attached, LoadError, object};

const KEY: usize = size_of::<SentKey>() / 8;
const COUNT: usize = size_of::<SentCount>() / 8;
const SENDER: usize = size_of::<Sender>() / 8;

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
        let name = "TURN";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        Array::<_, u32>::try_from(map).map_err(failed)?.set(0, turn, 0).map_err(failed)
    }

    /// Takes out what was counted in the other turns than this one.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read or to empty the map.
    pub fn sent(&mut self, turn: u32) -> Result<SentRound, LoadError> {
        let name = "SENT";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        let mut sent = PerCpuHashMap::<_, [u64; KEY], [u64; COUNT]>::try_from(map).map_err(failed)?;
        // An entry that appears meanwhile may end the walk early; what it left is of this turn, or
        // is read the next time.
        let keys: Vec<[u64; KEY]> = sent.keys().filter_map(Result::ok).collect();
        let mut counts = Vec::new();
        for words in keys {
            let key: SentKey = transmute!(words);
            if key.turn == turn % 2 {
                continue;
            }
            match sent.get(&words, 0) {
                Ok(values) => counts.push((key, values.iter().map(|value| transmute!(*value)).collect())),
                Err(MapError::KeyNotFound) => continue,
                Err(error) => return Err(failed(error)),
            }
            sent.remove(&words).map_err(failed)?;
        }
        Ok(SentRound { counts, uncounted: self.uncounted()? })
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

    /// Tells the programs whether interfaces with this index are watched.
    pub(super) fn tell_device(&mut self, ifindex: u32) -> Result<(), LoadError> {
        let name = "DEVICES";
        let failed = |source| object::map_error(name, source);
        let word = |ifindex: u32| ifindex % DEVICE_BITS / 64;
        let watched = self.interfaces.iter().map(|interface| interface.attachment.ifindex);
        let of_word = watched.filter(|index| word(*index) == word(ifindex));
        let bits = of_word.fold(0_u64, |bits, index| bits | 1 << (index % 64));
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        Array::<_, u64>::try_from(map).map_err(failed)?.set(word(ifindex), bits, 0).map_err(failed)
    }
}
