//! Between the pipeline and a reader that may be slow: a bounded queue and its own thread.

use super::{Context, Names, Sink};
use crate::event::Fact;
use crate::pipeline::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, iter};

/// Time between two calls of [`Sink::refresh`].
const REFRESH: Duration = Duration::from_secs(1);
/// How long the writing thread lets outputs gather once it has written all: to wake it for each would
/// cost the collector a tenth of its time.
const GATHER: Duration = Duration::from_millis(10);
/// Most outputs that are written before it is looked whether a refresh is due.
const AT_ONCE: usize = 1_024;
/// How often the end of the writing thread is looked for.
const POLL: Duration = Duration::from_millis(2);

/// A sink with the names it needs; writes in the caller's thread.
#[derive(Debug)]
pub struct Printer {
    sink: Box<dyn Sink>,
    names: Names,
}

impl Printer {
    /// Prints to `sink`.
    #[must_use]
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Self { sink, names: Names::default() }
    }

    /// Writes one output, or learns from a fact.
    ///
    /// # Errors
    /// Those of [`Sink::write`].
    pub fn print(&mut self, output: &Output, dropped: u64) -> io::Result<()> {
        if let Output::Fact(fact) = output {
            self.names.learn(fact);
        }
        self.sink.write(output, Context { names: &self.names, dropped })
    }

    fn refresh(&mut self, dropped: u64) -> io::Result<()> {
        self.sink.refresh(Context { names: &self.names, dropped })
    }
}

/// What happened to the outputs offered to a sink; facts are not counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OutletCounts {
    /// Outputs given.
    pub offered: u64,
    /// Outputs written.
    pub written: u64,
    /// Outputs given up, because the queue was full or the reader gone.
    pub dropped: u64,
}

/// A bounded queue in front of a [`Printer`] in a thread of its own. Offering never waits.
#[derive(Debug)]
pub struct Outlet {
    queue: SyncSender<Output>,
    /// Facts that found the queue full; they go before the next output.
    held: Vec<Fact>,
    offered: u64,
    dropped: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    worker: JoinHandle<io::Result<()>>,
}

impl Outlet {
    /// Starts the thread, with room for `depth` outputs.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn new(sink: Box<dyn Sink>, depth: usize) -> io::Result<Self> {
        let (queue, outputs) = sync_channel(depth);
        let (dropped, written) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let counters = (Arc::clone(&dropped), Arc::clone(&written));
        let worker = Builder::new()
            .name("sink".to_owned())
            .spawn(move || write_all(Printer::new(sink), &outputs, &counters.0, &counters.1))?;
        Ok(Self { queue, held: Vec::new(), offered: 0, dropped, written, worker })
    }

    /// Queues an output; when there is no room it is dropped and counted.
    pub fn offer(&mut self, output: Output) {
        if let Output::Fact(fact) = output {
            return self.hold(fact);
        }
        self.offered += 1;
        if !self.release() || self.queue.try_send(output).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Queues an output, waiting for room until `deadline`.
    pub fn insist(&mut self, output: Output, deadline: Instant) {
        while !self.release() && Instant::now() < deadline && !self.is_closed() {
            thread::sleep(POLL);
        }
        if matches!(output, Output::Fact(_)) {
            return self.offer(output);
        }
        self.offered += 1;
        let mut output = output;
        while let Err(TrySendError::Full(back)) = self.queue.try_send(output) {
            if Instant::now() >= deadline {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            output = back;
            thread::sleep(POLL);
        }
    }

    /// Nobody reads any more, or writing failed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.worker.is_finished()
    }

    /// Waits for the writer until `deadline`; what it has not written by then is dropped.
    ///
    /// # Errors
    /// Why writing stopped, if it did.
    pub fn finish(self, deadline: Instant) -> (OutletCounts, io::Result<()>) {
        let Self { queue, offered, written, worker, .. } = self;
        drop(queue);
        while !worker.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        let result = if worker.is_finished() { join(worker) } else { Ok(()) };
        let written = written.load(Ordering::Relaxed);
        (OutletCounts { offered, written, dropped: offered - written }, result)
    }

    /// Keeps a fact that teaches names until there is room; of clocks only the latest counts.
    fn hold(&mut self, fact: Fact) {
        if !Names::learns_from(&fact) {
            return;
        }
        if matches!(fact, Fact::Clock(_)) {
            self.held.retain(|held| !matches!(held, Fact::Clock(_)));
        }
        self.held.push(fact);
        self.release();
    }

    /// Queues the held facts; false when there is no room for all of them.
    fn release(&mut self) -> bool {
        let mut facts = std::mem::take(&mut self.held).into_iter();
        while let Some(fact) = facts.next() {
            if let Err(TrySendError::Full(Output::Fact(back))) = self.queue.try_send(Output::Fact(fact)) {
                self.held.push(back);
                self.held.extend(facts);
                return false;
            }
        }
        true
    }
}

