//! The manager of a run: a process of its own, which `zfold run` starts.
//!
//! Its threads: this one traces, in `zfold_run::manage`; `zfold-signals` takes note of signals to
//! the group; `zfold-front` hears the front; the outbox sends to it, so that tracing never waits
//! for a front that is stopped. A panic in any of them is reported to the front and ends the
//! process, because a program whose memory no thread serves would hang.
//!
//! [`Program`] is the one thing that threads share: it goes from *coming*, where signals are
//! collected, to *running*, where they are passed on, to *ended*. Its lock is held while a signal
//! is sent, and nothing else is locked meanwhile.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{PidfdFlags, Signal, getppid, pidfd_open, pidfd_send_signal};
use rustix::stdio::{dup2_stderr, dup2_stdin, stdin, stdout};
use signal_hook::consts::{SIGTTIN, SIGTTOU};
use zfold_far::FarBacking;
use zfold_pool::Lock;
use zfold_run::{
    Control, Event, Files, GroupLimit, Inherited, Kind, MemoryLimits, Report, RunError, RunOptions,
    Staying, access, keep_little_memory, tell,
};
use zfold_store::pressure::MemoryLeft;

use super::channel::{self, ToFront, ToManager, messages, receive_file};
use super::denied;
use super::failure::{FAILED, cannot_start, failed};
use super::given::release_streams;
use super::outbox::Outbox;
use super::passed::catch;
use super::plan::RunPlan;
use super::record::{Auto, Record};
use super::relay::{GRACE, Own};
use super::rest::Rest;
use super::steer;
use crate::args::RunArgs;
use crate::shared::exit::Failure;
use crate::shared::far::FarReport;
use crate::shared::far_watch::{self, FarWatch};
use crate::shared::secret::keep_memory;
use crate::shared::table::size;

/// Signals of a terminal to its jobs in the background, of which the manager is a part.
pub(super) const BACKGROUND: [i32; 2] = [SIGTTIN, SIGTTOU];

/// How far the program is.
#[derive(Debug)]
enum Program {
    /// Not started; it is to get these signals.
    Coming(Vec<i32>),
    Running(i32),
    Ended,
}

/// Runs the program, as the front that started this process says.
pub(crate) fn manage(args: &RunArgs) -> Result<ExitCode, Failure> {
    serve_front("zfold manage belongs to zfold run: use that", |limits, files, socket| {
        run(args, limits, files, socket)
    })
}

/// Has `work` do what a front has started this process for, and sends what it returns; `alone` is
/// said where no front has.
pub(super) fn serve_front(
    alone: &str,
    work: impl FnOnce(MemoryLimits, Files, &UnixStream) -> Result<ToFront, Failure>,
) -> Result<ExitCode, Failure> {
    // It takes room from the program.
    keep_little_memory();
    // Memory that programs protect from others must be protected here, too.
    keep_memory();
    // Memory that is reserved here is not the program's. No thread has been started yet.
    let limits = MemoryLimits::raise();
    // Soon, while all that is open was there at the start.
    let files = Files::of_this_process().map_err(|error| failed("read /proc", &error))?;
    let socket = take_socket().map_err(|_| Failure::usage(alone))?;
    let message = work(limits, files, &socket).unwrap_or_else(|failure| ToFront::Failed {
        status: failure.status(),
        line: failure.line().to_owned(),
    });
    // A front that is gone needs no message.
    let _ = channel::send(&socket, &message);
    Ok(ExitCode::SUCCESS)
}

/// Returns the socket to the front, and puts the program's standard input in its place.
fn take_socket() -> io::Result<UnixStream> {
    let socket = UnixStream::from(fcntl_dupfd_cloexec(stdin(), 3)?);
    // Something else, such as a terminal, is refused as no socket.
    let input = receive_file(&socket)?;
    dup2_stdin(input)?;
    Ok(socket)
}

/// Returns the process that has started this one.
fn front() -> io::Result<OwnedFd> {
    let parent = getppid().ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(parent, PidfdFlags::empty())?)
}

