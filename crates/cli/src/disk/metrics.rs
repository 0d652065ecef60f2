//! Metrics for Prometheus: its text format over the least of HTTP/1.1 that serves it.
//!
//! One request a connection, of at most 8 KiB; anything but `GET /metrics` is refused.

use std::fmt::Write as _;
use std::time::Duration;

use super::report::{DiskReport, Nbd, Report};
use crate::control::service::{Messages, Stream, Terms};
use crate::shared::far::FarReport;

/// Longest request in bytes, headers included.
const REQUEST_LEN_MAX: usize = 8 << 10;

/// What the metrics socket grants.
pub(crate) const TERMS: Terms = Terms { places: 8, patience: Duration::from_secs(5) };

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric of a device: its name, what it is, and where it is found.
type Metric = (&'static str, &'static str, fn(&DiskReport) -> u64);

/// Metrics that go up and down.
const GAUGES: &[Metric] = &[
    ("size_bytes", "Size of the device", |disk| disk.size_bytes),
    ("stored_bytes", "Bytes of the pages stored", |disk| disk.mm_stat.orig_data_size),
    ("compressed_bytes", "Compressed bytes of the pages in memory", |disk| {
        disk.mm_stat.compr_data_size
    }),
    ("memory_bytes", "All memory held", |disk| disk.mm_stat.mem_used_total),
    ("memory_limit_bytes", "Memory limit, 0 for none", |disk| disk.mm_stat.mem_limit),
    ("memory_max_bytes", "Most memory held so far", |disk| disk.mm_stat.mem_used_max),
    ("pool_bytes", "Bytes of the pool's pages", |disk| disk.zswap.pool_total_size),
    ("same_filled_pages", "Pages that repeat one word", |disk| disk.mm_stat.same_pages),
    ("incompressible_pages", "Pages stored uncompressed", |disk| disk.mm_stat.huge_pages),
    ("duplicate_pages", "Pages that share another one's bytes", |disk| disk.store.duplicate_pages),
    ("backed_pages", "Pages on the backing file", |disk| disk.bd_stat.bd_count),
    ("backing_bytes", "Size of the backing file", |disk| disk.store.backing_bytes),
    ("backing_used_bytes", "Bytes of it in use", |disk| disk.store.backing_used_bytes),
    ("far_absent", "1 while the far tier counts as unreachable", |disk| {
        far(disk, |far| far.absent.into())
    }),
    ("far_servers_away", "Servers that do not answer", |disk| {
        far(disk, |far| far.servers_away.len() as u64)
    }),
    ("far_copies_missing", "Copies that are gone and not made again", |disk| {
        far(disk, |far| far.copies_missing)
    }),
    ("far_object_bytes", "Bytes on other machines", |disk| far(disk, |far| far.object_bytes)),
    ("far_live_bytes", "Of these, bytes that are needed", |disk| far(disk, |far| far.live_bytes)),
    ("far_metadata_bytes", "Memory of their map", |disk| far(disk, |far| far.metadata_bytes)),
    ("far_near_bytes", "Bytes in the backing file first", |disk| far(disk, |far| far.near_bytes)),
    ("far_get_us_p50", "Microseconds of a fetch, half", |disk| far(disk, |far| far.get_us_p50)),
    ("far_get_us_p99", "Microseconds of a fetch, 99 %", |disk| far(disk, |far| far.get_us_p99)),
    ("far_put_us_p50", "Microseconds of a send, half", |disk| far(disk, |far| far.put_us_p50)),
    ("far_put_us_p99", "Microseconds of a send, 99 %", |disk| far(disk, |far| far.put_us_p99)),
];

