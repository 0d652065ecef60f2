//! `zfold top`: a live view of this user's runs and disks, and the same as a table or JSON.
//!
//! A thread looks at all of them at each interval; requests to a run or a disk are sent by a thread
//! of their own. So a server that does not answer never holds up keys or drawing.

mod app;
mod detail;
mod draw;
mod figures;
mod flow;
mod keys;
mod plain;
mod screen;
mod work;

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
