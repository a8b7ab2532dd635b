//! Names and colours of who held a check.

use crate::journey::{Custody, Holder};

/// What a stretch is called.
pub(super) fn name(holder: Holder) -> String {
    let name = holder.name();
    let custody = holder.custody().map(Custody::name).filter(|custody| *custody != name);
    custody.map_or(name.to_owned(), |custody| format!("{name} ({custody})"))
}

/// The style class of a holder.
pub(super) const fn class(holder: Holder) -> &'static str {
    match (holder, holder.custody()) {
        (Holder::Nobody, _) => "c-nobody",
        (_, None) => "c-host",
        (_, Some(Custody::Outside)) => "c-outside",
        (_, Some(Custody::ReceivePath)) => "c-receive",
        (_, Some(Custody::Forwarding)) => "c-forward",
        (_, Some(Custody::Vm)) => "c-vm",
        (_, Some(Custody::Socket)) => "c-socket",
        (_, Some(Custody::Thread)) => "c-thread",
        (_, Some(Custody::TransmitPath)) => "c-transmit",
    }
}
