//! What a run did, as a table or a document.

use std::fmt::Write as _;

use zfold_far::TABLE as OF_FAR;
use zfold_figures::Doc;
use zfold_run::figures::table::{FAULTS, MEMORY, TOUCHED, WORK};

use super::plan::RunPlan;
use super::record::{Auto, Baseline, Document, End, Quantiles, Record, SCHEMA, Unmanaged};
use crate::args::ReportFormat;
use crate::shared::clean::clean;
use crate::shared::exit::{self, Failure, Form};
use crate::shared::figures;
use crate::shared::file::NewFile;
use crate::shared::table::{Row, count, size, table, time};

/// Length of the longest bar.
const BAR: u64 = 40;

/// The reported figures.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) end: End,
    pub(super) record: &'a Record,
    pub(super) baseline: Option<Baseline>,
}

/// Writes the report to `file`, or to the standard error.
///
/// # Errors
/// It cannot be written to the file.
pub(super) fn write(
    summary: &Summary<'_>,
    format: ReportFormat,
    file: Option<&NewFile>,
) -> Result<(), Failure> {
    let (form, text) = match format {
        ReportFormat::Text => (Form::Text, text(summary)),
        ReportFormat::Json => (Form::Data, json(summary)),
    };
    match file {
        Some(file) => file.write(&text),
        None => {
            exit::report(form, &text);
            Ok(())
        }
    }
}

fn json(summary: &Summary<'_>) -> String {
    let document = Document {
        schema: SCHEMA,
        program: summary.plan.program().to_string_lossy().into_owned(),
        exit: summary.end,
        record: summary.record,
        baseline: summary.baseline,
    };
    let json = serde_json::to_string(&document).expect("names are text, numbers are finite");
    format!("{json}\n")
}

fn text(summary: &Summary<'_>) -> String {
    let Summary { plan, end, record, baseline } = summary;
    let mut text = String::new();
    // Writing to a string does not fail.
    let program = clean(&plan.program().display().to_string());
    let _ = writeln!(text, "zfold: {program} ended with {end}\n");
    table(&mut text, MEMORY, &memory(record));
    if let Some(auto) = &record.limit_auto {
        table(&mut text, "limit, chosen", &chosen(auto));
        let _ = writeln!(text, "  by {}\n", clean(&auto.steered_by));
    }
    table(&mut text, FAULTS, &rows(record, FAULTS));
    latency(&mut text, record);
    table(&mut text, WORK, &work(record));
    if let Some(touched) = &record.touched {
        table(&mut text, TOUCHED, &figures::all_of(TOUCHED, Doc::Report, &touched.0));
    }
    if let Some(far) = &record.far {
        table(&mut text, OF_FAR, &far.rows(figures::all_of(OF_FAR, Doc::State, &far.stats)));
    }
    unmanaged(&mut text, record);
    if let Some(baseline) = baseline {
        table(&mut text, "without a limit", &beside(record, baseline));
        if baseline.exit != *end {
            let _ = writeln!(text, "the two runs ended differently: {} without", baseline.exit);
        }
    }
    enough(&mut text, record);
    text
}

/// Returns the figures of a table.
fn rows(record: &Record, title: &str) -> Vec<Row> {
    figures::all_of(title, Doc::Report, &record.figures)
}

fn memory(record: &Record) -> Vec<Row> {
    let pages_bytes = record.figures.peak_stored_pages * zfold_run::page_size().bytes() as u64;
    let ratio = match record.figures.peak_stored_bytes {
        _ if pages_bytes == 0 => "-".to_owned(),
        0 => "-".to_owned(),
        bytes => format!("{:.2}", pages_bytes as f64 / bytes as f64),
    };
    let mut rows = rows(record, MEMORY);
    let at = rows.iter().position(|row| row.0 == "peak_stored").unwrap_or(rows.len());
    rows.insert(at, ("  as pages", size(pages_bytes), ""));
    rows.push(("ratio", ratio, "as pages / peak_stored"));
    rows
}

