//! A CPU that was behind with receiving, for people.

use super::check::{INDENT, labelled};
use super::line::{Line, Look};
use crate::receive::ReceiveShare;

/// What was lost to it, by whom, and what would help.
pub(super) fn receive(share: &ReceiveShare) -> Vec<Line> {
    let headline = Line::hanging(INDENT).add(Look::Bold, format!("CPU {}, which receives", share.cpu));
    let mut lines = vec![Line::new(), headline.plain(format!("  {}", share.sentence()))];
    lines.extend(share.keepers.iter().map(|keeper| {
        let kept = format!("  {} (pid {}) kept it from receiving", keeper.comm, keeper.task.tgid);
        let line = Line::hanging(INDENT).plain(format!("{:>11}", keeper.time.to_string())).add(Look::Bold, kept);
        if keeper.cgroup.is_empty() { line } else { line.dim(format!("  cgroup {}", keeper.cgroup)) }
    }));
    let advice = share.advice().into_iter();
    lines.extend(advice.map(|advice| labelled("relief", &format!("{} ({})", advice.step, advice.fact), Look::Plain)));
    lines
}
