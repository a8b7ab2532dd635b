//! `attach` as it is meant: flags checked against each other, signatures read.

use super::UsageError;
use super::args::{AttachArgs, OutputArgs, Switch};
use super::destination::named;
use super::signature::{self, Chosen, DEFAULT_SIGNATURE};
use crate::clock::DurNs;
use crate::event::Threshold;
use crate::load::UserStacks;
use crate::source::address::Address;
use crate::symbolize::{Debuginfod, DebuginfodError};
use crate::target::Targets;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What `attach` is to do.
#[derive(Debug)]
pub(super) struct AttachConfig {
    pub(super) targets: Targets,
    pub(super) chosen: Chosen,
    /// No signature was named.
    pub(super) default_signature: bool,
    pub(super) threshold: Threshold,
    pub(super) lost_after: DurNs,
    pub(super) duration: Option<DurNs>,
    pub(super) count: Option<u64>,
    pub(super) record: Option<PathBuf>,
    pub(super) send: Option<Address>,
    pub(super) user_stacks: Option<UserStacks>,
    pub(super) debuginfod: Option<Arc<Debuginfod>>,
    pub(super) ring_bytes: u32,
    pub(super) output: OutputArgs,
}

impl AttachConfig {
    /// Checks the flags.
    ///
    /// # Errors
    /// Flags that contradict each other, and signatures that cannot be read.
    pub(super) fn new(args: AttachArgs) -> anyhow::Result<Self> {
        check_threshold(args.threshold, args.lost_after)?;
        check_names(&args)?;
        check_labels(&args.vnic)?;
        check_record(args.record.as_deref())?;
        let user_stacks = user_stacks(&args)?;
        let debuginfod = debuginfod(&args, user_stacks.is_some())?;
        let default_signature = args.signatures.is_empty();
        let named = if default_signature { vec![DEFAULT_SIGNATURE.to_owned()] } else { args.signatures };
        Ok(Self {
            targets: Targets {
                pnic: args.pnic,
                vnic: args.vnic,
                netns: args.netns,
                pid: args.pid,
                container: args.container,
                names: args.targets,
            },
            chosen: signature::load(&named)?,
            default_signature,
            threshold: args.threshold,
            lost_after: args.lost_after,
            duration: args.duration,
            count: args.count,
            record: args.record,
            send: args.send,
            user_stacks,
            debuginfod,
            ring_bytes: args.ring_size,
            output: args.output,
        })
    }
}

/// A check must be able to be slow before it is lost.
fn check_threshold(threshold: Threshold, lost_after: DurNs) -> Result<(), UsageError> {
    match threshold {
        Threshold::Fixed(limit) if limit >= lost_after => Err(UsageError(format!(
            "--threshold {limit} is not below --lost-after {lost_after}: no check could ever be slow"
        ))),
        Threshold::Fixed(_) | Threshold::Multiple(_) => Ok(()),
    }
}

/// Only a recording holds stacks, so without one nothing is taken for it.
fn user_stacks(args: &AttachArgs) -> Result<Option<UserStacks>, UsageError> {
    match (args.stacks, &args.record) {
        (Some(Switch::On), None) => Err(UsageError(
            "--stacks on needs --record FILE: stacks are kept in the recording, and `whylag flame` draws them".into(),
        )),
        (Some(Switch::Off), _) | (None, None) if args.stack_rate.is_some() || args.stack_wait.is_some() => {
            Err(UsageError(
                "--stack-rate and --stack-wait are about the stacks of a recording: use them with --record FILE".into(),
            ))
        }
        (Some(Switch::Off), _) | (None, None) => Ok(None),
        (Some(Switch::On) | None, Some(_)) => {
            let usual = UserStacks::default();
            Ok(Some(UserStacks {
                sample_hz: args.stack_rate.unwrap_or(usual.sample_hz),
                wait_min: args.stack_wait.unwrap_or(usual.wait_min),
                ..usual
            }))
        }
    }
}

/// Servers are asked only if that is wanted, and only for names in stacks.
fn debuginfod(args: &AttachArgs, takes_stacks: bool) -> anyhow::Result<Option<Arc<Debuginfod>>> {
    if !args.debuginfod {
        return Ok(None);
    }
    if !takes_stacks {
        return Err(UsageError("--debuginfod needs --stacks on: debug files name the code in stacks".into()).into());
    }
    match Debuginfod::from_environment(|name| std::env::var_os(name)) {
        Ok(debuginfod) => Ok(Some(Arc::new(debuginfod))),
        Err(error @ (DebuginfodError::NoFolder | DebuginfodError::Folder(..))) => Err(error.into()),
        Err(error) => Err(UsageError(format!("--debuginfod: {error}")).into()),
    }
}

/// One interface cannot be two parts of the path.
fn check_names(args: &AttachArgs) -> Result<(), UsageError> {
    let virtual_names = args.vnic.iter().filter_map(|typed| typed.split('=').next());
    match virtual_names.clone().find(|name| args.pnic.iter().any(|pnic| pnic == name)) {
        Some(name) => {
            Err(UsageError(format!("{name} is named with --pnic and with --vnic; it can be only one of them")))
        }
        None => Ok(()),
    }
}

/// Most characters of a label: it stands in every line about its target.
const LONGEST_LABEL: usize = 64;

/// A label must be something that can be read.
fn check_labels(vnics: &[String]) -> Result<(), UsageError> {
    for (name, label) in vnics.iter().filter_map(|typed| typed.split_once('=')) {
        let is_long = label.chars().count() > LONGEST_LABEL;
        if label.trim().is_empty() || is_long || label.chars().any(char::is_control) {
            return Err(UsageError(format!(
                "--vnic {name}=LABEL: the label must be 1 to {LONGEST_LABEL} printable characters"
            )));
        }
    }
    Ok(())
}

/// A recording must be able to be kept, and nothing may be lost for it.
fn check_record(record: Option<&Path>) -> Result<(), UsageError> {
    let Some(path) = record else { return Ok(()) };
    named(path, "--record")
}
