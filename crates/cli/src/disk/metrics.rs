//! Metrics for Prometheus: its text format over the least of HTTP/1.1 that serves it.
//!
//! One request a connection, of at most 8 KiB; anything but `GET /metrics` is refused.

use std::fmt::Write as _;
use std::time::Duration;

use zfold_disk::nbd::NbdStats;
use zfold_figures::{Figure, Figures, Kind};

use super::report::{DiskReport, Report};
use crate::control::service::{Messages, Stream, Terms};
use crate::shared::far::FarReport;

/// Longest request in bytes, headers included.
const REQUEST_LEN_MAX: usize = 8 << 10;

/// What the metrics socket grants.
pub(crate) const TERMS: Terms = Terms { places: 8, patience: Duration::from_secs(5) };

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric of a device: its name, its kind, what it is, and where it is found.
struct Metric {
    name: &'static str,
    kind: Kind,
    help: String,
    of: Box<dyn Fn(&DiskReport) -> u64>,
}

/// Returns the metrics of the devices, as their figures are declared.
fn metrics() -> Vec<Metric> {
    let mut metrics = of_figures(|disk| Some(&disk.held));
    metrics.extend(of_figures(|disk| Some(&disk.served)));
    metrics.extend(of_far());
    metrics.extend(of_figures(|disk| disk.far.as_deref().map(|far| &far.stats)));
    metrics
}

/// Returns the metrics of declared figures, which are found there; 0 where there are none.
fn of_figures<F: Figures>(found: fn(&DiskReport) -> Option<&F>) -> Vec<Metric> {
    let metric = |figure: &'static Figure<F>| {
        let of = move |disk: &DiskReport| found(disk).map_or(0, figure.of);
        let (name, help) = (figure.metric()?, help(figure.meaning));
        Some(Metric { name, kind: figure.kind, help, of: Box::new(of) })
    };
    F::ALL.iter().filter_map(metric).collect()
}

/// Returns a meaning with a capital letter.
fn help(meaning: &str) -> String {
    let (first, rest) = meaning.split_at(meaning.len().min(1));
    first.to_uppercase() + rest
}

/// Returns the metrics of other machines that are no figures; 0 for a device without any.
fn of_far() -> [Metric; 2] {
    let metric = |name, help: &str, of: fn(&FarReport) -> u64| Metric {
        name,
        kind: Kind::Gauge,
        help: help.to_owned(),
        of: Box::new(move |disk: &DiskReport| disk.far.as_deref().map_or(0, of)),
    };
    [
        metric("far_absent", "1 while the far tier counts as unreachable", |far| far.absent.into()),
        metric("far_servers_away", "Servers that do not answer", |far| {
            far.servers_away.len() as u64
        }),
    ]
}

/// Answers a client's request.
pub(crate) fn answer(stream: &mut dyn Stream, report: &dyn Fn() -> Report) {
    let mut requests = Messages::new(stream, b"\r\n\r\n", REQUEST_LEN_MAX, TERMS);
    let (status, body) = match requests.next() {
        Ok(Some(request)) => match wants_metrics(&request) {
            Ok(()) => ("200 OK", text(&report())),
            Err(status) => (status, "only GET /metrics is served\n".to_owned()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            ("431 Request Header Fields Too Large", "at most 8 KiB\n".to_owned())
        }
        _ => return,
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    // A client that has left misses nothing that could be said elsewhere.
    let _ = requests.answer((head + &body).as_bytes());
}

/// Checks the first line of a request; the status if it is another one.
fn wants_metrics(request: &[u8]) -> Result<(), &'static str> {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    match words[..] {
        [b"GET", b"/metrics", b"HTTP/1.1" | b"HTTP/1.0"] => Ok(()),
        [b"GET", _, b"HTTP/1.1" | b"HTTP/1.0"] => Err("404 Not Found"),
        [_, _, b"HTTP/1.1" | b"HTTP/1.0"] => Err("405 Method Not Allowed"),
        _ => Err("400 Bad Request"),
    }
}

/// Returns the metrics of all devices as text.
fn text(report: &Report) -> String {
    let version = escape(&report.version);
    let mut text = head("build_info", Kind::Gauge, "Version of the server");
    // Writing to a string does not fail.
    let _ = writeln!(text, "zfold_build_info{{version=\"{version}\"}} 1");
    for metric in metrics() {
        text += &head(metric.name, metric.kind, &metric.help);
        for disk in &report.disks {
            let (name, label, value) = (metric.name, escape(&disk.name), (metric.of)(disk));
            let _ = writeln!(text, "zfold_{name}{{disk=\"{label}\"}} {value}");
        }
    }
    for figure in NbdStats::ALL {
        let Some(name) = figure.metric() else { continue };
        text += &head(name, figure.kind, &help(figure.meaning));
        let _ = writeln!(text, "zfold_{name} {}", (figure.of)(&report.nbd));
    }
    text
}

/// Returns what stands before the values of a metric.
fn head(name: &str, kind: Kind, help: &str) -> String {
    format!("# HELP zfold_{name} {help}\n# TYPE zfold_{name} {}\n", kind.name())
}

/// Returns a name as the value of a label.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_a_get_of_the_metrics_is_served() {
        let status = |line: &str| wants_metrics(format!("{line}\r\n\r\n").as_bytes());
        assert_eq!(status("GET /metrics HTTP/1.1"), Ok(()));
        assert_eq!(status("GET / HTTP/1.1"), Err("404 Not Found"));
        assert_eq!(status("POST /metrics HTTP/1.1"), Err("405 Method Not Allowed"));
        for wrong in ["", "GET", "GET /metrics", "GET /metrics HTTP/2", "\0 \0 \0"] {
            assert_eq!(status(wrong), Err("400 Bad Request"), "{wrong}");
        }
    }

    #[test]
    fn names_are_distinct_and_counters_end_in_total() {
        let of_nbd = |figure: &Figure<NbdStats>| Some((figure.metric()?, figure.kind));
        let mut all: Vec<_> = metrics().iter().map(|metric| (metric.name, metric.kind)).collect();
        all.extend(NbdStats::ALL.iter().filter_map(of_nbd));
        all.push(("build_info", Kind::Gauge));
        for (name, kind) in &all {
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        }
        // The name of a counter, for OpenMetrics, is what stands before `_total`.
        let names = all.iter().map(|(name, _)| name.trim_end_matches("_total"));
        assert_eq!(names.collect::<BTreeSet<_>>().len(), all.len());
    }

    /// Whatever the name, it is a value between quotes, in one line.
    #[test]
    fn names_stay_within_their_quotes_and_their_line() {
        assert_eq!(escape(r#"a"\b"#), r#"a\"\\b"#);
        assert_eq!(escape("a\"} 1\nzfold_x 2"), r#"a\"} 1\nzfold_x 2"#);
        for name in ["", "\\", "\"", "\n", "\\\n\"", "\r\0\u{7f}\u{85}\u{2028}", "\u{fffd}é"] {
            let escaped = escape(name);
            let (mut read, mut chars) = (String::new(), escaped.chars());
            while let Some(c) = chars.next() {
                assert!(c != '"' && c != '\n', "{escaped}");
                read.push(match c {
                    '\\' => match chars.next().expect("what a backslash stands before") {
                        'n' => '\n',
                        c => c,
                    },
                    c => c,
                });
            }
            assert_eq!(read, name);
        }
    }
}
