//! Another client of a real server: on order it asks for something that takes long, and tells
//! from its own clock how long the server took.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::super::workload::set_comm;
use super::dialogue::{Connection, Language};
use anyhow::Result;
use std::net::SocketAddrV4;

/// Options of `lab role provoke`.
#[derive(Debug, clap::Args)]
pub struct ProvokeArgs {
    /// The server.
    #[arg(long)]
    to: SocketAddrV4,
    /// How it is spoken to.
    #[arg(long)]
    language: Language,
    /// What is asked.
    #[arg(required = true)]
    words: Vec<String>,
}

pub(crate) fn provoke(args: &ProvokeArgs) -> Result<()> {
    set_comm("other-client")?;
    let mut connection = Connection::open(args.to, args.language)?;
    let question = args.language.question(&args.words);
    announce(Announcement::Ready);
    obey_orders(|order| {
        let Order::Fault { .. } = order else { return Ok(()) };
        let mut outcome = Ok(());
        announce_fault(|| outcome = dialogue(&mut connection, &question));
        outcome
    })
}

fn dialogue(connection: &mut Connection, question: &[u8]) -> Result<()> {
    connection.send(question)?;
    while !connection.receive()? {}
    Ok(())
}
