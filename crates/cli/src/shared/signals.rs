//! Signals that tell a server what to do.

use std::io;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::exit::remark;

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// End in order.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// Time in which the same signal again is an echo: ending a process group signals each process, and
/// some of them pass the signal on.
const ECHO: Duration = Duration::from_secs(1);

/// Gives signals to `hear`, in a thread of its own. The second signal to end does not wait for the
/// end: the process ends with a remark about what is `lost`.
///
/// # Errors
/// The system has no thread or descriptor for it.
pub(crate) fn watch(lost: &'static str, hear: impl Fn(Told) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let watch = move || {
        let mut stopping: Option<(i32, Instant)> = None;
        for signal in signals.forever() {
            match signal {
                SIGHUP => {
                    hear(Told::Reload);
                    continue;
                }
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
            hear(Told::Stop);
        }
    };
    std::thread::Builder::new().name("zfold-signals".to_owned()).spawn(watch).map(drop)
}
