//! Records as text: a table for people, JSON and CSV for programs.
//!
//! A table has one unit for sizes, which fits the largest, and microseconds for times; JSON and
//! CSV are always in bytes and nanoseconds. Tables fit 100 columns, unless pages of one repeated
//! word add one more. Where a terminal is narrower, columns that it has no room for follow below.

use serde::Serialize;
use serde_json::Value;

use super::record::Record;
use crate::text;

/// Version of the JSON document; it changes when a field goes or changes its meaning.
pub const SCHEMA: &str = "zfold.compare/2";

/// The allocator that the others are measured against.
const BASELINE: &str = "zsmalloc";

/// Lines above a table's rows: two of titles, one of units.
const HEAD_LINES: usize = 3;

/// A column of a table: its title in two lines, and the value that it shows of a record.
type Column = ([&'static str; HEAD_LINES - 1], Figure);

/// The value of a record that a column shows; of ratios, among all records.
#[derive(Clone, Copy)]
enum Figure {
    Name(fn(&Record) -> &str),
    Count(fn(&Record) -> u64),
    Bytes(fn(&Record) -> u64),
    Nanoseconds(fn(&Record) -> u64),
    Ratio(fn(&Record, &[Record]) -> Option<f64>),
}

/// The name of a unit, and how many bytes or nanoseconds it is.
type Unit = (&'static str, f64);

/// The name of a column's unit, if it has one, and a cell a row.
type Cells = (&'static str, Vec<String>);

/// The unit of times.
const MICROSECOND: Unit = ("us", 1e3);

const NAMES: [Column; 2] = [
    (["", "codec"], Figure::Name(|record| &record.codec)),
    (["", "allocator"], Figure::Name(|record| &record.allocator)),
];

const MEMORY: [Column; 10] = [
    (["same", "filled"], Figure::Count(|record| record.sizes.same_filled)),
    (["", "raw"], Figure::Count(|record| record.sizes.raw)),
    (["not", "kept"], Figure::Count(|record| record.sizes.rejected)),
    (["", "payload"], Figure::Bytes(|record| record.sizes.payload_bytes)),
    (["codec", "ratio"], Figure::Ratio(|record, _| record.compression_ratio())),
    (["pool", "max"], Figure::Bytes(|record| record.sizes.pool_bytes_peak)),
    (["to", "zsmalloc"], Figure::Ratio(ratio_to_baseline)),
    (["", "metadata"], Figure::Bytes(|record| record.sizes.metadata_bytes)),
    (["in", "use"], Figure::Bytes(Record::kept_bytes)),
    (["", "resident"], Figure::Bytes(|record| record.sizes.rss_bytes)),
];

const LATENCY: [Column; 10] = [
    (["store", "p50"], Figure::Nanoseconds(|record| record.store_ns.p50)),
    (["store", "p90"], Figure::Nanoseconds(|record| record.store_ns.p90)),
    (["store", "p99"], Figure::Nanoseconds(|record| record.store_ns.p99)),
    (["store", "p99.9"], Figure::Nanoseconds(|record| record.store_ns.p999)),
    (["store", "max"], Figure::Nanoseconds(|record| record.store_ns.max)),
    (["load", "p50"], Figure::Nanoseconds(|record| record.load_ns.p50)),
    (["load", "p90"], Figure::Nanoseconds(|record| record.load_ns.p90)),
    (["load", "p99"], Figure::Nanoseconds(|record| record.load_ns.p99)),
    (["load", "p99.9"], Figure::Nanoseconds(|record| record.load_ns.p999)),
    (["load", "max"], Figure::Nanoseconds(|record| record.load_ns.max)),
];

/// Returns the memory table, the latency table and the closing sentence.
///
/// The sentence counts *in use*: pool and metadata at the filled point, and the pages that were not
/// kept. Of several inputs, times and sentence are those of all inputs in one pool. Tables are at
/// most so wide, if that can be.
pub fn table(records: &[Record], width: Option<usize>) -> String {
    let memory = draw(&records.iter().collect::<Vec<_>>(), records, &MEMORY, width);
    let latency = draw(&headline(records), records, &LATENCY, width);
    format!("{memory}\n{latency}\n{}\n", text::wrapped(&conclusion(records), width))
}

/// Returns one sentence: which allocator and codec leave the least memory in use, and what that
/// saves.
pub(crate) fn conclusion(records: &[Record]) -> String {
    let headline = headline(records);
    let Some(best) = headline.iter().min_by_key(|record| record.kept_bytes()) else {
        return "There is nothing to compare.".to_owned();
    };
    let (original, kept) = (best.original_bytes(), best.kept_bytes());
    let subject = match original / best.page_size {
        1 => format!("On this page ({})", size(original)),
        pages => format!("On these {pages} pages ({})", size(original)),
    };
    if kept >= original {
        return format!("{subject} no choice saves memory.");
    }
    let preset = best.preset.as_ref().map_or_else(String::new, |name| format!(" as in {name}"));
    format!(
        "{subject} the best choice is {} with {}{preset}: \
         it holds them in {}, saving {} ({:.1} %).",
        best.allocator,
        best.codec,
        size(kept),
        size(original - kept),
        100.0 * (original - kept) as f64 / original as f64
    )
}

/// Returns the records that stand for the whole comparison: those of all inputs in one pool, or
/// those of the only input.
fn headline(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| record.place == 0).collect()
}

/// Returns the JSON document, ended by a newline.
pub fn json(records: &[Record]) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'static str,
        records: &'a [Record],
    }
    let document = Document { schema: SCHEMA, records };
    let mut text = serde_json::to_string_pretty(&document).expect("records have plain fields");
    text.push('\n');
    text
}

/// Returns the figures of [`json`] as comma-separated lines under one line of names; those of
/// `store_ns` and `load_ns` are named `store_ns_p50` and so on, and null is empty.
pub fn csv(records: &[Record]) -> String {
    text::csv(records.iter().map(flatten))
}

/// Returns the fields of a record with their names, those of inner objects behind the outer name.
fn flatten(record: &Record) -> Vec<(String, Value)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(record) else {
        unreachable!("a record is an object with plain fields");
    };
    let mut cells = Vec::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) => {
                let inner = inner.into_iter();
                cells.extend(inner.map(|(part, value)| (format!("{name}_{part}"), value)));
            }
            value => cells.push((name, value)),
        }
    }
    cells
}