/// Runs the program; returns the last message.
fn run(
    args: &RunArgs,
    limits: MemoryLimits,
    files: Files,
    socket: &UnixStream,
) -> Result<ToFront, Failure> {
    let cannot = |what: &'static str| move |error: io::Error| failed(what, &error);
    fail_loudly(socket.try_clone().map_err(cannot("copy a descriptor"))?);
    let own = Arc::new(Own::new());
    let rest = Arc::new(Rest::default());
    note_signals(Arc::clone(&own), Arc::clone(&rest)).map_err(cannot("handle signals"))?;

    let mut heard = messages(socket.try_clone().map_err(cannot("copy a descriptor"))?);
    let Some(ToManager::Start(words)) = heard.next() else {
        // The front was killed.
        std::process::exit(FAILED.into());
    };
    let inherited = Inherited::from_words(words).with_limits(limits);
    let plan = RunPlan::new(args)?;
    let (pool, store, far) = plan.store().map_err(|failure| failure.with_status(FAILED))?;
    let program = Arc::new(Lock::new(Program::Coming(Vec::new())));
    let heard = listen(heard, own, Arc::clone(&program), Arc::clone(&rest));
    heard.map_err(cannot("start a thread"))?;

    let access =
        access().map_err(|denied| Failure::new(denied::why(&denied)).with_status(FAILED))?;
    let options = RunOptions::new(plan.program(), plan.limit_bytes, inherited, pool, store);
    let memory = MemoryLeft::new();
    let mut kills = memory.kills();
    let options = options.with_args(plan.args().to_vec()).with_strict(plan.typed.strict);
    let parent = getppid().map_or(0, |parent| parent.as_raw_pid().cast_unsigned());
    let front = front().map_err(cannot("find the process that started this one"))?;
    let tell_front = |signal| {
        // One that is gone needs to be neither stopped nor continued.
        let _ = pidfd_send_signal(&front, signal);
    };
    let mut files = Some(files);
    let outbox = Outbox::start(socket).map_err(cannot("start a thread"))?;
    let outbox = Arc::new(outbox);
    let watch = far.clone().map(|far| watch(far, parent, &outbox));
    let watch = watch.transpose().map_err(cannot("start a thread"))?;
    let (mut service, mut auto) = (None, None);
    let steer = |control: Control| {
        rest.began(control.clone());
        let open = plan.leaves_store_open();
        let group = GroupLimit::start(control.clone(), memory.clone(), plan.is_auto(), open);
        auto = plan.is_auto().then(|| group.clone());
        service = steer::serve(control, parent, &plan, Some(group), far.clone());
    };
    let told = zfold_run::manage(options, &access, steer, |event| {
        let message = match event {
            Event::Started(process) => {
                started(&program, process);
                files.take().into_iter().for_each(release);
                ToFront::Started
            }
            // The failure will name it.
            Event::Unmanaged(_) if plan.typed.strict => return,
            Event::Killed(pid, program) if memory.kills() > kills => {
                kills += 1;
                ToFront::Remark(killed(pid, &program))
            }
            Event::Stopped => return tell_front(Signal::STOP),
            Event::GoesOn => return tell_front(Signal::CONT),
            Event::Ended(exit) => {
                *program.lock() = Program::Ended;
                rest.ended(exit);
                ToFront::Ended(exit.into())
            }
            event => match of_process(event) {
                Some(message) => message,
                None => return,
            },
        };
        outbox.send(message);
    });
    // Its file goes with it. All that was said is sent before what is said last.
    drop((service, watch));
    outbox.finish();
    last(told, &plan, auto, far)
}

/// Returns the last message of a run that ended so, and closes its far tier.
fn last(
    told: Result<Report, RunError>,
    plan: &RunPlan,
    auto: Option<GroupLimit>,
    far: Option<Arc<FarBacking>>,
) -> Result<ToFront, Failure> {
    let record = far.as_deref().map(FarReport::of).map(Box::new);
    // Others may hold it until this process ends, which drops nothing.
    far.iter().for_each(|far| far.close());
    match told {
        Ok(report) => {
            let limit_auto = auto.as_ref().map(Auto::of);
            let mut done = Record { limit_auto, far: record, ..report.into() };
            // Distances are shares of a limit, which was not the same throughout.
            done.estimate.take_if(|_| done.limit_auto.is_some());
            Ok(ToFront::Done(Box::new(done)))
        }
        Err(RunError::NotFound(error) | RunError::NotExecutable(error)) => {
            Err(cannot_start(plan, &error))
        }
        Err(error) => {
            let last = far.and_then(|far| far.last_failure());
            Err(ended(error.to_string(), plan.typed.strict, last))
        }
    }
}

/// Returns the failure of a run that had to be ended, with the last one of its far tier.
fn ended(line: String, strict: bool, last: Option<String>) -> Failure {
    let line = if strict { format!("{line}; {}", denied::remedy(&line)) } else { line };
    let line = match last {
        Some(failure) => format!("{line}; {failure}"),
        None => line,
    };
    Failure::new(line).with_status(FAILED)
}

