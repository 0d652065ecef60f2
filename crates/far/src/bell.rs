//! A bell that wakes one thread, or ends it.

use std::sync::Condvar;
use std::time::Duration;

use zfold_store::pool::{Lock, sound};

/// What the bell says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Call {
    #[default]
    None,
    Come,
    Stop,
}

/// See the module documentation. A call is kept until the thread waits.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    call: Lock<Call>,
    rung: Condvar,
}

impl Bell {
    /// Wakes the thread.
    pub(crate) fn ring(&self) {
        let mut call = self.call.lock();
        if *call == Call::None {
            *call = Call::Come;
            self.rung.notify_one();
        }
    }

    /// Tells the thread to end.
    pub(crate) fn stop(&self) {
        *self.call.lock() = Call::Stop;
        self.rung.notify_one();
    }

    /// Waits until the bell rings or the time is over; returns false if the thread shall end.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let quiet = |call: &mut Call| *call == Call::None;
        let (mut call, _) = sound(self.rung.wait_timeout_while(self.call.lock(), most, quiet));
        if *call == Call::Come {
            *call = Call::None;
        }
        *call != Call::Stop
    }
}
