//! What can be wrong with a signature, and what would be right.

use std::fmt;
use std::path::PathBuf;

use probe_wire::{FIELDS_PER_RULE, MAX_RULES, RULE_BYTES};

/// A signature that is not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureError {
    /// Where in the text, in characters from 1; `None` for TOML, whose faults name the key.
    pub column: Option<usize>,
    /// What is wrong.
    pub fault: Fault,
}

impl SignatureError {
    pub(super) fn new(column: Option<usize>, fault: Fault) -> Self {
        SignatureError { column, fault }
    }
}

impl std::error::Error for SignatureError {}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = self.column {
            write!(f, "column {column}: ")?;
        }
        let fault = self.fault.to_string();
        let count = fault.chars().count();
        if count <= MOST_SHOWN {
            return f.write_str(&fault);
        }
        let (begin, end) = (cut(&fault, 0, BEGIN_SHOWN), cut(&fault, count - END_SHOWN, END_SHOWN));
        write!(f, "{begin}…{end}")
    }
}

/// Characters of a fault that are shown whole; what is longer quotes something long.
const MOST_SHOWN: usize = 400;
/// Characters of its beginning, with the beginning of what it quotes.
const BEGIN_SHOWN: usize = 60;
/// Characters of its end, which says what would be right.
const END_SHOWN: usize = 220;
/// Characters of an argument that are shown on each side of the fault.
const AROUND: usize = 40;

/// `len` characters from the character `from`.
fn cut(text: &str, from: usize, len: usize) -> String {
    text.chars().skip(from).take(len).collect()
}

/// A text, or of a long one what stands around `column`.
fn around(text: &str, column: usize) -> String {
    let count = text.chars().count();
    let from = (column.min(count)).saturating_sub(AROUND);
    let shown = cut(text, from, 2 * AROUND);
    let (before, behind) = (if from > 0 { "…" } else { "" }, if from + 2 * AROUND < count { "…" } else { "" });
    format!("{before}{shown}{behind}")
}

