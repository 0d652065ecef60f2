//! Signals that tell a server what to do.

use std::io;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::remark;

/// Time in which the same signal again is an echo: ending a process group signals each process, and
/// some of them pass the signal on.
const ECHO: Duration = Duration::from_secs(1);

/// Calls `stop` when a signal asks for the end, in a thread of its own. The second one does not
/// wait for that: the process ends with a remark about what is `lost`. A terminal that closes ends
/// nothing.
///
/// # Errors
/// The system has no thread or descriptor for it.
pub(crate) fn watch(lost: &'static str, stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let watch = move || {
        let mut stopping: Option<(i32, Instant)> = None;
        for signal in signals.forever() {
            match signal {
                SIGHUP => continue,
                _ if stopping.is_some_and(|(by, at)| by == signal && at.elapsed() < ECHO) => {
                    continue;
                }
                _ if stopping.is_some() => {
                    remark(lost);
                    std::process::exit(1);
                }
                _ => {}
            }
            stopping = Some((signal, Instant::now()));
            stop();
        }
    };
    std::thread::Builder::new().name("zfold-signals".to_owned()).spawn(watch).map(drop)
}
