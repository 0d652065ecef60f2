//! The signals that are the program's, and not the front's or the manager's.

use std::io;

use signal_hook::consts::{
    SIGBUS, SIGCHLD, SIGCONT, SIGFPE, SIGILL, SIGKILL, SIGPIPE, SIGSEGV, SIGSTOP, SIGSYS, SIGTRAP,
    SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use zfold_run::hold_signals;

/// Signals that stay with the process that gets them: those that cannot be caught, that say what
/// this process or its child did, or that belong to its terminal.
const KEPT: [i32; 14] = [
    SIGKILL, SIGSTOP, SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, SIGPIPE, SIGXFSZ, SIGCHLD,
    SIGCONT, SIGTTIN, SIGTTOU,
];

/// Number of the last standard signal; those of real time follow, of which the C library has some
/// for itself.
const STANDARD_MAX: i32 = 31;
const REAL_TIME_MAX: i32 = 64;

/// Returns all signals that are the program's.
fn passed() -> impl Iterator<Item = i32> {
    (1..=REAL_TIME_MAX).filter(|signal| !KEPT.contains(signal))
}

/// Holds them in the calling thread and those that it starts, so that none ends or stops this
/// process, also not those of a terminal to its jobs in the background ([`take_signal`]).
///
/// [`take_signal`]: zfold_run::take_signal
pub(super) fn hold() {
    hold_signals(passed().chain([SIGTTIN, SIGTTOU]));
}

/// Catches all signals that are the program's from now on.
///
/// # Errors
/// The system has no descriptor for that.
pub(super) fn catch() -> io::Result<Signals> {
    let signals = Signals::new([0; 0])?;
    let handle = signals.handle();
    for signal in passed() {
        let caught = handle.add_signal(signal);
        if signal <= STANDARD_MAX {
            caught?;
        }
    }
    Ok(signals)
}

/// Returns whether a signal ends or stops a process that does nothing about it.
pub(super) fn is_harmful(signal: i32) -> bool {
    ![SIGURG, SIGWINCH].contains(&signal)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_that_can_be_caught_are_the_programs_but_those_about_this_process() {
        let kept: BTreeSet<_> = KEPT.into_iter().collect();
        assert_eq!(kept, BTreeSet::from([4, 5, 7, 8, 9, 11, 13, 17, 18, 19, 21, 22, 25, 31]));
        assert!(catch().is_ok());
    }
}