/// Draws `rows` with their names and `columns`, each input's rows below a line that names it.
/// Columns that are zero everywhere are left out; those beyond `width` follow below.
fn draw(rows: &[&Record], all: &[Record], columns: &[Column], width: Option<usize>) -> String {
    let size_unit = size_unit(largest_size(rows, columns));
    let columns: Vec<Vec<String>> = (NAMES.iter().chain(columns))
        .map(|(title, figure)| {
            let (unit, cells) = figure.cells(rows, all, size_unit);
            title.iter().chain([&unit]).map(|&line| line.to_owned()).chain(cells).collect()
        })
        .filter(|column: &Vec<String>| column[HEAD_LINES..].iter().any(|cell| cell != "0"))
        .collect();
    let parts = parts(columns, width.unwrap_or(usize::MAX));
    let tables = parts.iter().map(|columns| draw_columns(rows, all, columns));
    tables.collect::<Vec<_>>().join("\n")
}

/// Returns the columns in groups that each fit `width`, with the names in front of each.
fn parts(mut columns: Vec<Vec<String>>, width: usize) -> Vec<Vec<Vec<String>>> {
    let figures = columns.split_off(NAMES.len().min(columns.len()));
    let width_of = |columns: &[Vec<String>]| {
        let widest = |column: &Vec<String>| column.iter().map(|cell| cell.chars().count()).max();
        columns.iter().map(|column| widest(column).unwrap_or(0) + text::GAP).sum::<usize>()
    };
    let mut parts = vec![columns.clone()];
    for figure in figures {
        let last = parts.last_mut().expect("the first is there");
        last.push(figure);
        if last.len() > NAMES.len() + 1 && width_of(last) > width.saturating_add(text::GAP) {
            let figure = last.pop().expect("it was added");
            parts.push(columns.iter().cloned().chain([figure]).collect());
        }
    }
    parts
}

