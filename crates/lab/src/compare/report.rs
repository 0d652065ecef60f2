//! Records as text: a table for people, JSON and CSV for programs.
//!
//! Tables carry units, which change with the size of the figure; JSON and CSV are always in bytes
//! and nanoseconds. No text depends on the width of a terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::record::{Record, sums};

/// Version of the JSON document; it changes when a field goes or changes its meaning.
pub const SCHEMA: &str = "zfold.compare/1";

/// The allocator that the others are measured against.
const BASELINE: &str = "zsmalloc";

/// A column of a table: its title and what it says of a record among all records.
type Column = (&'static str, fn(&Record, &[Record]) -> String);

const NAMES: [Column; 3] = [
    ("input", |record, _| record.input.clone()),
    ("codec", |record, _| record.codec.clone()),
    ("allocator", |record, _| record.allocator.clone()),
];

const MEMORY: [Column; 12] = [
    ("pages", |record, _| record.pages.to_string()),
    ("same\nfilled", |record, _| record.sizes.same_filled.to_string()),
    ("\nraw", |record, _| record.sizes.raw.to_string()),
    ("rejected", |record, _| record.sizes.rejected.to_string()),
    ("\npayload", |record, _| size(record.sizes.payload_bytes)),
    ("compression\nratio", |record, _| ratio(record.compression_ratio())),
    ("pool\nmaximum", |record, _| size(record.sizes.pool_bytes_peak)),
    ("to\nzsmalloc", |record, all| ratio(ratio_to_baseline(record, all))),
    ("pool\nfilled", |record, _| size(record.sizes.pool_bytes)),
    ("\nmetadata", |record, _| size(record.sizes.metadata_bytes)),
    ("codec\nmemory", |record, _| size(record.sizes.codec_bytes)),
    ("\nresident", |record, _| size(record.sizes.rss_bytes)),
];

const LATENCY: [Column; 10] = [
    ("store\np50", |record, _| time(record.store_ns.p50)),
    ("store\np90", |record, _| time(record.store_ns.p90)),
    ("store\np99", |record, _| time(record.store_ns.p99)),
    ("store\np99.9", |record, _| time(record.store_ns.p999)),
    ("store\nmax", |record, _| time(record.store_ns.max)),
    ("load\np50", |record, _| time(record.load_ns.p50)),
    ("load\np90", |record, _| time(record.load_ns.p90)),
    ("load\np99", |record, _| time(record.load_ns.p99)),
    ("load\np99.9", |record, _| time(record.load_ns.p999)),
    ("load\nmax", |record, _| time(record.load_ns.max)),
];

/// Returns the memory table, the latency table and the closing sentence.
///
/// With several inputs, rows named `all` add them up.
pub fn table(records: &[Record]) -> String {
    let mut rows = records.to_vec();
    if records.iter().any(|record| record.input != records[0].input) {
        rows.extend(sums(records));
    }
    let memory = draw(&rows, &MEMORY);
    let latency = draw(&rows, &LATENCY);
    format!("{memory}\n\n{latency}\n\n{}\n", conclusion(records))
}

/// Returns the store and load times of each allocator and codec over all inputs, drawn by powers
/// of two as bpftrace draws them.
pub fn histograms(records: &[Record]) -> String {
    let draw = |sum: Record| {
        let (loads, stores) = (sum.loads.drawing(), sum.stores.drawing());
        let (allocator, codec) = (sum.allocator, sum.codec);
        format!("*** {allocator}, {codec} ***\n\n@load_ns:\n{loads}\n@store_ns:\n{stores}\n")
    };
    sums(records).into_iter().map(draw).collect()
}

/// Returns one sentence: which allocator and codec leave the least memory in use, and what that
/// saves.
pub fn conclusion(records: &[Record]) -> String {
    let sums = sums(records);
    let Some(best) = sums.iter().min_by_key(|sum| sum.kept_bytes()) else {
        return "There is nothing to compare.".to_owned();
    };
    let (original, kept) = (best.original_bytes(), best.kept_bytes());
    if kept >= original {
        return format!("No choice saves memory on this input of {}.", size(original));
    }
    let saved = original - kept;
    let percent = 100.0 * saved as f64 / original as f64;
    let mut choice = best.allocator.clone();
    if !best.is_replay() {
        choice = format!("{choice} with {}", best.codec);
    }
    if let Some(preset) = &best.preset {
        choice = format!("{choice} as in {preset}");
    }
    format!(
        "The best choice on this input is {choice}: it saves {} of {} ({percent:.1} %).",
        size(saved),
        size(original)
    )
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
/// `store_ns` and `load_ns` are named `store_ns_p50` and so on, and what is null is empty.
pub fn csv(records: &[Record]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (index, record) in records.iter().enumerate() {
        let cells = flatten(record);
        if index == 0 {
            let names = cells.iter().map(|(name, _)| name);
            writer.write_record(names).expect("a Vec takes all");
        }
        let values = cells.iter().map(|(_, value)| value);
        writer.write_record(values).expect("all records have the same fields");
    }
    let bytes = writer.into_inner().expect("a Vec takes all");
    String::from_utf8(bytes).expect("names and numbers are text")
}

/// Returns the fields of a record with their names, those of inner objects behind the outer name.
fn flatten(record: &Record) -> Vec<(String, String)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(record) else {
        unreachable!("a record is an object with plain fields");
    };
    let mut cells = Vec::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) => {
                let inner = inner.into_iter();
                cells.extend(inner.map(|(part, value)| (format!("{name}_{part}"), cell(&value))));
            }
            value => cells.push((name, cell(&value))),
        }
    }
    cells
}

