//! What the drawings share: a window of time, boxes with labels, an axis, a legend.
//!
//! A box is an SVG of its own within the drawing, placed by per cent of the width, so that its label
//! is cut at its edge, text keeps its size on every screen, and no style stands in the markup. The
//! script zooms by placing the boxes anew.

use super::custody::class;
use super::lane::{Lane, State};
use super::words::{fraction, percent_of_width, ratio};
use crate::clock::{DurNs, MonoNs};
use crate::journey::Stretch;
use maud::{Markup, html};

/// Height of a lane with its name above it.
const LANE: u32 = 34;
/// Height of a lane's band.
const BAND: u32 = 16;
/// A letter has no room in a lower box.
const LETTER: u32 = 14;
/// What is narrower is drawn as wide as this part of the drawing, so that it is seen.
const VISIBLE: f64 = 0.0015;

/// A label has no room in a narrower part of the drawing.
pub(super) const ROOM: f64 = 0.025;

/// A stretch of time across a drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
}

impl Window {
    pub(super) const fn length(self) -> DurNs {
        self.to.since(self.from)
    }

    /// Where an instant is, 0 to 1.
    pub(super) fn at(self, instant: MonoNs) -> f64 {
        ratio(instant.since(self.from).0, self.length().0)
    }

    /// Start and width of a stretch, each 0 to 1.
    pub(super) fn part(self, from: MonoNs, to: MonoNs) -> (f64, f64) {
        let start = self.at(from);
        (start, (self.at(to) - start).max(0.0))
    }
}

/// A box to be placed by the script when the drawing is zoomed; what is too narrow to be seen says
/// its true width.
pub(super) fn place((x, w): (f64, f64), y: u32, height: u32, class: &str, inner: &Markup) -> Markup {
    let narrow = w < VISIBLE && !class.starts_with("block");
    html! {
        svg class={ "box " (class) } data-w=[narrow.then(|| fraction(w))] x=(percent_of_width(x))
            width=(percent_of_width(if narrow { VISIBLE } else { w })) y=(y) height=(height) { (inner) }
    }
}

/// Five instants under a drawing.
pub(super) fn axis(window: Window, y: u32) -> Markup {
    let places = [(0.0, "start"), (0.25, "middle"), (0.5, "middle"), (0.75, "middle"), (1.0, "end")];
    html! {
        g class="axis" {
            @for (place, anchor) in places {
                text x=(percent_of_width(place)) y=(y + 14) text-anchor=(anchor) data-at=(fraction(place)) {
                    (instant(window, place))
                }
                line x1=(percent_of_width(place)) x2=(percent_of_width(place)) y1="0" y2=(y) {}
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a run is a time")]
fn instant(window: Window, place: f64) -> String {
    let offset = DurNs((super::words::real(window.length().0) * place) as u64);
    if offset == DurNs::ZERO { "0".to_owned() } else { format!("+{offset}") }
}

/// The stretches of a check side by side, in a box that is as wide as the check.
pub(super) fn custody(stretches: &[Stretch], height: u32) -> Markup {
    let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else {
        return html! {};
    };
    let window = Window { from: first.from, to: last.to };
    html! {
        @for stretch in stretches {
            @let (x, w) = window.part(stretch.from, stretch.to);
            svg x=(percent_of_width(x)) width=(percent_of_width(w)) height="100%" {
                rect class=(class(stretch.holder)) width="100%" height="100%" {}
                @if height >= LETTER {
                    text class={ "label " (class(stretch.holder)) @if w < ROOM { " tiny" } } x="4" y="12" {
                        (stretch.holder.letter())
                    }
                }
            }
        }
    }
}

/// Lanes one below the other from `top`, each under its name.
pub(super) fn lanes(lanes: &[Lane], window: Window, top: u32) -> Markup {
    html! {
        @for (lane, y) in lanes.iter().zip((top..).step_by(LANE as usize)) {
            text class="lanename" x="0" y=(y + 12) { (lane.owner.name()) }
            rect class="track" x="0" width="100%" y=(y + LANE - BAND - 2) height=(BAND) {}
            @for segment in &lane.segments {
                @let part = window.part(segment.from, segment.to);
                @let time = segment.to.since(segment.from);
                @let told = segment.told();
                (place(part, y + LANE - BAND - 2, BAND, "segment", &html! {
                    title { (lane.owner.name()) ": " (told) ", " (time) }
                    rect class=(segment.state.class()) width="100%" height="100%" {}
                    text class={ "label " (segment.state.class()) @if part.1 < ROOM { " tiny" } } x="4" y="12" {
                        (told)
                    }
                }))
            }
        }
    }
}

/// The height of so many lanes.
pub(super) fn lanes_height(count: usize) -> u32 {
    LANE * u32::try_from(count).unwrap_or(0)
}

/// What the colours, letters and patterns of lanes mean.
pub(super) fn states() -> Markup {
    html! {
        ul class="legend" aria-label="Colours of threads, queues and devices" {
            @for state in State::ALL { li { (swatch(state.class(), ' ')) (state.name()) } }
        }
    }
}

/// What the colours and letters of custody mean.
pub(super) fn custodies() -> Markup {
    let rows = [
        ("c-receive", 'r', "receive path"),
        ("c-forward", 'f', "forwarding"),
        ("c-vm", 'V', "VM"),
        ("c-socket", 'q', "socket"),
        ("c-thread", 'H', "held by a thread"),
        ("c-transmit", 't', "transmit path"),
        ("c-outside", 'o', "outside"),
        ("c-host", '?', "somewhere on this host"),
        ("c-nobody", 'x', "dropped on this host"),
    ];
    html! {
        ul class="legend" aria-label="Colours of custody" {
            @for (class, letter, name) in rows { li { (swatch(class, letter)) (name) } }
        }
    }
}

/// A sample of a colour with its letter.
pub(super) fn swatch(class: &str, letter: char) -> Markup {
    html! {
        svg class="swatch" aria-hidden="true" {
            rect class=(class) width="100%" height="100%" {}
            text class={ "label " (class) } x="4" y="12" { (letter) }
        }
    }
}

/// Patterns that the styles refer to, so that no meaning rests on a colour alone.
pub(super) fn patterns() -> Markup {
    html! {
        svg class="patterns" width="0" height="0" aria-hidden="true" {
            defs {
                pattern id="p-runnable" width="6" height="6" patternUnits="userSpaceOnUse" {
                    rect class="under-runnable" width="6" height="6" {} path class="ink" d="M0 6 L6 0" {}
                }
                pattern id="p-blocked" width="5" height="5" patternUnits="userSpaceOnUse" {
                    rect class="under-blocked" width="5" height="5" {} circle class="inkdot" cx="2" cy="2" r="0.8" {}
                }
                pattern id="p-taken" width="6" height="6" patternUnits="userSpaceOnUse" {
                    rect class="under-taken" width="6" height="6" {} path class="ink" d="M0 0 L6 6 M0 6 L6 0" {}
                }
                pattern id="p-host" width="6" height="6" patternUnits="userSpaceOnUse" {
                    rect class="under-host" width="6" height="6" {} path class="ink" d="M0 3 L6 3" {}
                }
            }
        }
    }
}
