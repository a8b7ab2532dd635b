//! Which packets are looked at closely: all while they are few, then one of each row of so many.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Packets of one CPU and turn that are all looked at; whole rows.
pub const LOOKED_AT: u32 = 256;
/// Packets of a row of which one is looked at; a power of two.
pub const ROW: u32 = 16;

/// Where one CPU is among the packets that ask to be looked at.
///
/// Beyond [`LOOKED_AT`], one packet of each [`ROW`] is drawn and stands for all of them. Which one is
/// drawn anew for each row, so senders and flows that take turns in any rhythm have the same chance,
/// and each estimate errs by no more than independent draws would.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sampler {
    /// The turn that it is true of.
    turn: u32,
    /// Packets that have asked in it.
    seen: u32,
    /// The place that was drawn in the current row.
    drawn: u32,
    /// State of the generator (xorshift); 0 before the first turn.
    random: u32,
}

impl Sampler {
    /// Whether it has begun with this turn.
    #[inline(always)]
    #[must_use]
    pub const fn is_of(&self, turn: u32) -> bool {
        self.turn == turn && self.random != 0
    }

    /// The turn with which it began.
    #[inline(always)]
    #[must_use]
    pub const fn turn(&self) -> u32 {
        self.turn
    }

    /// Begins with a turn.
    #[inline(always)]
    pub const fn begin(&mut self, turn: u32, seed: u32) {
        self.turn = turn;
        self.seen = 0;
        self.random = seed | 1;
    }

    /// For how many packets the next one stands: 0 if it is not looked at.
    #[inline(always)]
    pub const fn weigh(&mut self) -> u32 {
        let seen = self.seen;
        self.seen = seen.wrapping_add(1);
        if seen < LOOKED_AT {
            return 1;
        }
        let place = seen % ROW;
        if place == 0 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 17;
            self.random ^= self.random << 5;
            // The low bits are the weakest.
            self.drawn = self.random >> (u32::BITS - ROW.trailing_zeros());
        }
        if place == self.drawn { ROW } else { 0 }
    }
}

/// What a draw adds to the variance of a sum in which it stands for `weight` times `value`: as much as
/// if each packet were drawn for itself. One draw a row varies less, or the same.
#[inline(always)]
#[must_use]
pub const fn variance(weight: u32, value: u64) -> u64 {
    let weight = weight as u64;
    (weight * weight - weight) * value * value
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::{vec, vec::Vec};

    const SEEDS: u32 = 200;

    /// Of each kind of packet, what was sent and what it is estimated to be, in one turn.
    fn turn(seed: u32, packets: &[(usize, u64)], kinds: usize) -> Vec<(u64, u64, u64)> {
        let mut sampler = Sampler::default();
        sampler.begin(1, seed.wrapping_mul(0x9e37_79b9));
        let mut sums = vec![(0, 0, 0); kinds];
        for (kind, bytes) in packets {
            let weight = sampler.weigh();
            let (sent, told, squares) = &mut sums[*kind];
            *sent += bytes;
            *told += u64::from(weight) * bytes;
            *squares += variance(weight, *bytes);
        }
        sums
    }

    /// Of all seeds, the largest error of a kind's share, percent of all; and how many of a hundred
    /// estimates lie within two standard errors of the truth.
    fn errors(packets: &[(usize, u64)], kinds: usize) -> (f64, f64) {
        let (mut worst, mut within, mut estimates) = (0.0_f64, 0, 0);
        for seed in 0..SEEDS {
            let sums = turn(seed, packets, kinds);
            let (all, told_all) = sums.iter().fold((0, 0), |sum, (sent, told, _)| (sum.0 + sent, sum.1 + told));
            for (sent, told, squares) in sums {
                let share = told as f64 / told_all as f64 - sent as f64 / all as f64;
                worst = worst.max(share.abs() * 100.0);
                within += u32::from(told.abs_diff(sent) <= 2 * squares.isqrt() + 2 * u64::from(ROW) * 1_500);
                estimates += 1;
            }
        }
        (worst, f64::from(within) / f64::from(estimates) * 100.0)
    }

    #[test]
    fn few_packets_are_all_looked_at() {
        let mut sampler = Sampler::default();
        assert!(!sampler.is_of(0));
        sampler.begin(0, 0);
        assert!(sampler.is_of(0) && !sampler.is_of(1));
        assert!((0..LOOKED_AT).all(|_| sampler.weigh() == 1));
        let beyond: Vec<_> = (0..10 * ROW).map(|_| sampler.weigh()).collect();
        assert!(beyond.chunks(ROW as usize).all(|row| row.iter().sum::<u32>() == ROW && row.contains(&ROW)));
        sampler.begin(1, 7);
        assert!((0..LOOKED_AT).all(|_| sampler.weigh() == 1));
    }

    #[test]
    fn every_place_of_a_row_has_the_same_chance() {
        let mut places = [0_u32; ROW as usize];
        let rows = 2_000;
        for seed in 0..20 {
            let mut sampler = Sampler::default();
            sampler.begin(1, seed);
            (0..LOOKED_AT).for_each(|_| assert_eq!(sampler.weigh(), 1));
            for packet in 0..rows * ROW {
                places[(packet % ROW) as usize] += u32::from(sampler.weigh() > 0);
            }
        }
        let expected = 20 * rows / ROW;
        assert!(places.iter().all(|drawn| drawn.abs_diff(expected) < expected / 8), "{places:?}");
    }

    #[test]
    fn senders_that_take_turns_are_told_as_even_as_they_are() {
        for workers in [2, 3, 4, 7, 8, 16, 32, 48] {
            let rotation: Vec<_> = (0..20_000).map(|packet| (packet % workers, 1_200)).collect();
            let (worst, within) = errors(&rotation, workers);
            assert!(worst < 5.0 && within >= 95.0, "{workers} workers: {worst:.1} %, {within:.1} %");
        }
    }

    #[test]
    fn bursts_as_long_as_a_row_are_told_as_they_are() {
        let bursts: Vec<_> = (0..20_000).map(|packet| (packet / ROW as usize % 4, 1_200)).collect();
        let (worst, within) = errors(&bursts, 4);
        assert!(worst < 1.0 && within >= 95.0, "{worst:.1} %, {within:.1} %");
    }

    #[test]
    fn one_large_sender_does_not_hide_many_small_ones() {
        let mixed: Vec<_> =
            (0..20_000).map(|packet| if packet % 5 == 0 { (1 + packet / 5 % 40, 200) } else { (0, 1_400) }).collect();
        let (worst, within) = errors(&mixed, 41);
        assert!(worst < 2.0 && within >= 95.0, "{worst:.1} %, {within:.1} %");
        let small: u64 = turn(5, &mixed, 41)[1..].iter().map(|(_, told, _)| told).sum();
        assert!(small.abs_diff(800_000) < 80_000, "{small}");
    }

    #[test]
    fn estimates_are_right_on_average() {
        let packets: Vec<_> =
            (0..6_000_u32).map(|packet| ((packet.is_multiple_of(7)).into(), u64::from(64 + packet % 1_400))).collect();
        let told: u64 = (0..SEEDS).map(|seed| turn(seed, &packets, 2)[1].1).sum();
        let sent = turn(0, &packets, 2)[1].0;
        let mean = told / u64::from(SEEDS);
        assert!(mean.abs_diff(sent) < sent / 50, "{mean} of {sent}");
    }
}
