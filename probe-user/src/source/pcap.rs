//! Health checks in capture files: pcap and pcapng.
//!
//! In: a file as tcpdump or Wireshark writes it. Out: each packet that a rule recognises, in file
//! order, and counts of all others. One file can hold both directions. Memory is bounded by the
//! largest block that is accepted. A file that is cut gives what is whole, then says so.

mod frame;
mod reader;
#[cfg(test)]
mod tests;

pub use frame::CapturedFrame;
pub use reader::{PcapError, PcapReader, Step};

use probe_wire::Sighting;

use crate::signature::RuleTable;

/// A packet that a rule recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket {
    /// When it was captured: nanoseconds since 1970, UTC, by the clock of the capturing host.
    pub time_ns: u64,
    /// Bytes of the frame on the wire.
    pub frame_len: u32,
    /// Interface: by number in a pcapng section, by index in a Linux cooked v2 header, else 0.
    pub interface_index: u32,
    /// What was recognised.
    pub sighting: Sighting,
    /// Number of the rule in the [`RuleTable`].
    pub rule: u8,
}

/// What a capture gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Captured {
    /// A packet that a rule recognised.
    Packet(CapturedPacket),
    /// The file ends inside a block; nothing comes after this.
    Truncated {
        /// Bytes of the file that were whole.
        at: u64,
    },
}

/// What has been read so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PcapCounts {
    /// Packets in the file.
    pub packets: u64,
    /// Of these, recognised by a rule.
    pub matched: u64,
    /// Of these, of a link type that is not understood, without a time, or cut inside the link
    /// header.
    pub unparsable: u64,
}

/// The packets of a capture that match a rule.
#[derive(Debug)]
pub struct PcapPackets<'t> {
    reader: PcapReader,
    table: &'t RuleTable,
    counts: PcapCounts,
}

impl<'t> PcapPackets<'t> {
    /// Looks for the rules of `table` in a capture.
    pub fn new(reader: PcapReader, table: &'t RuleTable) -> Self {
        PcapPackets { reader, table, counts: PcapCounts::default() }
    }

    /// What has been read so far.
    pub fn counts(&self) -> PcapCounts {
        self.counts
    }

    fn look_at(&mut self, frame: &CapturedFrame) -> Option<CapturedPacket> {
        let sighting = self.table.sight(&frame.head())?;
        self.counts.matched += 1;
        Some(CapturedPacket {
            time_ns: frame.time_ns,
            frame_len: frame.wire_len,
            interface_index: frame.interface_index,
            sighting,
            rule: sighting.rule,
        })
    }
}

impl Iterator for PcapPackets<'_> {
    type Item = Result<Captured, PcapError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.reader.step() {
                Err(error) => return Some(Err(error)),
                Ok(Step::End) => return None,
                Ok(Step::Truncated { at }) => return Some(Ok(Captured::Truncated { at })),
                Ok(Step::Unparsable(_)) => {
                    self.counts.packets += 1;
                    self.counts.unparsable += 1;
                }
                Ok(Step::Frame(frame)) => {
                    self.counts.packets += 1;
                    if let Some(packet) = self.look_at(&frame) {
                        return Some(Ok(Captured::Packet(packet)));
                    }
                }
            }
        }
    }
}
