//! `whylag join`: the two halves of a VM's checks, from files or while they are being made.

use super::args::{Half, JoinArgs};
use super::input::Input;
use super::tally::Tally;
use super::{Outcome, UsageError, terminal};
use crate::bundle::{Addresses, Manifest};
use crate::clock::DurNs;
use crate::file;
use crate::join::{Comparable, Join, Side};
use crate::live::Stop;
use crate::pipeline::{Collector, Output};
use crate::sink::Printer;
use crate::source::address::Listener;
use crate::source::growing::Growing;
use crate::source::recording::{Reader, RecordingError};
use anyhow::Context;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// A half that is sent is over when it has told nothing for so long: a run says something ten times a
/// second, but a slow machine takes a while to begin.
const SILENCE: Duration = Duration::from_secs(30);
/// A file that has not grown for so long is one that nobody writes any more.
const FULL_GROWN: Duration = Duration::from_secs(10);
/// How long a check of the host waits for the guest's half while both are being made, in its own time.
const PATIENCE: DurNs = DurNs::from_secs(3);
/// Records of a half that may wait; each is at most 64 KiB long.
const DEPTH: usize = 256;
/// Records of one half in a row.
const TURN: usize = 1_024;
/// How long to wait for a record of one half before looking at the other.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the command.
pub(super) fn run(args: &JoinArgs) -> anyhow::Result<Outcome> {
    if args.host == args.guest {
        return Err(
            UsageError(format!("HOST and GUEST are both {}: a half cannot be joined to itself", args.host)).into()
        );
    }
    let live = |half: &Half| args.follow && matches!(half, Half::File(_)) || matches!(half, Half::Listen(_));
    let both_live = live(&args.host) && live(&args.guest);
    let stop = if both_live { Some(Stop::on_signals().context("cannot listen for signals")?) } else { None };
    let (host, of_host) = Feed::open(&args.host, args.follow)?;
    let (guest, of_guest) = Feed::open(&args.guest, args.follow)?;
    let comparable =
        Comparable { nonces: of_host.nonces && of_guest.nonces, addresses: of_host.addresses && of_guest.addresses };
    let join = Join::new(comparable, both_live.then_some(PATIENCE));
    let mut joining = Joining::new(join, [host, guest], args);
    match stop {
        Some(stop) => joining.while_made(&stop),
        None => joining.until_both_end(),
    }
    joining.finish(args)
}

/// What a thread says of the half that it reads.
enum Said {
    /// Records follow.
    Begun,
    /// A record.
    Record(Vec<u8>),
    /// For the operator.
    Notice(String),
    /// There is no more, for this reason if not because the half is over.
    End(Option<RecordingError>),
}

/// A half, read by a thread of its own.
struct Feed {
    said: Receiver<Said>,
    /// When it told something last; `None` before it began.
    heard_at: Option<Instant>,
    damage: Option<RecordingError>,
    over: bool,
}

impl Feed {
    fn open(half: &Half, follow: bool) -> anyhow::Result<(Self, Comparable)> {
        let (say, said) = sync_channel(DEPTH);
        let cannot = || format!("cannot read {half}");
        let thread = Builder::new().name("reading".to_owned());
        let comparable = match half {
            Half::Listen(address) => {
                let listener = address.listen().with_context(|| format!("cannot listen at {address}"))?;
                terminal::say(&format!("listening at {address} for `whylag attach --send {}`", address.from_outside()));
                thread.spawn(move || listen(&listener, &say))?;
                Comparable::ALL
            }
            Half::File(path) if follow => {
                let file = file::open(path).with_context(cannot)?;
                thread.spawn(move || begin(Growing::new(file, FULL_GROWN), &say))?;
                Comparable::ALL
            }
            Half::File(path) => {
                let opened = Input::open(path)?;
                thread.spawn(move || tell(opened.reader, &say))?;
                comparable(opened.bundle.as_ref())
            }
            Half::Stdin => {
                let opened = Input::open_stream(io::stdin()).with_context(cannot)?;
                thread.spawn(move || tell(opened.reader, &say))?;
                comparable(opened.bundle.as_ref())
            }
        };
        Ok((Self { said, heard_at: None, damage: None, over: false }, comparable))
    }

