//! Bytes to events.
//!
//! Total: every byte string gives an [`Event`] or a [`DecodeError`], and none a panic. What cannot
//! be decoded is counted by the caller (see [`LossLedger`](crate::loss::LossLedger)), not fatal.

use super::{Body, Event, FACT_KIND, Fact, TICK_KIND, TaskId};
use crate::clock::MonoNs;
use probe_wire::{
    AcceptFullBody, BackendRxBody, BlockRequestBody, CpuAccount, DirtiedBody, DropBody, EventHeader, EventKind,
    FileWaitBody, FutexWaitBody, GuestExitsBody, Interrupt, LockSpinBody, NeighbourBody, OtherCallBody, OtherPeerBody,
    PacketBody, QdiscBody, RanBody, ReclaimBody, SendHeldBody, SockCallBody, SockEnqueueBody, SoftirqBody,
    SoftirqWaitBody, SwitchInBody, SwitchOutBody, TaskExitBody, TaskForkBody, WakingBody, XmitBody,
};
use zerocopy::{FromBytes, IntoBytes};

/// Why a record has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter than a header.
    #[error("a record of {got} bytes has no room for a header")]
    NoHeader {
        /// Bytes of the record.
        got: usize,
    },
    /// The header names another length than the record has.
    #[error("a record of kind {kind} says its body has {said} bytes, but {got} follow")]
    WrongLength {
        /// Kind number.
        kind: u16,
        /// Body length in the header.
        said: usize,
        /// Bytes behind the header.
        got: usize,
    },
    /// The body has another size than its kind.
    #[error("a record of kind {kind} has a body of {got} bytes")]
    WrongBody {
        /// Kind number.
        kind: u16,
        /// Bytes behind the header.
        got: usize,
    },
    /// A kind that this version does not know.
    #[error("kind {kind} is unknown")]
    UnknownKind {
        /// Kind number.
        kind: u16,
    },
    /// A fact that is not the JSON of a known fact.
    #[error("a fact cannot be read: {reason}")]
    BadFact {
        /// What the JSON parser says, with the place.
        reason: String,
    },
}

/// Decodes one record: a header and the body of its kind, nothing behind it.
///
/// # Errors
/// Says why the record has no meaning.
pub fn decode(record: &[u8]) -> Result<Event, DecodeError> {
    let (header, body) =
        EventHeader::read_from_prefix(record).map_err(|_| DecodeError::NoHeader { got: record.len() })?;
    let said = usize::from(header.body_len);
    if said != body.len() {
        return Err(DecodeError::WrongLength { kind: header.kind, said, got: body.len() });
    }
    let (at, body) = (MonoNs(header.time_ns), decode_body(header.kind, body)?);
    Ok(match body {
        // Of ticks and facts, which no program emits, only the time counts.
        Body::Tick | Body::Fact(_) => {
            Event { at, seq: 0, cpu: 0, task: TaskId::default(), softirq: 0, interrupt: Interrupt::Unknown, body }
        }
        body => Event {
            at,
            seq: header.seq,
            cpu: header.cpu,
            task: TaskId { tgid: header.tgid, tid: header.tid },
            softirq: header.softirq,
            interrupt: Interrupt::new(header.interrupt),
            body,
        },
    })
}

fn decode_body(kind: u16, bytes: &[u8]) -> Result<Body, DecodeError> {
    match kind {
        TICK_KIND if bytes.is_empty() => Ok(Body::Tick),
        TICK_KIND => Err(DecodeError::WrongBody { kind, got: bytes.len() }),
        FACT_KIND => decode_fact(bytes),
        kind => {
            let known = EventKind::try_from(kind).map_err(|_| DecodeError::UnknownKind { kind })?;
            decode_wire(known, bytes).ok_or(DecodeError::WrongBody { kind, got: bytes.len() })
        }
    }
}

const ACCOUNT: usize = size_of::<CpuAccount>();

