//! Getting on and off a host.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::programs::{SchedClassifier, TcAttachType};
use probe_user::load::{Attachment, Request, load};

use crate::{
    arrange::{Beside, IFINDEX, INTERFACE},
    frame,
    report::{Figure, Row},
    samples::Samples,
};

const ROUNDS: usize = 9;
/// The binary that users run.
const WHYLAG: &str = env!("CARGO_BIN_EXE_whylag");
/// Longest wait for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// All hooks, and one interface.
pub(crate) fn request() -> Request {
    let interface = Attachment { netns: None, ifindex: IFINDEX, name: INTERFACE.to_owned() };
    Request { rules: vec![frame::rule()], interfaces: vec![interface], ..Request::default() }
}

pub(crate) fn run() -> Result<Vec<Row>> {
    let mut library = Times::default();
    let mut command = Times::default();
    for _ in 0..ROUNDS {
        library.push(attach_and_detach()?);
        command.push(start_and_stop()?);
    }
    let [attach, detach] = library.rows(["attach (load to attached)", "detach"])?;
    let [start, stop] = command.rows(["whylag: start to attached", "whylag: signal to exit"])?;
    Ok(vec![attach.figure(500.0), detach.figure(200.0), start.figure(500.0), stop.plain()])
}

#[derive(Default)]
struct Times([Vec<f64>; 2]);

impl Times {
    fn push(&mut self, times: [Duration; 2]) {
        for (all, time) in self.0.iter_mut().zip(times) {
            all.push(time.as_secs_f64() * 1e3);
        }
    }

    fn rows(self, names: [&'static str; 2]) -> Result<[Timed; 2]> {
        let [on, off] = self.0;
        let [first, second] = names;
        let samples = |times| Samples::new(times).context("nothing was measured");
        Ok([Timed { what: first, times: samples(on)? }, Timed { what: second, times: samples(off)? }])
    }
}

struct Timed {
    what: &'static str,
    times: Samples,
}

impl Timed {
    fn plain(self) -> Row {
        Row::new(self.what, "ms", self.times)
    }

    fn figure(self, most_ms: f64) -> Row {
        let figure = Figure::at_most(self.times.median(), most_ms, "ms");
        self.plain().figure(figure)
    }
}

fn attach_and_detach() -> Result<[Duration; 2]> {
    let request = request();
    let begun = Instant::now();
    let attached = load(&request)?;
    let on = begun.elapsed();
    let begun = Instant::now();
    drop(attached);
    Ok([on, begun.elapsed()])
}

fn start_and_stop() -> Result<[Duration; 2]> {
    let begun = Instant::now();
    let mut command = Command::new(WHYLAG);
    command.args(["attach", "--pnic", INTERFACE, "--signature", "icmp-echo", "--format", "json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let whylag = Beside::running(child.with_context(|| format!("cannot start {WHYLAG}"))?);
    while !is_attached()? {
        ensure!(begun.elapsed() < PATIENCE, "whylag did not attach to {INTERFACE} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let on = begun.elapsed();
    let begun = Instant::now();
    whylag.stop()?;
    Ok([on, begun.elapsed()])
}

/// The egress program comes last.
fn is_attached() -> Result<bool> {
    let (_, programs) = SchedClassifier::query_tcx(INTERFACE, TcAttachType::Egress)?;
    Ok(!programs.is_empty())
}
