//! What a NIC itself lost, for people.

use super::check::{INDENT, labelled};
use super::line::{Line, Look};
use crate::rx_ring::RxRingShare;
use crate::sink::Names;

/// What it lost, and what would help.
pub(super) fn rx_ring(share: &RxRingShare, names: &Names) -> Vec<Line> {
    let device = names.device(share.interface);
    let headline = Line::hanging(INDENT).add(Look::Bold, format!("{device}, before the kernel"));
    let mut lines = vec![Line::new(), headline.plain(format!("  {}", share.sentence(&device)))];
    let advice = share.advice(&device).into_iter();
    lines.extend(advice.map(|advice| labelled("relief", &format!("{} ({})", advice.step, advice.fact), Look::Plain)));
    lines
}
