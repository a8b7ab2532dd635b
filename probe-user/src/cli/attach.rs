//! `whylag attach`: live.

use super::args::AttachArgs;
use super::config::AttachConfig;
use super::signature::DEFAULT_SIGNATURE;
use super::tally::Tally;
use super::{Outcome, UsageError, terminal};
use crate::event::Threshold;
use crate::live::{self, Ended, Observer, Plan};
use crate::pipeline::Output;
use crate::target::SelectionError;
use anyhow::Context;
use std::io;

/// Runs the command.
pub(super) fn run(args: AttachArgs) -> anyhow::Result<Outcome> {
    let config = AttachConfig::new(args)?;
    say_defaults(&config);
    let mut watcher = Watcher { tally: Tally::default(), count: config.count };
    let sink = terminal::sink(config.output.format, true);
    let ended = live::run(&plan(&config), sink, &mut watcher).map_err(usage_or_failure)?;
    conclude(ended, &watcher.tally, &config)
}

fn plan(config: &AttachConfig) -> Plan<'_> {
    Plan {
        targets: &config.targets,
        signatures: &config.chosen.signatures,
        threshold: config.threshold,
        lost_after: config.lost_after,
        duration: config.duration,
        count: config.count,
        user_stacks: config.user_stacks,
        debuginfod: config.debuginfod.clone(),
        ring_bytes: config.ring_bytes,
        record: config.record.as_deref(),
        send: config.send.as_ref(),
    }
}

fn say_defaults(config: &AttachConfig) {
    if config.default_signature {
        terminal::say(&format!(
            "looking for {DEFAULT_SIGNATURE}, since no --signature was given; `whylag signature list` shows others"
        ));
    }
    if let Threshold::Multiple(times) = config.threshold {
        terminal::say(&format!(
            "a check is slow above {times} times the usual of its target, never below 1 ms, and above 100 ms until 20 \
             are known; --threshold 20ms sets a fixed limit"
        ));
    }
}

/// Names that contradict each other are wrong usage; names that do not exist are not.
fn usage_or_failure(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(SelectionError::TwoRoles { .. } | SelectionError::Ambiguous { .. }) => {
            UsageError(error.to_string()).into()
        }
        _ => error,
    }
}

/// Turns the end of the run into an exit status; a recording that failed is a failure.
fn conclude(ended: Ended, tally: &Tally, config: &AttachConfig) -> anyhow::Result<Outcome> {
    let dropped = ended.outputs.dropped;
    match ended.written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => return Err(error).context("cannot write the results"),
        Ok(()) if dropped > 0 => terminal::say(&format!("{dropped} lines were not written: the reader was too slow")),
        Ok(()) => {}
    }
    if let (Err(error), Some(path)) = (ended.recorded, &config.record) {
        return Err(anyhow::Error::from(error).context(format!("the recording {} is not complete", path.display())));
    }
    if let (Err(error), Some(address)) = (ended.sent, &config.send) {
        return Err(anyhow::Error::from(error).context(format!("not everything was sent to {address}")));
    }
    Ok(match tally.outcome(config.output) {
        Outcome::Incomplete => Outcome::Incomplete,
        _ if ended.deserted => Outcome::Broken,
        outcome => outcome,
    })
}

/// Follows the run for its end and exit status.
struct Watcher {
    tally: Tally,
    count: Option<u64>,
}

impl Observer for Watcher {
    fn say(&mut self, text: &str) {
        terminal::say(text);
    }

    fn see(&mut self, output: &Output) {
        self.tally.take(output);
    }

    fn has_enough(&self) -> bool {
        self.count.is_some_and(|count| self.tally.ended >= count)
    }
}