/// One thing that is wrong. The text of each says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Neither a preset nor a rule.
    #[error(
        "`{0}` is neither a preset (see `whylag signature list`) nor a rule \
         such as `udp:port=4000,at=0,bytes=4841`"
    )]
    UnknownName(String),
    /// A rule for another protocol.
    #[error("protocol `{0}` is unknown; use udp, tcp or icmp")]
    UnknownProtocol(String),
    /// A key that does not exist.
    #[error(
        "key `{0}` is unknown; use port, at, bytes, mask, nonce, len, flags, interval, or \
         reply-at, reply-bytes, reply-mask, reply-len, reply-nonce, reply-flags"
    )]
    UnknownKey(String),
    /// A key that a preset does not take.
    #[error("a preset takes `port=` and `interval=` only, not `{0}`")]
    NotForPreset(String),
    /// An item without `=`.
    #[error("`{0}` has no value; write key=value")]
    NoValue(String),
    /// A key given twice.
    #[error("`{0}` is given twice")]
    Duplicate(String),
    /// Not a number, or outside its range.
    #[error("{key} is `{value}`; it must be a number from {least} to {greatest}")]
    Number {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// Least number allowed.
        least: u32,
        /// Greatest number allowed.
        greatest: u32,
    },
    /// A key of another protocol.
    #[error("`{key}` makes no sense for {protocol}")]
    WrongProtocol {
        /// The key.
        key: String,
        /// The rule's protocol.
        protocol: &'static str,
    },
    /// A quote that is not closed.
    #[error("the text is not closed; it ends with a second `\"`")]
    OpenQuote,
    /// Bytes that are neither hex nor text.
    #[error("`{0}` is neither hex, two digits a byte, nor \"text\"")]
    Bytes(String),
    /// A backslash with something unknown behind it.
    #[error(r#"escape `\{0}` is unknown; use \\, \", \n, \r, \t or \x41"#)]
    Escape(String),
    /// No bytes, or too many.
    #[error("{0} bytes; one comparison takes 1 to {RULE_BYTES}")]
    ByteCount(usize),
    /// Too many comparisons.
    #[error("more than {FIELDS_PER_RULE} groups of at, bytes, mask")]
    TooManyFields,
    /// `at` without `bytes`.
    #[error("`{0}` must be followed by its bytes")]
    AtWithoutBytes(String),
    /// Further `bytes` without `at`.
    #[error("`{0}` needs its own `at`")]
    BytesWithoutAt(String),
    /// `mask` without `bytes`.
    #[error("`{0}` must follow the bytes it belongs to, once")]
    MaskWithoutBytes(String),
    /// A mask of another length.
    #[error("the mask has {mask} bytes for {bytes} bytes; they must be as many")]
    MaskLength {
        /// Bytes of the mask.
        mask: usize,
        /// Bytes compared.
        bytes: usize,
    },
    /// A mask that hides everything.
    #[error("the mask is zero: it compares nothing")]
    ZeroMask,
    /// Bits wanted that the mask hides.
    #[error("byte {0} has bits outside its mask: it can never match")]
    BitsOutsideMask(usize),
    /// Bytes that are never looked at.
    #[error(
        "{key} ends at byte {end}; of a {protocol} message at most the first {visible} bytes are \
         looked at"
    )]
    Invisible {
        /// The key.
        key: String,
        /// End of the bytes.
        end: u32,
        /// The rule's protocol.
        protocol: &'static str,
        /// How far is looked.
        visible: u32,
    },
    /// Bytes behind the greatest length.
    #[error("byte {end} is wanted, but no message is longer than {longest}: it can never match")]
    BehindLength {
        /// End of the bytes.
        end: u32,
        /// `len`'s upper end.
        longest: u16,
    },
    /// Two comparisons of one bit that want it different.
    #[error("byte {0} is wanted to be two different things: it can never match")]
    Contradiction(usize),
    /// A bad `nonce`.
    #[error("nonce is `{0}`; write offset+bytes with 1 to 16 bytes, such as 4+8")]
    Nonce(String),
    /// The reply's nonce is not the request's.
    #[error("reply-nonce has {reply} bytes, nonce {request}; they must be as many")]
    NonceLength {
        /// Bytes in the request; 0 without `nonce`.
        request: u8,
        /// Bytes in the reply.
        reply: u8,
    },
    /// A bad `len`.
    #[error("len is `{0}`; write 8, 8..64, 8.. or ..64, the lower first")]
    Length(String),
    /// A bad `flags`.
    #[error("flags is `{0}`; join syn, ack, fin, rst, psh, urg, ece, cwr by +, such as syn+ack")]
    Flags(String),
    /// A bad `interval`.
    #[error("interval is `{0}`; write a time above zero, such as 20ms or 1s")]
    Interval(String),
    /// A direction that matches everything.
    #[error("the {0} side matches every packet; give a port, or bytes, a length or flags of the {0}")]
    MatchesAll(&'static str),
    /// A TOML entry with a rule in both forms, or in none.
    #[error("give either `protocol` and its keys, or `rules`")]
    TomlForm,
    /// More rules than fit.
    #[error("{0} rules; at most {MAX_RULES} can be active at once")]
    TooManyRules(usize),
}

/// A signature argument or file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The text of an argument is wrong.
    #[error("signature `{text}`")]
    Text {
        /// The argument, or what of it stands around the fault.
        text: String,
        /// What is wrong.
        source: SignatureError,
    },
    /// A file cannot be read.
    #[error("cannot read signature file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file has an error.
    #[error("signature file {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: TomlError,
    },
}

impl LoadError {
    /// The text of an argument is wrong.
    pub(super) fn text(argument: &str, source: SignatureError) -> Self {
        Self::Text { text: around(argument, source.column.unwrap_or(0)), source }
    }
}

/// TOML text that is not understood.
#[derive(Debug, thiserror::Error)]
pub enum TomlError {
    /// Nothing to look for.
    #[error("it holds no signature; each begins with a line [[signature]]")]
    Empty,
    /// Not TOML, or not these keys.
    #[error("not a list of [[signature]]")]
    Syntax(#[from] toml::de::Error),
    /// One signature is wrong.
    #[error("signature `{name}`")]
    Signature {
        /// Its name.
        name: String,
        /// What is wrong.
        source: SignatureError,
    },
    /// Two signatures of one name.
    #[error("two signatures are called `{0}`")]
    DuplicateName(String),
}
