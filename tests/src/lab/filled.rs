//! Whom whylag named as those who had filled the queue in which checks were lost, against who sent there.

use super::contract::{Filler, LostAt};

/// What is wrong or missing, if anything is. Of the checks that were lost before whylag began to tell who
/// sends, nobody need be named; of half of them, all `senders` must be, and nobody else may have sent most.
#[must_use]
pub(super) fn mistake<'a>(senders: &[u32], queue: u32, lost: impl Iterator<Item = &'a LostAt>) -> Option<String> {
    let lost: Vec<&LostAt> = lost.collect();
    let is_right = |lost: &&&LostAt| lost.queue == Some(queue) && names_all(&lost.senders, senders);
    let is_silent = |lost: &&&LostAt| lost.senders.is_empty() && lost.senders_unknown.is_some();
    if let Some(wrong) = lost.iter().find(|lost| !is_right(lost) && !is_silent(lost)) {
        return Some(format!("a lost check names others than {senders:?}: {wrong:?}"));
    }
    let right = lost.iter().filter(is_right).count();
    (right * 2 < lost.len()).then(|| format!("of {} lost checks, {right} name {senders:?}", lost.len()))
}

/// All of them sent, and together more than all others.
fn names_all(named: &[Filler], senders: &[u32]) -> bool {
    let share: f64 = named.iter().filter(|filler| senders.contains(&filler.tid)).map(|filler| filler.share).sum();
    let is_named = |tid: &u32| named.iter().any(|filler| filler.tid == *tid);
    !senders.is_empty() && senders.iter().all(is_named) && share > 0.5
}

#[cfg(test)]
mod tests {
    use super::{Filler, LostAt, mistake, names_all};

    fn fillers(shares: &[(u32, f64)]) -> Vec<Filler> {
        let filler = |(tid, share): &(u32, f64)| Filler { comm: "worker".into(), tid: *tid, share: *share };
        shares.iter().map(filler).collect()
    }

    fn lost(shares: &[(u32, f64)]) -> LostAt {
        let unknown = shares.is_empty().then(|| "not counted".to_owned());
        LostAt {
            place: "qdisc".into(),
            stage: "pnic_queue".into(),
            send_result: None,
            queue: (!shares.is_empty()).then_some(0),
            senders: fillers(shares),
            senders_unknown: unknown,
        }
    }

    #[test]
    fn all_senders_are_named_and_fill_most_of_the_queue() {
        assert!(names_all(&fillers(&[(1, 0.4), (2, 0.4), (9, 0.2)]), &[1, 2]));
        assert!(!names_all(&fillers(&[(1, 0.8), (9, 0.2)]), &[1, 2]));
        assert!(!names_all(&fillers(&[(1, 0.1), (2, 0.1), (9, 0.8)]), &[1, 2]));
        assert!(!names_all(&[], &[]));
    }

    #[test]
    fn half_of_the_lost_checks_may_name_nobody_and_none_may_name_others() {
        let (right, silent, wrong) = (lost(&[(1, 0.9)]), lost(&[]), lost(&[(9, 0.9)]));
        let is_right = |all: &[&LostAt]| mistake(&[1], 0, all.iter().copied()).is_none();
        assert!(is_right(&[&right, &silent]) && !is_right(&[&silent]) && !is_right(&[&right, &wrong]));
        assert!(mistake(&[1], 1, [&right].into_iter()).is_some(), "another queue");
    }
}
