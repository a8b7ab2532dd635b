//! Takes what one sender sends, and keeps it in a file.

use super::super::message::{Announcement, announce};
use super::set_comm;
use anyhow::{Context, Result};
use std::fs::File;
use std::io;
use std::net::{SocketAddrV4, TcpListener};
use std::path::PathBuf;

/// Options of `lab role receive`.
#[derive(Debug, clap::Args)]
pub struct ReceiveArgs {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddrV4,
    /// The file.
    #[arg(long)]
    file: PathBuf,
}

/// Says [`Announcement::Done`] when the sender has sent all.
pub(super) fn receive(args: &ReceiveArgs) -> Result<()> {
    set_comm("half-receiver")?;
    let listener = TcpListener::bind(args.listen).with_context(|| format!("listen at {}", args.listen))?;
    let mut file = File::create(&args.file).with_context(|| format!("create {}", args.file.display()))?;
    announce(Announcement::Ready);
    let (mut sender, _) = listener.accept().context("wait for a sender")?;
    io::copy(&mut sender, &mut file).context("keep what is sent")?;
    announce(Announcement::Done);
    Ok(())
}
