//! Records without what is nobody's business: payload, and addresses.
//!
//! A record keeps its length, its place and all that a conclusion rests on. What cannot be decoded may
//! hold anything, so its body becomes zeros, which cannot be decoded either.

use super::BundleError;
use super::pseudonym::Pseudonyms;
use crate::event::{Body, DecodeError, Event, Fact, HEADER_LEN, decode, fact_record};
use crate::sender::QueueFact;
use probe_wire::Sighting;
use zerocopy::IntoBytes;

/// Rewrites a record, and gives it away decoded. Addresses are replaced unless they are to be `plain`;
/// nonces, which are payload, always are.
///
/// # Errors
/// When there are more addresses than pseudonyms are kept for.
pub fn rewrite(
    record: &mut Vec<u8>,
    pseudonyms: &mut Pseudonyms,
    plain: bool,
) -> Result<Result<Event, DecodeError>, BundleError> {
    let event = match decode(record) {
        Ok(event) => event,
        Err(error) => {
            record.iter_mut().skip(HEADER_LEN).for_each(|byte| *byte = 0);
            return Ok(Err(error));
        }
    };
    let body = record.get_mut(HEADER_LEN..).unwrap_or_default();
    match event.body.clone() {
        Body::PacketIngress(mut packet) | Body::PacketEgress(mut packet) => {
            hide(&mut packet.sighting, pseudonyms, plain)?;
            body.copy_from_slice(packet.as_bytes());
        }
        Body::Drop(mut drop) => {
            hide(&mut drop.sighting, pseudonyms, plain)?;
            body.copy_from_slice(drop.as_bytes());
        }
        Body::OtherPeer(mut socket) if !plain => {
            socket.peer = pseudonyms.address(socket.peer)?;
            body.copy_from_slice(socket.as_bytes());
        }
        // Written anew, so that nothing is in it but what this version knows.
        Body::Fact(mut fact) => {
            if let Fact::Queue(queue) = &mut *fact
                && !plain
            {
                hide_flows(queue, pseudonyms)?;
            }
            *record = fact_record(event.at, &fact)?;
        }
        _ => return Ok(Ok(event)),
    }
    Ok(decode(record))
}

fn hide_flows(queue: &mut QueueFact, pseudonyms: &mut Pseudonyms) -> Result<(), BundleError> {
    for flow in queue.senders.iter_mut().flat_map(|sender| &mut sender.flows) {
        flow.source = pseudonyms.address(flow.source)?;
        flow.destination = pseudonyms.address(flow.destination)?;
    }
    Ok(())
}

fn hide(sighting: &mut Sighting, pseudonyms: &mut Pseudonyms, plain: bool) -> Result<(), BundleError> {
    sighting.nonce = pseudonyms.nonce(sighting.nonce);
    if !plain {
        sighting.source = pseudonyms.address(sighting.source)?;
        sighting.destination = pseudonyms.address(sighting.destination)?;
    }
    Ok(())
}
