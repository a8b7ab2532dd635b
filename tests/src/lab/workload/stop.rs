//! A server that is stopped on order, as a debugger or an operator does it.

use super::super::leash::Leash;
use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::super::process::Launcher;
use super::set_comm;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::thread::sleep;
use std::time::Duration;

pub(super) fn stop() -> Result<()> {
    set_comm("operator")?;
    let launcher = Launcher { lab: std::env::current_exe().context("find the lab's own binary")? };
    let server = launcher.role(&Leash::default(), "serve", [""; 0])?;
    announce(Announcement::Ready);
    obey_orders(|order| {
        let Order::Fault { ms } = order else { return Ok(()) };
        let mut outcome = Ok(());
        announce_fault(|| {
            outcome = server.signal(Signal::STOP);
            sleep(Duration::from_millis(ms));
            outcome = std::mem::replace(&mut outcome, Ok(())).and(server.signal(Signal::CONT));
        });
        outcome
    })
}
