//! Why loading failed.

use aya::{BtfError as AyaBtfError, EbpfError, maps::MapError, programs::ProgramError};
use std::io;
use thiserror::Error;

use crate::{capability::Refusal, kernel::btf::BtfError};

/// A load that could not be done.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The kernel's types are missing or strange.
    #[error("cannot learn the kernel's structures; whylag needs CONFIG_DEBUG_INFO_BTF")]
    Structures(#[from] BtfError),
    /// As above, found by the loader's library.
    #[error("cannot load the kernel's type information for the tracepoint programs")]
    Types(#[source] Box<AyaBtfError>),
    /// The kernel refuses the maps or the object's form.
    #[error(
        "the kernel refuses whylag's maps; it needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, in the \
             initial user namespace"
    )]
    Object(#[source] Box<EbpfError>),
    /// The object does not hold what this version expects.
    #[error("the kernel object has no {name}; build whylag again")]
    Incomplete {
        /// Map or program.
        name: &'static str,
    },
    /// A ring could not be made.
    #[error("cannot make a ring of {bytes} bytes for CPU {cpu}; the size must be a power of two of at least a page")]
    Ring {
        /// The CPU.
        cpu: u32,
        /// The size that was asked for.
        bytes: u32,
        /// The kernel's answer.
        #[source]
        source: Box<MapError>,
    },
    /// The rings cannot be waited for.
    #[error("cannot wait for the rings")]
    Wait(#[source] io::Error),
    /// The number of CPUs is not known.
    #[error("cannot read the number of CPUs from {path}")]
    Cpus {
        /// The file.
        path: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The programs' diagnostics cannot be read.
    #[error("cannot read the kernel programs' diagnostics")]
    Diagnostics(#[source] Box<aya_log::Error>),
    /// A map cannot be read or written.
    #[error("cannot access the map {name}")]
    Map {
        /// The map.
        name: &'static str,
        /// The kernel's answer.
        #[source]
        source: Box<MapError>,
    },
    /// More signatures than the programs have room for.
    #[error("{count} signatures are too many; at most {most} can be active at once")]
    TooManyRules {
        /// How many were asked for.
        count: usize,
        /// How many can be.
        most: usize,
    },
    /// A process number that no process can have.
    #[error("no process can have the number {tgid}")]
    NoSuchProcess {
        /// The number.
        tgid: u32,
    },
    /// What was to be loaded is no longer wanted.
    #[error("the start was called off")]
    CalledOff,
    /// A hook that is required was refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A program that the loader itself runs did not.
    #[error("the kernel refuses to run the program {program} for the loader")]
    Run {
        /// The program.
        program: &'static str,
        /// The kernel's answer.
        #[source]
        source: Box<ProgramError>,
    },
    /// A network namespace cannot be entered.
    #[error("cannot enter the network namespace {netns}; it may be gone, or CAP_SYS_ADMIN is missing")]
    Netns {
        /// The namespace.
        netns: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An interface is not there.
    #[error("cannot find the interface {name} (index {ifindex}); see `ip link`")]
    Interface {
        /// Its name.
        name: String,
        /// Its index.
        ifindex: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A packet program cannot be attached to an interface.
    #[error("cannot attach {program} to the interface {name} by {attach}")]
    Attach {
        /// The program.
        program: &'static str,
        /// The interface.
        name: String,
        /// The way.
        attach: &'static str,
        /// The kernel's answer.
        #[source]
        source: Box<ProgramError>,
    },
}
