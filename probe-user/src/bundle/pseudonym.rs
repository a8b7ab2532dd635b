//! Pseudonyms for addresses: the same for the same address all through a bundle, and in no other bundle.
//!
//! A keyed hash chooses them; the key is random and is not kept. Two addresses never get the same one,
//! so that no two flows are taken for one. What an address says of itself stays: loopback, unspecified,
//! broadcast and the well-known groups are as they were; other groups are groups; link-local IPv6 is
//! link-local. All others get one that nobody has: IPv4 in 240.0.0.0/4, IPv6 in 2001:db8::/32.

use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most IPv4 addresses that pseudonyms are kept of: some 100 MB of memory.
const MOST: usize = 1 << 22;
/// Bits of an IPv4 pseudonym that differ.
const BITS: u32 = 28;
/// 240.0.0.0/4.
const RESERVED: u32 = 0xf000_0000;
/// Bits of the pseudonym of an IPv4 group that differ, and its prefix: 239.0.0.0/8.
const GROUP: (u32, u32) = (24, 0xef00_0000);

/// There are more IPv4 addresses than pseudonyms are kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MOST} addresses are in the recording: with --addresses they are kept as they are")]
pub struct TooManyAddresses;

/// Gives out pseudonyms.
pub struct Pseudonyms {
    key: [u8; 32],
    given: HashMap<u32, u32>,
    taken: HashSet<u32>,
}

impl std::fmt::Debug for Pseudonyms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pseudonyms").field("given", &self.given.len()).finish_non_exhaustive()
    }
}

impl Pseudonyms {
    /// With a random key, which goes with them.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self::with_key(key))
    }

    pub(super) fn with_key(key: [u8; 32]) -> Self {
        Self { key, given: HashMap::new(), taken: HashSet::new() }
    }

    /// For an address as records hold it: IPv4 as `::ffff:a.b.c.d`.
    ///
    /// # Errors
    /// When there are too many.
    pub fn address(&mut self, address: [u8; 16]) -> Result<[u8; 16], TooManyAddresses> {
        let v6 = Ipv6Addr::from(address);
        match v6.to_ipv4_mapped() {
            Some(v4) => self.v4(v4).map(|v4| v4.to_ipv6_mapped().octets()),
            None => Ok(self.v6(v6).octets()),
        }
    }

    /// For a nonce, which is payload: equal ones stay equal, and none stays none.
    #[must_use]
    pub fn nonce(&self, nonce: [u8; 16]) -> [u8; 16] {
        if nonce == [0; 16] { nonce } else { self.hash(b'n', &nonce).to_be_bytes() }
    }

    fn v4(&mut self, address: Ipv4Addr) -> Result<Ipv4Addr, TooManyAddresses> {
        let well_known = matches!(address.octets(), [224, 0, 0, _]);
        if address.is_loopback() || address.is_unspecified() || address.is_broadcast() || well_known {
            return Ok(address);
        }
        let (bits, prefix) = if address.is_multicast() { GROUP } else { (BITS, RESERVED) };
        self.free(address.to_bits(), bits, prefix).map(Ipv4Addr::from_bits)
    }

    /// The one that the hash chooses, or the next that is free.
    fn free(&mut self, address: u32, bits: u32, prefix: u32) -> Result<u32, TooManyAddresses> {
        if let Some(given) = self.given.get(&address) {
            return Ok(*given);
        }
        if self.given.len() >= MOST {
            return Err(TooManyAddresses);
        }
        let mask = (1_u32 << bits) - 1;
        let chosen = u32::from_be_bytes(first(self.hash(b'4', &address.to_be_bytes()).to_be_bytes()));
        // All ones is the broadcast address.
        let is_free = |pseudonym: &u32| *pseudonym != u32::MAX && !self.taken.contains(pseudonym);
        let mut candidates = (0..=mask).map(|step| prefix | (chosen.wrapping_add(step) & mask));
        let pseudonym = candidates.find(is_free).ok_or(TooManyAddresses)?;
        self.taken.insert(pseudonym);
        self.given.insert(address, pseudonym);
        Ok(pseudonym)
    }

    /// Of these so many bits differ that two are never the same.
    fn v6(&self, address: Ipv6Addr) -> Ipv6Addr {
        let bits = address.to_bits();
        let is_well_known_group = address.is_multicast() && bits & (u128::MAX >> 16) >> 32 << 32 == 0;
        if address.is_loopback() || address.is_unspecified() || is_well_known_group {
            return address;
        }
        let (prefix, len) = match address.segments() {
            [group, ..] if group >> 8 == 0xff => (u128::from(group) << 112, 16),
            [local, ..] if local & 0xffc0 == 0xfe80 => (0xfe80 << 112, 64),
            _ => (0x2001_0db8 << 96, 32),
        };
        Ipv6Addr::from_bits(prefix | self.hash(b'6', &bits.to_be_bytes()) >> len)
    }

    fn hash(&self, kind: u8, bytes: &[u8]) -> u128 {
        let hash = Sha256::new_with_prefix(self.key).chain_update([kind]).chain_update(bytes).finalize();
        u128::from_be_bytes(first(hash.into()))
    }
}

