//! When to stop: signals, seen by a thread of their own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status after a second signal, as shells have it for an interrupt.
const INTERRUPTED: i32 = 130;

/// Whether SIGINT, SIGTERM or, when the terminal is gone, SIGHUP asked for the end. A second one ends the process at once, whatever
/// it is doing.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the handlers or the thread cannot be set up.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let stop = Self(Arc::default());
        let asked = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let signals = {
            let _inside = runtime.enter();
            let hangup = if is_ignored(libc::SIGHUP) { None } else { Some(signal(SignalKind::hangup())?) };
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, hangup)
        };
        let listen = move || runtime.block_on(listen(signals, &asked));
        Builder::new().name("signals".to_owned()).spawn(listen)?;
        Ok(stop)
    }

    /// A signal came.
    pub(crate) fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether whoever started this process had it ignore a signal, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

async fn listen((mut interrupt, mut terminate, mut hangup): (Signal, Signal, Option<Signal>), asked: &Stop) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            Some(()) = async { hangup.as_mut()?.recv().await } => {}
        }
        if asked.0.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    }
}
