//! The child that asks debuginfod servers for one debug file, and writes it where it is told to.
//!
//! What servers send is hostile too: this child has no privileges, knows nothing but addresses and a
//! build id, and its file is not believed before it was looked at.

use super::cache::{MAX_FILE, is_build_id};
use super::message::{Fetched, Fetching};
use super::sandbox;
use super::socket::{self, SendFlags};
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use ureq::Agent;
use ureq::config::AutoHeaderValue;

/// How long a server may take until a connection stands, and again until its answer begins.
const SERVER_TIME: Duration = Duration::from_secs(4);
/// Most redirections of a file.
const MAX_REDIRECTS: u32 = 3;

/// Answers one question. Its parent ends it at the deadline.
pub(super) fn serve(parent: BorrowedFd<'_>) -> io::Result<()> {
    sandbox::network::enter().map_err(|error| io::Error::other(error.to_string()))?;
    let (fetching, files) = socket::receive::<Fetching>(parent)?;
    let file = files.into_iter().next().ok_or(io::ErrorKind::InvalidInput)?;
    let fetched = fetch(&fetching, &mut File::from(file));
    socket::send(parent, &fetched, &[], SendFlags::empty())
}

/// From the first server that has it.
fn fetch(fetching: &Fetching, file: &mut File) -> Fetched {
    if !is_build_id(&fetching.build_id) {
        return Fetched::None;
    }
    let (agent, mut otherwise) = (agent(), Fetched::None);
    for server in &fetching.servers {
        let address = format!("{server}/buildid/{}/debuginfo", fetching.build_id);
        match fetch_from(&agent, &address, file) {
            Ok(()) => return Fetched::Here,
            Err(ureq::Error::StatusCode(404)) => {}
            Err(_) => otherwise = Fetched::Failed,
        }
    }
    otherwise
}

/// Without a time for all: for it the crate would look up names of hosts in a thread.
fn agent() -> Agent {
    let config = Agent::config_builder()
        .timeout_connect(Some(SERVER_TIME))
        .timeout_recv_response(Some(SERVER_TIME))
        .max_redirects(MAX_REDIRECTS)
        .user_agent(AutoHeaderValue::None)
        .accept(AutoHeaderValue::None)
        .accept_encoding(AutoHeaderValue::None);
    config.build().into()
}

fn fetch_from(agent: &Agent, address: &str, file: &mut File) -> Result<(), ureq::Error> {
    let mut answer = agent.get(address).call()?;
    if answer.body().content_length().is_some_and(|bytes| bytes > MAX_FILE) {
        return Err(ureq::Error::BodyExceedsLimit(MAX_FILE));
    }
    // Another server may have broken off.
    file.set_len(0)?;
    file.rewind()?;
    io::copy(&mut answer.body_mut().with_config().limit(MAX_FILE).reader(), file)?;
    Ok(())
}
