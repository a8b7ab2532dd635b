//! Values of flags: durations, thresholds, sizes.

use crate::clock::DurNs;
use crate::event::Threshold;

/// When `--threshold` is not given.
pub(super) const DEFAULT_THRESHOLD: &str = "5x";
/// The same as a value.
pub(super) const USUAL_THRESHOLD: Threshold = Threshold::Multiple(5.0);

const SMALLEST_RING: u32 = 4096;
const LARGEST_RING: u32 = 1 << 28;

/// A positive duration such as `30s`, `1m30s` or `250ms`.
pub(super) fn duration(text: &str) -> Result<DurNs, String> {
    not_negative(text)?;
    let duration =
        humantime::parse_duration(text).map_err(|_| "give a number with a unit, such as 250ms, 30s or 5m")?;
    match u64::try_from(duration.as_nanos()) {
        Ok(0) => Err("must be longer than nothing".to_owned()),
        Ok(ns) => Ok(DurNs(ns)),
        Err(_) => Err("too long".to_owned()),
    }
}

fn not_negative(text: &str) -> Result<(), String> {
    if text.starts_with('-') { Err("must not be negative".to_owned()) } else { Ok(()) }
}

/// A time (`20ms`), or a multiple of the usual time (`5x`).
pub(super) fn threshold(text: &str) -> Result<Threshold, String> {
    not_negative(text)?;
    let Some(number) = text.strip_suffix('x') else {
        return duration(text)
            .map(Threshold::Fixed)
            .map_err(|_| "give a time such as 20ms, or a multiple such as 5x".to_owned());
    };
    match number.parse::<f64>() {
        Ok(times) if times > 1.0 && times.is_finite() => Ok(Threshold::Multiple(times)),
        Ok(_) => Err("a multiple must be greater than 1".to_owned()),
        Err(_) => Err("give a time such as 20ms, or a multiple such as 5x".to_owned()),
    }
}

/// Bytes, a power of two, with an optional K or M.
pub(super) fn ring_size(text: &str) -> Result<u32, String> {
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let bytes = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(scale));
    match bytes {
        Some(bytes) if bytes.is_power_of_two() && (SMALLEST_RING..=LARGEST_RING).contains(&bytes) => Ok(bytes),
        _ => Err("give a power of two from 4K to 256M, such as 512K".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{duration, ring_size, threshold};
    use crate::clock::DurNs;
    use crate::event::Threshold;

    #[test]
    fn durations_need_a_unit_and_a_length() {
        assert_eq!(duration("1m30s"), Ok(DurNs::from_secs(90)));
        assert!(duration("0s").is_err());
        assert!(duration("12").is_err());
        assert!(duration("-1s").is_err());
    }

    #[test]
    fn a_threshold_is_a_time_or_a_multiple() {
        assert_eq!(threshold("20ms"), Ok(Threshold::Fixed(DurNs::from_millis(20))));
        assert_eq!(threshold("2.5x"), Ok(Threshold::Multiple(2.5)));
        for wrong in ["1x", "x", "nanx", "infx", "-3x", "20", ""] {
            assert!(threshold(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_default_is_what_its_text_says() {
        assert_eq!(threshold(super::DEFAULT_THRESHOLD), Ok(super::USUAL_THRESHOLD));
    }

    #[test]
    fn a_ring_is_a_power_of_two() {
        assert_eq!(ring_size("512K"), Ok(512 << 10));
        assert_eq!(ring_size("4096"), Ok(4096));
        for wrong in ["3M", "1", "4294967296M", "", "K"] {
            assert!(ring_size(wrong).is_err(), "{wrong}");
        }
    }
}
