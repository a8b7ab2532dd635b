//! Records without what is nobody's business: payload, and addresses.
//!
//! A record keeps its length, its place and all that a conclusion rests on. What cannot be decoded may
//! hold anything, so its body becomes zeros, which cannot be decoded either.

use super::BundleError;
use super::pseudonym::{Pseudonyms, TooManyAddresses};
use crate::event::{Body, DecodeError, Event, Fact, HEADER_LEN, decode, fact_record};
use crate::sender::QueueFact;
use probe_wire::Sighting;
use zerocopy::IntoBytes;

/// What is put in the place of what a record says of people and machines.
#[derive(Debug)]
pub enum Hide<'a> {
    /// A keyed hash for nonces, which are payload; addresses stay.
    Nonces(&'a mut Pseudonyms),
    /// The same for nonces, pseudonyms for addresses.
    Addresses(&'a mut Pseudonyms),
    /// Zeros for both.
    Everything,
}

impl Hide<'_> {
    fn address(&mut self, address: [u8; 16]) -> Result<[u8; 16], TooManyAddresses> {
        match self {
            Self::Nonces(_) => Ok(address),
            Self::Addresses(pseudonyms) => pseudonyms.address(address),
            Self::Everything => Ok([0; 16]),
        }
    }

    fn nonce(&self, nonce: [u8; 16]) -> [u8; 16] {
        match self {
            Self::Nonces(pseudonyms) | Self::Addresses(pseudonyms) => pseudonyms.nonce(nonce),
            Self::Everything => [0; 16],
        }
    }

    /// Of a word of a process's memory: equal ones stay equal.
    fn word(&self, word: u64) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.nonce(u128::from(word).to_be_bytes());
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Rewrites a record, and gives it away decoded.
///
/// # Errors
/// When there are more addresses than pseudonyms are kept for.
pub fn rewrite(record: &mut Vec<u8>, hide: &mut Hide<'_>) -> Result<Result<Event, DecodeError>, BundleError> {
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
            hide_in(&mut packet.sighting, hide)?;
            body.copy_from_slice(packet.as_bytes());
        }
        Body::Drop(mut drop) => {
            hide_in(&mut drop.sighting, hide)?;
            body.copy_from_slice(drop.as_bytes());
        }
        Body::OtherPeer(mut socket) => {
            socket.peer = hide.address(socket.peer)?;
            body.copy_from_slice(socket.as_bytes());
        }
        Body::FutexWait(mut wait) => {
            wait.word = hide.word(wait.word);
            body.copy_from_slice(wait.as_bytes());
        }
        // Written anew, so that nothing is in it but what this version knows.
        Body::Fact(mut fact) => {
            if let Fact::Queue(queue) = &mut *fact {
                hide_flows(queue, hide)?;
            }
            *record = fact_record(event.at, &fact)?;
        }
        _ => return Ok(Ok(event)),
    }
    Ok(decode(record))
}

fn hide_flows(queue: &mut QueueFact, hide: &mut Hide<'_>) -> Result<(), TooManyAddresses> {
    for flow in queue.senders.iter_mut().flat_map(|sender| &mut sender.flows) {
        flow.source = hide.address(flow.source)?;
        flow.destination = hide.address(flow.destination)?;
    }
    Ok(())
}

fn hide_in(sighting: &mut Sighting, hide: &mut Hide<'_>) -> Result<(), TooManyAddresses> {
    sighting.nonce = hide.nonce(sighting.nonce);
    sighting.source = hide.address(sighting.source)?;
    sighting.destination = hide.address(sighting.destination)?;
    Ok(())
}
