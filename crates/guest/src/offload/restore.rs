//! Restores a machine: the sender's side of a migration.
//!
//! Several threads fill the files beforehand; each takes the number of the next piece.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use thiserror::Error;

use super::demand::{Demand, OnDemand};
use super::huge;
use super::layout::Layout;
use super::socket::{Broken, Peer};
use super::wire::{Command, Refused};
use crate::images::{Claim, Image, ImageError, Images, Machine};
use crate::keep::{Handed, Link};

/// How long a VMM may take for an answer: it makes the machine in between.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a VMM may take to ask for its first page, once it has the state.
const FIRST: Duration = Duration::from_secs(10);

/// Pages that a thread fills at a time, and most threads.
const PIECE: usize = 4096;
const THREADS_MAX: usize = 4;

/// How a machine is restored.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Restore {
    /// It runs at once; otherwise it stays paused.
    pub resume: bool,
    /// It gets its pages as it needs them; otherwise they are there before it is.
    pub on_demand: bool,
}

/// A machine that was restored.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Restored {
    /// Pages of its memory.
    pub pages: u64,
    /// Of these, pages that were written before it was sent: those that are not zeros, or none if
    /// they come on demand.
    pub written_pages: u64,
}

/// Why a machine was not restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The image is one of memory alone.
    #[error("{0} is not a machine of cloud-hypervisor: use its socket as backend_path")]
    NoMachine(String),
    /// The image's configuration does not fit it.
    #[error("the image is damaged: {0}")]
    Layout(#[from] Refused),
    /// The image has other memory than its configuration says.
    #[error("the image is damaged: it has {0} pages, its configuration names {1}")]
    Pages(u64, u64),
    /// The image cannot be read.
    #[error("{0}")]
    Image(#[from] ImageError),
    /// There is nobody to send it to.
    #[error("no cloud-hypervisor listens at {0} ({1}): start receive-migration first")]
    Nobody(PathBuf, io::Error),
    /// Another user listens there: path and number.
    #[error(
        "user {1} listens at {0}, who would get the machine's memory: run the VMM as the user of \
         this server, and let only that user write to the socket's folder"
    )]
    Stranger(PathBuf, u32),
    /// The VMM does not take it.
    #[error("cloud-hypervisor did not take the machine: {0}")]
    Broken(#[from] Broken),
    /// The VMM does not ask for pages.
    #[error(
        "cloud-hypervisor asks for no pages: give receive-migration memory_mode=postcopy, or \
         leave out --on-demand"
    )]
    NotAsked,
    /// Files in memory get huge pages here.
    #[error(
        "{0} gives files in memory huge pages, with which some versions of cloud-hypervisor read \
         wrong pages on demand: write never to it, or leave out --on-demand"
    )]
    Huge(PathBuf),
    /// There is no memory, or no descriptor.
    #[error("the memory of a machine cannot be made: {0}")]
    System(#[from] io::Error),
}

