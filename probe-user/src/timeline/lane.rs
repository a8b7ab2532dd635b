//! Slices that overlap on as few tracks as hold them side by side.

use super::{Group, Slice};
use crate::clock::MonoNs;
use std::collections::BTreeMap;

/// Slices by what they belong to.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    slices: BTreeMap<(Group, String), Vec<Slice>>,
}

impl Lanes {
    /// Threads have one track each, whatever name they had last.
    pub(super) fn add(&mut self, group: Group, track: &str, slice: Slice) {
        let first = self.slices.range_mut((group, String::new())..).next();
        if let (Group::Thread { .. }, Some(((known, _), slices))) = (group, first)
            && *known == group
        {
            slices.push(slice);
            return;
        }
        self.slices.entry((group, track.to_owned())).or_default().push(slice);
    }

    /// Tracks whose slices do not overlap: group, name, number among those of the same name, slices in
    /// the order of their time.
    pub(super) fn into_tracks(self) -> impl Iterator<Item = (Group, String, usize, Vec<Slice>)> {
        self.slices.into_iter().flat_map(|((group, name), slices)| {
            let lanes = laid_out(slices).into_iter().enumerate();
            lanes.map(move |(number, slices)| (group, name.clone(), number, slices))
        })
    }
}

fn laid_out(mut slices: Vec<Slice>) -> Vec<Vec<Slice>> {
    slices.sort_by_key(|slice| (slice.from, std::cmp::Reverse(slice.to)));
    let mut lanes: Vec<(MonoNs, Vec<Slice>)> = Vec::new();
    for slice in slices {
        match lanes.iter_mut().find(|(free_from, _)| *free_from <= slice.from) {
            Some((free_from, lane)) => {
                *free_from = slice.to;
                lane.push(slice);
            }
            None => lanes.push((slice.to, vec![slice])),
        }
    }
    lanes.into_iter().map(|(_, lane)| lane).collect()
}