fn join(worker: JoinHandle<io::Result<()>>) -> io::Result<()> {
    worker.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
}

/// The writing thread: prints until the queue is closed and empty.
fn write_all(
    mut printer: Printer,
    outputs: &Receiver<Output>,
    dropped: &AtomicU64,
    written: &AtomicU64,
) -> io::Result<()> {
    let mut refresh_at = Instant::now() + REFRESH;
    loop {
        match outputs.recv_timeout(refresh_at.saturating_duration_since(Instant::now())) {
            Ok(first) => {
                for output in iter::once(first).chain(outputs.try_iter().take(AT_ONCE)) {
                    printer.print(&output, dropped.load(Ordering::Relaxed))?;
                    written.fetch_add(u64::from(!matches!(output, Output::Fact(_))), Ordering::Relaxed);
                }
                thread::sleep(GATHER);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if Instant::now() >= refresh_at {
            printer.refresh(dropped.load(Ordering::Relaxed))?;
            refresh_at = Instant::now() + REFRESH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, Outlet, Sink};
    use crate::pipeline::Output;
    use crate::sink::sample;
    use std::io;
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::{Duration, Instant};

    /// Writes one output for each permission it gets.
    #[derive(Debug)]
    struct Slow(Receiver<()>);

    impl Sink for Slow {
        fn write(&mut self, _: &Output, _: Context<'_>) -> io::Result<()> {
            self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe.into())
        }

        fn refresh(&mut self, _: Context<'_>) -> io::Result<()> {
            Ok(())
        }
    }

    fn output() -> Output {
        Output::Journey(Box::new(sample::healthy()))
    }

    #[test]
    fn a_stuck_reader_costs_outputs_that_are_counted_and_no_time() {
        let (permit, permits) = sync_channel(16);
        let mut outlet = Outlet::new(Box::new(Slow(permits)), 2).unwrap();
        (0..10).for_each(|_| outlet.offer(output()));
        (0..10).for_each(|_| permit.send(()).unwrap());
        let (counts, result) = outlet.finish(Instant::now() + Duration::from_secs(5));
        result.unwrap();
        assert_eq!(counts.offered, 10);
        assert!(counts.written >= 2 && counts.dropped >= 1);
        assert_eq!(counts.offered, counts.written + counts.dropped);
    }

    #[test]
    fn a_reader_that_never_reads_does_not_hold_up_the_end() {
        let (_permit, permits) = sync_channel(1);
        let mut outlet = Outlet::new(Box::new(Slow(permits)), 1).unwrap();
        (0..3).for_each(|_| outlet.offer(output()));
        let start = Instant::now();
        outlet.insist(output(), start + Duration::from_millis(50));
        let (counts, _) = outlet.finish(start + Duration::from_millis(100));
        assert!(start.elapsed() < Duration::from_secs(2));
        assert_eq!((counts.offered, counts.written, counts.dropped), (4, 0, 4));
    }

    #[test]
    fn a_reader_that_went_away_closes_the_outlet() {
        let (permit, permits) = sync_channel(1);
        drop(permit);
        let mut outlet = Outlet::new(Box::new(Slow(permits)), 4).unwrap();
        outlet.offer(output());
        let (counts, result) = outlet.finish(Instant::now() + Duration::from_secs(5));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(counts.dropped, 1);
    }
}
