//! Files that are something else than what was asked for: what they are, and what to do with them.

/// A kind of file that is given by mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    start: &'static [u8],
    what: &'static str,
}

const GZIP: &str = "it is compressed: unpack it with `gunzip` first";
const CAPTURE: &str = "it is a capture of packets: `whylag replay --pnic FILE --signature RULE` reads it";

/// By their first bytes.
const KNOWN: [Foreign; 13] = [
    Foreign { start: b"\x1f\x8b", what: GZIP },
    Foreign { start: b"\x28\xb5\x2f\xfd", what: "it is compressed: unpack it with `unzstd` first" },
    Foreign { start: b"\xfd7zXZ\0", what: "it is compressed: unpack it with `unxz` first" },
    Foreign { start: b"BZh", what: "it is compressed: unpack it with `bunzip2` first" },
    Foreign { start: b"PK\x03\x04", what: "it is a zip: unpack it with `unzip` first" },
    Foreign { start: b"\x0a\x0d\x0d\x0a", what: CAPTURE },
    Foreign { start: b"\xd4\xc3\xb2\xa1", what: CAPTURE },
    Foreign { start: b"\xa1\xb2\xc3\xd4", what: CAPTURE },
    Foreign { start: b"\x4d\x3c\xb2\xa1", what: CAPTURE },
    Foreign { start: b"\xa1\xb2\x3c\x4d", what: CAPTURE },
    Foreign {
        start: b"{\"type\":",
        what: "it is what whylag printed as JSON: of that nothing can be replayed; `whylag attach --record FILE` keeps \
               what can",
    },
    Foreign { start: b"\x89whylag\n", what: "it is a recording: `whylag incident export` makes a bundle of it" },
    Foreign { start: b"PERFILE2", what: "it is what perf recorded" },
];

impl Foreign {
    /// What the first bytes of a file are those of, if that is known.
    #[must_use]
    pub fn of(start: &[u8]) -> Option<Self> {
        match start {
            [] => Some(Self { start: b"", what: "it is empty" }),
            start => KNOWN.into_iter().find(|kind| start.starts_with(kind.start)),
        }
    }
}

/// What to say of it behind "this is not …".
pub(crate) fn hint(looks_like: &Option<Foreign>) -> String {
    looks_like.map_or_else(String::new, |kind| format!(": {}", kind.what))
}