fn decode_wire(kind: EventKind, bytes: &[u8]) -> Option<Body> {
    fn read<T: FromBytes>(bytes: &[u8]) -> Option<T> {
        T::read_from_bytes(bytes).ok()
    }
    Some(match kind {
        EventKind::PacketIngress => Body::PacketIngress(read::<PacketBody>(bytes)?),
        EventKind::PacketEgress => Body::PacketEgress(read::<PacketBody>(bytes)?),
        EventKind::SockEnqueue => Body::SockEnqueue(read::<SockEnqueueBody>(bytes)?),
        EventKind::SockRead => Body::SockRead(read::<SockCallBody>(bytes)?),
        EventKind::SockSend => Body::SockSend(read::<SockCallBody>(bytes)?),
        EventKind::SwitchOut => Body::SwitchOut(Box::new(switch::<SwitchOutBody>(bytes, ACCOUNT + size_of::<u64>())?)),
        EventKind::SwitchIn => Body::SwitchIn(switch::<SwitchInBody>(bytes, ACCOUNT)?),
        EventKind::Waking => Body::Waking(read::<WakingBody>(bytes)?),
        EventKind::QdiscEnqueue => Body::QdiscEnqueue(read::<QdiscBody>(bytes)?),
        EventKind::QdiscDequeue => Body::QdiscDequeue(read::<QdiscBody>(bytes)?),
        EventKind::Xmit => Body::Xmit(read::<XmitBody>(bytes)?),
        EventKind::Drop => Body::Drop(read::<DropBody>(bytes)?),
        EventKind::Softirq => Body::Softirq(read::<SoftirqBody>(bytes)?),
        EventKind::TaskExit => Body::TaskExit(read::<TaskExitBody>(bytes)?),
        EventKind::TaskFork => Body::TaskFork(read::<TaskForkBody>(bytes)?),
        EventKind::OtherRead => Body::OtherRead(read::<OtherCallBody>(bytes)?),
        EventKind::OtherSend => Body::OtherSend(read::<OtherCallBody>(bytes)?),
        EventKind::BackendRx => Body::BackendRx(read::<BackendRxBody>(bytes)?),
        EventKind::Neighbour => Body::Neighbour(read::<NeighbourBody>(bytes)?),
        EventKind::AcceptFull => Body::AcceptFull(read::<AcceptFullBody>(bytes)?),
        EventKind::OtherPeer => Body::OtherPeer(read::<OtherPeerBody>(bytes)?),
        EventKind::SendHeld => Body::SendHeld(read::<SendHeldBody>(bytes)?),
        EventKind::FileWait => Body::FileWait(read::<FileWaitBody>(bytes)?),
        EventKind::Dirtied => Body::Dirtied(read::<DirtiedBody>(bytes)?),
        EventKind::Reclaim => Body::Reclaim(read::<ReclaimBody>(bytes)?),
        EventKind::BlockRequest => Body::BlockRequest(read::<BlockRequestBody>(bytes)?),
        EventKind::LockSpin => Body::LockSpin(read::<LockSpinBody>(bytes)?),
        EventKind::FutexWait => Body::FutexWait(read::<FutexWaitBody>(bytes)?),
        EventKind::GuestExits => Body::GuestExits(read::<GuestExitsBody>(bytes)?),
        EventKind::SoftirqWait => Body::SoftirqWait(Box::new(read::<SoftirqWaitBody>(bytes)?)),
        EventKind::Ran => Body::Ran(read::<RanBody>(bytes)?),
    })
}

/// A switch; one of wire version 2 lacks the `added` bytes, the account and what follows it, of
/// which then nothing is known.
fn switch<T: FromBytes + IntoBytes>(bytes: &[u8], added: usize) -> Option<T> {
    if bytes.len() == size_of::<T>() {
        return T::read_from_bytes(bytes).ok();
    }
    let mut body = T::new_zeroed();
    let (known, account) = body.as_mut_bytes().split_at_mut_checked(size_of::<T>().checked_sub(added)?)?;
    let (account, ran) = account.split_at_mut_checked(size_of::<CpuAccount>())?;
    account.copy_from_slice(CpuAccount::UNKNOWN.as_bytes());
    ran.fill(u8::MAX);
    (known.len() == bytes.len()).then(|| known.copy_from_slice(bytes))?;
    Some(body)
}

fn decode_fact(json: &[u8]) -> Result<Body, DecodeError> {
    serde_json::from_slice::<Fact>(json)
        .map(|fact| Body::Fact(Box::new(fact)))
        .map_err(|error| DecodeError::BadFact { reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::super::encode::{encode, fact_record, tick_record};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tick_survives_the_round_trip() {
        let event = decode(&tick_record(MonoNs(7))).unwrap();
        assert_eq!((event.at, event.body), (MonoNs(7), Body::Tick));
    }

    #[test]
    fn a_fact_survives_the_round_trip() {
        let fact = Fact::Hooks { active: vec!["packet_ingress".into(), "quo\"te".into()] };
        let event = decode(&fact_record(MonoNs(3), &fact).unwrap()).unwrap();
        assert_eq!(event.body, Body::Fact(Box::new(fact)));
    }

    #[test]
    fn a_body_that_is_cut_or_too_long_is_an_error() {
        let body = TaskExitBody { start_time_ns: 9 };
        let event = Event {
            at: MonoNs(1),
            seq: 1,
            cpu: 2,
            task: TaskId { tgid: 3, tid: 4 },
            softirq: 5,
            interrupt: Interrupt::Hard,
            body: Body::TaskExit(body),
        };
        let mut bytes = encode(&event).unwrap();
        assert_eq!(decode(&bytes).unwrap(), event);
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len}");
        }
        bytes.push(0);
        assert!(matches!(decode(&bytes), Err(DecodeError::WrongLength { said: 8, got: 9, .. })));
    }

    #[test]
    fn an_unknown_kind_is_named() {
        let mut bytes = tick_record(MonoNs(7));
        bytes[16] = 77;
        bytes[17] = 0;
        assert_eq!(decode(&bytes), Err(DecodeError::UnknownKind { kind: 77 }));
    }

    #[test]
    fn unaligned_bytes_decode() {
        let record = tick_record(MonoNs(7));
        let mut shifted = vec![0_u8];
        shifted.extend_from_slice(&record);
        assert!(decode(&shifted[1..]).is_ok());
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_what_decodes_encodes_back(
            kind in prop_oneof![0_u16..36, 998_u16..1003], mut bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            if bytes.len() >= 40 {
                bytes[16..18].copy_from_slice(&kind.to_le_bytes());
                let body_len = u16::try_from(bytes.len() - 40).unwrap();
                bytes[18..20].copy_from_slice(&body_len.to_le_bytes());
                bytes[36..40].fill(0);
            }
            if let Ok(event) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&event).unwrap()).unwrap(), event);
            }
        }
    }
}
