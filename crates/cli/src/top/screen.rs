//! The terminal: taken over, drawn on, and given back however the view ends.
//!
//! One thread draws and reads keys; the terminal is its own. A second one looks at all runs and
//! servers at each interval, so that one that does not answer never holds up keys or drawing. A
//! third one notes a signal and waits a moment for the view to end by itself; if it does not, that
//! thread gives the terminal back and ends the process, so the atomic is a number and orders
//! nothing. A panic gives the terminal back by a hook.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::app::{Action, App};
use super::draw::draw;
use crate::shared::exit::Failure;
use crate::watched::look::Look;
use crate::watched::machine::Machine;

/// Signals that end the view.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// How long is waited for a key before signals and news are looked for.
const BEAT: Duration = Duration::from_millis(100);

/// How long after a signal the view may take to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// Why the view ended.
enum End {
    Asked,
    Signal(i32),
}

/// Shows the view until it is left, or a signal ends this process.
pub(super) fn run(interval: Duration) -> Result<(), Failure> {
    let signal = Arc::new(AtomicI32::new(0));
    end_by_signal(Arc::clone(&signal)).map_err(|error| failed(&error))?;
    let looks = look(interval)?;
    // A panic gives the terminal back, too: this sets a hook.
    let mut terminal = ratatui::try_init().map_err(|error| failed(&error))?;
    let ended = show(&mut terminal, &looks, &signal);
    // Also shows the cursor.
    drop(terminal);
    ratatui::restore();
    match ended.map_err(|error| failed(&error))? {
        End::Asked => Ok(()),
        End::Signal(number) => {
            let _ = emulate_default_handler(number);
            Ok(())
        }
    }
}

/// Looks at once, and then at each interval, for as long as the looks are received.
///
/// # Errors
/// That of the first look, or no thread can be started.
fn look(interval: Duration) -> Result<Receiver<Result<Look, Failure>>, Failure> {
    let (sender, looks) = channel();
    let first = Look::take()?;
    let look = move || {
        let mut seen = Ok(first);
        while sender.send(seen).is_ok() {
            thread::sleep(interval);
            seen = Look::take();
        }
    };
    thread::Builder::new().name("zfold-top".to_owned()).spawn(look).map_err(|error| {
        Failure::new(format!(
            "cannot start a thread: {error}; raise the limit of processes (ulimit -u)"
        ))
    })?;
    Ok(looks)
}

/// Notes signals that end the view, and ends this process where it does not.
fn end_by_signal(noted: Arc<AtomicI32>) -> io::Result<()> {
    let mut signals = Signals::new(ENDING)?;
    let note = move || {
        for signal in signals.forever() {
            // Relaxed: a number, nothing else.
            noted.store(signal, Ordering::Relaxed);
            thread::sleep(GRACE);
            ratatui::restore();
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("zfold-signals".to_owned()).spawn(note).map(drop)
}

/// Waits for a key for so long at most; returns whether there still is a terminal.
fn wait(time: Duration) -> io::Result<bool> {
    let stdout = io::stdout();
    let mut terminal = [PollFd::new(&stdout, PollFlags::IN)];
    let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut terminal, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(!terminal[0].revents().intersects(gone))
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(format!("cannot use the terminal: {error}; try zfold top --once"))
}

fn show(
    terminal: &mut DefaultTerminal,
    looks: &Receiver<Result<Look, Failure>>,
    signal: &AtomicI32,
) -> io::Result<End> {
    let mut app = App::default();
    let (mut changed, mut pause) = (true, Duration::ZERO);
    loop {
        for look in looks.try_iter() {
            match look {
                Ok(look) => app.update(look, Machine::now()),
                Err(failure) => app.message = Some(failure.line().to_owned()),
            }
            changed = true;
        }
        if changed {
            terminal.draw(|frame| draw(frame, &mut app))?;
        }
        // The library would for ever look for a key of a terminal that is gone.
        if !wait(pause)? {
            return Ok(End::Signal(SIGHUP));
        }
        changed = event::poll(Duration::ZERO)?;
        pause = if changed { Duration::ZERO } else { BEAT };
        // Relaxed: a number, nothing else.
        if let number @ 1.. = signal.load(Ordering::Relaxed) {
            return Ok(End::Signal(number));
        }
        if !changed {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if !key.is_press() {
            continue;
        }
        match app.key(key) {
            Some(Action::Quit) => return Ok(End::Asked),
            Some(Action::Suspend) => {
                ratatui::restore();
                let _ = emulate_default_handler(SIGTSTP);
                *terminal = ratatui::try_init()?;
            }
            None => {}
        }
    }
}
