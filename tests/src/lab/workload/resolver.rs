//! A name server that answers late, or not at first.
//!
//! The name that is asked for says which: `late-400.lab` is answered after 400 ms, `deaf-400.lab`
//! not to questions of the first 400 ms, and `half-400.lab` likewise, but IPv4 at once;
//! `first-400.lab` is answered after 400 ms at first, and at once when it is asked for again.

use super::super::message::{Announcement, announce, obey_orders};
use super::{set_comm, spawn};
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A question that comes so long after the first is asked again.
const ANEW: Duration = Duration::from_millis(500);

/// Bytes of a message's header.
const HEADER: usize = 12;
/// Question type of an IPv4 address.
const IPV4: [u8; 2] = [0, 1];

/// Options of `lab role resolver`.
#[derive(Debug, clap::Args)]
pub struct ResolverArgs {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddrV4,
}

pub(super) fn resolver(args: &ResolverArgs) -> Result<()> {
    set_comm("resolver")?;
    let socket = Arc::new(UdpSocket::bind(args.listen).context("bind the name server's socket")?);
    spawn("resolver-worker", move || answer(&socket))?;
    announce(Announcement::Ready);
    obey_orders(|_| Ok(()))
}

/// Answers each question, in a thread of its own where that takes time.
fn answer(socket: &Arc<UdpSocket>) -> Result<()> {
    let mut first_asked: HashMap<String, Instant> = HashMap::new();
    let mut buffer = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).context("receive a question")?;
        let question = buffer.get(..length).unwrap_or_default().to_vec();
        let Some((label, kind)) = parse(&question) else { continue };
        let asked = first_asked.entry(label.clone()).or_insert_with(Instant::now).elapsed();
        let (habit, ms) = label.split_once('-').unwrap_or((&label, "0"));
        let time = Duration::from_millis(ms.parse().unwrap_or(0));
        match habit {
            "deaf" if asked < time => {}
            "half" if asked < time && kind != IPV4 => {}
            "late" | "first" if habit == "late" || asked < ANEW => {
                let socket = Arc::clone(socket);
                spawn("resolver-late", move || {
                    sleep(time);
                    reply(&socket, &question, kind, from)
                })?;
            }
            _ => reply(socket, &question, kind, from)?,
        }
    }
}

/// The first label of the name that is asked for, and the type of the question.
fn parse(message: &[u8]) -> Option<(String, [u8; 2])> {
    let label = |at: usize| {
        let len = usize::from(*message.get(at)?);
        message.get(at + 1..at + 1 + len)
    };
    let first = String::from_utf8_lossy(label(HEADER)?).into_owned();
    let mut at = HEADER;
    while !label(at)?.is_empty() {
        at += 1 + label(at)?.len();
    }
    let kind = message.get(at + 1..at + 3)?.try_into().ok()?;
    Some((first, kind))
}

/// One address for IPv4, and none for anything else.
fn reply(socket: &UdpSocket, question: &[u8], kind: [u8; 2], to: SocketAddr) -> Result<()> {
    let answers = u8::from(kind == IPV4);
    let end = question_end(question);
    let mut message = question.get(..end).unwrap_or_default().to_vec();
    let header = [0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0];
    message.iter_mut().skip(2).zip(header).for_each(|(to, from)| *to = from);
    if answers > 0 {
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1]);
    }
    socket.send_to(&message, to).context("answer a question")?;
    Ok(())
}

/// Where the question ends, and additional records begin.
fn question_end(message: &[u8]) -> usize {
    let name = message.iter().skip(HEADER).position(|byte| *byte == 0).unwrap_or(0);
    HEADER + name + 5
}

#[cfg(test)]
mod tests {
    use super::{parse, question_end};

    #[test]
    fn the_name_tells_what_to_do() {
        let question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x08late-400\x03lab\x00\x00\x1c\x00\x01";
        assert_eq!(parse(question), Some(("late-400".to_owned(), [0, 28])));
        assert_eq!(question_end(question), question.len());
        assert_eq!(parse(&question[..20]), None);
    }
}
