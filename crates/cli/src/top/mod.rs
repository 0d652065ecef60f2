//! `zfold top`: a live view of this user's runs and disks, and the same as a table or JSON.

mod app;
mod draw;
mod plain;
mod screen;

use std::io::IsTerminal as _;
use std::time::Duration;

use crate::args::TopArgs;
use crate::shared::exit::Failure;

/// Shows the view until it is left.
pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let interval = Duration::from_secs(args.interval.into());
    if args.once || args.json {
        return plain::run(interval, args.once, args.json);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage("top needs a terminal: give --once or --json"));
    }
    screen::run(interval)
}
