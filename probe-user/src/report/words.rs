//! Words and numbers as the page shows them.

use crate::attribution::Offender;
pub(super) use crate::attribution::counted;
use crate::clock::MonoNs;
use crate::sink::{Names, printable, who};

/// Most characters of a name that are shown.
const LONGEST: usize = 160;
/// Most characters of a sentence, with names of others in it.
const LONGEST_SENTENCE: usize = 480;

/// Text of others, safe to show: nothing in it steers a reader's eye or screen, and it is no longer
/// than a line or two. The template escapes it.
pub(super) fn shown(text: &str) -> String {
    clipped(text, LONGEST)
}

/// The same for a sentence of our own that has text of others in it.
pub(super) fn sentence(text: &str) -> String {
    clipped(text, LONGEST_SENTENCE)
}

fn clipped(text: &str, longest: usize) -> String {
    let printable = printable(text);
    let mut chars = printable.chars().map(|c| if matches!(c, '\u{fffe}' | '\u{ffff}') { '·' } else { c });
    let mut shown: String = chars.by_ref().take(longest).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Whom a part names, and the cgroup.
pub(super) fn named(offender: &Offender) -> String {
    let cgroup =
        if offender.cgroup.is_empty() { String::new() } else { format!(", cgroup {}", shown(&offender.cgroup)) };
    let named = who(&shortened(offender)) + &cgroup;
    if named.is_empty() { "unknown".to_owned() } else { named.trim_start_matches([',', ' ']).to_owned() }
}

/// With names that are not too long for a page.
pub(super) fn shortened(offender: &Offender) -> Offender {
    Offender { comm: shown(&offender.comm), device: shown(&offender.device), ..offender.clone() }
}

/// Wall time to the millisecond.
pub(super) fn clock(names: &Names, at: MonoNs) -> String {
    let full = names.rfc3339(at);
    format!("{} UTC", full.get(..23).unwrap_or(&full).replace('T', " "))
}

/// As the start of a sentence.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A fraction of the width of a drawing.
pub(super) fn percent_of_width(fraction: f64) -> String {
    format!("{:.5}%", fraction * 100.0).trim_end_matches('%').trim_end_matches('0').trim_end_matches('.').to_owned()
        + "%"
}

/// A fraction for the script.
pub(super) fn fraction(fraction: f64) -> String {
    format!("{fraction:.6}")
}

#[expect(clippy::cast_precision_loss, reason = "a place in a drawing needs no more than six digits")]
pub(super) const fn real(number: u64) -> f64 {
    number as f64
}

/// `part` of `whole`, 0 to 1.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    (real(part) / real(whole.max(1))).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, shown};

    #[test]
    fn names_are_short_and_steer_nothing() {
        assert_eq!(shown("a\u{1b}[2J\u{202e}b\u{0}\u{fffe}"), "a·[2J·b··");
        assert_eq!(shown("</script><b>"), "</script><b>", "the template escapes it");
        let long = shown(&"ä".repeat(64 << 10));
        assert_eq!(long.chars().count(), LONGEST + 1);
    }
}
