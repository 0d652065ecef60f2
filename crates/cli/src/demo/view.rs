//! The line that shows the program at work, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use crate::shared::table::short_size;
use crate::shared::terminal::terminal_width;

/// Length of the bar.
const BAR: usize = 10;

/// The figures shown for a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    pub(super) share: f64,
    pub(super) limit: Option<u64>,
    pub(super) resident: u64,
    /// Stored pages, and their memory.
    pub(super) stored: Option<(u64, u64)>,
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

    pub(super) fn show(&self, name: &'static str, shown: Shown) {
        self.0.set_message(line(name, shown));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns a line that fits 80 columns.
fn line(name: &str, shown: Shown) -> String {
    let done = (shown.share.clamp(0.0, 1.0) * BAR as f64) as usize;
    let bar = "█".repeat(done) + &"░".repeat(BAR - done);
    let limit = shown.limit.map_or_else(|| "none".to_owned(), short_size);
    let resident = short_size(shown.resident);
    let mut line = format!("{name:<12} {bar} limit {limit:<5} resident {resident:<5}");
    if let Some((pages, bytes)) = shown.stored.filter(|stored| stored.0 > 0) {
        line += &format!(" stored {:>5} in {:>5}", short_size(pages), short_size(bytes));
        if bytes > 0 {
            line += &format!(" {:.1}x", pages as f64 / bytes as f64);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_terminal_of_80_columns() {
        let big = 1023 << 30;
        let shown =
            Shown { share: 1.0, limit: Some(big), resident: big, stored: Some((big, big / 100)) };
        let line = line("in a quarter", shown);
        assert!(line.chars().count() <= 80, "{line}");
    }
}
