//! Where the members stand, and the tar around them: of each header and padding, the only bytes that
//! are accepted.

use super::manifest::Member;

/// Every member starts at a multiple of this.
pub(super) const BLOCK: usize = 512;
/// Zeros behind the last member, as tar wants them.
pub(super) const END: usize = 2 * BLOCK;
/// The first member, by whose name a bundle is known.
pub(super) const DIGEST: &str = "whylag-bundle.sha256";
/// The second member.
pub(super) const MANIFEST: &str = "manifest.json";
/// The third member of a bundle that is signed.
pub(super) const SIGNATURE: &str = "manifest.sig";
/// Most bytes of a member: what the size in a plain tar header can say.
pub(super) const LARGEST_MEMBER: u64 = (8 << 30) - 1;
/// Most characters of a member's name.
const LONGEST_NAME: usize = 64;

/// Whether the first bytes of a file are those of a bundle.
#[must_use]
pub fn looks_like_a_bundle(start: &[u8]) -> bool {
    start.strip_prefix(DIGEST.as_bytes()).and_then(|rest| rest.first()) == Some(&0)
}

/// What stands before a member.
pub(super) fn header(name: &str, bytes: u64) -> [u8; BLOCK] {
    let mut header = tar::Header::new_ustar();
    let field = &mut header.as_old_mut().name;
    field.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    *header.as_bytes()
}

/// Zeros behind a member, up to the next header.
pub(super) const fn padding(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK as u64) - bytes
}

/// The length of the digest's member.
pub(super) const fn digest_len() -> usize {
    64 + 2 + MANIFEST.len() + 1
}

/// What the digest's member says.
pub(super) fn digest(of_manifest: &str) -> String {
    format!("{of_manifest}  {MANIFEST}\n")
}

/// A name that cannot lead anywhere: no folder, no dot in front, nothing that a terminal obeys.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    starts_well
        && name.len() <= LONGEST_NAME
        && name.bytes().all(plain)
        && ![DIGEST, MANIFEST, SIGNATURE].contains(&name)
}

/// Bytes that a member takes, header and padding included.
pub(super) const fn room(bytes: u64) -> u64 {
    BLOCK as u64 + bytes + padding(bytes)
}

/// Where the content of each of `members` begins, the first header standing at `from`, and where the
/// file ends.
pub(super) fn places(members: &[Member], from: u64) -> (Vec<u64>, u64) {
    let mut at = from;
    let mut places = Vec::with_capacity(members.len());
    for member in members {
        places.push(at + BLOCK as u64);
        at += room(member.bytes);
    }
    (places, at + END as u64)
}
