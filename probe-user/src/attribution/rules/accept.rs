//! The accept half of `app.socket_queue`: a connection request that its listener had no room for.
//!
//! The kernel ignores such a request without a drop, and the client sends it again. A request that
//! was refused was never in a socket, so the wait is the full queue's and not the accepting
//! thread's; what waits in an accepted connection's queue is its reader's.

use super::{Leg, counted, drops};
use crate::attribution::cause::Cause;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Piece};
use crate::journey::Refusal;

/// The leg from a request's coming in to its answer, if copies of it were refused. `None` if no
/// copy was.
pub(super) fn refused(leg: &Leg<'_>) -> Option<Vec<Piece>> {
    let refusals = &leg.journey.refusals;
    let first = refusals.iter().find(|refusal| leg.from <= refusal.at && refusal.at < leg.to)?;
    let came = u64::from(leg.journey.retransmissions) + 1;
    let ignored = refusals.len() as u64;
    let unanswered = if leg.end.is_some() { came - 1 } else { came };
    if ignored < unanswered {
        let reason = format!(
            "the request came {} and found a full accept queue {}; why the others had no answer is not known",
            counted(came, "time"),
            counted(ignored, "time")
        );
        return Some(vec![Piece::unexplained(leg.from, leg.to, leg.span, reason)]);
    }
    let offender = Offender { device: format!("port {}", leg.journey.request.destination_port), ..Offender::default() };
    let charge = Charge::new(Cause::AppSocketQueue, Some(offender), full(first))
        .with(Some(format!("the request came {} and was ignored {}", counted(came, "time"), counted(ignored, "time"))))
        .with(reader(leg, first))
        .meaning(drops::FULL);
    Some(vec![Piece::charged(leg.from, leg.to, leg.span, charge)])
}

fn full(refusal: &Refusal) -> String {
    let Refusal { waiting, limit, half_open, .. } = refusal;
    format!(
        "accept queue full (backlog {waiting} of {limit}), with {}",
        counted(u64::from(*half_open), "half-open connection")
    )
}

/// What the thread did that last read from a connection of this port.
fn reader(leg: &Leg<'_>, refusal: &Refusal) -> Option<String> {
    let request = &leg.journey.request;
    let socket = leg.evidence.socket_of(0, request.protocol, request.destination_port)?;
    let reader = Some(socket.reader).filter(|reader| reader.tid != 0)?;
    drops::reader_did(leg, reader, refusal.at)
}
