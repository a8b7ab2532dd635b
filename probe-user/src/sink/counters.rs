//! What the offender of a cause counted, as an object of its own in JSON.

use crate::counters::{Counted, Counts, Hardware};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct CountersField {
    window_ns: u64,
    task_clock_ns: u64,
    context_switches: u64,
    migrations: u64,
    page_faults: u64,
    cycles: Option<u64>,
    instructions: Option<u64>,
    hardware_reason: Option<&'static str>,
    usual_window_ns: u64,
    usual_task_clock_ns: u64,
}

impl CountersField {
    pub(super) fn new(counted: &Counted) -> Self {
        let Counted { slow, usual } = counted;
        let Counts { task_clock, context_switches, migrations, page_faults, hardware } = slow.counts;
        let (cycles, instructions, hardware_reason) = match hardware {
            Hardware::Counted { cycles, instructions } => (Some(cycles), Some(instructions), None),
            Hardware::Unavailable(why) => (None, None, Some(why.reason())),
        };
        Self {
            window_ns: slow.time.0,
            task_clock_ns: task_clock.0,
            context_switches,
            migrations,
            page_faults,
            cycles,
            instructions,
            hardware_reason,
            usual_window_ns: usual.map_or(0, |usual| usual.time.0),
            usual_task_clock_ns: usual.map_or(0, |usual| usual.counts.task_clock.0),
        }
    }
}
