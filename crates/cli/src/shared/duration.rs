//! Durations as people type them: a whole number and a unit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A length of time, written `250ms`, `30s`, `10min`, `2h` or `1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "a duration is a whole number with ms, s, min, h or d, such as 10min";
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let ms = number.checked_mul(unit.1).ok_or("the duration is too long")?;
        Ok(Self(Duration::from_millis(ms)))
    }
}

impl fmt::Display for Interval {
    /// Writes the largest unit that divides the duration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis() as u64;
        let fits = |unit: u64| ms >= unit && ms.is_multiple_of(unit);
        let (name, unit) = *UNITS.iter().rev().find(|(_, unit)| fits(*unit)).unwrap_or(&UNITS[0]);
        write!(f, "{}{name}", ms / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_are_read_back() {
        for (text, seconds) in [("30s", 30), ("10min", 600), ("2h", 7200), ("1d", 86_400)] {
            let interval: Interval = text.parse().expect("valid");
            assert_eq!(interval, Interval(Duration::from_secs(seconds)));
            assert_eq!(interval.to_string(), text);
        }
        assert_eq!("250 ms".parse::<Interval>().expect("valid").to_string(), "250ms");
        for wrong in ["30", "s", "", "-1s", "1.5h", "1m", "99999999999999999d"] {
            assert!(wrong.parse::<Interval>().is_err(), "{wrong}");
        }
    }
}
