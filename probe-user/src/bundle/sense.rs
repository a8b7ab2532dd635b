//! Whether what a bundle holds makes sense: a hash says only that nobody has changed it.

use super::export::{COST, HOST, INCIDENT, REST};
use super::identity::Identity;
use super::read::RECORDING;
use super::{Bundle, BundleError, Member};
use crate::host::{CostFact, HostFact};
use crate::source::recording::{Reader, RecordingError};
use serde::de::{DeserializeOwned, IgnoredAny};
use std::io::{self, BufRead, BufReader, Read, Seek};

impl<F: Read + Seek> Bundle<F> {
    /// Reads every member as what its name says it is, and derives the incident's id from the recording
    /// again. Members that this version does not know are passed over.
    ///
    /// # Errors
    /// At the first that makes no sense.
    pub fn check_sense(&mut self) -> Result<(), BundleError> {
        let members = self.manifest().members.clone();
        members.iter().try_for_each(|member| self.check_member(member))?;
        self.check_id()
    }

    fn check_member(&mut self, member: &Member) -> Result<(), BundleError> {
        let name = member.name.as_str();
        match name {
            RECORDING => Ok(()),
            INCIDENT => self.incident().map(drop),
            HOST => self.parse::<Vec<HostFact>>(name),
            COST => self.parse::<CostFact>(name),
            _ if name.ends_with(".json") => self.parse::<IgnoredAny>(name),
            _ if name.ends_with(".jsonl.zst") => {
                let lines = BufReader::new(zstd::Decoder::new(self.open_member(name)?)?);
                each_line(lines, |line| serde_json::from_str::<IgnoredAny>(line).is_ok(), name)
            }
            _ if name.ends_with(".folded") => {
                let lines = BufReader::new(self.open_member(name)?);
                each_line(lines, |line| line.rsplit_once(' ').is_some_and(|(_, ns)| ns.parse::<i128>().is_ok()), name)
            }
            _ if name.ends_with(".svg") => each_line(BufReader::new(self.open_member(name)?), |_| true, name),
            _ => Ok(()),
        }
    }

    fn parse<T: DeserializeOwned>(&mut self, name: &str) -> Result<(), BundleError> {
        let parsed = serde_json::from_reader::<_, T>(BufReader::new(self.open_member(name)?));
        parsed.map(drop).map_err(|error| BundleError::damaged(format!("{name} makes no sense: {error}")))
    }

    fn check_id(&mut self) -> Result<(), BundleError> {
        let told = self.incident()?.id;
        let cut = self.manifest().left_out.iter().any(|left| left.what == REST);
        let before = self.manifest().member(RECORDING).map(|member| member.sha256.clone());
        let mut reader = Reader::new(self.open_member(RECORDING)?)?;
        let (id, damage) = Identity::of(&mut reader)?;
        match damage {
            None => {}
            Some(RecordingError::Cut { .. } | RecordingError::Truncated { .. }) if cut => {}
            Some(damage) => return Err(damage.into()),
        }
        // The first bundles had the first digits of the recording's own hash.
        match id == told || before.is_some_and(|sha256| !told.is_empty() && sha256.starts_with(&told)) {
            true => Ok(()),
            false => Err(BundleError::damaged(format!("its id is {told}, and its recording is of incident {id}"))),
        }
    }
}

fn each_line(mut lines: impl BufRead, is_one: impl Fn(&str) -> bool, name: &str) -> Result<(), BundleError> {
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        let unreadable = |error: io::Error| BundleError::damaged(format!("line {number} of {name}: {error}"));
        if lines.read_line(&mut line).map_err(unreadable)? == 0 {
            break;
        }
        if !is_one(line.trim_end_matches('\n')) {
            return Err(BundleError::damaged(format!("line {number} of {name} makes no sense")));
        }
    }
    Ok(())
}