fn chosen(auto: &Auto) -> Vec<Row> {
    vec![
        ("left at the start", size(auto.left_at_start_bytes), "below the cgroup's limit, or here"),
        ("least limit", size(auto.least_limit_bytes), "as compressed pages took more"),
        ("most", size(auto.most_limit_bytes), ""),
    ]
}

fn work(record: &Record) -> Vec<Row> {
    let mut rows = rows(record, WORK);
    rows.push(("wall", seconds(record.wall_ns), ""));
    rows
}

fn beside(record: &Record, baseline: &Baseline) -> Vec<Row> {
    let ratio = |with: u64, without: u64| match without {
        0 => "-".to_owned(),
        _ => format!("{:.2}", with as f64 / without as f64),
    };
    let (of, resident) = (&record.figures, baseline.peak_resident_bytes);
    vec![
        ("wall", seconds(baseline.wall_ns), ""),
        ("wall ratio", ratio(record.wall_ns, baseline.wall_ns), "with / without"),
        ("peak_resident", size(resident), "the most seen resident"),
        (
            "resident ratio",
            ratio(of.peak_resident_bytes, resident),
            "with / without, compressed pages not counted",
        ),
        (
            "memory ratio",
            ratio(of.peak_resident_bytes + of.peak_stored_bytes, resident),
            "with / without, compressed pages counted",
        ),
    ]
}

/// Appends which limit would have been enough: as was seen, or as loads tell if a higher one would
/// have made a difference.
fn enough(text: &mut String, record: &Record) {
    const FEW: u64 = 1000;
    let limit =
        |bytes: u64| format!("`--limit {}MiB` would have been enough", bytes.div_ceil(1 << 20));
    if let Some(touched) = &record.touched {
        let most = touched.0.peak_touched_1min_bytes.div_ceil(1 << 20);
        let enough = limit(touched.0.enough_limit_bytes);
        let _ = writeln!(text, "this program used at most {most} MiB in any minute: {enough}");
        return;
    }
    let estimated = record.estimate.as_ref().and_then(|estimate| estimate.enough_limit_bytes);
    let loads = record.figures.loads_total + record.figures.refaults_total;
    if let Some(bytes) = estimated.filter(|_| loads > FEW) {
        let _ = writeln!(text, "as its loads tell, an estimate: {}", limit(bytes));
    }
}

/// Appends the processes that could not be managed.
fn unmanaged(text: &mut String, record: &Record) {
    if record.unmanaged.is_empty() {
        return;
    }
    let _ = writeln!(text, "not managed");
    for Unmanaged { pid, program, reason } in &record.unmanaged {
        let (program, reason) = (clean(program), clean(reason));
        let _ = writeln!(text, "  {program} ({pid}): {reason}");
    }
    let all = record.figures.unmanaged_total;
    let more = all.saturating_sub(record.unmanaged.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  and {} more", count(more));
    }
    let _ = writeln!(text);
}