fn draw_columns(rows: &[&Record], all: &[Record], columns: &[Vec<String>]) -> String {
    let lines = text::aligned(columns, NAMES.len());
    let line = |at: usize| format!("{}\n", lines[at]);
    let mut text: String = (0..HEAD_LINES).map(line).collect();
    for (at, row) in rows.iter().enumerate() {
        if at == 0 || row.place != rows[at - 1].place {
            let is_joint = row.place == 0 && all.iter().any(|other| other.place != 0);
            text += &format!("\n{}\n", caption(row, is_joint));
        }
        text += &line(HEAD_LINES + at);
    }
    text
}

/// Returns the largest size in a table.
fn largest_size(rows: &[&Record], columns: &[Column]) -> u64 {
    let largest = |(_, figure): &Column| match figure {
        Figure::Bytes(bytes) => rows.iter().map(|row| bytes(row)).max(),
        _ => None,
    };
    columns.iter().filter_map(largest).max().unwrap_or(0)
}

/// Returns the line above the rows of one input.
fn caption(record: &Record, is_joint: bool) -> String {
    let Record { input, pages, page_size, .. } = record;
    let together = if is_joint { " in one pool" } else { "" };
    format!("{input}: {pages} pages ({}){together}", size(pages * page_size))
}

impl Figure {
    /// Returns the unit of a column and its cells; nothing but "0" when all are zero.
    fn cells(self, rows: &[&Record], all: &[Record], size_unit: Unit) -> Cells {
        match self {
            Self::Name(name) => ("", rows.iter().map(|row| name(row).to_owned()).collect()),
            Self::Count(count) => ("", rows.iter().map(|row| count(row).to_string()).collect()),
            Self::Bytes(bytes) => {
                (size_unit.0, in_unit(size_unit, rows.iter().map(|row| bytes(row)).collect()))
            }
            Self::Nanoseconds(time) => {
                (MICROSECOND.0, in_unit(MICROSECOND, rows.iter().map(|row| time(row)).collect()))
            }
            Self::Ratio(figure) => {
                let cell = |value| format!("{value:.3}");
                let cell = |row: &&Record| figure(row, all).map_or_else(|| "-".to_owned(), cell);
                ("", rows.iter().map(cell).collect())
            }
        }
    }
}

/// Returns `values` in `unit`, all with as many decimals as the smallest needs for two digits,
/// but three at most.
fn in_unit((_, unit): Unit, values: Vec<u64>) -> Vec<String> {
    let smallest = values.iter().copied().filter(|&value| value > 0).min();
    let decimals = match smallest.map(|value| value as f64 / unit) {
        _ if unit == 1.0 => 0,
        Some(..0.1) => 3,
        Some(..10.0) => 2,
        Some(..100.0) => 1,
        _ => 0,
    };
    let cell = |value| match value {
        0 => "0".to_owned(),
        value => format!("{:.decimals$}", value as f64 / unit),
    };
    values.into_iter().map(cell).collect()
}

/// Returns the maximum pool of `record` over that of zsmalloc on the same input and codec.
fn ratio_to_baseline(record: &Record, all: &[Record]) -> Option<f64> {
    let baseline = all.iter().find(|other| {
        other.allocator == BASELINE && other.codec == record.codec && other.place == record.place
    })?;
    let most = baseline.sizes.pool_bytes_peak;
    (most > 0).then(|| record.sizes.pool_bytes_peak as f64 / most as f64)
}

/// Returns the largest unit of which `bytes` has at least one.
fn size_unit(bytes: u64) -> Unit {
    const UNITS: [Unit; 4] = [
        ("TiB", (1u64 << 40) as f64),
        ("GiB", (1u64 << 30) as f64),
        ("MiB", (1u64 << 20) as f64),
        ("KiB", (1u64 << 10) as f64),
    ];
    UNITS.into_iter().find(|(_, unit)| bytes as f64 >= *unit).unwrap_or(("B", 1.0))
}

