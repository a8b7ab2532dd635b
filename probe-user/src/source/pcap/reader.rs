//! Blocks of pcap and pcapng files, and their clocks.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{
    Block, EnhancedPacketBlock, InterfaceDescriptionBlock, LegacyPcapBlock, Linktype, PcapBlockOwned,
    PcapError as ParserError, PcapHeader, create_reader,
};

use super::frame::{CapturedFrame, RawPacket, link_name};
use crate::file;

/// First size of the buffer, bytes.
const BUFFER_BYTES: usize = 1 << 18;
/// Largest block that is read, bytes; a larger one is taken for damage.
const MAX_BLOCK_BYTES: usize = 1 << 24;
/// Interfaces of one section that are told apart; a hostile file could declare millions.
const MAX_INTERFACES: usize = 1 << 16;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// A capture file that cannot be read, or no further.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file cannot be opened.
    #[error("cannot open capture file {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Something else than a capture.
    #[error("this is neither a pcap nor a pcapng file")]
    NotACapture,
    /// Reading failed.
    #[error("cannot read the capture behind byte {at}")]
    Read {
        /// Bytes read whole.
        at: u64,
    },
    /// The file contradicts itself.
    #[error("the capture is damaged at byte {at}")]
    Damaged {
        /// Where the bad block begins.
        at: u64,
    },
}

/// What the next block of a capture is.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "almost every step is a frame, and it lives on the stack")]
pub enum Step {
    /// A packet.
    Frame(CapturedFrame),
    /// A packet that cannot be looked into: what it is.
    Unparsable(&'static str),
    /// The file ends inside a block; nothing comes after this.
    Truncated {
        /// Bytes of the file that were whole.
        at: u64,
    },
    /// The file is over.
    End,
}

/// Reads the packets of a capture, one by one.
pub struct PcapReader {
    blocks: Box<dyn PcapReaderIterator + Send>,
    clocks: Clocks,
    at: u64,
    buffer_bytes: usize,
    over: bool,
}

impl fmt::Debug for PcapReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcapReader").field("at", &self.at).field("over", &self.over).finish_non_exhaustive()
    }
}

impl PcapReader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, PcapError> {
        match file::open(path) {
            Ok(file) => PcapReader::new(file),
            Err(source) => Err(PcapError::Open { path: path.to_owned(), source }),
        }
    }

    /// Reads a capture from anywhere.
    pub fn new(input: impl Read + Send + 'static) -> Result<Self, PcapError> {
        let blocks = create_reader(BUFFER_BYTES, input).map_err(|error| match error {
            ParserError::ReadError => PcapError::Read { at: 0 },
            _ => PcapError::NotACapture,
        })?;
        Ok(PcapReader { blocks, clocks: Clocks::default(), at: 0, buffer_bytes: BUFFER_BYTES, over: false })
    }

    /// Goes on to the next packet, or to the end. After an error or the end there is only the end.
    pub fn step(&mut self) -> Result<Step, PcapError> {
        while !self.over {
            let at = self.at;
            match self.blocks.next() {
                Ok((len, block)) => {
                    let step = self.clocks.take(block);
                    self.blocks.consume(len);
                    self.at += len as u64;
                    if let Some(step) = step {
                        return Ok(step);
                    }
                }
                Err(error) => {
                    let trouble = Trouble::of(&error);
                    if let Some(step) = self.overcome(trouble, at)? {
                        return Ok(step);
                    }
                }
            }
        }
        Ok(Step::End)
    }

    /// Gets more bytes, or finds out that there are none.
    fn overcome(&mut self, trouble: Trouble, at: u64) -> Result<Option<Step>, PcapError> {
        match trouble {
            Trouble::NeedsBytes => self.refill(at),
            Trouble::NeedsRoom if self.buffer_bytes < MAX_BLOCK_BYTES => {
                self.buffer_bytes *= 2;
                self.blocks.grow(self.buffer_bytes);
                self.refill(at)
            }
            Trouble::End => {
                self.over = true;
                Ok(None)
            }
            Trouble::Cut => {
                self.over = true;
                Ok(Some(Step::Truncated { at }))
            }
            Trouble::NeedsRoom | Trouble::Damage => {
                self.over = true;
                Err(PcapError::Damaged { at })
            }
            Trouble::Read => {
                self.over = true;
                Err(PcapError::Read { at })
            }
        }
    }

    fn refill(&mut self, at: u64) -> Result<Option<Step>, PcapError> {
        let before = self.blocks.data().len();
        if self.blocks.refill().is_err() {
            self.over = true;
            return Err(PcapError::Read { at });
        }
        // neither more bytes nor the end: the parser would ask for ever
        if self.blocks.data().len() == before && !self.blocks.reader_exhausted() {
            self.over = true;
            return Err(PcapError::Damaged { at });
        }
        Ok(None)
    }
}

