//! TCP flags by name.

/// Name and bit, in the order they are written (RFC 9293).
const FLAGS: [(&str, u8); 8] = [
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("cwr", 0x80),
];

/// The flags that tell what a segment is for: those not named must be clear. The others count
/// only when named, since stacks and ECN set them as they like.
const KIND: u8 = 0x01 | 0x02 | 0x04 | 0x10;

/// Reads `syn+ack`: (mask, flags).
pub(super) fn parse(value: &str) -> Option<(u8, u8)> {
    let flags = value.split('+').try_fold(0, |flags, name| {
        let (_, bit) = FLAGS.iter().find(|(known, _)| *known == name)?;
        Some(flags | bit).filter(|_| flags & bit == 0)
    })?;
    Some((flags | KIND, flags))
}

/// Writes the flags that are set.
pub(super) fn to_text(flags: u8) -> String {
    let set = FLAGS.iter().filter(|(_, bit)| flags & bit != 0);
    let names: Vec<&str> = set.map(|(name, _)| *name).collect();
    names.join("+")
}
