//! What is read, what is refused and how, and that what is written is read again.

mod faults;
mod forms;
mod round_trip;

use super::{Fault, Signature, SignatureError};
use probe_wire::Rule;

fn one_rule(text: &str) -> Rule {
    let signature = Signature::parse(text).unwrap();
    assert_eq!(signature.rules.len(), 1, "{text}");
    signature.rules[0]
}

fn refused(text: &str) -> (Option<usize>, Fault) {
    let SignatureError { column, fault } = Signature::parse(text).unwrap_err();
    (column, fault)
}
