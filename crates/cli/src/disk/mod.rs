//! `zfold disk`: from arguments to a device that is served, until the server is ended.
//!
//! ```text
//!   arguments -> DiskPlan -> Device (store, disk) -> Frontends (NBD, FUSE, vhost-user)
//!                              ^                     |
//!      control socket, metrics -+--- Server ---------+      signals, --run -> Event -> main thread
//! ```
//!
//! - R1: everything that can be refused is refused before the first address is printed.
//! - R2: the main thread does nothing but wait for events; what is served does not wait for it.
//! - R3: at the end the frontends are closed, and then the device, before a snapshot is written,
//!   so it holds every acknowledged write, even those of a program that has a file open that cannot
//!   be closed.

mod command;
pub(crate) mod ctl;
mod device;
pub(crate) mod figures;
mod frontends;
mod metrics;
mod plan;
pub(crate) mod report;
mod runner;
mod server;
mod snapshot;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use zfold_disk::nbd::{Address, Listener};

use crate::args::DiskArgs;
use crate::control::metrics::{TERMS, answer};
use crate::control::service::Service;
use crate::control::{protocol, runtime};
use crate::shared::exit::{self, Failure};
use crate::shared::secret::keep_memory;
use crate::shared::signals;
use crate::shared::{notify, protect};
use device::Device;
use frontends::Frontends;
use plan::DiskPlan;
use runner::Runner;
use server::{Event, Server, Shared};

/// How long clients have to finish at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves the requested device until a signal, a command or the end of `--run`.
pub(crate) fn run(args: DiskArgs) -> Result<ExitCode, Failure> {
    keep_memory();
    let plan = DiskPlan::new(args)?;
    let (events, happened) = mpsc::channel();
    watch_signals(events.clone()).map_err(|error| system("watch signals", &error))?;
    let runner = plan.args.run.clone().map(|command| Runner::new(command, events.clone()));
    let runner = runner.transpose().map_err(|error| system("start a thread", &error))?;
    if !plan.args.no_mlock {
        // For attaching one by NBD, docs/use/disk.md names the risk.
        protect::protect(plan.args.fuse.is_some());
    }
    runtime::sweep();
    let side_services = bind_side_services(&plan.args)?;
    let device = Device::new(plan)?;
    let frontends = Frontends::open(&device)?;
    let server = Arc::new(Server { device, frontends, started: Instant::now() });
    let (status, services) = match open_side_services(&server, side_services, events) {
        Ok(services) => (serve(&server, runner, &happened), services),
        Err(failure) => (Err(failure), Vec::new()),
    };
    notify::tell("STOPPING=1");
    server.frontends.close(DRAIN);
    drop(services);
    server.device.disk.close();
    let saved = server.device.save();
    if let Some(far) = &server.device.far {
        // Its pages can no longer be used.
        far.close();
    }
    saved.map_err(Failure::new)?;
    status.map(ExitCode::from)
}

/// Tells that all is ready, and waits for the end; returns the exit status.
fn serve(
    server: &Shared,
    runner: Option<Runner>,
    happened: &Receiver<Event>,
) -> Result<u8, Failure> {
    match &runner {
        Some(runner) => runner.start(server),
        None => exit::write_data((server.frontends.addresses().join("\n") + "\n").as_bytes())?,
    }
    notify::tell("READY=1");
    if let Ok(Event::Ended(status)) = happened.recv() {
        return Ok(status);
    }
    let Some(runner) = runner else { return Ok(0) };
    runner.stop();
    match happened.recv_timeout(DRAIN) {
        Ok(Event::Ended(status)) => Ok(status),
        _ => Err(Failure::new("the command of --run did not end and is still running")),
    }
}

/// The sockets of control and metrics.
struct SideServices {
    control: Listener,
    metrics: Option<Listener>,
}

fn bind_side_services(args: &DiskArgs) -> Result<SideServices, Failure> {
    let bind = |what: &str, address: &Address| {
        let bound = Listener::bind(address);
        bound.map_err(|error| Failure::new(format!("{what}: {error}")))
    };
    let control = args.control.clone().map_or_else(runtime::control_path, Ok)?;
    let control = bind("control socket", &Address::Unix(control))?;
    let metrics = args.metrics.as_ref().map(|address| bind("metrics", address)).transpose()?;
    Ok(SideServices { control, metrics })
}

fn open_side_services(
    server: &Shared,
    sockets: SideServices,
    events: Sender<Event>,
) -> Result<Vec<Service>, Failure> {
    let failed = |error| system("start a thread", &error);
    let mut services = Vec::new();
    let shared = Arc::clone(server);
    let control = Service::start(sockets.control.into_parts(), protocol::TERMS, move |stream| {
        if protocol::answer(stream, &|request| shared.answer(request), None) {
            // The main thread may be about to end already.
            let _ = events.send(Event::Stop);
        }
    });
    services.push(control.map_err(failed)?);
    if let Some(listener) = sockets.metrics {
        let shared = Arc::clone(server);
        let metrics = Service::start(listener.into_parts(), TERMS, move |stream| {
            answer(stream, &|| metrics::text(&shared.report()));
        });
        services.push(metrics.map_err(failed)?);
    }
    Ok(services)
}

/// Turns signals into events.
fn watch_signals(events: Sender<Event>) -> io::Result<()> {
    signals::watch("ended at once: nothing was saved, clients were disconnected", move || {
        // There is no receiver only while the process ends.
        let _ = events.send(Event::Stop);
    })
}

fn system(what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what}: {error}; raise the limits of this user (ulimit -a)"))
}
