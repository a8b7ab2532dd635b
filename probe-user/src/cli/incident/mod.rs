//! `whylag incident …`: an incident in one file.

mod export;
mod list;
mod show;
mod verify;

use super::Outcome;
use super::args::Format;
use crate::bundle::{Bundle, Component};
use crate::file;
use anyhow::Context;
use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};
use std::fs::File;
use std::path::{Path, PathBuf};

/// `whylag incident …`.
#[derive(Debug, Subcommand)]
pub enum IncidentCommand {
    /// Make a bundle from a recording: one file with its recording, ledgers, flame graphs and host facts
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Say what a bundle is about, and what is in it
    Show(ShowArgs),
    /// Find bundles in files and folders by what they are about
    #[command(after_help = LIST_HELP)]
    List(ListArgs),
    /// Prove that no byte of a bundle is missing or changed, and by whom it is signed
    Verify(VerifyArgs),
}

const EXPORT_HELP: &str = "\
Nothing of payload, arguments or environments is in a bundle; its manifest lists what was left out and what \
was kept. Keys are files as openssl makes them: `openssl genpkey -algorithm ed25519 -out key.pem`, and \
`openssl pkey -in key.pem -pubout -out public.pem` for whoever verifies. A bundle is a tar: `tar -xf` opens it where \
there is no whylag.";

const LIST_HELP: &str = "\
A bundle is found when it fits all options; an option that is repeated wants one of its values. A cause or \
component counts from a tenth of the delay of a target on. Hidden files and files that are no bundles are passed \
over in folders.";

/// `whylag incident export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Recording made with `attach --record`
    #[arg(long, value_name = "RECORDING")]
    pub from: PathBuf,
    /// Write the bundle to FILE, which must be new or empty
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Keep network addresses as they were seen, instead of pseudonyms
    #[arg(long)]
    pub addresses: bool,
    /// Sign it with this ed25519 secret key (PEM)
    #[arg(long, value_name = "KEYFILE")]
    pub sign_key: Option<PathBuf>,
}

/// `whylag incident show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Bundle made with `incident export`
    pub bundle: PathBuf,
    /// Text for people, or one JSON object a line: incident, manifest, and what else is in it
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// `whylag incident list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Bundles, and folders with bundles
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// A cause such as storage.writeback, or a family of causes such as storage (repeatable)
    #[arg(long, value_name = "CAUSE")]
    pub cause: Vec<String>,
    /// The part of the host that took the time (repeatable)
    #[arg(long, value_name = "COMPONENT", value_enum)]
    pub component: Vec<Component>,
    /// Label of a target, such as tap0 or web-01 (repeatable)
    #[arg(long, value_name = "LABEL")]
    pub target: Vec<String>,
    /// What the checks look like, as for attach; bytes in hex or as text (repeatable)
    #[arg(long, value_name = "SIGNATURE")]
    pub signature: Vec<String>,
    /// Text for people, or one JSON object a line
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// `whylag incident verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Bundle made with `incident export`
    pub bundle: PathBuf,
    /// It must be signed by the secret half of this ed25519 public key (PEM)
    #[arg(long, value_name = "PUBKEY")]
    pub key: Option<PathBuf>,
}

impl ValueEnum for Component {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

/// Runs the command.
pub(super) fn run(command: &IncidentCommand) -> anyhow::Result<Outcome> {
    match command {
        IncidentCommand::Export(args) => export::run(args),
        IncidentCommand::Show(args) => show::run(args),
        IncidentCommand::List(args) => list::run(args),
        IncidentCommand::Verify(args) => verify::run(args),
    }
}

/// Opens a bundle and checks every byte of it.
fn whole(path: &Path) -> anyhow::Result<Bundle<File>> {
    let open = || {
        let mut bundle = Bundle::open(file::open(path)?)?;
        bundle.check().map(|()| bundle)
    };
    open().with_context(|| format!("{}", path.display()))
}
