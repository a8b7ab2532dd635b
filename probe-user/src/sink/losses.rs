//! How many checks were lost, and where, as published.

use crate::summary::{LossRate, Losses};
use serde::Serialize;

/// Rates of a target, or of the whole run.
#[derive(Serialize)]
pub(super) struct LossesField {
    checks: u64,
    lost: u64,
    share: f64,
    share_low: f64,
    share_high: f64,
    spans: Vec<RateField>,
    places: Vec<PlaceField>,
}

#[derive(Serialize)]
struct RateField {
    span: &'static str,
    checks: u64,
    lost: u64,
    share: f64,
    share_low: f64,
    share_high: f64,
}

#[derive(Serialize)]
struct PlaceField {
    place: &'static str,
    lost: u64,
    share: f64,
    share_low: f64,
    share_high: f64,
}

impl LossesField {
    pub(super) fn new(losses: &Losses) -> Self {
        let LossRate { lost, checks } = losses.total();
        let [share, share_low, share_high] = shares(losses.total());
        let span = |(span, rate): (crate::journey::Span, LossRate)| {
            let [share, share_low, share_high] = shares(rate);
            RateField { span: span.name(), checks: rate.checks, lost: rate.lost, share, share_low, share_high }
        };
        let place = |(place, rate): (crate::attribution::LossPlace, LossRate)| {
            let [share, share_low, share_high] = shares(rate);
            PlaceField { place: place.name(), lost: rate.lost, share, share_low, share_high }
        };
        let spans = losses.by_span().map(span).collect();
        let places = losses.by_place().into_iter().map(place).collect();
        Self { checks, lost, share, share_low, share_high, spans, places }
    }
}

/// The share and its interval; six decimals tell one check in a million.
fn shares(rate: LossRate) -> [f64; 3] {
    let (low, high) = rate.interval();
    [rate.share(), low, high].map(|share| (share * 1e6).round() / 1e6)
}
