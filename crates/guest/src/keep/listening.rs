//! A socket at which guests of an image are accepted, with its thread.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use rustix::net::{Shutdown, shutdown};

use crate::serve::apart::close;
use crate::serve::prompt::be_prompt;

/// See the [module](self).
pub(super) struct Listening {
    /// The socket, and whether it is closed. The thread has them, too, until it ends.
    door: Arc<(UnixListener, AtomicBool)>,
    thread: JoinHandle<()>,
    /// Removes the socket from where it is.
    _file: Box<dyn Send>,
}

impl Listening {
    /// Has `accept` accept guests until the socket is closed.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        (listener, file): (UnixListener, Box<dyn Send>),
        accept: impl FnOnce(&UnixListener, &AtomicBool) + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let door = Arc::new((listener, AtomicBool::new(false)));
        let mine = Arc::clone(&door);
        // A guest waits for this thread and for those that it starts.
        let run = move || {
            be_prompt();
            accept(&mine.0, &mine.1);
        };
        let thread = Builder::new().name("zfold-accept".to_owned()).spawn(run)?;
        Ok(Self { door, thread, _file: file })
    }

    /// Accepts no more guests. Connections that are not guests yet are closed.
    pub(super) fn close(self) {
        // Release: pairs with the thread's load, which the shutdown below causes.
        self.door.1.store(true, Ordering::Release);
        // The socket is open.
        let _ = shutdown(&self.door.0, Shutdown::Both);
        // A panic there was reported.
        let _ = self.thread.join();
        Arc::into_inner(self.door).into_iter().for_each(|(listener, _)| close(listener));
    }
}