/// Starts to look after a far tier.
pub(super) fn watch(
    far: Arc<FarBacking>,
    parent: u32,
    outbox: &Arc<Outbox>,
) -> io::Result<FarWatch> {
    let outbox = Arc::clone(outbox);
    FarWatch::start(far, far_watch::of_a_run(parent), move |line| {
        outbox.send(ToFront::Remark(line.to_owned()));
    })
}

/// Returns the message about what a person should know of a process, whoever has started it.
pub(super) fn of_process(event: Event) -> Option<ToFront> {
    Some(match event {
        Event::Unmanaged(process) => ToFront::Unmanaged(process.into()),
        Event::Stays(staying) => ToFront::Remark(stays(&staying)),
        Event::TracesItself(pid, program) => ToFront::Remark(format!(
            "process {pid} ({program}) traces itself, which fails under zfold run; if that is \
             LeakSanitizer, set ASAN_OPTIONS=detect_leaks=0"
        )),
        Event::NoRoom(pid, program, why) => {
            ToFront::Remark(format!("process {pid} ({program}) was ended: {why}"))
        }
        _ => return None,
    })
}

/// Returns the line about a process that the kernel has ended for want of memory.
fn killed(pid: i32, program: &str) -> String {
    format!(
        "process {pid} ({program}) was killed by the kernel: its control group is out of memory; \
         give the container more, or the run a lower --limit"
    )
}

/// Returns the line that says what cannot leave.
fn stays(staying: &Staying) -> String {
    let Staying { kind, bytes, pid, program } = staying;
    let what = match kind {
        Kind::Locked => "locked memory",
        Kind::Protected => "memory that is read-only, inaccessible or in use",
        Kind::Open => "memory in private mappings of files, or in small mappings,",
        Kind::Shared => "shared memory",
        Kind::File => "pages of files",
        Kind::PageTables => "page tables",
    };
    let remedy = if kind.counts() {
        "it leaves less of the limit for the rest: raise --limit if the program is slow"
    } else {
        "it comes on top of the limit: leave room for it"
    };
    let size = size(*bytes);
    let size = size.trim();
    format!("{size} of {what} cannot leave, most in process {pid} ({program}); {remedy}")
}

/// Lets go of all files that the program was started with (F5).
fn release(files: Files) {
    files.close();
    // Without /dev/null they stay; then a reader waits a little longer than it must.
    if release_streams().is_ok() {
        let _ = dup2_stderr(stdout());
    }
}

fn started(program: &Lock<Program>, process: i32) {
    let before = std::mem::replace(&mut *program.lock(), Program::Running(process));
    if let Program::Coming(signals) = before {
        signals.into_iter().for_each(|signal| tell(process, signal));
    }
}

/// Has a panic of any thread tell the front and end this process: a program whose memory is not
/// served would hang.
pub(super) fn fail_loudly(socket: UnixStream) {
    std::panic::set_hook(Box::new(move |panic| {
        let line = format!("this is a bug in zfold, please report it: {panic}").replace('\n', " ");
        let _ = channel::send(&socket, &ToFront::Failed { status: FAILED, line });
        std::process::exit(FAILED.into());
    }));
}

/// Takes note of signals to the group from now on; none of them ends or stops this process. The
/// front, to which they were sent too, may be gone before it reports them.
fn note_signals(own: Arc<Own>, rest: Arc<Rest>) -> io::Result<()> {
    let mut signals = catch(&BACKGROUND)?;
    let note = move || {
        for signal in signals.forever() {
            own.note(signal, Instant::now());
            rest.saw_signal(signal);
        }
    };
    std::thread::Builder::new().name("zfold-signals".to_owned()).spawn(note).map(drop)
}

/// Passes signals on to the program (F1), and ends this process with the front (F3).
fn listen(
    heard: impl Iterator<Item = ToManager> + Send + 'static,
    own: Arc<Own>,
    program: Arc<Lock<Program>>,
    rest: Arc<Rest>,
) -> io::Result<()> {
    let listen = move || {
        for message in heard {
            let ToManager::Signal(signal) = message else { continue };
            rest.saw_signal(signal);
            if own.matches(signal, Instant::now(), GRACE) {
                continue;
            }
            match &mut *program.lock() {
                Program::Coming(signals) => signals.push(signal),
                Program::Running(process) => tell(*process, signal),
                Program::Ended => {}
            }
        }
        if !matches!(*program.lock(), Program::Ended) {
            std::process::exit(FAILED.into());
        }
    };
    std::thread::Builder::new().name("zfold-front".to_owned()).spawn(listen).map(drop)
}
