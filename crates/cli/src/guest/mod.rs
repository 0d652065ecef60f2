//! `zfold guest`: memory of virtual machines, kept compressed once, restored any number of times.
//!
//! - R1: everything that can be refused is refused before the first socket is told.
//! - R2: at the end guests get all of their pages before anything is closed (guest/G4), and
//!   then the images are saved.

mod ask;
pub(crate) mod report;
mod server;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use zfold_disk::nbd::{Address, Listener};
use zfold_guest::{Images, Server, ServerOptions, images_options};
use zfold_store::files::replaceable;

use crate::args::{GuestArgs, GuestCommand, GuestServeArgs};
use crate::control::service::Service;
use crate::control::{protocol, runtime};
use crate::settings::STORE_LIMIT_MIN;
use crate::shared::exit::{self, Failure, remark};
use crate::shared::secret::keep_memory;
use crate::shared::signals::{self, Told};
use crate::shared::size::at_least;
use crate::shared::{notify, protect};
use server::Served;

/// How long guests may take at the end to get their pages.
const PATIENCE: Duration = Duration::from_secs(60);

/// Carries out the command.
pub(crate) fn run(args: &GuestArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        GuestCommand::Serve(args) => serve(args),
        command => ask::run(command),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Serves images until a signal or a command ends it.
fn serve(args: &GuestServeArgs) -> Result<(), Failure> {
    keep_memory();
    check(args)?;
    let (events, happened) = mpsc::channel();
    let told = events.clone();
    let lost = "ended at once: nothing was saved, and guests wait for ever";
    let watched = signals::watch(lost, move |signal| {
        if signal == Told::Stop {
            // Nobody listens only while the process ends.
            let _ = told.send(());
        }
    });
    watched.map_err(|error| system("watch signals", &error))?;
    if !args.no_mlock {
        // Who restores guests on a machine that is short of memory sees it by their faults.
        protect::protect(false);
    }
    runtime::sweep();
    let control = args.control.clone().map_or_else(runtime::guests_path, Ok)?;
    let control = Listener::bind(&Address::Unix(control));
    let control = control.map_err(|error| Failure::new(format!("control socket: {error}")))?;
    let served = Arc::new(opened(args)?);
    let service = open_control(&served, control, events)?;
    exit::write_data(served.addresses().as_bytes())?;
    notify::tell("READY=1");
    wait(&happened);
    notify::tell("STOPPING=1");
    let left = served.release(PATIENCE);
    drop(service);
    let saved = args.save.as_deref().map_or(Ok(()), |path| save(&served, path));
    if left > 0 {
        remark(&format!("{left} guests could not be given all of their pages: they wait for ever"));
    }
    saved
}

/// Refuses what makes no sense.
fn check(args: &GuestServeArgs) -> Result<(), Failure> {
    if let Some(limit) = args.limit {
        at_least("--limit", limit.0, STORE_LIMIT_MIN)?;
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
        return Err(Failure::usage(format!("--sockets {folder} is no folder: make it first")));
    }
    Ok(())
}

/// Returns a server with all images that were asked for.
fn opened(args: &GuestServeArgs) -> Result<Served, Failure> {
    let limit = args.limit.map(|limit| limit.0);
    let images = Images::new(&images_options(args.codec, limit));
    let images = Arc::new(images.map_err(|error| Failure::new(error.to_string()))?);
    if let Some(path) = &args.load {
        load(&images, path, args.save.as_ref() == Some(path))?;
    }
    let mut options = ServerOptions::default();
    options.places = args.max_guests as usize;
    let server = Server::new(Arc::clone(&images), options, remark);
    let server = server.map_err(|error| system("make a descriptor", &error))?;
    let folder = args.sockets.as_deref().map(std::path::absolute).transpose();
    let folder = folder.map_err(|error| system("find --sockets", &error))?;
    let mode = args.socket_mode.0;
    let served = Served::new(images, server, args.codec.to_string(), folder, mode);
    for info in served.images.list() {
        served.open(&info.name)?;
    }
    for image in &args.image {
        served.import(&image.name, &image.file, None).map_err(Failure::new)?;
    }
    Ok(served)
}

fn load(images: &Images, path: &Path, may_be_missing: bool) -> Result<(), Failure> {
    if may_be_missing && !path.exists() {
        remark(&format!("there are no images yet: {} does not exist", path.display()));
        return Ok(());
    }
    let report = images.load_from(path).map_err(|error| {
        let path = path.display();
        Failure::new(format!("cannot load {path}: {error}; give another file, or no --load"))
    })?;
    if report.lost_pages > 0 {
        remark(&format!(
            "{} of the {} pages in {} could not be read when it was saved: guests that ask for \
             them wait for ever",
            report.lost_pages,
            report.pages,
            path.display()
        ));
    }
    Ok(())
}

fn save(served: &Served, path: &Path) -> Result<(), Failure> {
    served.images.save_to(path).map(drop).map_err(|error| not_saved(path, &error))
}

fn not_saved(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot save to {}: {why}; name another file", path.display()))
}

fn open_control(
    served: &Arc<Served>,
    listener: Listener,
    events: Sender<()>,
) -> Result<Service, Failure> {
    let served = Arc::clone(served);
    let service = Service::start(listener, protocol::TERMS, move |stream| {
        if protocol::answer(stream, &|request| served.answer(&request)) {
            // The main thread may be about to end already.
            let _ = events.send(());
        }
    });
    service.map_err(|error| system("start a thread", &error))
}

/// Waits for the end.
fn wait(happened: &Receiver<()>) {
    // A sender is left as long as signals are watched.
    let _ = happened.recv();
}

fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot {what}: {error}; raise the limits of this user (ulimit -a)"))
}