/// Metrics that only grow.
const COUNTERS: &[Metric] = &[
    ("reads_total", "Read requests", |disk| disk.device.reads_total),
    ("read_bytes_total", "Bytes read", |disk| disk.device.read_bytes_total),
    ("writes_total", "Write requests", |disk| disk.device.writes_total),
    ("written_bytes_total", "Bytes written", |disk| disk.device.written_bytes_total),
    ("discards_total", "Discard requests", |disk| disk.device.discards_total),
    ("write_zeroes_total", "Write-zeroes requests", |disk| disk.device.write_zeroes_total),
    ("flushes_total", "Flush requests", |disk| disk.device.flushes_total),
    ("failed_reads_total", "Reads that failed", |disk| disk.io_stat.failed_reads),
    ("failed_writes_total", "Writes that failed", |disk| disk.io_stat.failed_writes),
    ("limit_hit_total", "Pages refused at the limit", |disk| disk.zswap.pool_limit_hit),
    ("alloc_fail_total", "Pages refused for lack of memory", |disk| disk.zswap.reject_alloc_fail),
    ("decompress_fail_total", "Pages that did not decode", |disk| disk.zswap.decompress_fail),
    ("compacted_pages_total", "Pages freed by compaction", |disk| disk.mm_stat.pages_compacted),
    ("recompressed_pages_total", "Pages compressed again", |disk| disk.store.recompressed_total),
    ("backing_reads_total", "Pages read from the backing file", |disk| disk.bd_stat.bd_reads),
    ("backing_writes_total", "Pages written to the backing file", |disk| disk.bd_stat.bd_writes),
    ("backing_failed_total", "Backing file reads and writes that failed", |disk| {
        disk.store.backing_failed_reads_total + disk.store.backing_failed_writes_total
    }),
    ("far_put_bytes_total", "Bytes sent", |disk| far(disk, |far| far.put_bytes_total)),
    ("far_got_bytes_total", "Bytes fetched", |disk| far(disk, |far| far.got_bytes_total)),
    ("far_moved_bytes_total", "Bytes sent because they were old", |disk| {
        far(disk, |far| far.moved_bytes_total)
    }),
    ("far_cleaned_bytes_total", "Bytes sent again to make room", |disk| {
        far(disk, |far| far.cleaned_bytes_total)
    }),
    ("far_retries_total", "Calls made again", |disk| far(disk, |far| far.retries_total)),
    ("far_copies_made_total", "Copies that were gone and made again", |disk| {
        far(disk, |far| far.copies_made_total)
    }),
    ("far_failures_total", "Calls that failed", |disk| far(disk, |far| far.failures_total)),
    ("far_absences_total", "Times that they were given up", |disk| {
        far(disk, |far| far.absences_total)
    }),
];

/// Returns a figure of the other machines, 0 for a device without any.
fn far(disk: &DiskReport, of: fn(&FarReport) -> u64) -> u64 {
    disk.far.as_deref().map_or(0, of)
}

/// A metric of the NBD server: its name, its kind, what it is, and where it is found.
type NbdMetric = (&'static str, &'static str, &'static str, fn(&Nbd) -> u64);

/// Metrics of the NBD server.
const NBD: &[NbdMetric] = &[
    ("nbd_open_connections", "gauge", "NBD connections", |nbd| nbd.connections),
    ("nbd_connections_total", "counter", "NBD connections so far", |nbd| nbd.connections_total),
    ("nbd_connections_refused_total", "counter", "NBD connections refused", |nbd| {
        nbd.refused_total
    }),
    ("nbd_failed_handshakes_total", "counter", "NBD handshakes that failed", |nbd| {
        nbd.failed_handshakes_total
    }),
    ("nbd_requests_total", "counter", "NBD requests", |nbd| nbd.requests_total),
    ("nbd_errors_total", "counter", "NBD requests answered with an error", |nbd| nbd.errors_total),
];

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
    let mut text = head("build_info", "gauge", "Version of the server");
    // Writing to a string does not fail.
    let _ = writeln!(text, "zfold_build_info{{version=\"{version}\"}} 1");
    for (kind, metrics) in [("gauge", GAUGES), ("counter", COUNTERS)] {
        for (name, help, value) in metrics {
            text += &head(name, kind, help);
            for disk in &report.disks {
                let label = escape(&disk.name);
                let _ = writeln!(text, "zfold_{name}{{disk=\"{label}\"}} {}", value(disk));
            }
        }
    }
    for (name, kind, help, value) in NBD {
        let value = value(&report.nbd);
        text += &head(name, kind, help);
        let _ = writeln!(text, "zfold_{name} {value}");
    }
    text
}

/// Returns what stands before the values of a metric.
fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP zfold_{name} {help}\n# TYPE zfold_{name} {kind}\n")
}

/// Returns a name as the value of a label.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
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
        // The name of a counter, for OpenMetrics, is what stands before `_total`.
        let names = GAUGES.iter().chain(COUNTERS).map(|metric| metric.0);
        let names = names.chain(NBD.iter().map(|metric| metric.0)).chain(["build_info"]);
        let mut names: Vec<_> = names.map(|name| name.trim_end_matches("_total")).collect();
        assert!(
            NBD.iter().all(|(name, kind, ..)| name.ends_with("_total") == (*kind == "counter"))
        );
        assert!(COUNTERS.iter().all(|metric| metric.0.ends_with("_total")));
        assert!(GAUGES.iter().all(|metric| !metric.0.ends_with("_total")));
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
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
