//! Restores on demand: pages are written into a machine's files as its VMM asks for them, and in
//! between all others.
//!
//! One thread does both for a machine, so nothing is written twice from the image (offload/O5). The
//! VMM asks for every page, by and by, and closes the connection when it has all.
//!
//! A server may be killed at any point, and another one goes on with what the front has. So a
//! request stays in its socket until the answer is in a pipe, and the kernel moves an answer from
//! the pipe to the VMM in one step: what is in the pipe was not sent, and what is not in it was
//! sent or is still to be decided. A VMM asks for the next page when it has its answer.

use std::fs::File;
use std::io::{self, Seek as _};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::io::{Errno, ioctl_fionread, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use thiserror::Error;
use zfold_uffd::page::PAGE;

use super::filling::{BEGUN, Filling, Unit, WRITTEN};
use super::layout::Layout;
use super::socket::{Broken, Peer};
use super::wire::{Answer, Command, FAULT, Fault, HEADER, ROLE_FAULT, Request};
use crate::images::{Claim, ImageError};
use crate::keep::Link;
use crate::sys::poll;

/// How long a VMM may take for the rest of a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Wait for the rest of a request, which its VMM is writing.
const BREATH: Duration = Duration::from_micros(20);

/// Longest range that is asked for at once, in bytes.
const LEN_MAX: u64 = 2 << 20;

/// Wait between two looks whether machines are left.
const LOOK: Duration = Duration::from_millis(10);

/// The machines that get pages on demand: each has a copy.
#[derive(Debug, Default)]
pub struct OnDemand(Arc<()>);

impl OnDemand {
    /// Returns how many there are.
    #[must_use]
    pub fn number(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Waits until there are none, at most for so long; returns how many are left.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> usize {
        let until = Instant::now() + patience;
        while self.number() > 0 && Instant::now() < until {
            thread::sleep(LOOK);
        }
        self.number()
    }
}

/// Why pages are no longer put in.
#[derive(Debug, Error)]
enum Ended {
    #[error("{0}")]
    Broken(#[from] Broken),
    #[error("it sent something else than a page fault")]
    Odd,
    #[error("it asks for memory that it does not have (address {:#x}, {} bytes)", .0.at, .0.len)]
    Stray(Fault),
    #[error("its memory cannot be written: {0}")]
    Full(io::Error),
}

/// What a machine's pages are put in by. The front has all of it, too.
#[derive(Debug)]
pub(super) struct Tools {
    stream: UnixStream,
    /// What is noted of each unit. Its position, which the front sees, is the number of answers.
    progress: File,
    /// Holds an answer from when it is decided until it is sent.
    pipe: (OwnedFd, OwnedFd),
    /// A file for each slot.
    files: Vec<File>,
}

impl Tools {
    fn new(stream: UnixStream, files: Vec<File>) -> io::Result<Self> {
        let progress = File::from(memfd_create("zfold-progress", MemfdFlags::CLOEXEC)?);
        Ok(Self { stream, progress, pipe: pipe_with(PipeFlags::CLOEXEC)?, files })
    }

    /// Returns what [`fds`](Self::fds) returned in another process.
    fn again(fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let (stream, progress) = (fds.next()?.into(), fds.next()?.into());
        let pipe = (fds.next()?, fds.next()?);
        Some(Self { stream, progress, pipe, files: fds.map(File::from).collect() })
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let (out, into) = (&self.pipe.0, &self.pipe.1);
        let fds = [self.stream.as_fd(), self.progress.as_fd(), out.as_fd(), into.as_fd()];
        fds.into_iter().chain(self.files.iter().map(|file| file.as_fd())).collect()
    }

    /// Reads what is noted of each unit.
    fn progress(&self) -> io::Result<Vec<u8>> {
        let mut noted = vec![0; self.progress.metadata()?.len() as usize];
        self.progress.read_exact_at(&mut noted, 0)?;
        Ok(noted)
    }
}

/// A machine that gets pages on demand.
pub(super) struct Demand {
    pub(super) image: Claim,
    pub(super) layout: Layout,
}

/// What is heard of a machine that gets pages.
pub(super) struct Begun {
    /// Gets a word when the first page was asked for.
    pub(super) asked: Receiver<()>,
    /// To end it.
    pub(super) stream: UnixStream,
}

impl Demand {
    /// Goes on where another server ended, which had the machine's number from the front and kept
    /// `fds` there.
    ///
    /// # Errors
    /// There is no thread, or these are not what such a server keeps.
    pub(super) fn adopt(
        self,
        fds: Vec<OwnedFd>,
        all: &OnDemand,
        (link, number): (&Arc<Link>, u64),
        tell: impl Fn(&str) + Send + 'static,
    ) -> Result<(), Broken> {
        let slots = self.layout.slots.len();
        let tools = Tools::again(fds).filter(|tools| tools.files.len() == slots);
        let tools = tools.ok_or(Broken::Left)?;
        self.serve(tools, all, Some((Arc::clone(link), number)), tell).map(drop)
    }

    /// Starts a thread that puts pages into `files` until the VMM has them all. The front, if there
    /// is one, gets what another server goes on with. `tell` is given a line if the thread ends
    /// before that.
    ///
    /// # Errors
    /// There is no thread, or the VMM takes no connection.
    pub(super) fn start(
        self,
        (stream, files): (UnixStream, Vec<File>),
        all: &OnDemand,
        link: Option<&Arc<Link>>,
        tell: impl Fn(&str) + Send + 'static,
    ) -> Result<Begun, Broken> {
        Peer::new(stream.try_clone()?, PATIENCE).write(&ROLE_FAULT, None)?;
        let tools = Tools::new(stream, files)?;
        let keep = |link: &Arc<Link>| {
            let number = link.keep(self.image.name(), &tools.fds());
            number.map(|number| (Arc::clone(link), number))
        };
        let kept = link.and_then(keep);
        self.serve(tools, all, kept, tell)
    }

    fn serve(
        self,
        tools: Tools,
        all: &OnDemand,
        kept: Option<(Arc<Link>, u64)>,
        tell: impl Fn(&str) + Send + 'static,
    ) -> Result<Begun, Broken> {
        let stream = tools.stream.try_clone()?;
        let (first, asked) = mpsc::channel();
        let one = Arc::clone(&all.0);
        let slots = self.layout.slots.iter().map(|slot| slot.pages.clone()).collect();
        let written = tools.progress()?;
        let filling = Filling::new(slots, &written);
        let begun = written.iter().position(|&unit| unit == BEGUN);
        let begun = begun.map(|number| filling.unit(number as u64));
        let mut serving = Serving { demand: self, tools, filling, first: Some(first) };
        let run = move || {
            let _one = one;
            if let Err(error) = serving.run(begun) {
                let name = serving.demand.image.name();
                tell(&format!(
                    "a machine restored from {name} gets no more pages: {error}; end it, and \
                     restore it again"
                ));
            }
            // The front has the connection, too.
            let _ = serving.tools.stream.shutdown(Shutdown::Both);
            drop(serving);
            if let Some((link, number)) = kept {
                link.ended(number);
            }
        };
        thread::Builder::new().name("zfold-demand".to_owned()).spawn(run)?;
        Ok(Begun { asked, stream })
    }
}

struct Serving {
    demand: Demand,
    tools: Tools,
    filling: Filling,
    first: Option<Sender<()>>,
}

impl Serving {
    fn run(&mut self, begun: Option<Unit>) -> Result<(), Ended> {
        match self.put_in(begun) {
            // It has all pages, or is gone.
            Err(Ended::Broken(Broken::Left)) => Ok(()),
            ended => ended,
        }
    }

    fn put_in(&mut self, begun: Option<Unit>) -> Result<(), Ended> {
        let mut buffer = Vec::new();
        // What an earlier server was at comes first: until it is noted, what the machine gives up
        // there cannot be told from what is still to be written.
        if let Some(unit) = begun {
            let _ = self.fill(unit, &mut buffer)?;
        }
        if ioctl_fionread(&self.tools.pipe.0).map_err(Broken::from)? > 0 {
            // An answer of an earlier server; the request may have gone already.
            self.take(HEADER + FAULT)?;
            self.send()?;
        }
        let mut next = self.filling.next();
        loop {
            if self.is_asked(next.is_none())? {
                self.answer(&mut buffer)?;
            } else if let Some(unit) = next {
                let pages = self.filling.pages(unit);
                // It may have been asked for meanwhile.
                if !self.filling.missing(unit.0, &pages).is_empty() {
                    // A page that cannot be loaded is refused if it is asked for (O6).
                    let _ = self.fill(unit, &mut buffer)?;
                }
                next = self.filling.next();
            }
        }
    }

    /// Returns whether there is a message; may wait for one.
    fn is_asked(&self, may_wait: bool) -> Result<bool, Ended> {
        let mut fds = [PollFd::new(&self.tools.stream, PollFlags::IN)];
        match poll(&mut fds, if may_wait { None } else { Some(Duration::ZERO) }) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(Ended::Broken(error.into())),
        }
    }

    /// Answers a message.
    fn answer(&mut self, buffer: &mut Vec<u8>) -> Result<(), Ended> {
        let Some(fault) = self.request()? else { return self.refuse(HEADER, Ended::Odd) };
        let all = HEADER + FAULT;
        let found = self.demand.layout.find(fault.at, fault.len);
        let Some((slot, pages)) = found.filter(|_| fault.len <= LEN_MAX) else {
            return self.refuse(all, Ended::Stray(fault));
        };
        let mut is_there = true;
        for unit in self.filling.missing(slot, &pages) {
            is_there &= match self.fill(unit, buffer) {
                Ok(filled) => filled.is_ok(),
                Err(ended) => return self.refuse(all, ended),
            };
        }
        // Where the machine has given up pages that were written, it gets zeros. Only a thread of
        // the VMM that waits for them asks, so nothing else is written there then.
        if is_there && let Err(ended) = self.write_holes(slot, &pages, &[]) {
            return self.refuse(all, ended);
        }
        self.decide(all, if is_there { Answer::DONE } else { Answer::REFUSED })?;
        if let Some(first) = self.first.take() {
            // Nobody waits for it any longer.
            let _ = first.send(());
        }
        Ok(())
    }

    /// Returns a fault that was asked for, and leaves it in the socket; nothing if it is something
    /// else.
    fn request(&self) -> Result<Option<Fault>, Broken> {
        let until = Instant::now() + PATIENCE;
        let mut bytes = [0; HEADER + FAULT];
        loop {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let len = match recv(&self.tools.stream, &mut bytes, flags) {
                Ok((_, 0)) => return Err(Broken::Left),
                Ok((_, len)) => len,
                Err(Errno::INTR | Errno::AGAIN) => 0,
                Err(error) => return Err(error.into()),
            };
            let (header, fault) = bytes.split_first_chunk().expect("it is longer");
            let expected = Request::new(Command::PageFault, FAULT as u64);
            if len >= HEADER && Request::decode(header)? != expected {
                return Ok(None);
            }
            if len == bytes.len() {
                return Ok(Some(Fault::decode(fault.try_into().expect("as many bytes"))));
            }
            if Instant::now() > until {
                return Err(Broken::Late(PATIENCE));
            }
            thread::sleep(BREATH);
        }
    }

    /// Answers a request of so many bytes.
    fn decide(&self, bytes: usize, answer: Answer) -> Result<(), Broken> {
        // It has room for one.
        rustix::io::write(&self.tools.pipe.1, &answer.encode())?;
        self.take(bytes)?;
        self.send()
    }

    /// Takes a request out of the socket, if it is there.
    fn take(&self, bytes: usize) -> Result<(), Broken> {
        let mut request = [0; HEADER + FAULT];
        let stream = &self.tools.stream;
        match retry_on_intr(|| recv(stream, &mut request[..bytes], RecvFlags::DONTWAIT)) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends the answer that is in the pipe.
    fn send(&self) -> Result<(), Broken> {
        let (from, to, flags) = (&self.tools.pipe.0, &self.tools.stream, SpliceFlags::empty());
        while ioctl_fionread(from)? > 0 {
            match splice(from, None, to, None, HEADER, flags) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((&self.tools.progress).seek_relative(1)?)
    }

    fn refuse(&self, bytes: usize, ended: Ended) -> Result<(), Ended> {
        // What it did is what is reported.
        let _ = self.decide(bytes, Answer::REFUSED);
        Err(ended)
    }

    /// Writes a unit, zeros included: a page that was asked for has to be in the file.
    ///
    /// # Errors
    /// Outer: the file cannot be written, so what is in it is unknown. Inner: a page cannot be
    /// loaded, and nothing was written.
    fn fill(&mut self, unit: Unit, buffer: &mut Vec<u8>) -> Result<Result<(), ImageError>, Ended> {
        let Demand { image, .. } = &self.demand;
        let pages = self.filling.pages(unit);
        buffer.clear();
        buffer.resize((pages.end - pages.start) as usize * PAGE, 0);
        for (page, bytes) in pages.clone().zip(buffer.chunks_exact_mut(PAGE)) {
            if let Err(source) = image.gate.within(|| image.load(page, bytes)) {
                return Ok(Err(ImageError::Load { page, source }));
            }
        }
        let at = self.filling.number(unit);
        let note = |noted| self.tools.progress.write_all_at(&[noted], at).map_err(Ended::Full);
        note(BEGUN)?;
        self.write_holes(unit.0, &pages, buffer)?;
        note(WRITTEN)?;
        self.filling.wrote(unit);
        Ok(Ok(()))
    }

    /// Writes bytes, or zeros, to the pages of a range that are holes: what is there may be the
    /// machine's, from a unit that an earlier server wrote last.
    fn write_holes(&self, slot: usize, pages: &Range<u64>, bytes: &[u8]) -> Result<(), Ended> {
        let (file, slot) = (&self.tools.files[slot], &self.demand.layout.slots[slot]);
        let next = |at| seek(file, SeekFrom::Data(at)).unwrap_or(u64::MAX);
        let write = |at, bytes: &[u8]| file.write_all_at(bytes, at).map_err(Ended::Full);
        if !bytes.is_empty() && next(slot.at(pages.start)) >= slot.at(pages.end) {
            return write(slot.at(pages.start), bytes);
        }
        let mut bytes = bytes.chunks_exact(PAGE);
        for page in pages.clone() {
            let (at, bytes) = (slot.at(page), bytes.next().unwrap_or(&[0; PAGE]));
            if next(at) != at {
                write(at, bytes)?;
            }
        }
        Ok(())
    }
}
