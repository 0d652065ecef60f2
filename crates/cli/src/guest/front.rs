//! The front of `zfold guest serve`: what the shell started, and what guests outlive servers by.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zfold_disk::nbd::{Address, Listener, SocketFile};
use zfold_guest::{End, Front, FrontOptions, News};

use super::failed::system;
use super::places::Places;
use crate::args::{GuestServeArgs, Loss};
use crate::control::runtime;
use crate::shared::exit::{self, Failure, remark};
use crate::shared::notify;
use crate::shared::signals;

/// Keeps guests until a signal or a command ends that.
pub(super) fn run(args: &GuestServeArgs) -> Result<ExitCode, Failure> {
    runtime::sweep();
    // Each image has a socket, and each guest some descriptors.
    let limit = getrlimit(Resource::Nofile);
    // It may always be raised so far.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let control = args.control.clone().map_or_else(runtime::guests_path, Ok)?;
    let control = Listener::bind(&Address::Unix(control));
    let control = control.map_err(|error| Failure::new(format!("control socket: {error}")))?;
    let (control, _file) = control.into_parts();
    let (metrics, _metrics_file) = metrics(args)?;
    let sockets: Vec<_> = std::iter::once(control).chain(metrics).collect();
    let places = Places::of(args).map_err(|error| system("find --sockets", &error))?;
    let bind = move |image: &str| {
        places
            .image(image)
            .map(|(path, listener, file)| (path, listener, Box::new(file) as Box<dyn Send>))
    };
    let mut options = FrontOptions::default();
    options.places = args.max_guests as usize;
    options.kills_lost = args.on_loss == Loss::Kill;
    let made = Front::new(Box::new(bind), options, remark);
    let (front, channel) = made.map_err(|error| system("make a channel", &error))?;
    let told = front.clone();
    let lost = "ended at once: nothing was saved, and guests wait for ever";
    let watched = signals::watch(lost, move || {
        notify::tell("STOPPING=1");
        told.release();
    });
    watched.map_err(|error| system("watch signals", &error))?;
    let mut child = start(channel).map_err(|error| system("start a server", &error))?;
    let hear = |heard| match heard {
        News::Ready => {
            let images = front.addresses().into_iter();
            let lines = images.map(|(image, path)| format!("{image} {}\n", path.display()));
            // Who does not read it can still ask for it.
            let _ = exit::write_data(lines.collect::<String>().as_bytes());
            notify::tell("READY=1");
        }
        News::Stop => {
            notify::tell("STOPPING=1");
            front.release();
        }
    };
    match front.run(&sockets, hear) {
        End::Done(status) => Ok(ExitCode::from(status)),
        End::NotBegun => not_begun(&mut child),
        End::Lost(0) => Err(Failure::new("the guest server was lost: see above")),
        End::Lost(guests) => Err(Failure::new(format!(
            "the guest server was lost, and {guests} guests wait for ever: end their processes"
        ))),
    }
}

/// Returns the socket of metrics, if there is to be one, and its file.
fn metrics(args: &GuestServeArgs) -> Result<(Option<OwnedFd>, Option<SocketFile>), Failure> {
    let Some(address) = &args.metrics else { return Ok((None, None)) };
    let bound = Listener::bind(address);
    let (socket, file) =
        bound.map_err(|error| Failure::new(format!("metrics: {error}")))?.into_parts();
    Ok((Some(socket), file))
}

/// Starts the first server, with its end of a channel as standard input.
fn start(channel: OwnedFd) -> std::io::Result<Child> {
    // Not by its name, which may be another program's by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("zfold").args(std::env::args_os().skip(1)).arg("--for-front");
    command.env_remove("NOTIFY_SOCKET").stdin(channel).stdout(Stdio::null());
    // What a terminal sends is the front's.
    command.process_group(0).spawn()
}

/// Ends as the first server did, which has said why.
fn not_begun(child: &mut Child) -> Result<ExitCode, Failure> {
    let status = child.wait().map_err(|error| system("wait for a server", &error))?;
    match status.code() {
        Some(code) => Ok(ExitCode::from(code as u8)),
        None => Err(Failure::new(format!("the server did not begin: {status}; start it again"))),
    }
}
