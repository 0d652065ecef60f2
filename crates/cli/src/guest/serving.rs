//! A process that serves guests, for a front.
//!
//! The first one imports the images; the others are copies of it, or of each other, made while they
//! were at work (`zfold_guest::renew`), and begin here with the images that were there then. What
//! a copy finds beside the images is what `Common` holds: it changes by commands only, after which
//! a new copy is made.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use zfold_guest::{
    Begin, Images, Link, Order, Server, ServerOptions, adopt, images_options, renew,
};
use zfold_pool::Lock;
use zfold_store::BackingOptions;

use super::failed::{not_saved, system};
use super::machines::Machines;
use super::metrics;
use super::places::Places;
use super::server::{Renew, Served};
use crate::args::{GuestServeArgs, Loss};
use crate::control::metrics::{TERMS, answer};
use crate::control::protocol;
use crate::control::service::Service;
use crate::shared::backing::{self, BackingPlan, Target};
use crate::shared::exit::{Failure, remark};
use crate::shared::protect;

/// How long guests may take at the end to get their pages.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a new backing file; it takes as much room as is written.
const BACKING_LEN: u64 = 64 << 30;

/// Wait between two looks whether guests are left, of a server whose front is gone.
const LOOK: Duration = Duration::from_secs(1);

/// What a server's main thread waits for.
enum Event {
    Front(Order),
    /// Somebody asks for the end.
    Stop,
}

/// What all servers of a front have in common.
#[derive(Clone)]
struct Common {
    args: Arc<GuestServeArgs>,
    images: Arc<Images>,
    started: Instant,
}

/// Gets the images, and serves them.
pub(super) fn first(args: &GuestServeArgs) -> Result<ExitCode, Failure> {
    let channel = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
    let channel = channel.map_err(|error| system("use a channel", &error.into()))?;
    let images = opened(args)?;
    let common = Common { args: Arc::new(args.clone()), images, started: Instant::now() };
    serve(&common, channel).map(ExitCode::from)
}

/// Goes on where another server ended; returns the status of this process.
fn next(common: &Common, channel: OwnedFd) -> u8 {
    serve(common, channel).unwrap_or_else(|failure| {
        remark(failure.line());
        failure.status()
    })
}

fn serve(common: &Common, channel: OwnedFd) -> Result<u8, Failure> {
    let Common { args, images, started } = common;
    let mut options = ServerOptions::default();
    options.kills_refused = args.on_refusal == Loss::Kill;
    (options.fills, options.fill_rate) = (args.fill, args.fill_rate.0);
    options.records_first = !args.no_record;
    let server = Server::new(Arc::clone(images), options, remark);
    let server = Arc::new(server.map_err(|error| system("make a descriptor", &error))?);
    let (events, happened) = mpsc::channel();
    let told = events.clone();
    let tell = move |said| {
        // Nobody listens only while the process ends.
        let _ = told.send(Event::Front(said));
    };
    let link = Link::start(channel, Arc::clone(&server), tell);
    let (link, begin) = link.map_err(|error| system("start a thread", &error))?;
    let (link, Begin { front, takeovers, sockets }) = (Arc::new(link), begin);
    if !args.no_mlock {
        // Who restores guests on a machine that is short of memory sees it by their faults.
        protect::protect(false);
    }
    let again = common.clone();
    let (of, to) = (Arc::clone(images), Arc::clone(&link));
    let places = Places::of(args).map_err(|error| system("find --sockets", &error))?;
    let renew: Renew = Box::new(move || renew(&of, &to, &|channel| next(&again, channel)));
    let served = Served {
        images: Arc::clone(images),
        server,
        link,
        renew,
        codec: args.codec.to_string(),
        started: *started,
        front,
        takeovers,
        sockets: Lock::default(),
        ends: Lock::default(),
        machines: Machines::new(places),
    };
    let served = Arc::new(served);
    if takeovers == 0 {
        (served.renew)().map_err(|error| system("start a process", &error))?;
    }
    // Machines have no sockets: they are sent.
    for info in images.list().into_iter().filter(|info| info.machine_bytes.is_none()) {
        served.open(&info.name).map_err(Failure::new)?;
    }
    let _services = open_services(&served, sockets, events)?;
    served.link.ready();
    let status = wait(&served, args, &happened);
    served.link.done(status);
    Ok(status)
}

