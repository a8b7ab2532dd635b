//! Events to bytes: facts and ticks for the live stream, anything for pcaps and tests.

use super::{Body, CounterRow, Event, FACT_KIND, Fact, TICK_KIND};
use crate::clock::MonoNs;
use probe_wire::EventHeader;
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of a header, and so of a tick.
pub const HEADER_LEN: usize = size_of::<EventHeader>();

/// Most bytes that a record can have: a header counts its body in 16 bits.
pub const MAX_RECORD_LEN: usize = HEADER_LEN + u16::MAX as usize;

/// Counter rows in one record, so that their JSON stays far below [`MAX_RECORD_LEN`] (a row has at
/// most 92 bytes).
const ROWS_PER_RECORD: usize = 500;

/// Why an event has no record.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The header counts the body in 16 bits.
    #[error("a fact of {got} bytes does not fit into one record")]
    TooLong {
        /// Bytes of the fact as JSON.
        got: usize,
    },
    /// JSON cannot hold the fact.
    #[error("a fact cannot be written as JSON")]
    Fact(#[from] serde_json::Error),
}

/// The record of a tick: every record with an earlier time has been read.
#[must_use]
pub fn tick_record(at: MonoNs) -> [u8; HEADER_LEN] {
    let mut record = [0; HEADER_LEN];
    record.copy_from_slice(header(at, TICK_KIND, 0).as_bytes());
    record
}

/// The record of a fact that is known at `at`.
///
/// # Errors
/// When it does not fit into one record; [`fact_records`] splits those that can be split.
pub fn fact_record(at: MonoNs, fact: &Fact) -> Result<Vec<u8>, EncodeError> {
    let json = serde_json::to_vec(fact)?;
    let len = u16::try_from(json.len()).map_err(|_| EncodeError::TooLong { got: json.len() })?;
    let mut record = header(at, FACT_KIND, len).as_bytes().to_vec();
    record.extend_from_slice(&json);
    Ok(record)
}

/// The records of a fact; counters of many CPUs are split by rows, to be read one after another.
///
/// # Errors
/// When a fact that cannot be split does not fit into one record.
pub fn fact_records(at: MonoNs, fact: &Fact) -> Result<Vec<Vec<u8>>, EncodeError> {
    match fact {
        Fact::Counters { rows, skipped_runs } if rows.len() > ROWS_PER_RECORD => {
            let skipped = Fact::Counters { rows: Vec::new(), skipped_runs: skipped_runs.clone() };
            let parts = rows.chunks(ROWS_PER_RECORD).map(part_of_counters).chain([skipped]);
            parts.map(|part| fact_record(at, &part)).collect()
        }
        fact => Ok(vec![fact_record(at, fact)?]),
    }
}

fn part_of_counters(rows: &[CounterRow]) -> Fact {
    Fact::Counters { rows: rows.to_vec(), skipped_runs: Vec::new() }
}

/// The record of any event.
///
/// # Errors
/// As [`fact_record`], for facts only.
pub fn encode(event: &Event) -> Result<Vec<u8>, EncodeError> {
    let (Some(kind), Some(body)) = (event.body.kind(), wire_bytes(&event.body)) else {
        return match &event.body {
            Body::Fact(fact) => fact_record(event.at, fact),
            _ => Ok(tick_record(event.at).to_vec()),
        };
    };
    let len = u16::try_from(body.len()).map_err(|_| EncodeError::TooLong { got: body.len() })?;
    let mut header = header(event.at, kind as u16, len);
    header.seq = event.seq;
    header.cpu = event.cpu;
    header.tgid = event.task.tgid;
    header.tid = event.task.tid;
    header.softirq = event.softirq;
    header.interrupt = event.interrupt as u32;
    let mut record = header.as_bytes().to_vec();
    record.extend_from_slice(body);
    Ok(record)
}

fn header(at: MonoNs, kind: u16, body_len: u16) -> EventHeader {
    EventHeader { time_ns: at.0, kind, body_len, ..EventHeader::new_zeroed() }
}

/// The body of a kernel record; `None` for facts and ticks.
fn wire_bytes(body: &Body) -> Option<&[u8]> {
    Some(match body {
        Body::PacketIngress(body) | Body::PacketEgress(body) => body.as_bytes(),
        Body::SockEnqueue(body) => body.as_bytes(),
        Body::SockRead(body) | Body::SockSend(body) => body.as_bytes(),
        Body::SwitchOut(body) => body.as_bytes(),
        Body::SwitchIn(body) => body.as_bytes(),
        Body::Waking(body) => body.as_bytes(),
        Body::QdiscEnqueue(body) | Body::QdiscDequeue(body) => body.as_bytes(),
        Body::Xmit(body) => body.as_bytes(),
        Body::Drop(body) => body.as_bytes(),
        Body::Softirq(body) => body.as_bytes(),
        Body::TaskExit(body) => body.as_bytes(),
        Body::TaskFork(body) => body.as_bytes(),
        Body::OtherRead(body) | Body::OtherSend(body) => body.as_bytes(),
        Body::BackendRx(body) => body.as_bytes(),
        Body::Neighbour(body) => body.as_bytes(),
        Body::AcceptFull(body) => body.as_bytes(),
        Body::OtherPeer(body) => body.as_bytes(),
        Body::SendHeld(body) => body.as_bytes(),
        Body::FileWait(body) => body.as_bytes(),
        Body::Dirtied(body) => body.as_bytes(),
        Body::Reclaim(body) => body.as_bytes(),
        Body::BlockRequest(body) => body.as_bytes(),
        Body::LockSpin(body) => body.as_bytes(),
        Body::FutexWait(body) => body.as_bytes(),
        Body::GuestExits(body) => body.as_bytes(),
        Body::SoftirqWait(body) => body.as_bytes(),
        Body::Ran(body) => body.as_bytes(),
        Body::Fact(_) | Body::Tick => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::decode::decode;
    use super::*;

    fn counters(rows: u32) -> Fact {
        let row = |cpu| CounterRow { cpu, kind: u16::MAX, emitted: u64::MAX, lost: u64::MAX, undrained: 0 };
        Fact::Counters { rows: (0..rows).map(row).collect(), skipped_runs: vec![("sched_switch".into(), 1)] }
    }

    #[test]
    fn a_fact_too_long_for_a_record_is_refused_and_never_cut() {
        let fact = Fact::Symbol { address: 1, name: "x".repeat(70_000) };
        assert!(matches!(fact_record(MonoNs(0), &fact), Err(EncodeError::TooLong { got }) if got > 70_000));
        assert!(fact_records(MonoNs(0), &fact).is_err());
    }

    #[test]
    fn counters_of_many_cpus_are_split_without_losing_a_row() {
        let records = fact_records(MonoNs(0), &counters(15_000)).unwrap();
        assert!(records.len() > 1 && records.iter().all(|record| record.len() <= MAX_RECORD_LEN));
        let mut all = (0, 0);
        for record in records {
            let Body::Fact(fact) = decode(&record).unwrap().body else { panic!("a fact") };
            let Fact::Counters { rows, skipped_runs } = *fact else { panic!("counters") };
            all = (all.0 + rows.len(), all.1 + skipped_runs.len());
        }
        assert_eq!(all, (15_000, 1));
    }
}
