//! The command line as it is typed; `config` gives it meaning.

use super::incident::IncidentCommand;
use super::value;
use crate::clock::DurNs;
use crate::event::Threshold;
use crate::load::SAMPLE_HZ_MOST;
use crate::source::address::Address;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where did this health check's time go, and who took it?
#[derive(Debug, Parser)]
#[command(name = "whylag", version, about, after_help = AFTER_HELP, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Exit status: 0 healthy or done, 1 could not run, 2 wrong usage, 3 slow or lost checks were found \
(with --check), 4 incomplete because events or stacks were lost or a watched interface went (with --strict). When both apply, 4 wins: an \
incomplete run proves nothing.";

const ATTACH_HELP: &str = "\
What comes before what: what is named decides; what is not named is found, and what was chosen is said \
on standard error. A signature that holds a / or ends in .toml, and does not begin as a rule does \
(udp:, tcp:, icmp:), is a file; anything else is a preset or an inline rule. Colour needs a terminal and \
an unset NO_COLOR. One SIGINT, SIGTERM or SIGHUP ends the run with its summary, a second one at once; a SIGHUP that \
nohup ignores does nothing. When every interface of the named targets is gone, the run ends with status 1; \
one that watches what it found waits for new ones.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch health checks live and say where their time goes
    Attach(Box<AttachArgs>),
    /// Show the same journeys again from a recording, or from captures taken at the NICs
    Replay(ReplayArgs),
    /// Join the two halves of a VM's checks: what its host saw, and what whylag saw inside it
    Join(JoinArgs),
    /// Draw where the time of a recording's slow checks went, as a flame graph
    Flame(FlameArgs),
    /// Tell a recording's incident to somebody who was not there, as one HTML page
    Report(ReportArgs),
    /// Say what this host can do, what is refused and why, and the exact fix
    Doctor(DoctorArgs),
    /// Health-check signatures: the presets, and a trial on a capture
    Signature {
        /// What about them.
        #[command(subcommand)]
        command: SignatureCommand,
    },
    /// What a cause means and what proves it; without CAUSE, all of them
    Explain(ExplainArgs),
    /// Incidents in one file each: make such a bundle, look into it, find it, prove that it is whole
    Incident {
        /// What about them.
        #[command(subcommand)]
        command: IncidentCommand,
    },
}

/// `whylag attach`.
#[derive(Debug, Args)]
#[command(after_help = ATTACH_HELP)]
pub struct AttachArgs {
    /// Interface, process, VM or container to watch; found by itself when none is named
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
    /// What the checks look like: a preset, an inline rule, or a TOML file (repeatable) [default: icmp-echo]
    #[arg(short, long = "signature", value_name = "SIGNATURE")]
    pub signatures: Vec<String>,
    /// Stop after this long, such as 30s or 5m
    #[arg(short, long, value_parser = value::duration, allow_hyphen_values = true)]
    pub duration: Option<DurNs>,
    /// Stop after this many checks have ended; those that are open then are told as open
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// A check is slow above this time (20ms) or above this multiple of the usual (5x)
    #[arg(short, long, default_value = value::DEFAULT_THRESHOLD, value_parser = value::threshold, allow_hyphen_values = true)]
    pub threshold: Threshold,
    /// A check without an answer is lost after this long
    #[arg(long, default_value = "90s", value_parser = value::duration, allow_hyphen_values = true)]
    pub lost_after: DurNs,
    /// What to write on standard output
    #[command(flatten)]
    pub output: OutputArgs,
    /// Keep every event in FILE, which must be new or empty, for `whylag replay`
    #[arg(short, long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Send every event to `whylag join`, which listens at unix:PATH, tcp:HOST:PORT or vsock:CID:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = str::parse::<Address>)]
    pub send: Option<Address>,
    /// Take stacks of watched threads in user code into the recording, for `whylag flame` [default: on with --record]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub stacks: Option<Switch>,
    /// Samples of each CPU in a second; five times as many, at most 999, while checks are slow [default: 99]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=i64::from(SAMPLE_HZ_MOST)))]
    pub stack_rate: Option<u32>,
    /// Shortest time off the CPU whose stack is taken [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = value::duration, allow_hyphen_values = true)]
    pub stack_wait: Option<DurNs>,
    /// Fetch missing debug files from the servers in DEBUGINFOD_URLS, which are sent build ids of programs, nothing else
    #[arg(long)]
    pub debuginfod: bool,
    /// Physical NIC (repeatable)
    #[arg(long, value_name = "IF")]
    pub pnic: Vec<String>,
    /// Host end of a VM's tap or of a veth pair, with a label for the output (repeatable)
    #[arg(long, value_name = "IF[=LABEL]")]
    pub vnic: Vec<String>,
    /// Network namespace to take as the host: a name, a path or a process number
    #[arg(long, value_name = "NAME|PATH|PID")]
    pub netns: Option<String>,
    /// Process that serves the checks (repeatable)
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,
    /// Container that serves the checks (repeatable)
    #[arg(long, value_name = "ID|NAME")]
    pub container: Vec<String>,
    /// Memory for events not yet read, for each CPU; a power of two such as 512K or 4M
    #[arg(long, default_value = "1M", value_name = "SIZE", value_parser = value::ring_size)]
    pub ring_size: u32,
}

/// Whether to do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Do.
    On,
    /// Do not.
    Off,
}

