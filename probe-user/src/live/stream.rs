//! The one door: every record, whether the kernel's or our own, goes through [`Stream::push`] to
//! the recording and to the collector, so that a replay sees what the live run saw.

use crate::clock::MonoNs;
use crate::event::{Fact, fact_records, tick_record};
use crate::pipeline::{Collector, Output};
use crate::sink::{Outlet, OutletCounts};
use crate::source::recording::{RecordingError, Writer};
use crate::source::sending::Sending;
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How long the end of a run may wait for a slow reader.
const LAST_WORDS: Duration = Duration::from_millis(1_000);

/// How long the end of a run may wait for a slow receiver of its records: a half that is cut is of
/// little use.
const LAST_PARTS: Duration = Duration::from_secs(10);

/// What a run came to.
#[derive(Debug)]
pub struct Ended {
    /// What became of the outputs.
    pub outputs: OutletCounts,
    /// Why writing them stopped, if it did.
    pub written: io::Result<()>,
    /// Why the recording stopped, if it did.
    pub recorded: Result<(), RecordingError>,
    /// Why the records were no longer sent away, if they were not.
    pub sent: Result<(), RecordingError>,
    /// It ended early, because every interface that was named is gone.
    pub deserted: bool,
}

/// Records on their way into recording, collector and sink.
#[derive(Debug)]
pub(super) struct Stream {
    collector: Collector,
    recorder: Option<Writer<File>>,
    recorded: Result<(), RecordingError>,
    sender: Option<Writer<Sending>>,
    sent: Result<(), RecordingError>,
    outlet: Outlet,
    /// Slow checks so far, each report of an open one counted.
    slow: u64,
}

impl Stream {
    pub(super) fn new(recorder: Option<Writer<File>>, sender: Option<Writer<Sending>>, outlet: Outlet) -> Self {
        Self { collector: Collector::new(), recorder, recorded: Ok(()), sender, sent: Ok(()), outlet, slow: 0 }
    }

    /// Takes one record; `see` is shown every output before the sink is. A recording that fails
    /// ends, and so does sending; the run goes on.
    pub(super) fn push(&mut self, record: &[u8], see: &mut dyn FnMut(&Output)) {
        let Self { collector, recorder, recorded, sender, sent, outlet, slow } = self;
        write(recorder, recorded, record);
        write(sender, sent, record);
        collector.push(record, &mut |output| {
            see(&output);
            *slow += u64::from(matches!(&output, Output::Journey(judged) if judged.slow));
            outlet.offer(output);
        });
    }

    /// Slow checks that were told of so far, those that were still open included.
    pub(super) const fn slow_checks(&self) -> u64 {
        self.slow
    }

    /// Puts in what userspace knows, as of `at`.
    pub(super) fn fact(&mut self, at: MonoNs, fact: &Fact, see: &mut dyn FnMut(&Output)) {
        // A fact too long for a record has none; names that come from the host are short.
        for record in fact_records(at, fact).unwrap_or_default() {
            self.push(&record, see);
        }
    }

    /// Says that all records earlier than `at` have been pushed.
    pub(super) fn tick(&mut self, at: MonoNs, see: &mut dyn FnMut(&Output)) {
        self.push(&tick_record(at), see);
    }

    /// No check begins any more, and none of which anything is told is open.
    pub(super) const fn is_settled(&self) -> bool {
        self.collector.is_settled()
    }

    /// Nobody reads the results any more.
    pub(super) fn is_unread(&self) -> bool {
        self.outlet.is_closed()
    }

    /// Ends recording, collector and sink.
    pub(super) fn finish(self, see: &mut dyn FnMut(&Output)) -> Ended {
        let deadline = Instant::now() + LAST_WORDS;
        let Self { collector, recorder, mut recorded, sender, mut sent, mut outlet, .. } = self;
        if let Some(recorder) = recorder {
            recorded = recorder.finish().map(drop);
        }
        let sending = sender.map(Writer::finish);
        collector.finish(&mut |output| {
            see(&output);
            outlet.insist(output, deadline);
        });
        let (outputs, written) = outlet.finish(deadline);
        if let Some(sending) = sending {
            sent = sending.and_then(|sending| Ok(sending.finish(Instant::now() + LAST_PARTS)?));
        }
        Ended { outputs, written, recorded, sent, deserted: false }
    }
}

/// Writes a record, until that fails for the first time.
fn write<W: Write>(to: &mut Option<Writer<W>>, result: &mut Result<(), RecordingError>, record: &[u8]) {
    if let Some(Err(error)) = to.as_mut().map(|to| to.write(record)) {
        *to = None;
        *result = Err(error);
    }
}
