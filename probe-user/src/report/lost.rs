//! How many checks were lost, and where.

use super::words::counted;
use crate::sink::rate;
use crate::summary::Losses;
use maud::{Markup, html};

/// Two tables; nothing if no check was lost.
pub(super) fn tables(losses: &Losses) -> Markup {
    if losses.total().lost == 0 {
        return html! {};
    }
    html! {
        p { (losses.total().lost) " of " (counted(losses.total().checks, "check")) " lost: " (rate(losses.total())) "." }
        div class="scroll" tabindex="0" role="region" aria-label="Table of lost checks by place" {
            table { caption { "Lost checks by the place at which they ended" }
                thead { tr { th scope="col" { "Place" } th scope="col" class="number" { "Lost" }
                    th scope="col" { "Of all" } th scope="col" { "What is true there" } th scope="col" { "Counted by" } } }
                tbody { @for (place, part) in losses.by_place() {
                    tr { th scope="row" { (place.name()) } td class="number" { (part.lost) }
                        td data-head="Of all" { (rate(part)) } td { (place.row().meaning) }
                        td { (place.row().counter) } } } } }
        }
        table class="narrow" { caption { "Lost checks by span, of those that entered it" }
            tbody { @for (span, part) in losses.by_span() {
                tr { th scope="row" { (span.name()) } td class="number" { (part.lost) " of " (part.checks) }
                    td { (rate(part)) } } } } }
    }
}