/// Returns `bytes` in the largest unit of which there is at least one.
fn size(bytes: u64) -> String {
    match size_unit(bytes) {
        (name, 1.0) => format!("{bytes} {name}"),
        (name, unit) => format!("{:.1} {name}", bytes as f64 / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;
    use crate::latency::Summary;

    fn three() -> Vec<Record> {
        let pools = [("zbud", 16384), ("z3fold", 12288), ("zsmalloc", 8192)];
        pools.map(|(allocator, pool_bytes)| record("a", allocator, pool_bytes)).into()
    }

    #[test]
    fn columns_have_one_precision() {
        let cells = |values: &[u64]| in_unit(MICROSECOND, values.to_vec());
        assert_eq!(cells(&[1_000, 0]), ["1.00", "0"]);
        assert_eq!(cells(&[123_456, 12_345]), ["123.5", "12.3"]);
        assert_eq!(cells(&[1_234_567, 123_456]), ["1235", "123"]);
        assert_eq!(cells(&[123_456, 99]), ["123.456", "0.099"]);
        assert_eq!(in_unit(size_unit(999), vec![999, 7]), ["999", "7"]);
    }

    #[test]
    fn table_shows_the_ratio_to_zsmalloc_and_no_columns_of_zeros() {
        let mut records = three();
        let text = table(&records, None);
        let row = |text: &str| text.lines().find(|line| line.contains("zbud")).map(str::to_owned);
        let of = row(&text).expect("a row of zbud");
        assert!(of.contains(" 16.00 ") && of.contains(" 2.000 "), "{text}");
        assert!(text.contains("p99.9") && text.contains("a: 10 pages (40.0 KiB)\n"), "{text}");
        assert!(row(&table(&records[..2], None)).is_some_and(|without| without.contains(" - ")));
        assert!(text.contains("kept"));
        records.iter_mut().for_each(|record| record.sizes.rejected = 0);
        assert!(!table(&records, None).contains("kept"));
    }

    #[test]
    fn columns_beyond_the_width_follow_below_and_none_is_lost() {
        let (wide, narrow) = (table(&three(), None), table(&three(), Some(60)));
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
        let cells = |text: &str| {
            let rows = text.lines().filter(|line| line.contains("zbud"));
            let mut cells: Vec<_> =
                rows.flat_map(str::split_whitespace).map(str::to_owned).collect();
            cells.retain(|cell| cell.parse::<f64>().is_ok());
            cells
        };
        assert_eq!(cells(&narrow), cells(&wide), "{narrow}");
    }

    #[test]
    fn conclusion_names_the_smallest() {
        // In use are 8192 of the pool, 512 of metadata and a page that was not kept.
        let expected = "On these 10 pages (40.0 KiB) the best choice is zsmalloc with lz4: it \
             holds them in 12.5 KiB, saving 27.5 KiB (68.8 %).";
        assert_eq!(conclusion(&three()), expected);
        assert!(table(&three(), None).ends_with(&format!("\n{expected}\n")));
    }

    #[test]
    fn conclusion_knows_presets_and_single_pages() {
        let mut record = record("a", "zbud", 12288);
        record.preset = Some("linux-6.1".to_owned());
        assert!(conclusion(&[record.clone()]).contains(" is zbud with lz4 as in linux-6.1: "));
        record.pages = 1;
        assert_eq!(conclusion(&[record]), "On this page (4.0 KiB) no choice saves memory.");
    }

    #[test]
    fn csv_has_the_same_figures_flattened() {
        let text = csv(&three());
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let names = reader.headers().expect("names").clone();
        assert_eq!((&names[0], &names[names.len() - 1]), ("input", "verified"));
        assert!(names.iter().any(|name| name == "load_ns_p999"));
        let rows: Vec<_> = reader.records().collect::<Result<_, _>>().expect("rows");
        assert_eq!(rows.len(), 3);
        let chain = names.iter().position(|name| name == "chain").expect("a column");
        assert_eq!((&rows[0][chain], &rows[2][chain]), ("", "8"));
    }

    #[test]
    fn summary_columns_match_the_fields() {
        let times = |us: [u64; 5]| {
            let [p50, p90, p99, p999, max] = us.map(|us| us * 1000);
            Summary { p50, p90, p99, p999, max, mean: 9 }
        };
        let mut one = record("a", "zbud", 4096);
        one.store_ns = times([1, 2, 3, 4, 5]);
        one.load_ns = times([6, 7, 8, 10, 11]);
        let cell = |(_, figure): &Column| figure.cells(&[&one], &[], size_unit(0)).1;
        let expected =
            ["1.00", "2.00", "3.00", "4.00", "5.00", "6.00", "7.00", "8.00", "10.0", "11.0"]
                .map(|us| vec![us.to_owned()]);
        assert_eq!(LATENCY.each_ref().map(cell), expected);
    }
}
