//! The demo's measurements, as a table and a document.

use std::fmt::Write as _;

use serde::Serialize;

use super::watch::Measured;
use crate::check::need::Need;
use crate::shared::size::Size;
use crate::shared::table::{size, time};

/// Name of the form of the JSON document.
pub(super) const SCHEMA: &str = "zfold.demo/1";

/// How the program is kept within its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// By a run, of which the program knows nothing.
    Run,
    /// By a region, in which it has its data.
    Region,
}

/// The document.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    pub(super) schema: &'static str,
    pub(super) way: Way,
    pub(super) size_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) alone: Measured,
    pub(super) limited: Measured,
    /// Whether both had the same result.
    pub(super) same: bool,
    /// The right or feature that a run lacks here.
    pub(super) missing: &'a [Need],
}

/// Returns the table, in 80 columns.
pub(super) fn text(document: &Document<'_>) -> String {
    let Document { alone, limited, .. } = document;
    let none = || "-  ".to_owned();
    let stored = limited.stored;
    let result = if document.same { "the same" } else { "ANOTHER" };
    let (uncompressed, all) = match document.way {
        Way::Run => ("VmHWM of the program, code included", "with zfold and the compressed pages"),
        Way::Region => ("in the region", "of the process, as counted by the kernel"),
    };
    let rows = [
        ("limit", "none  ".to_owned(), size(document.limit_bytes), "a quarter of the data"),
        (
            "uncompressed",
            size(alone.uncompressed_bytes),
            size(limited.uncompressed_bytes),
            uncompressed,
        ),
        ("peak memory", size(alone.peak_bytes), size(limited.peak_bytes), all),
        ("stored", none(), stored.map_or_else(none, |it| size(it.pages_bytes)), "pages at the end"),
        ("  in", none(), stored.map_or_else(none, |it| size(it.bytes)), "compressed"),
        ("  ratio", none(), stored.map_or_else(none, |it| format!("{:.2}   ", it.ratio)), ""),
        ("time", time(alone.wall_ns), time(limited.wall_ns), ""),
        (
            "result",
            alone.checksum[..8].to_owned() + "  ",
            format!("{result}  "),
            "checksum of all data",
        ),
    ];
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "A program fills {} with pages of programs, reads and updates parts of it.\n",
        Size(document.size_bytes)
    );
    let _ = writeln!(text, "  {:<12} {:>13} {:>13}", "", "alone  ", "in a quarter");
    for (name, alone, limited, meaning) in rows {
        let line = format!("  {name:<12} {alone:>13} {limited:>13}  {meaning}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = match document.way {
        Way::Run => writeln!(text, "\nYour programs: zfold run --limit 512MiB --report -- PROGRAM"),
        Way::Region => writeln!(
            text,
            "\nzfold run is not possible here, so the data was in a Region of the library."
        ),
    };
    text
}
