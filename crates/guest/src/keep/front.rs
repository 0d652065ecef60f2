//! The front keeps what guests need to outlive their server, and makes sure that there is one.
//!
//! One thread waits for messages of server and stock, and alone replaces them; one thread for each
//! image accepts guests. Their shared state has one lock, which is held for moments: no thread
//! waits for a message with it, sends a message that would wait for room, joins a thread, or closes
//! what a guest sent. A guest's descriptors are closed by a thread that does nothing else, since
//! the last one to close a userfaultfd waits for the lock of that address space; the guest has its
//! place until then.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use zfold_store::pool::Lock;

use super::channel::{Channel, ToFront, ToServer};
use super::kept::Kept;
use super::listening::Listening;
use super::places::Places;
use super::terms::{Bind, End, FrontOptions, News};
use crate::serve::handshake::Offer;
use crate::sys::{Bell, poll};

/// Wait between two checks of what sends no message.
const TICK: Duration = Duration::from_secs(1);

/// Wait where the system has no descriptor or memory, or a server has no room for a message.
const BREATH: Duration = Duration::from_millis(20);

/// How many stocks are asked for within a tick: if more are lost, something ends all of them.
const RENEWALS: u32 = 4;

/// Bytes of the stack of a thread that closes descriptors.
const STACK: usize = 64 << 10;

struct State {
    server: Arc<Channel>,
    stock: Option<Arc<Channel>>,
    /// Messages to the server for which there was no room.
    owed: VecDeque<ToServer>,
    guests: BTreeMap<u64, Kept>,
    listening: BTreeMap<String, (PathBuf, Listening)>,
    bind: Bind,
    /// Number of the last guest.
    number: u64,
    places: Places,
    /// Handshakes that failed, and how many of them the current server knows.
    failed: (u64, u64),
    is_ending: bool,
    /// Neither a server nor a stock is left.
    is_lost: bool,
}

