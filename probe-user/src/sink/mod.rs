//! Sinks: where results go.
//!
//! [`Output`] values come in, lines go out. A sink holds no more than its own view; wall time and
//! names appear only here, from facts ([`Names`]). Between the pipeline and a slow reader stands
//! an [`Outlet`], bounded and counted: offered == written + dropped.

mod counters;
mod json;
mod losses;
mod names;
mod outlet;
mod printable;
mod queue;
mod receive;
mod rx_ring;
#[cfg(test)]
pub(crate) mod sample;
mod text;

use crate::pipeline::Output;
use std::fmt;
use std::io;

pub use json::JsonSink;
pub(crate) use json::{endpoint, outcome_reason};
pub use names::Names;
pub use outlet::{Outlet, OutletCounts, Printer};
pub use printable::printable;
pub(crate) use text::{By, main_offender, percent, rate, verdict_sentence, who};
pub use text::{TextSink, TextStyle};

/// What a sink is told besides the output itself.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Names and the clock, as far as facts have told.
    pub names: &'a Names,
    /// Outputs that this sink's outlet has dropped so far.
    pub dropped: u64,
}

/// A consumer of results.
pub trait Sink: fmt::Debug + Send {
    /// Writes one output; facts only teach names and are not for display.
    ///
    /// # Errors
    /// When the underlying writer fails; a broken pipe means that nobody reads any more.
    fn write(&mut self, output: &Output, context: Context<'_>) -> io::Result<()>;

    /// Called about once a second while nothing else need be written.
    ///
    /// # Errors
    /// As [`Sink::write`].
    fn refresh(&mut self, context: Context<'_>) -> io::Result<()>;
}
