//! Why a selection is impossible, and what to type instead.

use std::fmt;
use thiserror::Error;

/// Names that exist, and the one that was probably meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// The existing name most like the one typed, if one is like it.
    pub similar: Option<String>,
    /// All that exist.
    pub known: Vec<String>,
    /// Where else the name exists, with the option that leads there.
    pub elsewhere: Vec<String>,
}

impl Hint {
    /// Compares `typed` with the names that exist.
    pub(super) fn new(typed: &str, known: impl Iterator<Item = String>) -> Box<Self> {
        let mut known: Vec<_> = known.collect();
        known.sort();
        known.dedup();
        Box::new(Self { similar: most_similar(typed, &known), known, elsewhere: Vec::new() })
    }

    /// Adds where else the name exists.
    pub(super) fn or_elsewhere(mut self: Box<Self>, places: Vec<String>) -> Box<Self> {
        self.elsewhere = places;
        self
    }
}

/// The most similar name by Jaro-Winkler, which favours common beginnings, if it is close.
fn most_similar(typed: &str, known: &[String]) -> Option<String> {
    const CLOSE: f64 = 0.8;
    let scored = known.iter().map(|name| (strsim::jaro_winkler(typed, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= CLOSE);
    best.map(|(_, name)| name.clone())
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(similar) = &self.similar {
            write!(f, "; did you mean `{similar}`?")?;
        }
        for place in &self.elsewhere {
            write!(f, "; {place}")?;
        }
        match self.known.as_slice() {
            [] => f.write_str("; there is none"),
            known => write!(f, "; there is: {}", known.join(", ")),
        }
    }
}

/// Why a selection is impossible.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectionError {
    /// Not even whylag's own namespace could be read.
    #[error("cannot list the interfaces of this namespace ({reason})")]
    NoHome {
        /// What the kernel said.
        reason: String,
    },
    /// `--netns` names no namespace.
    #[error("--netns {name}: no such network namespace{hint}{}", note(.gaps))]
    UnknownNamespace {
        /// As typed.
        name: String,
        /// What exists.
        hint: Box<Hint>,
        /// What could not be looked at.
        gaps: Vec<String>,
    },
    /// An option names no interface of the host.
    #[error("{option} {name}: no such interface in {namespace}{hint}")]
    UnknownInterface {
        /// `--pnic` or `--vnic`.
        option: &'static str,
        /// As typed.
        name: String,
        /// Where it was looked up.
        namespace: String,
        /// What exists.
        hint: Box<Hint>,
    },
    /// `--pid` names no process that can be seen.
    #[error("--pid {tgid}: no such process, or it may not be seen; check with `ps -p {tgid}`{}", note(.gaps))]
    UnknownProcess {
        /// As typed.
        tgid: u32,
        /// What could not be looked at.
        gaps: Vec<String>,
    },
    /// `--container` names no container.
    #[error("--container {id}: no such container{hint}")]
    UnknownContainer {
        /// As typed.
        id: String,
        /// What exists.
        hint: Box<Hint>,
    },
    /// A word names nothing.
    #[error("{name}: no interface, VM, container or process of that name{hint}")]
    UnknownTarget {
        /// As typed.
        name: String,
        /// What exists.
        hint: Box<Hint>,
    },
    /// A word or the beginning of an id fits several things.
    #[error("{name}: means several things; use {}", .candidates.join(" or "))]
    Ambiguous {
        /// As typed.
        name: String,
        /// How to name each one for certain.
        candidates: Vec<String>,
    },
    /// One interface in two parts.
    #[error("{name}: named both as {first} and as {second}; it can be only one of them")]
    TwoRoles {
        /// The interface.
        name: String,
        /// Its part so far.
        first: &'static str,
        /// The part it was also given.
        second: &'static str,
    },
    /// A process whose packets do not pass the host.
    #[error("{who} is in namespace {namespace}, which no link joins to {host}; give --netns {namespace}")]
    Apart {
        /// Process or container.
        who: String,
        /// Its namespace.
        namespace: String,
        /// The namespace taken as the host.
        host: String,
    },
    /// A container whose namespace was not found or may not be entered.
    #[error("the network namespace of {who} cannot be entered; run as root, in the host's pid namespace")]
    Unreachable {
        /// The container.
        who: String,
    },
    /// A VM whose packets pass no tap of the host.
    #[error("VM {name} holds no tap in {host}; name its interface with --vnic, or give --netns")]
    NoTap {
        /// The VM.
        name: String,
        /// The namespace taken as the host.
        host: String,
    },
    /// Nothing to hook.
    #[error("no interface to watch in {host}: none that is up and leads outside; name one with --pnic or --vnic{hint}")]
    Nothing {
        /// The namespace taken as the host.
        host: String,
        /// What exists.
        hint: Box<Hint>,
    },
}

fn note(gaps: &[String]) -> String {
    if gaps.is_empty() { String::new() } else { format!("; not seen: {}", gaps.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_the_name_that_was_meant() {
        let known = || ["eth0", "eth1", "vltap0"].map(str::to_owned).into_iter();
        assert_eq!(Hint::new("vltpa0", known()).similar.as_deref(), Some("vltap0"));
        assert_eq!(Hint::new("wlan7", known()).similar, None);
        let text = Hint::new("vltpa0", known()).to_string();
        assert_eq!(text, "; did you mean `vltap0`?; there is: eth0, eth1, vltap0");
    }
}
