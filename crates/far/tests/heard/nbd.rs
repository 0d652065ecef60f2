//! Any bytes as what a server of NBD says.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::connection::{Connection, Job};
use crate::engine::EngineError;
use crate::engines::tcp::Timed;

/// Shakes hands, and asks for what there is, until it is wrong; returns what was wrong.
pub(crate) fn hear(pair: UnixStream, deadline: Instant) -> EngineError {
    let (mut link, _) = match Connection::over(Timed::over(pair, deadline), "cold") {
        Ok(opened) => opened,
        Err(error) => return error,
    };
    let mut out = [0; 5000];
    loop {
        let mut jobs = [Job::Read(8192, &mut out), Job::Write(0, b"sealed"), Job::Trim(0, 4096)];
        if let Err(error) = link.run(&mut jobs, deadline) {
            return error;
        }
    }
}
