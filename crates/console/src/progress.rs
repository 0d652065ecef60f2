//! A progress bar on stderr for what takes longer than two seconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::clean::clean;

const PATIENCE: Duration = Duration::from_secs(2);

/// Positions of the bar.
const STEPS: u64 = 10_000;

/// A bar that appears late, and only on a terminal; it is removed when the value is dropped.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    /// Returns the progress of something that starts now.
    pub fn begin() -> Self {
        Self { started: Instant::now(), bar: OnceLock::new() }
    }

    /// Shows what is at work and the share that is done, from 0 to 1, once the work has taken
    /// long enough.
    pub fn show(&self, what: &str, share: f64) {
        if self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>4} {wide_msg}");
            let style = style.expect("the template is constant and valid");
            ProgressBar::new(STEPS).with_style(style)
        });
        bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        bar.set_message(clean(what));
    }
}

impl Progress {
    /// Does what writes to the terminal while the bar is out of the way.
    pub fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        match self.bar.get() {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
