//! The control protocol: a request is a line of JSON, and so is its reply.
//!
//! ```text
//!   {"command": "set", "arguments": ["mem_limit=1GiB"]}
//!   {"ok": true, "result": {"mem_limit": 1073741824, ...}}
//!   {"ok": false, "error": "disk is read-only"}
//! ```
//!
//! `arguments` may be left out. A connection may send any number of requests, one after
//! the other. The socket's file decides who may connect: its owner only.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metrics;
use super::service::{Messages, Stream, Terms};

/// Longest request in bytes.
const REQUEST_LEN_MAX: usize = 64 << 10;

/// The bounds of the control socket.
pub(crate) const TERMS: Terms = Terms { places: 32, patience: Duration::from_secs(60) };

/// A request, as it is sent.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The command's name.
    pub(crate) command: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) arguments: Vec<String>,
}

/// A reply, as it is sent.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Reply {
    /// Whether the command was carried out.
    pub(crate) ok: bool,
    /// Its result.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) result: Value,
    /// Why it was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl From<Result<Value, String>> for Reply {
    fn from(result: Result<Value, String>) -> Self {
        match result {
            Ok(result) => Self { ok: true, result, error: None },
            Err(error) => Self { ok: false, result: Value::Null, error: Some(error) },
        }
    }
}

/// Carries out a request; returns what it found, and whether the server is to end.
type Execute<'a> = &'a dyn Fn(Request) -> Result<(Value, bool), String>;

/// Returns metrics, for clients that ask for them by HTTP.
type Metrics<'a> = &'a dyn Fn() -> String;

/// Answers a client until it leaves, takes too long or sends too much; returns whether the request
/// was to end the server; it has then been answered.
#[must_use]
pub(crate) fn answer(
    stream: &mut dyn Stream,
    execute: Execute<'_>,
    metrics: Option<Metrics<'_>>,
) -> bool {
    let mut requests = Messages::new(stream, b"\n", REQUEST_LEN_MAX, TERMS);
    loop {
        let (reply, end) = match (requests.next(), metrics) {
            (Ok(Some(line)), Some(metrics)) if line.starts_with(b"GET ") => {
                let _ = requests.answer(&metrics::reply(&line, metrics));
                return false;
            }
            (Ok(Some(line)), _) => respond(&line, execute),
            (Err(error), _) if error.kind() == std::io::ErrorKind::InvalidData => {
                let told = "the request is longer than 64 KiB: send less at a time".to_owned();
                let _ = requests.answer(&line_of(&Reply::from(Err(told))));
                return false;
            }
            _ => return false,
        };
        let answered = requests.answer(&line_of(&reply));
        if end || answered.is_err() {
            return end;
        }
    }
}

fn line_of(reply: &Reply) -> Vec<u8> {
    let mut line = serde_json::to_vec(reply).expect("a reply is JSON");
    line.push(b'\n');
    line
}

/// Returns the reply to a request, and whether the server is to end.
fn respond(line: &[u8], execute: Execute<'_>) -> (Reply, bool) {
    let parsed = serde_json::from_slice(line)
        .map_err(|error| format!("not a request: {error} (see docs/use/disk.md)"));
    match parsed.and_then(execute) {
        Ok((result, end)) => (Reply::from(Ok(result)), end),
        Err(told) => (Reply::from(Err(told)), false),
    }
}
