//! Sizes as people type them: a whole number of bytes, or one with a unit.
//!
//! `K`, `M`, `G` and `T` mean what they mean to `truncate`, `dd` and systemd: powers of 1024, as
//! `KiB` and so on. `kB` and `GB` are refused: half of the world reads them as powers of 1000.

use std::fmt;
use std::str::FromStr;

use crate::shared::exit::Failure;

/// Length in bytes of a page of a disk, or of a guest's image.
pub(crate) const PAGE_LEN: u64 = 4096;

const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// The error for any other text.
const WRONG: &str = "a size is a whole number of bytes, or of KiB, MiB, GiB or TiB, such as 64MiB \
                     (64M is the same)";

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

/// Returns the bytes that `text` means, such as `64MiB`, `64M` or `67108864`.
///
/// # Errors
///
/// When it is not a whole number with a unit or none, or beyond 64 bits; the text says what is
/// accepted.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let is_unit = |(name, _): &&(&str, u32)| {
        unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(&name[..1])
    };
    let shift = match UNITS.iter().find(is_unit) {
        Some((_, shift)) => *shift,
        None if unit.is_empty() => 0,
        None => return Err(WRONG.to_owned()),
    };
    if number.is_empty() {
        return Err(WRONG.to_owned());
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

/// Checks the size that an option was given.
///
/// # Errors
/// It is below `least`, status 2.
pub(crate) fn at_least(option: &str, bytes: u64, least: u64) -> Result<(), Failure> {
    if bytes >= least {
        return Ok(());
    }
    let (bytes, least) = (format_size(bytes), format_size(least));
    Err(Failure::usage(format!("{option} {bytes} is too small to work with: give {least} or more")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        for same in ["67108864", "64MiB", "64 MiB", "64M", "64m", "65536K", "64mib"] {
            assert_eq!(parse_size(same), Ok(64 << 20), "{same}");
        }
        assert_eq!(parse_size("1G"), Ok(1 << 30), "as truncate, dd and systemd read it");
        assert_eq!(parse_size("0GiB"), Ok(0));
        for wrong in ["MiB", "", "-1KiB", "+1KiB", "1.5GiB", "4KB", "1GB", "1B", "1 2KiB", "0x10"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        for much in ["99999999999TiB", "99999999999999999999"] {
            assert_eq!(parse_size(much), Err("the size is too large".to_owned()));
        }
    }

    #[test]
    fn formatted_sizes_are_read_back() {
        for bytes in [1024, 4096, 3 << 20, 256 << 20, 5 << 30, 1 << 50] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
        assert_eq!(format_size(1000), "1000 bytes");
    }
}