/// Appends the latency of faults, by powers of two, and its quantiles.
fn latency(text: &mut String, record: &Record) {
    if record.figures.faults_total == 0 {
        return;
    }
    let bars = powers(&record.fault_histogram_ns);
    let most = bars.iter().map(|bar| bar.1).max().unwrap_or(1).max(1);
    let _ = writeln!(text, "latency of faults");
    for (from, faults) in bars {
        let length = (faults * BAR).div_ceil(most) as usize;
        let line = format!(
            "  {:>9} to {:>9} {:>11}  {}",
            time(from),
            time(from * 2),
            count(faults),
            "#".repeat(length)
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let Quantiles { p50, p90, p99, p999, max } = record.fault_ns;
    let _ = writeln!(
        text,
        "  p50 {}, p90 {}, p99 {}, p99.9 {}, max {}\n",
        time(p50).trim(),
        time(p90).trim(),
        time(p99).trim(),
        time(p999).trim(),
        time(max).trim()
    );
}

/// Returns the faults from each power of two, in nanoseconds, up to the next, without gaps.
fn powers(histogram: &[(u64, u64)]) -> Vec<(u64, u64)> {
    // A bound is the first time beyond its bucket.
    let power = |bound: u64| bound.saturating_sub(1).max(1).ilog2().min(62);
    let filled = || histogram.iter().filter(|(_, faults)| *faults > 0);
    let first = filled().map(|(bound, _)| power(*bound)).min().unwrap_or(0);
    let last = filled().map(|(bound, _)| power(*bound)).max().unwrap_or(0);
    let mut bars: Vec<_> = (first..=last).map(|power| (1 << power, 0)).collect();
    for (bound, faults) in filled() {
        let index = (power(*bound) - first) as usize;
        bars[index].1 += faults;
    }
    bars
}

fn seconds(nanoseconds: u64) -> String {
    format!("{:.3} s  ", nanoseconds as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use zfold_run::Figures;

    use super::*;
    use crate::args::{Args, Command};
    use crate::run::record::Estimate;

    fn plan() -> RunPlan {
        let args = Args::parse_from(["zfold", "run", "--limit", "64MiB", "--", "sim", "x"]);
        let Command::Run(args) = args.command else { panic!("a run") };
        RunPlan::new(&args).expect("valid")
    }

    fn record() -> Record {
        let figures = Figures {
            limit_bytes: 64 << 20,
            peak_resident_bytes: 60 << 20,
            peak_stored_bytes: 10 << 20,
            peak_stored_pages: 10_240,
            faults_total: 1_234,
            loads_total: 1_001,
            ..Figures::default()
        };
        let enough_limit_bytes = Some((300 << 20) + 1);
        Record {
            estimate: Some(Estimate { enough_limit_bytes, ..Estimate::default() }),
            wall_ns: 1_500_000_000,
            figures,
            fault_histogram_ns: vec![(3_000, 2), (9_000, 20), (10_000, 20)],
            fault_ns: Quantiles { p50: 9_000, p90: 10_000, p99: 10_000, p999: 10_000, max: 10_100 },
            ..Record::default()
        }
    }

    #[test]
    fn table_has_units_bars_and_quantiles() {
        let (plan, record) = (plan(), record());
        let baseline =
            Baseline { exit: End::Code(0), wall_ns: 1_000_000_000, peak_resident_bytes: 100 << 20 };
        let summary = Summary {
            plan: &plan,
            end: End::Signal(15),
            record: &record,
            baseline: Some(baseline),
        };
        let text = text(&summary);
        for part in [
            "zfold: sim ended with SIGTERM\n",
            "64.00 MiB",
            "ratio                         4.00",
            "    2.05 us to   4.10 us           2  ##\n",
            "    4.10 us to   8.19 us           0\n",
            &format!("    8.19 us to   16.4 us          40  {}\n", "#".repeat(40)),
            "p50 9.00 us, p90 10.0 us",
            "1.500 s",
            "wall ratio ",
            "1.50",
            "0.70",
            "the two runs ended differently: status 0 without\n",
            "as its loads tell, an estimate: `--limit 301MiB` would have been enough\n",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn what_was_not_managed_is_listed() {
        let reason = "it is a 32-bit program".to_owned();
        let process = Unmanaged { pid: 7, program: "old\x1b[31m\n".to_owned(), reason };
        let mut record = Record { unmanaged: vec![process], ..record() };
        record.figures.unmanaged_total = 3;
        let plan = plan();
        let summary = Summary { plan: &plan, end: End::Code(0), record: &record, baseline: None };
        let text = text(&summary);
        assert!(
            text.contains("not managed\n  old\\u{1b}[31m\\n (7): it is a 32-bit program\n  and 2")
        );
        let document: serde_json::Value = serde_json::from_str(&json(&summary)).expect("JSON");
        assert_eq!(document["unmanaged"][0]["program"], "old\x1b[31m\n");
        assert_eq!(document["unmanaged_total"], 3);
    }

    #[test]
    fn a_bound_is_not_in_its_bucket() {
        assert_eq!(powers(&[(2048, 3), (4096, 0), (8192, 1)]), [(1024, 3), (2048, 0), (4096, 1)]);
        assert_eq!(powers(&[(u64::MAX, 1)]), [(1 << 62, 1)]);
    }
}
