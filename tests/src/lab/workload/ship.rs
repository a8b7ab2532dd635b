//! The log shipper: reads an access log from its standard input, and when told to stops reading
//! and computes, so that whoever writes the log finds the pipe full.
//!
//! Standard input is the log, so the order comes with it: a line such as `!300`, which the lab
//! writes into the same pipe.

use super::super::message::{Announcement, announce, announce_fault};
use super::fault::compute;
use super::set_comm;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, stdin};
use std::time::Duration;

pub(super) fn ship() -> Result<()> {
    set_comm("log-shipper")?;
    announce(Announcement::Ready);
    // A small buffer, so that the pipe is the queue.
    let mut log = BufReader::with_capacity(64, stdin().lock());
    let mut line = Vec::new();
    while log.read_until(b'\n', &mut line).context("read the log")? > 0 {
        if let Some(ms) = compression_order(&line) {
            announce_fault(|| compute(Duration::from_millis(ms)));
        }
        line.clear();
    }
    Ok(())
}

/// The milliseconds in a line such as `!300`.
fn compression_order(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line.strip_prefix(b"!")?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::compression_order;

    #[test]
    fn only_a_line_with_the_mark_is_an_order() {
        assert_eq!(compression_order(b"!300\n"), Some(300));
        assert_eq!(compression_order(b"....\n"), None);
    }
}
