//! Metrics for Prometheus: its text format over the least of HTTP/1.1 that serves it.
//!
//! One request a connection, of at most 8 KiB; anything but `GET /metrics` is refused.

use std::fmt::Write as _;
use std::time::Duration;

use zfold_figures::{Doc, Figures, Kind};

use super::service::{Messages, Stream, Terms};

/// Longest request in bytes, headers included.
const REQUEST_LEN_MAX: usize = 8 << 10;

/// The bounds of the metrics socket.
pub(crate) const TERMS: Terms = Terms { places: 8, patience: Duration::from_secs(5) };

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers a client's request.
pub(crate) fn answer(stream: &mut dyn Stream, text: &dyn Fn() -> String) {
    let mut requests = Messages::new(stream, b"\r\n\r\n", REQUEST_LEN_MAX, TERMS);
    let reply = match requests.next() {
        Ok(Some(request)) => reply(&request, text),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            response("431 Request Header Fields Too Large", "at most 8 KiB\n")
        }
        _ => return,
    };
    // A client that has left misses nothing that could be said elsewhere.
    let _ = requests.answer(&reply);
}

/// Returns the reply to a request that begins with this line.
pub(super) fn reply(request: &[u8], text: &dyn Fn() -> String) -> Vec<u8> {
    match wants_metrics(request) {
        Ok(()) => response("200 OK", &text()),
        Err(status) => response(status, "only GET /metrics is served\n"),
    }
}

fn response(status: &str, body: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    (head + body).into_bytes()
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

/// Metrics as text.
pub(crate) struct Text(String);

impl Text {
    /// Returns the metrics of a server of a version: that one.
    pub(crate) fn new(version: &str) -> Self {
        let mut text = Self(String::new());
        let version = escape(version);
        text.begin("build_info", Kind::Gauge, "Version of the server");
        // Writing to a string does not fail.
        let _ = writeln!(text.0, "zfold_build_info{{version=\"{version}\"}} 1");
        text
    }

    /// Begins the values of a metric.
    pub(crate) fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let (first, rest) = help.split_at(help.len().min(1));
        let (help, kind) = (first.to_uppercase() + rest, kind.name());
        // Same as above.
        let _ = write!(self.0, "# HELP zfold_{name} {help}\n# TYPE zfold_{name} {kind}\n");
    }

    /// Adds a value of a metric.
    pub(crate) fn value(&mut self, name: &str, value: u64) {
        // Same as above.
        let _ = writeln!(self.0, "zfold_{name} {value}");
    }

    /// Adds a value of a metric for something of a name.
    pub(crate) fn value_of(&mut self, name: &str, (label, of): (&str, &str), value: u64) {
        // Same as above.
        let _ = writeln!(self.0, "zfold_{name}{{{label}=\"{}\"}} {value}", escape(of));
    }

    /// Adds the figures that are metrics.
    pub(crate) fn figures<F: Figures>(&mut self, of: &F) {
        for figure in F::ALL {
            let Some(name) = figure.metric() else { continue };
            self.begin(name, figure.kind, figure.meaning);
            self.value(name, (figure.of)(of));
        }
    }

    /// Adds the same of something of a name.
    pub(crate) fn figures_of<F: Figures>(&mut self, label: (&str, &str), of: &F) {
        for figure in F::ALL {
            let Some(name) = figure.metric() else { continue };
            self.begin(name, figure.kind, figure.meaning);
            self.value_of(name, label, (figure.of)(of));
        }
    }

    /// Adds the figures that a run's state has, as those of the run with this number.
    pub(crate) fn of_run<F: Figures>(&mut self, pid: &str, of: &F) {
        for figure in F::ALL {
            let Some(field) = figure.field(Doc::State) else { continue };
            let name = format!("run_{}", field.name);
            self.begin(&name, figure.kind, figure.meaning);
            self.value_of(&name, ("pid", pid), (figure.of)(of));
        }
    }

    /// Returns the text.
    pub(crate) fn end(self) -> String {
        self.0
    }
}

/// Returns a name as the value of a label.
fn escape(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the names of a text's metrics. No two may be the same, and those of counters, and no
    /// others, end in `_total`.
    pub(crate) fn names(text: &str) -> Vec<&str> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE zfold_"));
        let types: Vec<_> = types.map(|line| line.split_once(' ').expect("two words")).collect();
        for (name, kind) in &types {
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
        }
        // For OpenMetrics, the name of a counter is without `_total`.
        let stems = types.iter().map(|(name, _)| name.trim_end_matches("_total"));
        assert_eq!(stems.collect::<BTreeSet<_>>().len(), types.len());
        types.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn figures_of_a_run_are_distinct_have_its_number_and_counters_end_in_total() {
        let mut text = Text::new("1");
        text.of_run("7", &zfold_run::Figures { faults_total: 3, ..Default::default() });
        text.of_run("7", &zfold_run::Touched::default());
        let text = text.end();
        for name in names(&text).into_iter().filter(|name| *name != "build_info") {
            assert!(text.contains(&format!("\nzfold_{name}{{pid=\"7\"}} ")), "{name}: {text}");
        }
        assert!(text.contains("\nzfold_run_faults_total{pid=\"7\"} 3\n"), "{text}");
        assert!(text.contains("\nzfold_run_touched_1min_bytes{pid=\"7\"} 0\n"), "{text}");
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
