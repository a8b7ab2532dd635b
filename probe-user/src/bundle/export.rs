//! From a recording to a bundle.
//!
//! Record by record: rewritten, kept, concluded from, and what that gives is written as `whylag replay`
//! would print it. What is larger than memory should hold goes through files without a name.

use super::content::{Draft, Packed};
use super::identity::Identity;
use super::incident::Incident;
use super::manifest::{Addresses, FORMAT_VERSION, LeftOut, Manifest};
use super::pseudonym::Pseudonyms;
use super::read::RECORDING;
use super::{BundleError, Hide, IncidentRecord, SecretKey, rewrite, write};
use crate::clock::MonoNs;
use crate::event::{Body, Event, Fact, fact_record};
use crate::file;
use crate::flame::{Empty, Flame, Graph, ThreadTimes};
use crate::host::{CostFact, HostFact};
use crate::pipeline::{Collector, Output};
use crate::sink::{Context, JsonSink, Names, Sink};
use crate::source::recording::{Compression, Reader, RecordingError, Writer};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::SystemTime;

/// The ledgers, as `whylag replay --format json` prints them.
pub(super) const LEDGERS: &str = "ledgers.jsonl.zst";
/// The incident in a few facts.
pub(super) const INCIDENT: &str = "incident.json";
/// What the host was like.
pub(super) const HOST: &str = "host.json";
/// What was lost on the way.
pub(super) const LOSSES: &str = "losses.json";
/// What whylag itself has cost.
pub(super) const COST: &str = "cost.json";
/// Most facts about a host that are kept.
const MOST_HOST_FACTS: usize = 2_048;

/// How a bundle is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Export<'a> {
    /// Where to; new or empty.
    pub to: &'a Path,
    /// Addresses as they were seen, instead of pseudonyms.
    pub addresses: Addresses,
    /// Who signs it.
    pub signer: Option<&'a SecretKey>,
}

/// What is left out of a bundle whose recording has no end.
pub(super) const REST: &str = "the rest of the recording";
/// Begin of the symptom of an incident whose recording is cut or damaged.
const IN_PART: &str = "only a part of the recording could be read";

/// What came of it.
#[derive(Debug)]
pub struct Exported {
    /// The incident.
    pub incident: IncidentRecord,
    /// What became of addresses: what was asked for, unless the recording has pseudonyms already.
    pub addresses: Addresses,
    /// What was wrong with the recording; all that could be read is in the bundle.
    pub damage: Option<RecordingError>,
}

/// Makes a bundle from a recording.
///
/// # Errors
/// When it cannot be written; no file is there then.
pub fn export(from: Reader<impl Read>, how: &Export<'_>) -> Result<Exported, BundleError> {
    gather(from, how).map_err(BundleError::in_writing)
}

fn gather(mut from: Reader<impl Read>, how: &Export<'_>) -> Result<Exported, BundleError> {
    let folder = file::folder_of(how.to);
    let mut gathering = Gathering::new(folder, how.addresses)?;
    let damage = from.drain(&mut |record| gathering.push(record))?;
    let addresses = gathering.addresses;
    let (mut manifest, drafts, incident) = gathering.finish(damage.as_ref())?;
    if let Some(damage) = &damage {
        let what = if damage.hides_the_end() { REST } else { "a part of the recording" };
        manifest.left_out.push(LeftOut::new(what, damage.to_string()));
    }
    write::write(how.to, manifest, drafts, how.signer)?;
    Ok(Exported { incident, addresses, damage })
}

/// Everything on its way into the bundle.
struct Gathering {
    addresses: Addresses,
    pseudonyms: Pseudonyms,
    /// The recording says what became of addresses.
    says_so: bool,
    identity: Identity,
    recording: Writer<File>,
    collector: Collector,
    told: Told,
}

/// What is made of the outputs.
struct Told {
    names: Names,
    ledgers: JsonSink<Packed>,
    flame: Flame,
    threads: ThreadTimes,
    incident: Incident,
    host: Vec<HostFact>,
    cost: Option<CostFact>,
    losses: Vec<u8>,
    failed: Option<io::Error>,
}

