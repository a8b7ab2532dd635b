//! QEMU's machine protocol, as much of it as the lab needs: commands without an answer, and events
//! with their time. <https://www.qemu.org/docs/master/interop/qmp-spec.html>

use super::super::clock::wall_offset_ns;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

/// Nothing that is asked takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A conversation with a machine.
#[derive(Debug)]
pub(super) struct Qmp {
    from: BufReader<UnixStream>,
    to: UnixStream,
    events: Vec<Event>,
}

/// Something that happened to the machine.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    name: String,
    /// `CLOCK_MONOTONIC` of the host.
    at_ns: u64,
}

/// A line that QEMU writes.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Event {
        event: String,
        timestamp: Timestamp,
    },
    Error {
        error: Value,
    },
    Return {
        #[serde(rename = "return")]
        _nothing: Value,
    },
    Greeting {
        #[serde(rename = "QMP")]
        _version: Value,
    },
}

#[derive(Debug, Deserialize)]
struct Timestamp {
    seconds: u64,
    microseconds: u64,
}

impl Timestamp {
    const fn since_1970_ns(&self) -> u64 {
        self.seconds * 1_000_000_000 + self.microseconds * 1_000
    }
}

impl Qmp {
    /// Begins one over an abstract socket, which leaves no file behind.
    pub(super) fn connect(socket: &str) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let address = SocketAddr::from_abstract_name(socket).context("the name of a socket")?;
        let to = loop {
            match UnixStream::connect_addr(&address) {
                Ok(to) => break to,
                Err(error) if Instant::now() > deadline => return Err(error).context("reach QEMU's monitor"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        to.set_read_timeout(Some(PATIENCE)).context("limit the wait for QEMU")?;
        let from = BufReader::new(to.try_clone().context("share the connection to QEMU")?);
        let mut qmp = Self { from, to, events: Vec::new() };
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Has a command executed.
    pub(super) fn execute(&mut self, command: &str, arguments: Value) -> Result<()> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.to, "{line}").context("write to QEMU")?;
        loop {
            match self.read()? {
                Line::Return { .. } => return Ok(()),
                Line::Error { error } => bail!("QEMU does not do {command}: {error}"),
                Line::Greeting { .. } => {}
                Line::Event { event, timestamp } => self.keep(event, &timestamp),
            }
        }
    }

    /// When something happened, or will: `CLOCK_MONOTONIC`, ns.
    pub(super) fn await_event(&mut self, name: &str) -> Result<u64> {
        loop {
            if let Some(found) = self.events.iter().position(|event| event.name == name) {
                return Ok(self.events.remove(found).at_ns);
            }
            if let Line::Event { event, timestamp } = self.read()? {
                self.keep(event, &timestamp);
            }
        }
    }

    fn keep(&mut self, name: String, timestamp: &Timestamp) {
        let at_ns = timestamp.since_1970_ns().saturating_sub(wall_offset_ns());
        self.events.push(Event { name, at_ns });
    }

    fn read(&mut self) -> Result<Line> {
        let mut line = String::new();
        let length = self.from.read_line(&mut line).context("hear from QEMU's monitor")?;
        anyhow::ensure!(length > 0, "QEMU has closed its monitor");
        serde_json::from_str(&line).with_context(|| format!("QEMU said {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Timestamp};

    #[test]
    fn events_answers_and_errors_are_told_apart() {
        let read = |line: &str| serde_json::from_str::<Line>(line).unwrap();
        let stop = r#"{"timestamp": {"seconds": 7, "microseconds": 9}, "event": "STOP"}"#;
        assert!(matches!(read(stop), Line::Event { event, .. } if event == "STOP"));
        assert!(matches!(read(r#"{"return": {}}"#), Line::Return { .. }));
        assert!(matches!(read(r#"{"error": {"class": "GenericError", "desc": "no"}}"#), Line::Error { .. }));
        assert!(matches!(read(r#"{"QMP": {"version": {}, "capabilities": []}}"#), Line::Greeting { .. }));
        assert_eq!(Timestamp { seconds: 7, microseconds: 9 }.since_1970_ns(), 7_000_009_000);
    }
}
