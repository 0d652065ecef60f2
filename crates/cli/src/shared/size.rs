//! Sizes as people type them: a whole number and a binary unit.

use std::fmt;
use std::str::FromStr;

/// Length of a page in bytes.
pub(crate) const PAGE_LEN: u64 = 4096;

const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// A number of bytes, written `64MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_size(text).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_size(self.0))
    }
}

/// Returns the bytes that `text` means, such as `64MiB`.
///
/// # Errors
///
/// When it is not a whole number with a unit, or beyond 64 bits; the text says what is accepted.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || "a size is a whole number with KiB, MiB, GiB or TiB, such as 64MiB".to_owned();
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (unit, shift) = unit.ok_or_else(wrong)?;
    let number = text[..text.len() - unit.len()].trim_end();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: Option<u64> = number.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "the size is too large".to_owned())
}

/// Returns `bytes` as [`parse_size`] reads it, in the largest unit that divides it.
pub(crate) fn format_size(bytes: u64) -> String {
    let fits = |shift: u32| bytes >> shift > 0 && bytes.trailing_zeros() >= shift;
    match UNITS.iter().rev().find(|(_, shift)| fits(*shift)) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(parse_size("4KiB"), Ok(4096));
        assert_eq!(parse_size("64 MiB"), Ok(64 << 20));
        assert_eq!(parse_size("0GiB"), Ok(0));
        for wrong in ["64", "MiB", "", "-1KiB", "+1KiB", "1.5GiB", "4kib", "4KB", "1 2KiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        assert!(parse_size("99999999999TiB").is_err());
    }

    #[test]
    fn formatted_sizes_are_read_back() {
        for bytes in [1024, 4096, 3 << 20, 256 << 20, 5 << 30, 1 << 50] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
        assert_eq!(format_size(1000), "1000 bytes");
    }
}