    /// What came meanwhile, waiting for it as long as is said.
    fn next(&mut self, wait: Option<Duration>) -> Option<Vec<u8>> {
        let said = match wait {
            None => self.said.recv().map_err(|_| true),
            Some(Duration::ZERO) => self.said.try_recv().map_err(|error| error == TryRecvError::Disconnected),
            Some(wait) => self.said.recv_timeout(wait).map_err(|error| error == RecvTimeoutError::Disconnected),
        };
        match said {
            Ok(Said::Record(record)) => {
                self.heard_at = Some(Instant::now());
                return Some(record);
            }
            Ok(Said::Begun) => self.heard_at = Some(Instant::now()),
            Ok(Said::Notice(text)) => terminal::say(&text),
            Ok(Said::End(damage)) => (self.over, self.damage) = (true, damage),
            Err(gone) => self.over |= gone,
        }
        None
    }

    fn is_silent(&self) -> bool {
        !self.over && self.heard_at.is_some_and(|at| at.elapsed() > SILENCE)
    }
}

/// A bundle's own pseudonyms are like nobody else's.
fn comparable(bundle: Option<&Manifest>) -> Comparable {
    bundle.map_or(Comparable::ALL, |manifest| Comparable {
        nonces: false,
        addresses: manifest.addresses == Addresses::Plain,
    })
}

/// Takes the first who sends a recording; the others are sent away.
fn listen(listener: &Listener, say: &SyncSender<Said>) {
    loop {
        let reader = match listener.accept(SILENCE) {
            Ok(stream) => Reader::new(stream),
            Err(error) => Err(error.into()),
        };
        match reader {
            Ok(reader) => return tell(reader, say),
            Err(RecordingError::Io(error)) if !is_a_sender_s(&error) => {
                let _ = say.send(Said::End(Some(error.into())));
                return;
            }
            Err(error) => {
                let text = format!("who connected sent no half ({error}); still listening");
                if say.send(Said::Notice(text)).is_err() {
                    return;
                }
            }
        }
    }
}

/// Whether an error is that of one sender, rather than of listening.
fn is_a_sender_s(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

fn begin(from: impl Read, say: &SyncSender<Said>) {
    match Reader::new(from) {
        Ok(reader) => tell(reader, say),
        Err(error) => {
            let _ = say.send(Said::End(Some(error)));
        }
    }
}

/// A sender that says nothing more is no fault of the socket's.
fn in_words(error: RecordingError) -> RecordingError {
    match error {
        RecordingError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, format!("nothing came for {} s", SILENCE.as_secs())).into()
        }
        error => error,
    }
}

/// Tells all records; nobody listens any more when the run is over.
fn tell(mut reader: Reader<impl Read>, say: &SyncSender<Said>) {
    let mut damage = None;
    if say.send(Said::Begun).is_err() {
        return;
    }
    while let Some(record) = reader.next_record() {
        match record {
            Ok(record) if say.send(Said::Record(record.to_vec())).is_err() => return,
            Ok(_) => {}
            Err(error) => damage = Some(in_words(error)),
        }
    }
    let _ = say.send(Said::End(damage));
}

/// Two halves on their way to the output.
struct Joining {
    feeds: [Feed; 2],
    collectors: [Collector; 2],
    join: Join,
    printer: Printer,
    tally: Tally,
    failed: Option<io::Error>,
}

const SIDES: [Side; 2] = [Side::Host, Side::Guest];

impl Joining {
    fn new(join: Join, feeds: [Feed; 2], args: &JoinArgs) -> Self {
        let printer = Printer::new(terminal::sink(args.output.format, false));
        let collectors = [Collector::new(), Collector::new()];
        Self { feeds, collectors, join, printer, tally: Tally::default(), failed: None }
    }

