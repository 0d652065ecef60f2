//! Tables for people: a name, a value with its unit, and its meaning.

use std::fmt::Write as _;

use zfold_console::clean::clean;

/// A line of a table: name, value, and meaning.
pub(crate) type Row = (&'static str, String, &'static str);

/// Appends rows under a title, with names to the left and values, which are cleaned, to the right.
pub(crate) fn table(text: &mut String, title: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let values: Vec<String> = rows.iter().map(|row| clean(&row.1)).collect();
    let width = values.iter().map(|value| value.chars().count()).max().unwrap_or(0);
    let _ = writeln!(text, "{title}");
    for ((name, _, meaning), value) in rows.iter().zip(&values) {
        let line = format!("  {name:<24} {value:>width$}  {meaning}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text);
}

/// Returns rows in columns as wide as they need: numbers to the right, texts to the left.
pub(crate) fn columns<const N: usize>(
    rows: &[[String; N]],
    is_number: fn(usize) -> bool,
) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match is_number(column) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Units of bytes, each 1024 times the one before.
const UNITS: usize = 6;

/// Returns bytes in the first unit in which they are below `most`, or else in the last, and which
/// that is.
fn in_unit(bytes: u64, most: f64) -> (f64, usize) {
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= most && unit + 1 < UNITS {
        value /= 1024.0;
        unit += 1;
    }
    (value, unit)
}

/// Returns bytes with four digits in the unit that suits them.
pub(crate) fn size(bytes: u64) -> String {
    let (value, unit) = in_unit(bytes, 1024.0);
    let digits = match value {
        _ if unit == 0 => 0,
        value if value >= 100.0 => 1,
        _ => 2,
    };
    const NAMES: [&str; UNITS] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    format!("{value:.digits$} {:<3}", NAMES[unit])
}

/// Returns bytes with three digits and a letter for the unit, as `64.0M`.
pub(crate) fn short_size(bytes: u64) -> String {
    let (value, unit) = in_unit(bytes, 999.5);
    let digits = match value {
        _ if unit == 0 => 0,
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    const NAMES: [&str; UNITS] = ["B", "K", "M", "G", "T", "P"];
    format!("{value:.digits$}{}", NAMES[unit])
}

/// Returns a rate in six places at most: a whole number, in thousands from 100,000 on.
pub(crate) fn short_rate(rate: f64) -> String {
    match rate {
        rate if rate < 99_999.5 => format!("{rate:.0}"),
        rate if rate < 999_950.0 => format!("{:.0}k", rate / 1e3),
        rate => format!("{:.1}M", rate / 1e6),
    }
}

/// Returns a time with three digits in the unit that suits it.
pub(crate) fn time(nanoseconds: u64) -> String {
    let ns = nanoseconds as f64;
    let (value, unit) = match ns {
        _ if ns < 1e3 => (ns, "ns"),
        _ if ns < 1e6 => (ns / 1e3, "us"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s "),
    };
    let digits = match value {
        _ if unit == "ns" => 0,
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
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
    fn short_forms_fit_a_column() {
        let sizes = [0, 1023, 1024, 64 << 20, 1000 << 20, 12 << 30, u64::MAX].map(short_size);
        assert_eq!(sizes, ["0B", "1.00K", "1.00K", "64.0M", "0.98G", "12.0G", "16384P"]);
        let rates = [0.0, 0.4, 12_345.6, 123_456.0, 1_234_567.0].map(short_rate);
        assert_eq!(rates, ["0", "0", "12346", "123k", "1.2M"]);
        let times = [7, 6_050, 465_000, 2_740_000, 1_500_000_000].map(time);
        assert_eq!(times, ["7 ns", "6.05 us", "465 us", "2.74 ms", "1.50 s "]);
    }

    #[test]
    fn tables_are_aligned_and_empty_ones_left_out() {
        let mut text = String::new();
        table(&mut text, "t", &[("a", "1".into(), "x"), ("b", "1,000".into(), "")]);
        table(&mut text, "none", &[]);
        table(&mut text, "c", &[("b", "x\x1b[31m\ny".into(), "")]);
        let name = |name: &str| format!("  {name:<24}");
        let cleaned = format!("c\n{} x\\u{{1b}}[31m\\ny\n\n", name("b"));
        let aligned = format!("t\n{}     1  x\n{} 1,000\n\n", name("a"), name("b"));
        assert_eq!(text, aligned + &cleaned);
    }
}
