//! One recording against another: before and after a fix, a canary and its baseline.

use super::graph::{Share, Width};
use super::tower::{Levels, Tower};
use super::{Empty, Flame, Graph, Pair, Population};
use crate::attribution::counted;
use std::collections::BTreeMap;

impl Flame {
    /// A check of this recording against one of `base`: means over all checks, slow or not, each
    /// compared with those of the same signature, in nanoseconds rounded down.
    ///
    /// # Errors
    /// When no signature has checks in both.
    pub fn against(&self, base: &Self) -> Result<Graph, Empty> {
        let mut numbers = BTreeMap::new();
        let mut levels = Levels::default();
        let now = self.by_signature(&mut numbers, &mut levels);
        let before = base.by_signature(&mut numbers, &mut levels);
        let mut pair = Pair::default();
        for (signature, population) in &now {
            if let Some(other) = before.get(signature) {
                pair.add(population, other);
            }
        }
        if pair.slow == 0 {
            return Err(Empty::NothingInCommon);
        }
        let title = format!(
            "whylag: a check (the full width, {}) against one of the other recording ({})",
            pair.mean(|times| times.0),
            pair.mean(|times| times.1)
        );
        let note = format!(
            "red: more time than in the other recording, blue: less; means of {} here and {} there",
            counted(pair.slow, "check"),
            pair.healthy
        );
        let towers: BTreeMap<usize, Tower> = numbers.into_iter().map(|(tower, number)| (number, tower)).collect();
        let shares = pair.times.iter().filter_map(|(number, (now, before))| {
            let width = Width::Against { now: pair.per_check(*now), before: pair.per_check(*before) };
            Some(Share { tower: towers.get(number)?.clone(), width }).filter(|_| !width.is_nothing())
        });
        let mut graph = Graph::new("Delay", title, self.dated(note), shares.collect());
        graph.compared_with = "other";
        [self, base].into_iter().for_each(|flame| flame.note_losses(&mut graph));
        Ok(graph)
    }

    /// All checks by the name of their signature, with towers numbered for both recordings.
    fn by_signature(&self, numbers: &mut BTreeMap<Tower, usize>, levels: &mut Levels) -> BTreeMap<&str, Population> {
        let mut all: BTreeMap<&str, Population> = BTreeMap::new();
        let slow = self.slow_groups();
        let slow = slow.iter().map(|((_, signature), population)| (*signature, population));
        let healthy = self.groups.iter().map(|((_, signature), group)| (*signature, &group.healthy));
        for (signature, population) in slow.chain(healthy).filter(|(_, population)| population.checks > 0) {
            let name = self.signatures.get(signature).map_or("", String::as_str);
            let times = population.times.iter().map(|(plan, time)| {
                let next = numbers.len();
                (*numbers.entry(self.built(*plan, levels)).or_insert(next), *time)
            });
            let of_name = all.entry(name).or_default();
            of_name.add(&times.collect::<Vec<_>>());
            of_name.checks += population.checks - 1;
        }
        all
    }
}