/// Does what the front says until the end; returns the status of this process.
fn wait(served: &Served, args: &GuestServeArgs, happened: &Receiver<Event>) -> u8 {
    let mut is_alone = false;
    loop {
        match happened.recv_timeout(LOOK) {
            Ok(Event::Front(Order::Renew)) => {
                if let Err(error) = (served.renew)() {
                    remark(&format!("this server has no standby process: {error}"));
                }
            }
            Ok(Event::Front(Order::Machine(handed))) => {
                let (demand, link) = (&served.machines.demand, &served.link);
                if let Err(error) = adopt(handed, &served.images, demand, link, remark) {
                    remark(&format!("a machine waits for its pages: {error}; end it"));
                }
            }
            Ok(Event::Front(Order::Release)) => return release(served, args),
            Ok(Event::Front(Order::Gone)) if !is_alone => {
                is_alone = true;
                remark("the front is gone: guests are served until they end, but no new ones");
            }
            Ok(Event::Stop) => served.link.stop(),
            _ => {}
        }
        let is_idle = || served.machines.demand.number() == 0;
        if is_alone && is_idle() && served.server.stats().guests.is_empty() {
            return 1;
        }
    }
}

/// Gives guests all of their pages, and saves the images.
fn release(served: &Served, args: &GuestServeArgs) -> u8 {
    served.end();
    let left = served.server.release(PATIENCE);
    if left > 0 {
        remark(&format!("{left} guests could not be given all their pages: they wait for ever"));
    }
    // Their VMMs ask for every page, whether or not it is there.
    let left = served.machines.demand.wait(PATIENCE);
    if left > 0 {
        remark(&format!("{left} machines did not get all their pages: restore them again"));
    }
    let save = |path| served.images.save_to(path).map_err(|error| not_saved(path, &error));
    match args.save.as_deref().map(save).transpose() {
        Ok(_) => 0,
        Err(failure) => {
            remark(failure.line());
            failure.status()
        }
    }
}

/// Returns the images that were asked for.
fn opened(args: &GuestServeArgs) -> Result<Arc<Images>, Failure> {
    let limit = args.limit.map(|limit| limit.0);
    let options = images_options(args.codec, limit).with_backing(backing(args)?);
    let images = Images::new(&options);
    let images = Arc::new(images.map_err(|error| Failure::new(error.to_string()))?);
    if let Some(path) = &args.load {
        load(&images, path, args.save.as_ref() == Some(path))?;
    }
    for image in &args.image {
        super::server::import(&images, &image.name, &image.file, None, None)
            .map_err(Failure::new)?;
    }
    Ok(images)
}

/// Opens the file to which pages are written beyond the limit.
fn backing(args: &GuestServeArgs) -> Result<Option<BackingOptions>, Failure> {
    let Some(path) = args.backing.clone() else { return Ok(None) };
    let target = Target::File(path);
    let (size, force) = (args.backing_size.map(|size| size.0), args.force);
    let plan = BackingPlan { target, size, force };
    let opened = backing::open(&plan, BACKING_LEN)?;
    Ok(Some(opened.options))
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

/// Answers at the sockets that the front has: that of control, and that of metrics.
fn open_services(
    served: &Arc<Served>,
    sockets: Vec<OwnedFd>,
    events: Sender<Event>,
) -> Result<Vec<Service>, Failure> {
    let mut sockets = sockets.into_iter();
    let asked = Arc::clone(served);
    let control = sockets.next().map(|control| {
        Service::start((control, None), protocol::TERMS, move |stream| {
            if protocol::answer(stream, &|request| asked.answer(&request), None) {
                // The main thread may be about to end already.
                let _ = events.send(Event::Stop);
            }
        })
    });
    let scraped = Arc::clone(served);
    let scrapes = sockets.next().map(|metrics| {
        Service::start((metrics, None), TERMS, move |stream| {
            answer(stream, &|| metrics::text(&scraped.report()));
        })
    });
    let services = control.into_iter().chain(scrapes).collect::<Result<_, _>>();
    services.map_err(|error| system("start a thread", &error))
}
