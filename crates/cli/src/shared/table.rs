//! Tables for people: a name, a value with its unit, and what it means.

use std::fmt::Write as _;

/// A line of a table: name, value, and what it means.
pub(crate) type Row = (&'static str, String, &'static str);

/// Appends rows under a title, with names to the left and values to the right.
pub(crate) fn table(text: &mut String, title: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|row| row.1.chars().count()).max().unwrap_or(0);
    let _ = writeln!(text, "{title}");
    for (name, value, meaning) in rows {
        let line = format!("  {name:<24} {value:>width$}  {meaning}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text);
}

/// Returns bytes with four digits in the unit that suits them.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value >= 100.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {:<3}", UNITS[unit])
}

/// Returns a number with its digits in groups of three, and room for a unit.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts_are_read_easily() {
        assert_eq!([size(0), size(1023)], ["0 B  ", "1023 B  "]);
        assert_eq!([size(1536), size(64 << 30)], ["1.50 KiB", "64.00 GiB"]);
        assert_eq!(size(u64::MAX), "16384.0 PiB");
        assert_eq!([count(7), count(1234), count(1_234_567)], ["7", "1,234", "1,234,567"]);
    }

    #[test]
    fn tables_are_aligned_and_empty_ones_left_out() {
        let mut text = String::new();
        table(&mut text, "t", &[("a", "1".into(), "x"), ("b", "1,000".into(), "")]);
        table(&mut text, "none", &[]);
        let name = |name: &str| format!("  {name:<24}");
        assert_eq!(text, format!("t\n{}     1  x\n{} 1,000\n\n", name("a"), name("b")));
    }
}