/// Why the parser has no block.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    NeedsBytes,
    NeedsRoom,
    End,
    Cut,
    Damage,
    Read,
}

impl Trouble {
    fn of(error: &ParserError<&[u8]>) -> Self {
        match error {
            ParserError::Incomplete(_) => Trouble::NeedsBytes,
            ParserError::BufferTooSmall => Trouble::NeedsRoom,
            ParserError::Eof => Trouble::End,
            ParserError::UnexpectedEof => Trouble::Cut,
            ParserError::ReadError => Trouble::Read,
            ParserError::HeaderNotRecognized | ParserError::NomError(..) | ParserError::OwnedNomError(..) => {
                Trouble::Damage
            }
        }
    }
}

/// What the blocks so far say about those to come.
#[derive(Debug, Default)]
struct Clocks {
    /// Link type and whether fractions are nanoseconds, of a pcap file.
    legacy: Option<(Linktype, bool)>,
    /// Interfaces of the current pcapng section.
    interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Ticks a second; `None` if the file's number makes none.
    resolution: Option<u64>,
    /// Added to every time, seconds.
    offset_s: i64,
}

impl Clocks {
    /// `None` for a block that is no packet.
    fn take(&mut self, block: PcapBlockOwned<'_>) -> Option<Step> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => self.take_header(&header),
            PcapBlockOwned::Legacy(packet) => return Some(self.legacy(&packet)),
            PcapBlockOwned::NG(Block::SectionHeader(_)) => self.interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(block)) => self.take_interface(&block),
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                return Some(self.enhanced(&packet));
            }
            // it has no time
            PcapBlockOwned::NG(Block::SimplePacket(_)) => return Some(Step::Unparsable("without time")),
            PcapBlockOwned::NG(_) => {}
        }
        None
    }

    fn take_header(&mut self, header: &PcapHeader) {
        // the upper half holds the length of the frame check sequence
        let link = Linktype(header.network.0 & 0xffff);
        self.legacy = Some((link, header.is_nanosecond_precision()));
    }

    fn take_interface(&mut self, block: &InterfaceDescriptionBlock<'_>) {
        if self.interfaces.len() < MAX_INTERFACES {
            self.interfaces.push(Interface {
                link: block.linktype,
                resolution: resolution(block.if_tsresol),
                offset_s: block.if_tsoffset,
            });
        }
    }

    fn legacy(&self, packet: &LegacyPcapBlock<'_>) -> Step {
        let Some((link, nanoseconds)) = self.legacy else {
            return Step::Unparsable("without header");
        };
        let fraction = u64::from(packet.ts_usec) * if nanoseconds { 1 } else { 1000 };
        let packet = RawPacket {
            time_ns: u64::from(packet.ts_sec) * NS_PER_SECOND + fraction,
            wire_len: packet.origlen,
            interface_index: 0,
            link,
            data: captured(packet.data, packet.caplen),
        };
        packet.frame().map_or(Step::Unparsable(link_name(link)), Step::Frame)
    }

    fn enhanced(&self, packet: &EnhancedPacketBlock<'_>) -> Step {
        let frame = self.enhanced_frame(packet);
        let interface = usize::try_from(packet.if_id).ok().and_then(|index| self.interfaces.get(index));
        let what = interface.map_or("of an unknown interface", |interface| link_name(interface.link));
        frame.map_or(Step::Unparsable(what), Step::Frame)
    }

    fn enhanced_frame(&self, packet: &EnhancedPacketBlock<'_>) -> Option<CapturedFrame> {
        let interface = self.interfaces.get(usize::try_from(packet.if_id).ok()?)?;
        let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
        RawPacket {
            time_ns: interface.time_ns(ticks)?,
            wire_len: packet.origlen,
            interface_index: packet.if_id,
            link: interface.link,
            data: captured(packet.data, packet.caplen),
        }
        .frame()
    }
}

/// The data without padding.
fn captured(data: &[u8], len: u32) -> &[u8] {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    data.get(..len).unwrap_or(data)
}

impl Interface {
    /// Nanoseconds since 1970; `None` if they do not fit.
    fn time_ns(self, ticks: u64) -> Option<u64> {
        let resolution = u128::from(self.resolution?);
        let since = i128::try_from(u128::from(ticks) * u128::from(NS_PER_SECOND) / resolution);
        let offset = i128::from(self.offset_s) * i128::from(NS_PER_SECOND);
        u64::try_from(since.ok()? + offset).ok()
    }
}

/// Ticks a second from `if_tsresol`: a power of 10, or of 2 with the upper bit set.
fn resolution(tsresol: u8) -> Option<u64> {
    let exponent = u32::from(tsresol & 0x7f);
    match tsresol & 0x80 {
        0 => 10_u64.checked_pow(exponent),
        _ => 1_u64.checked_shl(exponent),
    }
}