/// How results are written, and what they mean for the exit status.
#[derive(Debug, Clone, Copy, Args)]
pub struct OutputArgs {
    /// Text for people, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Exit with 3 when slow or lost checks were found
    #[arg(long)]
    pub check: bool,
    /// Exit with 4 when events or stacks were lost or a watched interface went
    #[arg(long)]
    pub strict: bool,
}

/// What is written on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// `whylag replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Recording made with `attach --record`, or bundle made with `incident export`
    #[arg(required_unless_present_any = ["pnic", "vnic"], conflicts_with_all = ["pnic", "vnic", "signatures", "threshold", "lost_after"])]
    pub file: Option<PathBuf>,
    /// Capture (pcap or pcapng) taken at the physical NIC
    #[arg(long, value_name = "PCAP", requires = "signatures")]
    pub pnic: Option<PathBuf>,
    /// Capture (pcap or pcapng) taken at the host end of the tap or veth
    #[arg(long, value_name = "PCAP", requires = "signatures")]
    pub vnic: Option<PathBuf>,
    /// What the checks look like, as for attach; for captures only (repeatable)
    #[arg(short, long = "signature", value_name = "SIGNATURE")]
    pub signatures: Vec<String>,
    /// When a check is slow, as for attach; for captures only [default: 5x]
    #[arg(short, long, value_parser = value::threshold, allow_hyphen_values = true)]
    pub threshold: Option<Threshold>,
    /// A check without an answer is lost after this long; for captures only; at the
    /// end of a capture 5s of silence suffice [default: 90s]
    #[arg(long, value_parser = value::duration, allow_hyphen_values = true)]
    pub lost_after: Option<DurNs>,
    /// What to write on standard output
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `whylag join`.
#[derive(Debug, Args)]
#[command(after_help = JOIN_HELP)]
pub struct JoinArgs {
    /// The half of the VM's host
    pub host: Half,
    /// The half made inside the VM
    pub guest: Half,
    /// Read files on while they grow, until they have not grown for 10s
    #[arg(long)]
    pub follow: bool,
    /// What to write on standard output
    #[command(flatten)]
    pub output: OutputArgs,
}

const JOIN_HELP: &str = "\
HOST and GUEST are each a recording made with `attach --record`, a bundle made with `incident export`, - for \
either on standard input, or an address (unix:PATH, tcp:HOST:PORT, vsock:CID:PORT) at which to listen for one `attach --send`. \
Both halves need the same --signature, at the same time: on the host, `whylag attach --vnic TAP`; inside the VM, \
`whylag attach`. Their clocks need not agree: only durations are taken from each. What is sent is not encrypted, and \
whoever reaches the address first is believed: listen on a private network, or through a tunnel.";

/// Where a half comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Half {
    /// A recording or a bundle.
    File(PathBuf),
    /// Either, on standard input.
    Stdin,
    /// Whoever sends it there.
    Listen(Address),
}

impl FromStr for Half {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "-" => Ok(Self::Stdin),
            address if Address::is_meant(address) => address.parse().map(Self::Listen),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stdin => write!(f, "standard input"),
            Self::Listen(address) => write!(f, "{address}"),
        }
    }
}

/// `whylag flame`.
#[derive(Debug, Args)]
pub struct FlameArgs {
    /// Recording made with `attach --record`, or bundle made with `incident export`
    pub file: PathBuf,
    /// What is drawn
    #[arg(short, long, value_enum, default_value_t = FlameKind::Delay)]
    pub kind: FlameKind,
    /// Compare all checks of FILE with those of BASE, for --kind diff: before and after a fix, a canary
    /// and its baseline
    #[arg(long, value_name = "BASE")]
    pub against: Option<PathBuf>,
    /// How it is written [default: svg; perfetto for a timeline]
    #[arg(short, long, value_enum)]
    pub format: Option<FlameFormat>,
    /// Write to OUT, which must be new or empty, instead of standard output (-)
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
}

/// What a flame graph shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FlameKind {
    /// The delay of the slow checks.
    Delay,
    /// A slow check against a healthy one; with --against, a check against one of BASE.
    Diff,
    /// What watched threads did on their CPUs, by samples (`attach --stacks on`).
    Cpu,
    /// What watched threads waited for.
    Offcpu,
    /// Checks, threads, queues, disks and softirqs over time.
    Timeline,
}

/// How a flame graph is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FlameFormat {
    /// A picture for a browser, complete in itself.
    Svg,
    /// A line for each stack, with its nanoseconds, for other tools.
    Folded,
    /// For pprof, compressed.
    Pprof,
    /// For speedscope, JSON.
    Speedscope,
    /// For the Firefox Profiler, JSON.
    Firefox,
    /// For Perfetto; only for a timeline.
    Perfetto,
}

/// `whylag report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Recording made with `attach --record`, or bundle made with `incident export`
    pub file: PathBuf,
    /// Write the page to OUT, which must be new or empty; - is standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
}

/// `whylag doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Write one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// `whylag signature …`.
#[derive(Debug, Subcommand)]
pub enum SignatureCommand {
    /// List the presets
    List,
    /// Try signatures on a capture: what matches, and what the answers take
    #[command(allow_missing_positional = true)]
    Test {
        /// Preset, inline rule or TOML file; without one, every preset is tried
        signature: Option<String>,
        /// The same, repeatable
        #[arg(short, long = "signature", value_name = "SIGNATURE")]
        signatures: Vec<String>,
        /// Capture (pcap or pcapng)
        #[arg(value_name = "PCAP")]
        capture: PathBuf,
    },
}

/// `whylag explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Name of a cause, such as app.futex
    pub cause: Option<String>,
}