/// Returns a plain JSON value without quotes; nothing for null.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Draws the names of `rows` and `columns`, without the columns that are zero everywhere.
fn draw(rows: &[Record], columns: &[Column]) -> String {
    let cells = |(_, figure): &Column| rows.iter().map(|row| figure(row, rows)).collect();
    let filled: Vec<(&str, Vec<String>)> = (NAMES.iter().chain(columns))
        .map(|column| (column.0, cells(column)))
        .filter(|(_, cells): &(_, Vec<String>)| {
            cells.iter().any(|cell| cell != "0" && cell != "0 B")
        })
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(filled.iter().map(|(title, _)| bottom_aligned(title)));
    for row in 0..rows.len() {
        table.add_row(filled.iter().map(|(_, cells)| cells[row].as_str()));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        let right = index >= NAMES.len();
        column.set_cell_alignment(if right { CellAlignment::Right } else { CellAlignment::Left });
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Returns a title of two lines, of which the first may be blank.
fn bottom_aligned(title: &str) -> String {
    match title.contains('\n') {
        true => title.to_owned(),
        false => format!("\n{title}"),
    }
}

/// Returns the maximum pool of `record` over that of zsmalloc on the same input and codec.
fn ratio_to_baseline(record: &Record, all: &[Record]) -> Option<f64> {
    let baseline = all.iter().find(|other| {
        other.allocator == BASELINE && other.input == record.input && other.codec == record.codec
    })?;
    let most = baseline.sizes.pool_bytes_peak;
    (most > 0).then(|| record.sizes.pool_bytes_peak as f64 / most as f64)
}

/// Returns a ratio with three decimals, or a dash.
fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

/// Returns `bytes` in the largest binary unit of which there is at least one.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// Returns `nanoseconds` in the largest unit up to seconds of which there is at least one.
fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", value / 1e6),
        _ => format!("{:.1} s", value / 1e9),
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
    fn sizes_and_times_carry_units() {
        assert_eq!([size(0), size(1023), size(1024)], ["0 B", "1023 B", "1.00 KiB"]);
        assert_eq!([size(3 << 20), size(5 << 30)], ["3.00 MiB", "5.00 GiB"]);
        assert_eq!([time(999), time(12_345)], ["999 ns", "12.3 us"]);
        assert_eq!([time(2_500_000), time(3_000_000_000)], ["2.5 ms", "3.0 s"]);
    }

    #[test]
    fn table_shows_the_ratio_to_zsmalloc() {
        let text = table(&three());
        let row = text.lines().find(|line| line.contains("zbud")).expect("a row of zbud");
        assert!(row.contains("16.00 KiB") && row.contains(" 2.000 "), "{text}");
        assert!(text.contains("p99.9"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("all")), "{text}");
    }

    #[test]
    fn ratio_without_zsmalloc_is_a_dash() {
        let text = table(&three()[..2]);
        let row = text.lines().find(|line| line.contains("zbud")).expect("a row of zbud");
        assert!(row.contains(" - "), "{text}");
    }

    #[test]
    fn several_inputs_are_added_up() {
        let records = [record("a", "zsmalloc", 4096), record("b", "zsmalloc", 4096)];
        let text = table(&records);
        let all = text.lines().find(|line| line.starts_with("all")).expect("a row of sums");
        assert!(all.contains(" 20 ") && all.contains("8.00 KiB"), "{text}");
    }

    #[test]
    fn columns_of_zeros_are_left_out() {
        let mut records = three();
        assert!(table(&records).contains("rejected"));
        records.iter_mut().for_each(|record| record.sizes.rejected = 0);
        assert!(!table(&records).contains("rejected"));
    }

    #[test]
    fn conclusion_names_the_smallest() {
        let kept = 8192 + 512 + 4096;
        let saved = size(40960 - kept);
        let expected = format!(
            "The best choice on this input is zsmalloc with lz4: it saves {saved} of 40.00 KiB \
             (68.8 %)."
        );
        assert_eq!(conclusion(&three()), expected);
        assert!(table(&three()).ends_with(&format!("{expected}\n")));
    }

    #[test]
    fn conclusion_admits_that_nothing_is_saved() {
        let text = conclusion(&[record("a", "zbud", 1 << 20)]);
        assert_eq!(text, "No choice saves memory on this input of 40.00 KiB.");
    }

    #[test]
    fn json_has_the_schema_and_plain_numbers() {
        let document: Value = serde_json::from_str(&json(&three())).expect("JSON");
        assert_eq!(document["schema"], SCHEMA);
        let first = &document["records"][0];
        assert_eq!(first["pool_bytes"], 16384);
        assert_eq!((&first["chain"], &first["chooser"]), (&Value::Null, &Value::Null));
        assert_eq!(first["store_ns"]["p50"], first["store_ns"]["max"]);
        assert_eq!(document["records"][2]["chain"], 8);
        assert_eq!(first.get("stores"), None);
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
    fn histograms_have_both_drawings() {
        let text = histograms(&three());
        assert_eq!(text.matches("@load_ns:\n[8K, 16K) ").count(), 3, "{text}");
        assert_eq!(text.matches("@store_ns:\n[8K, 16K) ").count(), 3);
        assert!(text.starts_with("*** zbud, lz4 ***\n"));
    }

    #[test]
    fn summary_columns_match_the_fields() {
        let mut one = record("a", "zbud", 4096);
        one.store_ns = Summary { p50: 1, p90: 2, p99: 3, p999: 4, max: 5, mean: 9 };
        one.load_ns = Summary { p50: 6, p90: 7, p99: 8, p999: 10, max: 11, mean: 9 };
        let cells: Vec<String> = LATENCY.iter().map(|(_, figure)| figure(&one, &[])).collect();
        let expected = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11].map(|ns| format!("{ns} ns"));
        assert_eq!(cells, expected);
    }
}
