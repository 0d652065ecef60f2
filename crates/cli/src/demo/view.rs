//! The line that shows the program at work, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::shared::table::short_size;
use crate::shared::terminal::terminal_width;

/// Length of the bar.
const BAR: usize = 10;

/// Compressed pages, and their memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Stored {
    pub(super) pages_bytes: u64,
    pub(super) bytes: u64,
    pub(super) ratio: f64,
}

impl Stored {
    pub(super) fn new(pages_bytes: u64, bytes: u64) -> Self {
        Self { pages_bytes, bytes, ratio: pages_bytes as f64 / bytes.max(1) as f64 }
    }
}

/// A line on stderr; none where stdout or stderr is no terminal.
#[derive(Debug)]
pub(super) struct View(ProgressBar);

impl View {
    pub(super) fn new() -> Self {
        let bar = match terminal_width() {
            Some(_) => ProgressBar::new_spinner(),
            None => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{wide_msg}");
        let style = style.expect("the template is constant and valid");
        Self(bar.with_style(style))
    }

    /// Returns whether a person sees it.
    pub(super) fn is_seen(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Shows how far a program is, and its memory.
    pub(super) fn show(
        &self,
        name: &str,
        share: f64,
        limit: Option<u64>,
        resident: u64,
        stored: Option<Stored>,
    ) {
        self.0.set_message(line(name, share, limit, resident, stored));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns a line that fits 80 columns.
fn line(
    name: &str,
    share: f64,
    limit: Option<u64>,
    resident: u64,
    stored: Option<Stored>,
) -> String {
    let done = (share.clamp(0.0, 1.0) * BAR as f64) as usize;
    let bar = "█".repeat(done) + &"░".repeat(BAR - done);
    let limit = limit.map_or_else(|| "none".to_owned(), short_size);
    let resident = short_size(resident);
    let mut line = format!("{name:<12} {bar} limit {limit:<5} resident {resident:<5}");
    if let Some(Stored { pages_bytes, bytes, ratio }) = stored.filter(|it| it.bytes > 0) {
        let (pages, bytes) = (short_size(pages_bytes), short_size(bytes));
        line += &format!(" stored {pages:>5} in {bytes:>5} {ratio:.1}x");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_terminal_of_80_columns() {
        let big = 1023 << 30;
        let stored = Stored { pages_bytes: big, bytes: big / 100, ratio: 100.0 };
        let line = line("in a quarter", 1.0, Some(big), big, Some(stored));
        assert!(line.chars().count() <= 80, "{line}");
    }
}
