//! Records without what is nobody's business: payload, and addresses.
//!
//! A record keeps its length, its place and all that a conclusion rests on. What cannot be decoded may
//! hold anything, so its body becomes zeros, which cannot be decoded either.

use super::BundleError;
use super::pseudonym::{Pseudonyms, TooManyAddresses};
use crate::event::{Body, DecodeError, Event, Fact, HEADER_LEN, decode, fact_record};
use crate::sender::QueueFact;
use probe_wire::Sighting;
use std::net::{IpAddr, Ipv6Addr};
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
            match &mut *fact {
                Fact::Queue(queue) => hide_flows(queue, hide)?,
                Fact::Device { name, .. } => *name = hide_in_name(name, hide)?,
                _ => {}
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

/// A mount's name tells its server, by an address or a name. A name stays.
fn hide_in_name(name: &str, hide: &mut Hide<'_>) -> Result<String, TooManyAddresses> {
    let mut hidden = String::new();
    for part in name.split_inclusive(|c: char| !c.is_ascii_hexdigit() && !matches!(c, ':' | '.')) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_hexdigit());
        // With a port behind it, if it is no address of version 6 by itself.
        let alone = word.parse::<IpAddr>().is_ok();
        let address = if alone { word } else { word.rsplit_once(':').map_or(word, |(address, _)| address) };
        match address.parse::<IpAddr>() {
            Ok(known) => {
                hidden.push_str(&address_of(hide.address(as_v6(known))?).to_string());
                hidden.push_str(part.get(address.len()..).unwrap_or_default());
            }
            Err(_) => hidden.push_str(part),
        }
    }
    Ok(hidden)
}

fn as_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn address_of(address: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(address).to_canonical()
}

fn hide_in(sighting: &mut Sighting, hide: &mut Hide<'_>) -> Result<(), TooManyAddresses> {
    sighting.nonce = hide.nonce(sighting.nonce);
    sighting.source = hide.address(sighting.source)?;
    sighting.destination = hide.address(sighting.destination)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Hide, hide_in_name};

    #[test]
    fn an_address_in_a_mount_s_name_is_hidden_and_a_name_is_not() {
        let hidden = |name| hide_in_name(name, &mut Hide::Everything).unwrap();
        assert_eq!(hidden("10.1.2.3:/home"), ":::/home");
        assert_eq!(hidden("[fd00::12]:/home"), "[::]:/home");
        assert_eq!(hidden("10.1.2.3:6789,10.1.2.4:6789:/"), "::: 6789,::: 6789:/".replace("::: ", ":::"));
        assert_eq!(hidden("//10.1.2.3/share"), "//::/share");
        for name in ["files.example:/home", "/dev/loop0", "sda1", "dm-0 (home)", "nullb0"] {
            assert_eq!(hidden(name), name);
        }
    }
}
