//! A socket at which guests of an image are accepted, with its thread.

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use rustix::net::{Shutdown, shutdown};

use super::accept::{Reception, accept};
use super::apart::close;
use super::prompt::be_prompt;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Listening {
    /// The thread has it, too, until it ends.
    listener: Arc<UnixListener>,
    closed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listening {
    /// Accepts guests of an image.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        image: &str,
        listener: UnixListener,
        to: impl Reception + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let closed = Arc::new(AtomicBool::new(false));
        let listener = Arc::new(listener);
        let (name, mine, flag) = (image.to_owned(), Arc::clone(&listener), Arc::clone(&closed));
        // A guest waits for this thread and for those that it starts.
        let run = move || {
            be_prompt();
            accept(&to, &name, &mine, &flag);
        };
        let thread = Builder::new().name("zfold-accept".to_owned()).spawn(run)?;
        Ok(Self { listener, closed, thread })
    }

    /// Accepts no more guests. Connections that are not guests yet are closed.
    pub(crate) fn close(self) {
        // Release: pairs with the thread's load, which the shutdown below causes.
        self.closed.store(true, Ordering::Release);
        // The socket is open.
        let _ = shutdown(&self.listener, Shutdown::Both);
        // A panic there was reported.
        let _ = self.thread.join();
        Arc::into_inner(self.listener).into_iter().for_each(close);
    }
}