impl State {
    /// Returns the number of a new guest.
    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

/// The state that the threads of a front share.
struct Inner {
    state: Lock<State>,
    options: FrontOptions,
    /// Readable when the waiting thread has something else to do.
    bell: Bell,
    tell: Box<dyn Fn(&str) + Send + Sync>,
}

/// Keeps what guests need to outlive their server, and makes sure that there is one. Clones are the
/// same front.
#[derive(Clone)]
pub struct Front(Arc<Inner>);

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// The state of the servers.
#[derive(Debug, Default)]
struct Servers {
    takeovers: u64,
    /// The current server has all images.
    is_ready: bool,
    /// Servers in a row that ended before they had all images.
    in_vain: u32,
    /// The status that a server reported.
    done: Option<u8>,
    /// When a stock was asked for.
    asked: Option<Instant>,
    /// How many were asked for since the last tick.
    renewals: u32,
}

impl Front {
    /// Returns a front, and the end of a channel that the first server has as its standard input.
    /// `tell` is given lines for people.
    ///
    /// # Errors
    /// There is no number for a descriptor.
    pub fn new(
        bind: Bind,
        options: FrontOptions,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<(Self, OwnedFd)> {
        let (server, theirs) = Channel::pair()?;
        let state = State {
            server: Arc::new(server),
            stock: None,
            owed: VecDeque::new(),
            guests: BTreeMap::new(),
            listening: BTreeMap::new(),
            bind,
            number: 0,
            places: Places::new(options.places),
            failed: (0, 0),
            is_ending: false,
            is_lost: false,
        };
        let (state, bell, tell) = (Lock::new(state), Bell::new()?, Box::new(tell));
        Ok((Self(Arc::new(Inner { state, options, bell, tell })), theirs.into_fd()))
    }

    /// Accepts no more guests, and has each guest given all its pages.
    pub fn release(&self) {
        let mut state = self.0.state.lock();
        state.is_ending = true;
        let listening = std::mem::take(&mut state.listening);
        drop(state);
        listening.into_values().for_each(|(_, one)| one.close());
        self.0.state.lock().owed.push_back(ToServer::Release);
        self.0.bell.ring();
    }

    /// Returns images, and where their guests connect.
    #[must_use]
    pub fn addresses(&self) -> Vec<(String, PathBuf)> {
        let state = self.0.state.lock();
        let paths = state.listening.iter().map(|(image, (path, _))| (image.clone(), path.clone()));
        paths.collect()
    }

    /// Keeps guests, and a server for them, until the end; `sockets`, at most three, are those that
    /// servers answer.
    pub fn run(&self, sockets: &[OwnedFd], mut hear: impl FnMut(News)) -> End {
        let mut servers = Servers::default();
        // Without it, the server ends.
        let _ = self.0.state.lock().server.begin(0, sockets);
        let (mut was_ready, mut ticked) = (false, Instant::now());
        loop {
            let (server, stock) = {
                let state = self.0.state.lock();
                (Arc::clone(&state.server), state.stock.clone())
            };
            let (said, ended) = self.wait(&server, stock.as_deref());
            if said {
                match server.receive() {
                    Some((message, fds)) => {
                        let heard = self.heed(message, fds, &mut servers);
                        if heard != Some(News::Ready) || !std::mem::replace(&mut was_ready, true) {
                            heard.into_iter().for_each(&mut hear);
                        }
                    }
                    None if servers.done.is_some() => return End::Done(servers.done.unwrap_or(1)),
                    None if !was_ready => return End::NotBegun,
                    None => self.succeed(sockets, &mut servers),
                }
            }
            if ended && stock.is_some_and(|stock| self.has_lost(&stock)) {
                self.renew(&mut servers);
            }
            if ticked.elapsed() >= TICK {
                (ticked, servers.renewals) = (Instant::now(), 0);
                self.watch();
                self.renew(&mut servers);
            }
            self.hand_on();
            let state = self.0.state.lock();
            if state.is_lost && (state.guests.is_empty() || state.is_ending) {
                return End::Lost(state.guests.len());
            }
        }
    }

    /// Waits until the server sends a message, the stock has ended, or `TICK` has passed.
    fn wait(&self, server: &Channel, stock: Option<&Channel>) -> (bool, bool) {
        let (is_lost, is_behind) = {
            let state = self.0.state.lock();
            let waits = state.guests.values().any(|guest| !guest.is_sent);
            (state.is_lost, waits || !state.owed.is_empty())
        };
        let mut fds = vec![PollFd::new(&self.0.bell, PollFlags::IN)];
        let mut add = |fd| {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            fds.len() - 1
        };
        // The channel of a lost server stays readable.
        let server_at = (!is_lost).then(|| add(server.as_fd()));
        let stock_at = stock.map(|stock| add(stock.as_fd()));
        let wait = if is_behind && !is_lost { BREATH } else { TICK };
        if poll(&mut fds, Some(wait)).is_err() {
            return (false, false);
        }
        let is_ready = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
        let ready = (is_ready(server_at), is_ready(stock_at));
        if is_ready(Some(0)) {
            self.0.bell.hush();
        }
        ready
    }

    /// Acts on a message from a server.
    fn heed(&self, message: ToFront, fds: Vec<OwnedFd>, servers: &mut Servers) -> Option<News> {
        match message {
            ToFront::Listen(image) => {
                let found = self.listen(&image);
                self.0.state.lock().owed.push_back(ToServer::Answer(found));
            }
            ToFront::Close(image) => {
                let found = self.0.state.lock().listening.remove(&image);
                found.into_iter().for_each(|(_, one)| one.close());
                let mut state = self.0.state.lock();
                state.places.close(&image);
                state.owed.push_back(ToServer::Answer(Ok(String::new())));
            }
            ToFront::Machine(image) => {
                let mut state = self.0.state.lock();
                let number = state.next_number();
                let kept = Kept::machine(number, image, fds).ok_or_else(String::new);
                let found = kept.map(|kept| drop(state.guests.insert(number, kept)));
                state.owed.push_back(ToServer::Answer(found.map(|()| number.to_string())));
            }
            ToFront::Ready => {
                (servers.is_ready, servers.in_vain) = (true, 0);
                return Some(News::Ready);
            }
            ToFront::Held(number) => {
                if let Some(guest) = self.0.state.lock().guests.get_mut(&number) {
                    guest.is_held = true;
                }
            }
            ToFront::Ended(number) => {
                let ended = self.0.state.lock().guests.remove(&number);
                ended.into_iter().for_each(|guest| self.let_go(guest));
            }
            ToFront::Stock => {
                let stock = fds.into_iter().next().map(|fd| Arc::new(Channel::new(fd)));
                servers.asked = None;
                // The previous stock ends with its channel.
                self.0.state.lock().stock = stock;
            }
            ToFront::Stop => return Some(News::Stop),
            ToFront::Done(status) => servers.done = Some(status),
        }
        None
    }

    /// Accepts guests of an image, unless that is done already.
    fn listen(&self, image: &str) -> Result<String, String> {
        let mut state = self.0.state.lock();
        if state.is_ending {
            // No guest is accepted; a server that takes over now only has to release guests.
            return Ok(String::new());
        }
        if let Some((path, _)) = state.listening.get(image) {
            return Ok(path.display().to_string());
        }
        let (path, listener, file) = (state.bind)(image)?;
        let (front, of) = (self.clone(), image.to_owned());
        let accept = move |listener: &_, closed: &_| front.accept(&of, listener, closed);
        let listening = Listening::start((listener, file), accept);
        let listening = listening.map_err(|error| format!("image {image}: {error}"))?;
        let told = path.display().to_string();
        state.places.open(image);
        state.listening.insert(image.to_owned(), (path, listening));
        Ok(told)
    }

    /// Returns whether a stock has ended; another one may have taken its place already.
    fn has_lost(&self, stock: &Arc<Channel>) -> bool {
        let has_ended = stock.receive::<()>().is_none();
        if has_ended {
            self.0.state.lock().stock.take_if(|last| Arc::ptr_eq(last, stock));
        }
        has_ended
    }

    /// Has the server make a stock if there is none: until then, its end is that of the images.
    fn renew(&self, servers: &mut Servers) {
        let mut state = self.0.state.lock();
        let again = servers.asked.is_none_or(|asked| asked.elapsed() > 10 * TICK);
        let may = servers.is_ready && again && servers.renewals < RENEWALS;
        if state.stock.is_none() && !state.is_lost && may {
            servers.asked = Some(Instant::now());
            servers.renewals += 1;
            state.owed.push_back(ToServer::Renew);
        }
    }

    /// Has the stock make a server in the place of one that has ended (H3).
    fn succeed(&self, sockets: &[OwnedFd], servers: &mut Servers) {
        let began = Instant::now();
        if !servers.is_ready {
            servers.in_vain += 1;
            // Once or twice may be chance; more often means that something ends all of them at
            // once.
            thread::sleep(BREATH * servers.in_vain.saturating_sub(2).min(50));
        }
        servers.is_ready = false;
        let mut state = self.0.state.lock();
        let Some(stock) = state.stock.clone() else {
            drop(state);
            return self.lose();
        };
        servers.takeovers += 1;
        let made = Channel::pair().and_then(|(ours, theirs)| {
            stock.send(&(), &[theirs.as_fd()])?;
            ours.begin(servers.takeovers, sockets)?;
            Ok(ours)
        });
        match made {
            Ok(ours) => state.server = Arc::new(ours),
            Err(error) => {
                drop(state);
                self.tell(&format!("cannot start a server ({error})"));
                return self.lose();
            }
        }
        state.guests.values_mut().for_each(|guest| guest.is_sent = false);
        state.failed.1 = 0;
        // The new server repeats the requests of the last one.
        state.owed.clear();
        if state.is_ending {
            state.owed.push_back(ToServer::Release);
        }
        let guests = state.guests.len();
        drop(state);
        self.hand_on();
        self.tell(&format!(
            "the guest server was lost; another one serves its {guests} guests, \
             after {} us",
            began.elapsed().as_micros()
        ));
    }

    /// Reports that guests are no longer served, and kills them if the options say so.
    fn lose(&self) {
        let mut state = self.0.state.lock();
        state.is_lost = true;
        let listening = std::mem::take(&mut state.listening);
        let guests = state.guests.len();
        let kills = self.0.options.kills_lost;
        let killed = state.guests.values().filter(|guest| kills && guest.kill()).count();
        drop(state);
        listening.into_values().for_each(|(_, one)| one.close());
        self.tell(&match killed {
            0 => format!(
                "the guest server was lost with its images: {guests} guests wait for ever; end \
                 them, and then this process"
            ),
            _ => format!("the guest server was lost with its images: killed {killed} guests"),
        });
    }

    /// Sends the server pending messages, and guests that it does not have yet. If there is no
    /// room, there is some later, or another server takes over.
    fn hand_on(&self) {
        let mut state = self.0.state.lock();
        if state.is_lost {
            return;
        }
        let server = Arc::clone(&state.server);
        // Guests first: a server that is to release them must have them.
        for guest in state.guests.values_mut().filter(|guest| !guest.is_sent) {
            if guest.send(&server).is_err() {
                return;
            }
        }
        while let Some(message) = state.owed.front()
            && server.try_send(message, &[]).is_ok()
        {
            state.owed.pop_front();
        }
        let (failed, known) = state.failed;
        if failed != known && server.try_send(&ToServer::Failed(failed), &[]).is_ok() {
            state.failed.1 = failed;
        }
    }

    /// Checks what sends no message.
    fn watch(&self) {
        let mut state = self.0.state.lock();
        let patience = self.0.options.patience;
        let (mut told, mut gone) = (Vec::new(), Vec::new());
        if state.is_lost {
            // Nothing else needs the state: there is no server, and no guest is accepted.
            let numbers = state.guests.iter().filter(|(_, guest)| guest.is_gone());
            let numbers: Vec<_> = numbers.map(|(number, _)| *number).collect();
            gone.extend(numbers.iter().filter_map(|number| state.guests.remove(number)));
        } else {
            let unheard = |guest: &mut Kept| guest.is_unheard(patience).then(|| guest.who());
            told.extend(state.guests.values_mut().filter_map(unheard));
        }
        drop(state);
        gone.into_iter().for_each(|guest| self.let_go(guest));
        for who in told {
            self.tell(&format!(
                "{who} waits for memory, and its server has not answered for {} s: end that \
                    process (zfold guest stat names it), and another one takes over",
                patience.as_secs()
            ));
        }
    }

    /// Closes what a guest sent, and frees its place then.
    fn let_go(&self, guest: Kept) {
        let front = self.clone();
        let close = move || {
            let place = guest.place();
            drop(guest);
            place.into_iter().for_each(|image| front.leave_place(&image));
        };
        let thread = thread::Builder::new().name("zfold-close".to_owned()).stack_size(STACK);
        if let Err(error) = thread.spawn(close) {
            // It was closed here, and its place stays taken.
            self.tell(&format!("a place for a guest was lost: no thread can be started ({error})"));
        }
    }

    pub(super) fn tell(&self, line: &str) {
        (self.0.tell)(line);
    }

    /// Returns how long a handshake may take.
    pub(super) fn handshake(&self) -> Duration {
        self.0.options.handshake
    }

    /// Takes a place of an image, if one is free.
    pub(super) fn take_place(&self, image: &str) -> bool {
        self.0.state.lock().places.take(image)
    }

    pub(super) fn has_place(&self, image: &str) -> bool {
        self.0.state.lock().places.has(image)
    }

    /// Gives a place back.
    pub(super) fn leave_place(&self, image: &str) {
        self.0.state.lock().places.leave(image);
    }

    /// Counts a handshake that failed, whose place is free again.
    pub(super) fn failed(&self, image: &str) {
        let mut state = self.0.state.lock();
        state.places.leave(image);
        state.failed.0 += 1;
    }

    /// Takes a guest whose message is complete.
    pub(super) fn receive(&self, image: &str, mut offer: Offer) {
        let number = self.0.state.lock().next_number();
        loop {
            match Kept::new(number, image, offer) {
                Ok(kept) => {
                    self.0.state.lock().guests.insert(number, kept);
                    self.hand_on();
                    // If there was no room, it is tried again.
                    return self.0.bell.ring();
                }
                Err((error, again)) => {
                    self.tell(&format!("a guest of {image} waits for a journal: {error}"));
                    thread::sleep(BREATH);
                    offer = again;
                }
            }
        }
    }
}