impl Gathering {
    fn new(folder: &Path, addresses: Addresses) -> Result<Self, BundleError> {
        let ledgers = JsonSink::new(Packed::new(tempfile::tempfile_in(folder)?)?);
        Ok(Self {
            addresses,
            pseudonyms: Pseudonyms::new()?,
            says_so: false,
            identity: Identity::default(),
            recording: Writer::new(tempfile::tempfile_in(folder)?, Compression::Small)?,
            collector: Collector::new().telling_hops().telling_activities(),
            told: Told {
                names: Names::default(),
                ledgers,
                flame: Flame::new(),
                threads: ThreadTimes::new(),
                incident: Incident::default(),
                host: Vec::new(),
                cost: None,
                losses: Vec::new(),
                failed: None,
            },
        })
    }

    fn push(&mut self, record: &[u8]) -> Result<(), BundleError> {
        self.identity.push(record)?;
        let mut record = record.to_vec();
        let hide = &mut match self.addresses {
            Addresses::Plain => Hide::Nonces(&mut self.pseudonyms),
            Addresses::Pseudonyms => Hide::Addresses(&mut self.pseudonyms),
        };
        let event = rewrite(&mut record, hide)?.ok();
        if let Some(event) = &event {
            self.told.learn(event);
        }
        if self.is_told(event.as_ref()) {
            return Ok(());
        }
        self.keep(&record)?;
        if self.addresses == Addresses::Pseudonyms && !self.says_so {
            self.says_so = true;
            self.keep(&fact_record(event.map_or(MonoNs(0), |event| event.at), &Fact::Pseudonyms)?)?;
        }
        Ok(())
    }

    /// It says that addresses are pseudonyms, which has been said. They are so even if that was not asked
    /// for: a recording that was taken out of a bundle has no others.
    fn is_told(&mut self, event: Option<&Event>) -> bool {
        let says_so = event.is_some_and(|event| matches!(&event.body, Body::Fact(fact) if **fact == Fact::Pseudonyms));
        let told = says_so && self.says_so;
        if says_so {
            (self.addresses, self.says_so) = (Addresses::Pseudonyms, true);
        }
        told
    }

    fn keep(&mut self, record: &[u8]) -> Result<(), BundleError> {
        self.recording.write(record)?;
        let Self { collector, told, .. } = self;
        collector.push(record, &mut |output| told.take(&output));
        self.told.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Of a recording whose end could not be read, the bundle's has no end mark either, and the symptom
    /// says of any damage: nobody may take the part for the whole.
    fn finish(self, damage: Option<&RecordingError>) -> Result<(Manifest, Vec<Draft>, IncidentRecord), BundleError> {
        let Self { addresses, recording, collector, mut told, identity, .. } = self;
        collector.finish(&mut |output| told.take(&output));
        if let Some(error) = told.failed {
            return Err(error.into());
        }
        let cut = damage.is_some_and(RecordingError::hides_the_end);
        let recording = if cut { recording.finish_cut()? } else { recording.finish()? };
        let bytes = recording.metadata()?.len();
        let mut incident = told.incident.finish(identity.id(), &told.names);
        if damage.is_some() {
            incident.symptom = format!("{IN_PART}: {}", incident.symptom);
        }
        let mut left_out = left_out(addresses);
        let about = "the records, as `whylag attach --record` keeps them";
        let mut drafts = vec![
            json(INCIDENT, "the incident in a few facts", &incident)?,
            Draft::in_file(RECORDING, about, recording, bytes),
            told.ledgers.into_inner().finish(LEDGERS, "each check's time, split; as `whylag replay --format json`")?,
            Draft::new(LOSSES, "what was lost on the way, counted", told.losses),
        ];
        match told.host.is_empty() {
            true => left_out.push(LeftOut::new("facts about the host", "the recording has none")),
            false => drafts.push(json(HOST, "what the host was like", &told.host)?),
        }
        match &told.cost {
            None => left_out.push(LeftOut::new("what whylag itself has cost", "the recording does not say")),
            Some(cost) => drafts.push(json(COST, "what whylag itself has cost", cost)?),
        }
        draw((&told.flame, &told.threads), &mut drafts, &mut left_out)?;
        Ok((manifest(addresses, left_out), drafts, incident))
    }
}

impl Told {
    fn take(&mut self, output: &Output) {
        if let Output::Fact(fact) = output {
            self.names.learn(fact);
        }
        self.flame.push(output);
        self.threads.push(output);
        self.incident.push(output, &self.names);
        let context = Context { names: &self.names, dropped: 0 };
        let written = self.ledgers.write(output, context).and_then(|()| match output {
            Output::Loss(_) => JsonSink::new(&mut self.losses).write(output, context),
            _ => Ok(()),
        });
        self.failed = self.failed.take().or(written.err());
    }

