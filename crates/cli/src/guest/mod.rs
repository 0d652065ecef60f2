//! `zfold guest`: memory of virtual machines, kept compressed once, restored any number of times.
//!
//! - R1: everything that can be refused is refused before the first socket is told.
//! - R2: at the end guests get all of their pages before anything is closed (guest/G4), and
//!   then the images are saved.

mod ask;
mod failed;
mod front;
mod machines;
mod metrics;
mod places;
mod receiving;
pub(crate) mod report;
mod server;
mod serving;

use std::path::PathBuf;
use std::process::ExitCode;

use zfold_far::place::Place;
use zfold_store::files::replaceable;

use failed::not_saved;

use crate::args::{GuestArgs, GuestCommand, GuestServeArgs};
use crate::settings::STORE_LIMIT_MIN;
use crate::shared::exit::Failure;
use crate::shared::secret::keep_memory;
use crate::shared::size::at_least;

/// Least --fill-rate: a piece of pages at a time.
const FILL_RATE_MIN: u64 = 1 << 20;

/// Carries out the command.
pub(crate) fn run(args: &GuestArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        GuestCommand::Serve(args) => serve(args),
        command => ask::run(command).map(|()| ExitCode::SUCCESS),
    }
}

/// Serves images until a signal or a command ends it.
fn serve(args: &GuestServeArgs) -> Result<ExitCode, Failure> {
    keep_memory();
    if args.for_front {
        return serving::first(args);
    }
    check(args)?;
    front::run(args)
}

/// Refuses what makes no sense.
fn check(args: &GuestServeArgs) -> Result<(), Failure> {
    if let Some(limit) = args.limit {
        at_least("--limit", limit.0, STORE_LIMIT_MIN)?;
    }
    at_least("--fill-rate", args.fill_rate.0, FILL_RATE_MIN)?;
    let is_far = |path: &PathBuf| path.to_str().is_some_and(Place::is_meant);
    if args.backing.as_ref().is_some_and(is_far) {
        return Err(Failure::usage(
            "--backing is a file or a block device for images: the process that stands by would \
             have no connection to another machine",
        ));
    }
    let mut names: Vec<_> = args.image.iter().map(|image| &image.name).collect();
    names.sort();
    if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
        return Err(Failure::usage(format!("{} is the name of two images: rename one", two[0])));
    }
    if let Some(path) = &args.save {
        replaceable(path).map_err(|error| not_saved(path, &error))?;
    }
    if let Some(folder) = args.sockets.as_ref().filter(|folder| !folder.is_dir()) {
        let folder = folder.display();
        return Err(Failure::usage(format!("--sockets {folder} is not a folder: make it first")));
    }
    Ok(())
}
