//! The line that shows the program at work, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use crate::shared::table::short_size;
use crate::shared::terminal::terminal_width;

/// Positions of the bar.
const STEPS: u64 = 1000;

/// What is shown of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    pub(super) share: f64,
    pub(super) limit: Option<u64>,
    pub(super) resident: u64,
    /// Stored pages, and what they take.
    pub(super) stored: Option<(u64, u64)>,
}

/// A line on stderr; none where stdout or stderr is no terminal.
#[derive(Debug)]
pub(super) struct View(ProgressBar);

impl View {
    pub(super) fn new() -> Self {
        let bar = match terminal_width() {
            Some(_) => ProgressBar::new(STEPS),
            None => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{prefix:<12} {bar:10} {wide_msg}");
        let style = style.expect("the template is constant and valid");
        Self(bar.with_style(style))
    }

    /// Returns whether somebody sees it.
    pub(super) fn is_seen(&self) -> bool {
        !self.0.is_hidden()
    }

    pub(super) fn show(&self, name: &'static str, shown: Shown) {
        self.0.set_prefix(name);
        self.0.set_position((shown.share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.0.set_message(line(shown));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns what fits beside the bar in 80 columns.
fn line(shown: Shown) -> String {
    let limit = shown.limit.map_or_else(|| "none".to_owned(), short_size);
    let mut line = format!("limit {limit:<5} resident {:<5}", short_size(shown.resident));
    if let Some((pages, bytes)) = shown.stored {
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
        let beside = 80 - "in a quarter ".len() - 11;
        let line = line(shown);
        assert!(line.len() <= beside, "{} of {beside}: {line}", line.len());
    }
}
