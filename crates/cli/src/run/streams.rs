//! The standard streams of front and manager, which are not theirs.

use std::io;

use rustix::stdio::{dup2_stdin, dup2_stdout};

/// Lets go of the standard input and output.
pub(super) fn release() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(())
}
