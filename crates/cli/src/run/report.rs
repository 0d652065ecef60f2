//! What a run did, as a table or a document, `zfold.run/1`.

use std::fmt::Write as _;

use serde_json::{Value, json};
use zfold_far::TABLE as OF_FAR;
use zfold_figures::{Doc, Quantiles};
use zfold_run::figures::table::{FAULTS, MEMORY, TOUCHED, WORK};
use zfold_run::{GroupLimit, Report, Unmanaged};
use zfold_store::pressure::OwnStalls;

use super::end::End;
use super::plan::RunPlan;
use crate::args::ReportFormat;
use crate::shared::clean::clean;
use crate::shared::exit::{self, Failure, Form};
use crate::shared::far::FarReport;
use crate::shared::figures::{self, Known, in_report};
use crate::shared::file::NewFile;
use crate::shared::table::{Row, count, size, table, time};

/// The reported figures.
pub(super) struct Summary<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) end: End,
    pub(super) report: &'a Report,
    /// What has chosen the limit again and again (`--limit auto`).
    pub(super) auto: Option<&'a GroupLimit>,
    /// The other machines, if pages go there.
    pub(super) far: Option<&'a FarReport>,
}

/// Writes a report to `file`, or to the standard error.
///
/// # Errors
/// It cannot be written to the file.
pub(super) fn write(
    text: &str,
    format: ReportFormat,
    file: Option<&NewFile>,
) -> Result<(), Failure> {
    let form = match format {
        ReportFormat::Text => Form::Text,
        ReportFormat::Json => Form::Data,
    };
    match file {
        Some(file) => file.write(text),
        None => {
            exit::report(form, text);
            Ok(())
        }
    }
}

/// Returns the report of a run.
pub(super) fn text(summary: &Summary<'_>, format: ReportFormat) -> String {
    match format {
        ReportFormat::Text => tables(summary),
        ReportFormat::Json => format!("{}\n", json(summary)),
    }
}

fn json(summary: &Summary<'_>) -> Value {
    let Summary { plan, end, report, auto, far } = summary;
    let Quantiles { p50, p90, p99, p999, max, .. } = report.fault_quantiles;
    let unmanaged = report.unmanaged.iter().map(|Unmanaged { pid, program, reason }| {
        json!({ "pid": pid, "program": program, "reason": reason })
    });
    let estimate = estimate(summary).map(|estimate| {
        json!({
            "returned_pages_at_percent": estimate.returns,
            "enough_limit_bytes": estimate.enough_bytes,
        })
    });
    let limit_auto = auto.map(|group| {
        let (least, most) = group.range();
        json!({
            "left_at_start_bytes": group.left_at_start(),
            "least_limit_bytes": least,
            "most_limit_bytes": most,
            "steered_by": steered_by(),
        })
    });
    let mut document = in_report(&report.figures);
    document["schema"] = "zfold.run/1".into();
    document["program"] = plan.program().to_string_lossy().into();
    document["exit"] = json!(end);
    document["wall_ns"] = nanoseconds(report).into();
    document["limit_auto"] = json!(limit_auto);
    document["estimate"] = json!(estimate);
    if let Some(touched) = report.touched {
        document["touched"] = json!(Known(touched));
    }
    if let Some(far) = far {
        document["far"] = json!(far);
    }
    document["unmanaged"] = unmanaged.collect();
    document["fault_ns"] = json!({ "p50": p50, "p90": p90, "p99": p99, "p999": p999, "max": max });
    document["fault_histogram_ns"] = json!(report.fault_latency);
    document
}

fn nanoseconds(report: &Report) -> u64 {
    u64::try_from(report.wall.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns what has chosen a limit besides the memory left.
fn steered_by() -> &'static str {
    OwnStalls::new().map_or("files read again", |stalls| stalls.source())
}

/// Returns what other limits would have done. Distances are shares of a limit, which must have been
/// the same throughout.
fn estimate<'a>(summary: &Summary<'a>) -> Option<&'a zfold_run::Estimate> {
    summary.auto.is_none().then_some(&summary.report.estimate)
}

fn tables(summary: &Summary<'_>) -> String {
    let Summary { plan, end, report, auto, far } = summary;
    let mut text = String::new();
    // Writing to a string does not fail.
    let program = clean(&plan.program().display().to_string());
    let _ = writeln!(text, "zfold: {program} ended with {end}\n");
    table(&mut text, MEMORY, &memory(report));
    if let Some(group) = auto {
        table(&mut text, "limit, chosen", &chosen(group));
        let _ = writeln!(text, "  by {}\n", clean(steered_by()));
    }
    table(&mut text, FAULTS, &rows(report, FAULTS));
    latency(&mut text, report);
    table(&mut text, WORK, &work(report));
    if let Some(touched) = &report.touched {
        table(&mut text, TOUCHED, &figures::all_of(TOUCHED, Doc::Report, touched));
    }
    if let Some(far) = far {
        table(&mut text, OF_FAR, &far.rows(figures::all_of(OF_FAR, Doc::State, &far.stats)));
    }
    unmanaged(&mut text, report);
    enough(&mut text, summary);
    text
}

/// Returns the figures of a table.
fn rows(report: &Report, title: &str) -> Vec<Row> {
    figures::all_of(title, Doc::Report, &report.figures)
}