    /// Reads both to their ends, always on where fewer halves wait: the same files give the same lines.
    fn until_both_end(&mut self) {
        while self.failed.is_none() {
            let behind =
                if self.join.waiting(Side::Host) > self.join.waiting(Side::Guest) { Side::Guest } else { Side::Host };
            let other = if behind == Side::Host { Side::Guest } else { Side::Host };
            let Some(side) = [behind, other].into_iter().find(|side| !self.feeds[*side as usize].over) else { return };
            self.take(side, None);
        }
    }

    /// Takes what comes, until the host's half is over, or a signal says that it is enough.
    fn while_made(&mut self, stop: &Stop) {
        let mut over_at = None;
        while self.failed.is_none() && !stop.is_asked_for() {
            if SIDES.into_iter().all(|side| self.feeds[side as usize].over) {
                return;
            }
            let some = SIDES.into_iter().filter(|side| self.take_turn(*side)).count() > 0;
            if !some {
                let open = SIDES.into_iter().find(|side| !self.feeds[*side as usize].over);
                open.into_iter().for_each(|side| {
                    self.take(side, Some(LOOK));
                });
            }
            if self.feeds[Side::Host as usize].over {
                let at = *over_at.get_or_insert_with(Instant::now);
                if at.elapsed() > Duration::from_nanos(PATIENCE.0) {
                    return;
                }
            }
        }
    }

    /// Takes what there is of a side, but not too much in a row; whether there was anything.
    fn take_turn(&mut self, side: Side) -> bool {
        let taken = (0..TURN).take_while(|_| self.take(side, Some(Duration::ZERO))).count();
        if self.feeds[side as usize].is_silent() {
            terminal::say(&format!(
                "the {}'s half has been silent for {} s, and is over",
                name(side),
                SILENCE.as_secs()
            ));
            self.feeds[side as usize].over = true;
        }
        taken > 0
    }

    /// Takes a record of a side, waiting for it as long as is said; whether there was one.
    fn take(&mut self, side: Side, wait: Option<Duration>) -> bool {
        let Self { feeds, collectors, .. } = self;
        let feed = &mut feeds[side as usize];
        let Some(record) = (!feed.over).then(|| feed.next(wait)).flatten() else { return false };
        let mut outputs = Vec::new();
        collectors[side as usize].push(&record, &mut |output| outputs.push(output));
        outputs.into_iter().for_each(|output| self.push(side, output));
        true
    }

    fn push(&mut self, side: Side, output: Output) {
        let Self { join, printer, tally, failed, .. } = self;
        join.push(side, output, &mut |output| print(&output, printer, tally, failed));
    }

    /// Ends both collectors and the join. A half of which only a part could be read is a failure, when
    /// all that can be told has been.
    fn finish(mut self, args: &JoinArgs) -> anyhow::Result<Outcome> {
        for (side, collector) in SIDES.into_iter().zip(std::mem::take(&mut self.collectors)) {
            let mut outputs = Vec::new();
            collector.finish(&mut |output| outputs.push(output));
            outputs.into_iter().for_each(|output| self.push(side, output));
        }
        let Self { feeds, join, mut printer, mut tally, mut failed, .. } = self;
        join.finish(&mut |output| print(&output, &mut printer, &mut tally, &mut failed));
        if let Some(error) = failed {
            return Err(error).context("cannot write the result");
        }
        for (half, feed) in [&args.host, &args.guest].into_iter().zip(feeds) {
            if let Some(damage) = feed.damage {
                return Err(damage).with_context(|| format!("only a part of {half} could be read"));
            }
        }
        Ok(tally.outcome(args.output))
    }
}

const fn name(side: Side) -> &'static str {
    match side {
        Side::Host => "host",
        Side::Guest => "guest",
    }
}

fn print(output: &Output, printer: &mut Printer, tally: &mut Tally, failed: &mut Option<io::Error>) {
    tally.take(output);
    if failed.is_none() {
        *failed = printer.print(output, 0).err();
    }
}