    fn learn(&mut self, event: &Event) {
        let Body::Fact(fact) = &event.body else { return };
        match &**fact {
            Fact::Host(fact) if self.host.len() < MOST_HOST_FACTS => self.host.push((**fact).clone()),
            Fact::Cost(cost) => self.cost = Some((**cost).clone()),
            _ => {}
        }
    }
}

fn json(name: &'static str, about: &'static str, value: &impl Serialize) -> Result<Draft, BundleError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(io::Error::from)?;
    text.push(b'\n');
    Ok(Draft::new(name, about, text))
}

/// The graphs that there is anything to draw for.
fn draw(
    (flame, threads): (&Flame, &ThreadTimes),
    drafts: &mut Vec<Draft>,
    left_out: &mut Vec<LeftOut>,
) -> Result<(), BundleError> {
    let mut add = |graph: Result<Graph, Empty>, [svg, folded]: [&'static str; 2], about: &'static str| match graph {
        Err(empty) => {
            left_out.push(LeftOut::new(about, empty.to_string()));
            Ok(())
        }
        Ok(graph) => {
            drafts.push(Draft::new(svg, about, graph.svg()?.into_bytes()));
            drafts.push(Draft::new(folded, about, graph.folded().into_bytes()));
            Ok::<_, io::Error>(())
        }
    };
    add(flame.delay(), ["delay.svg", "delay.folded"], "flame graph of the delay of slow checks")?;
    add(flame.diff(), ["diff.svg", "diff.folded"], "flame graph of a slow check against a healthy one")?;
    add(threads.cpu(), ["cpu.svg", "cpu.folded"], "flame graph of watched threads on a CPU")?;
    Ok(add(threads.offcpu(), ["offcpu.svg", "offcpu.folded"], "flame graph of watched threads off their CPU")?)
}

fn manifest(addresses: Addresses, left_out: Vec<LeftOut>) -> Manifest {
    Manifest {
        kind: "bundle".to_owned(),
        format: FORMAT_VERSION,
        whylag: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        addresses,
        signer: None,
        left_out,
        kept: KEPT.iter().chain(kept_of(addresses)).map(|kept| (*kept).to_owned()).collect(),
        members: Vec::new(),
    }
}

/// What a recording holds, and a reader of the bundle learns.
const KEPT: [&str; 7] = [
    "names of threads and processes, and their numbers",
    "names of cgroups, and with them of services, containers and virtual machines",
    "names and labels of interfaces and disks",
    "ports, protocols, lengths and TCP sequence numbers of packets",
    "what the signatures look for, as it was typed",
    "names of functions, source files and binaries in stacks",
    "addresses of kernel functions and objects of this boot",
];

const fn kept_of(addresses: Addresses) -> &'static [&'static str] {
    match addresses {
        Addresses::Plain => &["network addresses, because that was asked for"],
        Addresses::Pseudonyms => &["loopback and well-known multicast addresses"],
    }
}

fn left_out(addresses: Addresses) -> Vec<LeftOut> {
    let mut left_out = vec![
        LeftOut::new("payload of packets", "never recorded, but for the nonces of checks"),
        LeftOut::new(
            "nonces of checks",
            "they are payload: each is replaced by a keyed hash, so that equal ones stay equal; the key is not kept",
        ),
        LeftOut::new("arguments and environment of processes", "never recorded"),
        LeftOut::new("the host's name, serial numbers, MAC addresses and kernel command line", "never recorded"),
        LeftOut::new(
            "whatever this whylag cannot decode",
            "it could hold anything: such records are zeros, and counted",
        ),
    ];
    if addresses == Addresses::Pseudonyms {
        let why = "each is replaced by a pseudonym (IPv4 in 240.0.0.0/4, IPv6 in 2001:db8::/32), the same all through \
            this bundle; the key is not kept";
        left_out.push(LeftOut::new("network addresses", why));
    }
    left_out
}
