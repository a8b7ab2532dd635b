//! The custody bar: who held a check, drawn in proportion.

use super::line::Line;
use crate::clock::DurNs;
use crate::journey::{Holder, Journey, stretches};

/// Widest and narrowest bar.
const WIDEST: usize = 40;
const NARROWEST: usize = 10;

/// What stands before the bar.
const INDENT: usize = 13;

/// The bar with its legend, in one row: the spans that took least are left out where there is no
/// room. Nothing for a check of which only one stage at one instant is known.
pub(super) fn bar(journey: &Journey, width: usize) -> Option<Line> {
    let spans: Vec<_> = stretches(journey).iter().map(|stretch| (stretch.holder, stretch.time())).collect();
    let whole: u64 = spans.iter().map(|(_, time)| time.0).sum();
    if whole == 0 {
        return None;
    }
    let columns = (width.saturating_sub(INDENT) / 3).clamp(NARROWEST, WIDEST);
    let drawn: String = spans.iter().flat_map(|part| draw(*part, whole, columns)).collect();
    let line = Line::hanging(INDENT).dim(format!("{:>11}  ", "custody")).plain(format!("[{drawn}]"));
    let room = width.saturating_sub(line.columns() + 1);
    Some(line.dim(format!(" {}", legend(spans, room))))
}

/// The spans in the order of their time, as many as there is room for, at least one.
fn legend(mut spans: Vec<(Holder, DurNs)>, room: usize) -> String {
    spans.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let mut legend = String::new();
    for (span, time) in spans {
        let next = format!("{} {time}", span.name());
        let columns = legend.chars().count() + 3 + next.chars().count();
        if legend.is_empty() {
            legend = next;
        } else if columns <= room {
            legend = format!("{legend} · {next}");
        }
    }
    legend
}

/// A span's letter, repeated for its part of the whole, at least once.
fn draw((span, time): (Holder, DurNs), whole: u64, columns: usize) -> impl Iterator<Item = char> {
    let exact = u128::from(time.0) * columns as u128 / u128::from(whole);
    let count = usize::try_from(exact).unwrap_or(columns).max(1);
    std::iter::repeat_n(span.letter(), count)
}

#[cfg(test)]
mod tests {
    use super::bar;
    use crate::attribution::story::{MS, Story, at};
    use crate::journey::{Journey, PacketDrop, Stage};

    fn shown(journey: &Journey) -> String {
        bar(journey, 100).iter().flat_map(|line| line.render(100, false)).collect()
    }

    #[test]
    fn what_no_stage_tells_is_not_drawn_as_the_receive_path() {
        let mut story = Story::new();
        story.stamp(100, Stage::PnicRx, None).stamp(100 * MS, Stage::PnicQueue, None);
        let text = shown(&story.journey);
        assert!(text.contains("[????") && text.contains("somewhere on this host 99.9 ms"), "{text}");
        story.journey.drops.push(PacketDrop {
            at: at(150),
            reply: false,
            reason: 8,
            location: 0,
            ..PacketDrop::default()
        });
        let text = shown(&story.journey);
        assert!(text.contains("xxxx") && text.contains("dropped on this host 99.8 ms"), "{text}");
        let text = shown(&Story::served(100 * MS).journey);
        assert!(text.contains("receive 4.00 µs") && !text.contains('?'), "{text}");
    }
}
