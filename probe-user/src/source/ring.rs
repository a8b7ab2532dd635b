//! The live source: one ring for each CPU, drained on a timer.
//!
//! In: what the kernel programs emit. Out: records as bytes, in each CPU's own order. It neither
//! decodes nor keeps them.

use std::{fmt, io, time::Duration};

use aya::maps::{MapData, RingBuf};
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, EventData, EventFlags},
    },
    fd::OwnedFd,
    io::Errno,
};

/// Records taken from one ring before the next one's turn: a steady producer would hold the
/// drain at its ring for ever.
const PER_TURN: usize = 1024;
/// Bytes that a ring adds to each record.
const RECORD_HEADER: usize = 8;
/// How long to wait between drains when records came in the last one.
const BUSY: Duration = Duration::from_millis(10);
/// And when so few did that what comes meanwhile has room many times over: a drain, and what a collector
/// concludes behind it, cost the same however little came.
const CALM: Duration = Duration::from_millis(25);
/// The part of a ring of which fewer are few.
const FEW: usize = 16;
/// And when none did.
const IDLE: Duration = Duration::from_millis(100);

/// The reading ends of all rings.
pub struct Rings {
    rings: Vec<RingBuf<MapData>>,
    /// Becomes readable when a ring is half full.
    wakeups: OwnedFd,
    /// Bytes of each ring.
    size: usize,
    calm: Duration,
    pause: Duration,
    /// Bytes taken out of each ring by a drain.
    taken: Vec<usize>,
}

/// What a drain did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Records handed out.
    pub records: usize,
    /// Whether rings may hold more; then drain again before waiting.
    pub more: bool,
    /// Bytes that came out of the ring that gave most.
    pub fullest: usize,
}

impl Rings {
    /// Of rings of `size` bytes each.
    pub(crate) fn new(rings: Vec<RingBuf<MapData>>, size: usize) -> io::Result<Self> {
        let wakeups = epoll::create(CreateFlags::CLOEXEC)?;
        for (cpu, ring) in (0..).zip(&rings) {
            // Edge-triggered: a ring that stays half full must not make the wait spin.
            epoll::add(&wakeups, ring, EventData::new_u64(cpu), EventFlags::IN | EventFlags::ET)?;
        }
        let taken = vec![0; rings.len()];
        Ok(Self { rings, wakeups, size, calm: CALM, pause: BUSY, taken })
    }

    /// From now on few records are no reason to wait longer: with them comes what does not wait in these
    /// rings.
    pub(crate) const fn never_calm(&mut self) {
        self.calm = BUSY;
    }

    /// Number of rings: one for each CPU that can come online.
    #[must_use]
    pub const fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// Records that a drain takes at most before every ring had its turn.
    #[must_use]
    pub const fn round(&self) -> usize {
        self.rings.len() * PER_TURN
    }

    /// Hands every record at hand to `take`, with its CPU, but at most `limit` records; each ring
    /// gets an equal share of them.
    pub fn drain(&mut self, limit: usize, take: impl FnMut(usize, &[u8])) -> Drained {
        let drained = self.take_turns(limit, take);
        self.pause = match drained {
            Drained { more: true, .. } => Duration::ZERO,
            Drained { records: 0, .. } => IDLE,
            Drained { fullest, .. } if fullest < self.size / FEW => self.calm,
            Drained { .. } => BUSY,
        };
        drained
    }

    fn take_turns(&mut self, limit: usize, mut take: impl FnMut(usize, &[u8])) -> Drained {
        let mut drained = Drained::default();
        self.taken.fill(0);
        loop {
            let before = drained.records;
            drained.more = false;
            for ((cpu, ring), bytes) in self.rings.iter_mut().enumerate().zip(&mut self.taken) {
                let turn = PER_TURN.min(limit.saturating_sub(drained.records));
                let taken = drain_ring(ring, turn, |record| {
                    *bytes += RECORD_HEADER + record.len();
                    take(cpu, record);
                });
                drained.records += taken;
                drained.more |= taken == turn;
                drained.fullest = drained.fullest.max(*bytes);
            }
            if !drained.more || drained.records == before || drained.records >= limit {
                return drained;
            }
        }
    }

    /// Waits until it is time to drain again: 10 ms after a drain that found many records, 25 ms after
    /// one that found few, 100 ms after one that found none, sooner when a ring is half full, and at most
    /// `limit`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to wait; not for a signal.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let pause = self.pause.min(limit);
        let timeout = Timespec::try_from(pause).map_err(io::Error::other)?;
        let mut events = Vec::with_capacity(self.rings.len().max(1));
        match epoll::wait(&self.wakeups, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits, then drains: one turn of a collector's loop.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn poll(&mut self, wait: Duration, limit: usize, take: impl FnMut(usize, &[u8])) -> io::Result<Drained> {
        self.wait(wait)?;
        Ok(self.drain(limit, take))
    }
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").field("cpus", &self.rings.len()).finish_non_exhaustive()
    }
}

fn drain_ring(ring: &mut RingBuf<MapData>, turn: usize, mut take: impl FnMut(&[u8])) -> usize {
    let mut taken = 0;
    while taken < turn {
        let Some(record) = ring.next() else { break };
        take(&record);
        taken += 1;
    }
    taken
}