/// Restores a machine from an image: sends it to the cloud-hypervisor that listens at `socket`. One
/// that gets its pages on demand is counted by `all` until it has them, and outlives this process
/// by the front of `link`, if there is one; `tell` is given a line if it does not get them.
///
/// # Errors
/// [`RestoreError`]; the VMM has no machine then, or one that it was not told to run.
pub fn restore(
    images: &Arc<Images>,
    name: &str,
    socket: &Path,
    how: Restore,
    (all, link, tell): (&OnDemand, Option<&Arc<Link>>, impl Fn(&str) + Send + 'static),
) -> Result<Restored, RestoreError> {
    let (image, layout, machine) = machine(images, name)?;
    if let Some(setting) = huge::setting(huge::PLACE.as_ref()).filter(|_| how.on_demand) {
        return Err(RestoreError::Huge(setting));
    }
    let connect = || {
        let failed = |error| RestoreError::Nobody(socket.into(), error);
        let stream = UnixStream::connect(socket).map_err(failed)?;
        let user = socket_peercred(&stream).map_err(io::Error::from)?.uid;
        match user.is_root() || user == geteuid() {
            true => Ok(stream),
            false => Err(RestoreError::Stranger(socket.into(), user.as_raw())),
        }
    };
    let peer = Peer::new(connect()?, PATIENCE);
    let files = files(&layout)?;
    let written_pages = if how.on_demand { 0 } else { fill(&image, &layout, &files)? };
    peer.ask((Command::Start, "Start"), &[], None)?;
    for (slot, file) in layout.slots.iter().zip(&files) {
        let number = slot.number.to_le_bytes();
        peer.ask((Command::MemoryFd, "its memory"), &number, Some(file.as_fd()))?;
    }
    peer.ask((Command::Config, "its configuration"), &machine.config, None)?;
    let pages = image.pages();
    let begun = match how.on_demand {
        true => {
            let demand = Demand { image, layout };
            // From here on pages are asked for: the VMM touches memory as it reads the state.
            Some(demand.start((connect()?, files), all, link, tell)?)
        }
        false => None,
    };
    let finish = || {
        peer.ask((Command::State, "its state"), &machine.state, None)?;
        if begun.as_ref().is_some_and(|begun| begun.asked.recv_timeout(FIRST).is_err()) {
            return Err(RestoreError::NotAsked);
        }
        match how.resume {
            true => peer.ask((Command::Complete, "to run it"), &[], None)?,
            false => peer.ask((Command::CompletePaused, "to keep it"), &[], None)?,
        }
        Ok(Restored { pages, written_pages })
    };
    finish().inspect_err(|_| {
        // Nobody needs its pages.
        if let Some(begun) = &begun {
            let _ = begun.stream.shutdown(Shutdown::Both);
        }
    })
}

/// Goes on with a machine that another server put pages into. `tell` is given a line if it does not
/// get them all.
///
/// # Errors
/// Its image cannot be read, or there is no thread; the machine waits.
pub fn adopt(
    Handed { number, image, fds }: Handed,
    images: &Arc<Images>,
    all: &OnDemand,
    link: &Arc<Link>,
    tell: impl Fn(&str) + Send + 'static,
) -> Result<(), RestoreError> {
    let (image, layout, _) = machine(images, &image)?;
    let demand = Demand { image, layout };
    Ok(demand.adopt(fds, all, (link, number), tell)?)
}

/// Returns an image of a machine, its layout, and its documents.
fn machine(images: &Images, name: &str) -> Result<(Claim, Layout, Machine), RestoreError> {
    let image = images.claim(name)?;
    let machine = image.machine()?.filter(|machine| !machine.is_state());
    let machine = machine.ok_or_else(|| RestoreError::NoMachine(name.into()))?;
    let layout = Layout::of(&machine.config)?;
    match layout.pages() == image.pages() {
        true => Ok((image, layout, machine)),
        false => Err(RestoreError::Pages(image.pages(), layout.pages())),
    }
}

/// Returns a file for each slot, as long as it has to be. Not one for each zone: slots of one zone
/// may be several files, as memory that was plugged in is.
fn files(layout: &Layout) -> io::Result<Vec<File>> {
    let file = |slot: &super::layout::Slot| {
        let file = File::from(memfd_create("zfold-machine", MemfdFlags::CLOEXEC)?);
        file.set_len(slot.file_len())?;
        Ok(file)
    };
    layout.slots.iter().map(file).collect()
}

/// Writes all pages that are not zeros; returns how many there are.
fn fill(image: &Image, layout: &Layout, files: &[File]) -> Result<u64, RestoreError> {
    let pieces: Vec<_> = (0..layout.slots.len())
        .flat_map(|place| {
            let pages = layout.slots[place].pages.clone();
            let firsts = pages.clone().step_by(PIECE);
            firsts.map(move |first| (place, first..pages.end.min(first + PIECE as u64)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut written = 0;
        // Relaxed: each number is taken once, and nothing else is passed on by it.
        while let Some((place, pages)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (slot, file) = (&layout.slots[*place], &files[*place]);
            let write = |page, bytes: &[u8]| file.write_all_at(bytes, slot.at(page));
            written += image.runs(pages.clone(), write)?;
        }
        Ok(written)
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(THREADS_MAX).min(pieces.len()).max(1);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine: Result<u64, ImageError> = work();
        let joined = others.into_iter().map(|one| one.join().expect("it does not panic"));
        joined.chain([mine]).sum::<Result<u64, ImageError>>()
    })
    .map_err(RestoreError::from)
}

#[cfg(test)]
mod tests {
    use zfold_store::CodecKind;

    use super::*;
    use crate::images::{Part, images_options};

    /// As a snapshot may say that is damaged.
    #[test]
    fn an_image_that_its_configuration_does_not_fit_is_not_sent() {
        let images = Images::new(&images_options(CodecKind::Lz4.into(), None)).expect("a store");
        let images = Arc::new(images);
        let file = File::from(memfd_create("memory", MemfdFlags::CLOEXEC).expect("a file"));
        file.set_len(4096).expect("a length");
        let part = Part { file: &file, from: 0, pages: 1 };
        let two = br#"{"memory_manager_data":{"guest_ram_mappings":[
            {"slot":0,"gpa":0,"size":8192,"file_offset":0}]}}"#;
        for (name, config, said) in [("odd", &b"{"[..], "damaged"), ("less", two, "1 pages")] {
            let machine = Machine { config: config.into(), state: vec![1] };
            images.import_machine(name, &[part], &machine, None).expect("imported");
            let (socket, all) = (Path::new("/nobody"), OnDemand::default());
            let refused =
                restore(&images, name, socket, Restore::default(), (&all, None, |_: &str| {}));
            let refused = refused.expect_err("refused").to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }
}