fn memory(report: &Report) -> Vec<Row> {
    let pages_bytes = report.figures.peak_stored_pages * zfold_run::page_size().bytes() as u64;
    let ratio = match report.figures.peak_stored_bytes {
        _ if pages_bytes == 0 => "-".to_owned(),
        0 => "-".to_owned(),
        bytes => format!("{:.2}", pages_bytes as f64 / bytes as f64),
    };
    let mut rows = rows(report, MEMORY);
    let at = rows.iter().position(|row| row.0 == "peak_stored").unwrap_or(rows.len());
    rows.insert(at, ("  as pages", size(pages_bytes), ""));
    rows.push(("ratio", ratio, "as pages / peak_stored"));
    rows
}

fn chosen(group: &GroupLimit) -> Vec<Row> {
    let (least, most) = group.range();
    vec![
        ("left at the start", size(group.left_at_start()), "below the cgroup's limit, or here"),
        ("least limit", size(least), "as compressed pages took more"),
        ("most", size(most), ""),
    ]
}

fn work(report: &Report) -> Vec<Row> {
    let mut rows = rows(report, WORK);
    rows.push(("wall", format!("{:.3} s  ", report.wall.as_secs_f64()), ""));
    rows
}

/// Appends which limit would have been enough: as was seen, or as loads tell if a higher one would
/// have made a difference.
fn enough(text: &mut String, summary: &Summary<'_>) {
    const FEW: u64 = 1000;
    let limit =
        |bytes: u64| format!("`--limit {}MiB` would have been enough", bytes.div_ceil(1 << 20));
    let report = summary.report;
    if let Some(touched) = report.touched {
        let most = touched.peak_touched_1min_bytes.div_ceil(1 << 20);
        let enough = limit(touched.enough_limit_bytes);
        let _ = writeln!(text, "this program used at most {most} MiB in any minute: {enough}");
        return;
    }
    let estimated = estimate(summary).and_then(|estimate| estimate.enough_bytes);
    let loads = report.figures.loads_total + report.figures.refaults_total;
    if let Some(bytes) = estimated.filter(|_| loads > FEW) {
        let _ = writeln!(text, "as its loads tell, an estimate: {}", limit(bytes));
    }
}

/// Appends the processes that could not be managed.
fn unmanaged(text: &mut String, report: &Report) {
    if report.unmanaged.is_empty() {
        return;
    }
    let _ = writeln!(text, "not managed");
    for Unmanaged { pid, program, reason } in &report.unmanaged {
        let (program, reason) = (clean(program), clean(reason));
        let _ = writeln!(text, "  {program} ({pid}): {reason}");
    }
    let all = report.figures.unmanaged_total;
    let more = all.saturating_sub(report.unmanaged.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  and {} more", count(more));
    }
    let _ = writeln!(text);
}

/// Appends the quantiles of the latency of faults.
fn latency(text: &mut String, report: &Report) {
    if report.figures.faults_total == 0 {
        return;
    }
    let Quantiles { p50, p90, p99, p999, max, .. } = report.fault_quantiles;
    let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(time);
    let [p50, p90, p99, p999, max] = [&p50, &p90, &p99, &p999, &max].map(|time| time.trim());
    let _ = writeln!(
        text,
        "latency of faults\n  p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}\n"
    );
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;
    use zfold_run::Figures;

    use super::*;
    use crate::args::{Args, Command};

    fn plan() -> RunPlan {
        let args = Args::parse_from(["zfold", "run", "--limit", "64MiB", "--", "sim", "x"]);
        let Command::Run(args) = args.command else { panic!("a run") };
        RunPlan::new(&args).expect("valid")
    }

    fn report() -> Report {
        let mut report = Report::default();
        report.wall = Duration::from_millis(1500);
        report.figures = Figures {
            limit_bytes: 64 << 20,
            peak_resident_bytes: 60 << 20,
            peak_stored_bytes: 10 << 20,
            peak_stored_pages: 10_240,
            faults_total: 1_234,
            loads_total: 1_001,
            unmanaged_total: 3,
            ..Figures::default()
        };
        report.estimate.enough_bytes = Some((300 << 20) + 1);
        report.fault_latency = vec![(3_000, 2), (9_000, 20), (10_000, 20)];
        let (p50, p90) = (9_000, 10_000);
        report.fault_quantiles = Quantiles { p50, p90, ..Quantiles::default() };
        let reason = "it is a 32-bit program".to_owned();
        report.unmanaged = vec![Unmanaged { pid: 7, program: "old\x1b[31m\n".to_owned(), reason }];
        report
    }

    #[test]
    fn a_report_is_a_table_or_a_document() {
        let (plan, report) = (plan(), report());
        let (end, auto, far) = (End::Signal(15), None, None);
        let summary = Summary { plan: &plan, end, report: &report, auto, far };
        let table = text(&summary, ReportFormat::Text);
        for part in [
            "zfold: sim ended with SIGTERM\n",
            "64.00 MiB",
            "ratio                         4.00",
            "p50 9.00 us, p90 10.0 us",
            "1.500 s",
            "not managed\n  old\\u{1b}[31m\\n (7): it is a 32-bit program\n  and 2",
            "as its loads tell, an estimate: `--limit 301MiB` would have been enough\n",
        ] {
            assert!(table.contains(part), "no {part:?} in:\n{table}");
        }
        assert!(table.lines().all(|line| line.len() <= 100), "{table}");
        let document = text(&summary, ReportFormat::Json);
        let document: Value = serde_json::from_str(&document).expect("JSON");
        assert_eq!(document["unmanaged"][0]["program"], "old\x1b[31m\n");
        assert_eq!(
            (&document["unmanaged_total"], &document["exit"]["signal"]),
            (&3.into(), &15.into())
        );
        assert_eq!(document["estimate"]["enough_limit_bytes"], (300 << 20) + 1);
    }
}
