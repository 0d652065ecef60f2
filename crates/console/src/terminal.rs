//! The terminal that results go to.

use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

/// Returns the columns of the terminal that stdout is, if it is one.
pub fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten()?;
    Some(size.ws_col.into()).filter(|columns| *columns > 0)
}
