//! Names, letters and colours of who held a check.

use crate::journey::{Custody, Stretch};

/// What a stretch is called.
pub(super) fn name(stretch: &Stretch) -> String {
    stretch.span.map_or("somewhere on this host".to_owned(), |span| {
        let (name, custody) = (span.name(), span.custody().name());
        if name == custody { name.to_owned() } else { format!("{name} ({custody})") }
    })
}

/// The letter that stands for it.
pub(super) fn letter(stretch: &Stretch) -> char {
    stretch.span.map_or('?', |span| span.letter())
}

/// The style class of its custody.
pub(super) const fn class(stretch: &Stretch) -> &'static str {
    match stretch.span {
        None => "c-host",
        Some(span) => match span.custody() {
            Custody::Outside => "c-outside",
            Custody::ReceivePath => "c-receive",
            Custody::Forwarding => "c-forward",
            Custody::Vm => "c-vm",
            Custody::Socket => "c-socket",
            Custody::Thread => "c-thread",
            Custody::TransmitPath => "c-transmit",
        },
    }
}
