//! The manager of processes that ran before it: a process of its own, which `zfold attach` starts
//! and leaves.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::setsid;
use zfold_run::{
    AttachOptions, Control, Event, Files, GroupLimit, RunError, Running, access, remedy,
};
use zfold_store::pressure::MemoryLeft;

use super::asked::plan;
use crate::args::AttachArgs;
use crate::run::channel::{ToFront, ToManager, messages};
use crate::run::denied;
use crate::run::given::release_streams;
use crate::run::manager::{BACKGROUND, fail_loudly, of_process, serve_front, watch};
use crate::run::outbox::Outbox;
use crate::run::passed::catch;
use crate::run::steer;
use crate::shared::exit::Failure;
use crate::shared::size::format_size;
use crate::shared::table::size;

/// How long the front waits at most until the limit is kept.
const KEPT: Duration = Duration::from_secs(5);
/// Time between two looks.
const LOOKS: Duration = Duration::from_millis(20);

/// Holds the processes that the front names under a limit, to their end.
pub(crate) fn manage(args: &AttachArgs) -> Result<ExitCode, Failure> {
    serve_front("it belongs to zfold attach: use that", |_, files, socket| {
        hold(args, files, socket)
    })
}

fn cannot(what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("cannot {what}: {error}{}", remedy(&error)))
}

/// Does that; returns the last message.
fn hold(args: &AttachArgs, files: Files, socket: &UnixStream) -> Result<ToFront, Failure> {
    fail_loudly(socket.try_clone().map_err(cannot("copy a descriptor"))?);
    let copy = socket.try_clone().map_err(cannot("copy a descriptor"))?;
    let Some(ToManager::Attach(processes)) = messages(copy).next() else {
        return Err(Failure::new("the front of this manager was killed"));
    };
    let running: Vec<_> = processes.into_iter().map(Running::from_words).collect();
    let plan = plan(args, &running)?;
    let (pool, store, far) = plan.store()?;
    // A path of the backing was one in the front's folder. From here on nothing of the front's is
    // used (A2, A3).
    leave(files).map_err(cannot("leave the session"))?;
    let access = access().map_err(|denied| Failure::new(denied::why(&denied)))?;
    let own = std::process::id();
    let outbox = Arc::new(Outbox::start(socket).map_err(cannot("start a thread"))?);
    let watch = far.clone().map(|far| watch(far, own, &outbox)).transpose();
    let watch = watch.map_err(cannot("start a thread"))?;
    let (mut service, control) = (None, OnceLock::new());
    let steer = |given: Control| {
        // With a limit of its own, the group of this process is not the program's.
        let start = || {
            let open = plan.leaves_store_open();
            GroupLimit::start(given.clone(), MemoryLeft::new(), true, open)
        };
        service = steer::serve(given.clone(), own, &plan, plan.is_auto().then(start), far.clone());
        let _ = control.set(given);
    };
    let options = AttachOptions::new(running, plan.limit_bytes, pool, store);
    let told = zfold_run::attach(options, &access, steer, |event| {
        let message = match event {
            Event::Caught { processes, threads } => {
                if let Some(control) = control.get() {
                    tell_when_kept(control.clone(), Arc::clone(&outbox), processes, threads);
                }
                None
            }
            event => of_process(event),
        };
        // The others are of programs that were started.
        message.into_iter().for_each(|message| outbox.send(message));
    });
    // Its file goes with it. All that was said is sent before what is said last.
    drop((service, watch));
    if told.is_ok() {
        outbox.send(ToFront::Remark("the last of the processes has ended".to_owned()));
    }
    outbox.finish();
    far.iter().for_each(|far| far.close());
    match told {
        Ok(report) => Ok(ToFront::Done(Box::new(report.into()))),
        Err(RunError::Refused(refused)) => {
            Err(Failure::new(format!("{refused}; nothing was changed")))
        }
        Err(error) => Err(Failure::new(error.to_string())),
    }
}

/// Leaves the session and the files of the front; no signal to a group ends this process.
fn leave(files: Files) -> io::Result<()> {
    let mut signals = catch(&BACKGROUND)?;
    let ignore = move || signals.forever().for_each(drop);
    std::thread::Builder::new().name("zfold-signals".to_owned()).spawn(ignore)?;
    // It leads no group: the front started it in its own.
    setsid()?;
    std::env::set_current_dir("/")?;
    files.close();
    release_streams()
}

/// Tells the front when no more is resident than may be, or that it takes longer.
fn tell_when_kept(control: Control, outbox: Arc<Outbox>, processes: usize, threads: usize) {
    let began = Instant::now();
    let look = move || {
        let figures = loop {
            let figures = control.state().figures;
            if figures.resident_bytes <= figures.limit_bytes && began.elapsed() > LOOKS
                || began.elapsed() > KEPT
            {
                break figures;
            }
            std::thread::sleep(LOOKS);
        };
        let own = std::process::id();
        outbox.send(ToFront::Remark(format!(
            "{processes} {} with {threads} {} under a limit of {}: {} resident, {} compressed to \
             {}; zfold ctl --pid {own} steers, zfold ps lists them",
            if processes == 1 { "process" } else { "processes" },
            if threads == 1 { "thread" } else { "threads" },
            format_size(figures.limit_bytes),
            size(figures.resident_bytes).trim(),
            size(figures.stored_pages_bytes).trim(),
            size(figures.stored_bytes).trim()
        )));
        outbox.send(ToFront::Started);
    };
    // Without it the front waits for the end.
    let _ = std::thread::Builder::new().name("zfold-kept".to_owned()).spawn(look);
}
