//! The client of a real server: health checks in turn on a few connections, as a pool of load
//! balancers sends them. A connection on which an answer is outstanding is left out.

use super::super::clock::mono_ns;
use super::super::message::{Announcement, Check, Order, announce, obey_orders};
use super::super::workload::{set_comm, spawn};
use super::dialogue::{Connection, Language};
use anyhow::{Context, Result};
use std::io::{self, ErrorKind};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::sleep;
use std::time::Duration;

/// How often a waiting thread looks whether its check has run out of time.
const LOOK: Duration = Duration::from_millis(20);

/// Options of `lab role ask`.
#[derive(Debug, clap::Args)]
pub struct AskArgs {
    /// The server.
    #[arg(long)]
    to: SocketAddrV4,
    /// How it is spoken to.
    #[arg(long)]
    language: Language,
    /// One check every so many µs, on all connections together.
    #[arg(long, default_value_t = 10_000)]
    interval_us: u64,
    /// After this many ms without an answer a check is lost.
    #[arg(long, default_value_t = 2_000)]
    timeout_ms: u64,
    /// Connections.
    #[arg(long, default_value_t = 8)]
    connections: u64,
    /// What is asked.
    #[arg(required = true)]
    words: Vec<String>,
}

pub(crate) fn ask(args: AskArgs) -> Result<()> {
    set_comm("check-client")?;
    let (args, stopped) = (Arc::new(args), Arc::new(AtomicBool::new(false)));
    let open = || Connection::open(args.to, args.language);
    let connections = (0..args.connections).map(|_| open()).collect::<Result<Vec<_>>>()?;
    announce(Announcement::Ready);
    let all_ended = Arc::new(Barrier::new(connections.len()));
    let began_ns = mono_ns();
    for (number, connection) in (0..).zip(connections) {
        let (args, stopped, all_ended) = (Arc::clone(&args), Arc::clone(&stopped), Arc::clone(&all_ended));
        spawn("check-sender", move || {
            Asker { args, connection, number, began_ns }.check_until(&stopped)?;
            if all_ended.wait().is_leader() {
                announce(Announcement::Done);
            }
            Ok(())
        })?;
    }
    obey_orders(|order| {
        stopped.fetch_or(order == Order::Stop, Ordering::Relaxed);
        Ok(())
    })
}

/// Who checks on one connection.
struct Asker {
    args: Arc<AskArgs>,
    connection: Connection,
    number: u64,
    began_ns: u64,
}

impl Asker {
    fn check_until(mut self, stopped: &AtomicBool) -> Result<()> {
        self.connection.stream.set_read_timeout(Some(LOOK)).context("set a read timeout")?;
        let question = self.args.language.question(&self.args.words);
        let mut turn = self.number;
        while !stopped.load(Ordering::Relaxed) {
            let due_at_ns = self.due_at_ns(turn);
            sleep(Duration::from_nanos(due_at_ns.saturating_sub(mono_ns())));
            let sent_at_ns = mono_ns();
            self.connection.send(&question)?;
            let answered_at_ns = self.await_answer(sent_at_ns)?;
            announce(Announcement::Check(Check { nonce: turn, due_at_ns, sent_at_ns, answered_at_ns }));
            turn = self.next_turn(turn);
        }
        Ok(())
    }

    fn due_at_ns(&self, turn: u64) -> u64 {
        self.began_ns + turn * self.args.interval_us * 1_000
    }

    /// This connection's next turn that is not over.
    fn next_turn(&self, turn: u64) -> u64 {
        let now = mono_ns();
        let mut next = turn + self.args.connections;
        while self.due_at_ns(next) < now {
            next += self.args.connections;
        }
        next
    }

    /// When the answer came. A connection that brought none in time is replaced: what comes late
    /// on it would be taken for the answer to the next check.
    fn await_answer(&mut self, sent_at_ns: u64) -> Result<Option<u64>> {
        while mono_ns().saturating_sub(sent_at_ns) < self.args.timeout_ms * 1_000_000 {
            match self.connection.receive() {
                Ok(true) => return Ok(Some(mono_ns())),
                Ok(false) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.connection = Connection::open(self.args.to, self.args.language)?;
        self.connection.stream.set_read_timeout(Some(LOOK)).context("set a read timeout")?;
        Ok(None)
    }
}

fn is_timeout(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted))
}