fn first<const LEN: usize, const FROM: usize>(bytes: [u8; FROM]) -> [u8; LEN] {
    bytes.first_chunk().copied().unwrap_or([0; LEN])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str, key: u8) -> std::net::IpAddr {
        let v6 = match text.parse().unwrap() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            std::net::IpAddr::V6(v6) => v6,
        };
        Ipv6Addr::from(Pseudonyms::with_key([key; 32]).address(v6.octets()).unwrap()).to_canonical()
    }

    #[test]
    fn what_an_address_says_of_itself_stays() {
        for text in ["127.0.0.1", "127.1.2.3", "0.0.0.0", "255.255.255.255", "224.0.0.1", "::1", "::", "ff02::1"] {
            assert_eq!(one(text, 1).to_string(), text);
        }
        let said = |text| one(text, 1).to_string();
        assert!(said("239.1.2.3").starts_with("239.") && said("239.1.2.3") != "239.1.2.3");
        assert!(said("ff02::1:ff12:3456").starts_with("ff02:") && said("ff02::1:ff12:3456") != "ff02::1:ff12:3456");
        assert!(said("fe80::1234").starts_with("fe80::"), "{}", said("fe80::1234"));
        assert!(said("2a00:1450::1").starts_with("2001:db8:"));
        assert!(matches!(one("10.0.0.1", 1), std::net::IpAddr::V4(v4) if v4.octets()[0] >= 240));
    }

    #[test]
    fn each_bundle_has_pseudonyms_of_its_own() {
        for text in ["10.0.0.1", "2a00:1450::1", "fe80::1"] {
            assert_ne!(one(text, 1), one(text, 2));
        }
    }

    #[test]
    fn addresses_of_a_whole_network_stay_apart() {
        let mut pseudonyms = Pseudonyms::with_key([7; 32]);
        let mut seen = HashSet::new();
        for last in 0..=0x3_ffff_u32 {
            let address = Ipv4Addr::from_bits(0x0a00_0000 | last).to_ipv6_mapped().octets();
            assert!(seen.insert(pseudonyms.address(address).unwrap()), "{last}");
        }
    }

    #[test]
    fn a_nonce_is_not_readable_and_equal_ones_stay_equal() {
        let pseudonyms = Pseudonyms::with_key([7; 32]);
        let nonce = *b"user=mallory....";
        assert_ne!(pseudonyms.nonce(nonce), nonce);
        assert_eq!(pseudonyms.nonce(nonce), pseudonyms.nonce(nonce));
        assert_eq!(pseudonyms.nonce([0; 16]), [0; 16], "there is none");
    }

    proptest! {
        #[test]
        fn the_same_address_has_the_same_pseudonym_and_family(address: [u8; 16], v4: bool) {
            let address = match v4 {
                true => Ipv4Addr::new(address[0], address[1], address[2], address[3]).to_ipv6_mapped().octets(),
                false => address,
            };
            let mut pseudonyms = Pseudonyms::with_key([7; 32]);
            let one = pseudonyms.address(address).unwrap();
            prop_assert_eq!(one, pseudonyms.address(address).unwrap());
            let is_v4 = |address: [u8; 16]| Ipv6Addr::from(address).to_ipv4_mapped().is_some();
            prop_assert_eq!(is_v4(one), is_v4(address));
            let group = |address: [u8; 16]| Ipv6Addr::from(address).to_canonical().is_multicast();
            prop_assert_eq!(group(one), group(address));
        }
    }
}
