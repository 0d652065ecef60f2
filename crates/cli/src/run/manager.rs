//! The manager: a process of its own, which `zfold run` and `zfold attach` start.
//!
//! Its threads: this one traces, in `zfold_run::manage`; `zfold-front` hears the front of a run;
//! the outbox sends to it, so that tracing never waits for a front that is stopped. A panic in any
//! of them is reported to the front and ends the process, because a program whose memory no thread
//! serves would hang.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, stdin, stdout};
use signal_hook::consts::SIGTERM;
use zfold_far::FarBacking;
use zfold_pool::Lock;
use zfold_run::{
    Control, Event, Files, GroupLimit, Inherited, Kind, MemoryLimits, Report, RunError, RunOptions,
    Running, Staying, Subject, Unmanaged, access, keep_little_memory, take_signal, tell,
};
use zfold_store::pressure::MemoryLeft;

use super::channel::{self, ToFront, ToManager, messages, receive_file};
use super::end::End;
use super::failure::{FAILED, cannot_start, failed, of_a_run};
use super::outbox::Outbox;
use super::plan::RunPlan;
use super::report::{self, Summary};
use super::{attach, denied, passed, steer, streams};
use crate::args::{AttachArgs, RunArgs};
use crate::shared::exit::Failure;
use crate::shared::far::FarReport;
use crate::shared::far_watch::{self, FarWatch};
use crate::shared::secret::keep_memory;
use crate::shared::size::format_size;
use crate::shared::table::size;

/// How long after the front's report of a signal the manager's own may be sent (F1).
const GRACE: Duration = Duration::from_millis(20);
/// How long the front of an attachment waits at most until the limit is kept.
const KEPT: Duration = Duration::from_secs(5);
/// Time between two looks.
const LOOKS: Duration = Duration::from_millis(20);

/// The program, as the thread that hears the front knows it.
#[derive(Debug, Default)]
struct Program {
    process: OnceLock<i32>,
    /// Locked while a signal is sent to it.
    has_ended: Lock<bool>,
    /// The front was told to end (F6).
    told_to_end: AtomicBool,
}

/// Runs the program, as the front that started this process says.
pub(crate) fn manage(args: &RunArgs) -> Result<ExitCode, Failure> {
    serve_front("zfold manage belongs to zfold run: use that", |limits, files, socket| {
        run(args, limits, files, socket).map_err(of_a_run)
    })
}

fn run(
    args: &RunArgs,
    limits: MemoryLimits,
    files: Files,
    socket: &UnixStream,
) -> Result<ToFront, Failure> {
    let mut heard = messages(socket.try_clone().map_err(cannot("copy a descriptor"))?);
    let Some(ToManager::Start(words)) = heard.next() else {
        // The front was killed.
        std::process::exit(FAILED.into());
    };
    let inherited = Inherited::from_words(words).with_limits(limits);
    let program = Arc::new(Program::default());
    listen(heard, Arc::clone(&program)).map_err(cannot("start a thread"))?;
    let subject = Subject::Program { command: args.command.clone(), inherited };
    hold(&RunPlan::new(args)?, subject, files, socket, &program)
}

/// Holds the processes that the front names under a limit, to their end.
pub(crate) fn manage_attached(args: &AttachArgs) -> Result<ExitCode, Failure> {
    serve_front("it belongs to zfold attach: use that", |_, files, socket| {
        let copy = socket.try_clone().map_err(cannot("copy a descriptor"))?;
        let Some(ToManager::Attach(processes)) = messages(copy).next() else {
            return Err(Failure::new("the front of this manager was killed"));
        };
        let running: Vec<_> = processes.into_iter().map(Running::from_words).collect();
        let plan = attach::plan(args, &running)?;
        hold(&plan, Subject::Running(running), files, socket, &Program::default())
    })
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| failed(what, &error.into())
}

/// Has `work` do what a front has started this process for, and sends what it returns; `alone` is
/// said where no front has.
fn serve_front(
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
    let files = Files::of_this_process().map_err(cannot("read /proc"))?;
    let socket = take_socket().map_err(|_| Failure::usage(alone))?;
    fail_loudly(socket.try_clone().map_err(cannot("copy a descriptor"))?);
    passed::hold();
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

/// Holds a program or processes under a limit to their end; returns the last message.
fn hold(
    plan: &RunPlan,
    subject: Subject,
    files: Files,
    socket: &UnixStream,
    program: &Program,
) -> Result<ToFront, Failure> {
    let (pool, store, far) = plan.store()?;
    let is_program = matches!(subject, Subject::Program { .. });
    let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
    let front = Pid::from_raw(parent.cast_signed()).ok_or(Errno::SRCH);
    let front = front.and_then(|front| pidfd_open(front, PidfdFlags::empty()));
    let front = front.map_err(cannot("find the process that started this one"))?;
    let mut files = Some(files);
    if !is_program {
        // A path of the backing was one in the front's folder. From here on nothing of the front's
        // is used (attach/A2, A3). This process leads no group: the front started it in its own.
        setsid().map_err(cannot("leave the session"))?;
        std::env::set_current_dir("/").map_err(cannot("leave the folder"))?;
        files.take().into_iter().for_each(release);
    }
    let access = access().map_err(|denied| Failure::new(denied::why(&denied)))?;
    let (outbox, writer) = Outbox::start(socket).map_err(cannot("start a thread"))?;
    let number = if is_program { parent } else { own };
    let watch = far.clone().map(|far| {
        let outbox = outbox.clone();
        let remark = move |line: &str| outbox.send(ToFront::Remark(line.to_owned()));
        FarWatch::start(far, far_watch::of_a_run(number), remark)
    });
    let watch = watch.transpose().map_err(cannot("start a thread"))?;
    let (memory, control) = (MemoryLeft::new(), OnceLock::new());
    let (mut service, mut auto) = (None, None);
    let steer = |given: Control| {
        // The group of this process is not that of attached ones, which have a limit of their own.
        let group = (is_program || plan.is_auto()).then(|| {
            let open = plan.leaves_store_open();
            GroupLimit::start(given.clone(), memory.clone(), plan.is_auto(), open)
        });
        auto = group.clone().filter(|_| plan.is_auto());
        service = steer::serve(given.clone(), number, plan, group, far.clone());
        let _ = control.set(given);
    };
    let (named, kills) = (HashSet::new(), memory.kills());
    let (memory, control) = (&memory, &control);
    let mut told = Told { program, front, outbox, memory, control, files, named, kills, end: None };
    let options = RunOptions::new(subject, plan.limit_bytes, pool, store);
    let result = zfold_run::manage(options, &access, steer, |event| told.of(event));
    // Its file goes with it. All that was said is sent before what is said last.
    drop((service, watch));
    if result.is_ok() && !is_program {
        let line = "the last of the processes has ended".to_owned();
        told.outbox.send(ToFront::Remark(line));
    }
    told.outbox.finish(writer);
    last(result, plan, told.end, auto, far)
}

/// What has happened in a run so far.
struct Told<'a> {
    program: &'a Program,
    front: OwnedFd,
    outbox: Outbox,
    memory: &'a MemoryLeft,
    /// There before anything happens.
    control: &'a OnceLock<Control>,
    /// What the program was started with.
    files: Option<Files>,
    /// Programs that are not managed, and why.
    named: HashSet<(String, String)>,
    /// How many processes the kernel has ended for want of memory.
    kills: u64,
    /// How the program has ended.
    end: Option<End>,
}

impl Told<'_> {
    /// Does what an event asks for, and tells the front.
    fn of(&mut self, event: Event) {
        let message = match event {
            Event::Started(process) => {
                let _ = self.program.process.set(process);
                self.files.take().into_iter().for_each(release);
                ToFront::Started
            }
            Event::Caught { processes, threads } => {
                if let Some(control) = self.control.get().cloned() {
                    tell_when_kept(control, self.outbox.clone(), processes, threads);
                }
                return;
            }
            Event::Stopped => return self.tell_front(Signal::STOP),
            Event::GoesOn => return self.tell_front(Signal::CONT),
            Event::Ended(status) => {
                *self.program.has_ended.lock() = true;
                let end = *self.end.insert(End::of(status));
                let was_told = self.program.told_to_end.load(Ordering::Relaxed);
                // A front to which it was sent, too, may be gone before it reports it.
                if end == End::Signal(SIGTERM) && (was_told || take_signal(SIGTERM, Duration::ZERO))
                {
                    self.control.get().into_iter().for_each(Control::end_rest);
                }
                ToFront::Ended(end)
            }
            Event::Unmanaged(Unmanaged { pid, program, reason }) => {
                // Of a program that is started again and again, the first process is enough.
                if !self.named.insert((program.clone(), reason.clone())) {
                    return;
                }
                ToFront::Remark(format!(
                    "process {pid} ({program}) is not managed, and its memory stays: {reason}; {}",
                    denied::remedy(&reason)
                ))
            }
            Event::Killed(pid, program) => {
                // The group of attached processes is another one.
                let is_program = self.program.process.get().is_some();
                if !is_program || self.memory.kills() == self.kills {
                    return;
                }
                self.kills += 1;
                ToFront::Remark(format!(
                    "process {pid} ({program}) was killed by the kernel: its control group is out \
                     of memory; give the container more, or the run a lower --limit"
                ))
            }
            Event::Stays(staying) => ToFront::Remark(stays(&staying)),
            Event::TracesItself(pid, program) => ToFront::Remark(format!(
                "process {pid} ({program}) traces itself, which fails under zfold run; if that is \
                 LeakSanitizer, set ASAN_OPTIONS=detect_leaks=0"
            )),
            Event::NoRoom(pid, program, why) => {
                ToFront::Remark(format!("process {pid} ({program}) was ended: {why}"))
            }
        };
        self.outbox.send(message);
    }

    fn tell_front(&self, signal: Signal) {
        // One that is gone needs to be neither stopped nor continued.
        let _ = pidfd_send_signal(&self.front, signal);
    }
}

/// Returns the last message of a run that ended so, and closes its far tier.
fn last(
    told: Result<Report, RunError>,
    plan: &RunPlan,
    end: Option<End>,
    auto: Option<GroupLimit>,
    far: Option<Arc<FarBacking>>,
) -> Result<ToFront, Failure> {
    let record = far.as_deref().map(FarReport::of);
    // Others may hold it until this process ends, which drops nothing.
    far.iter().for_each(|far| far.close());
    match told {
        Ok(report) => {
            let asked = plan.report.zip(end);
            let text = asked.map(|(format, end)| {
                let auto = auto.as_ref();
                let far = record.as_ref();
                report::text(&Summary { plan, end, report: &report, auto, far }, format)
            });
            Ok(ToFront::Done(text.unwrap_or_default()))
        }
        Err(RunError::NotRun(error)) => Err(cannot_start(plan, &error)),
        Err(RunError::Refused(refused)) => {
            Err(Failure::new(format!("{refused}; nothing was changed")))
        }
        Err(error) => {
            let mut line = error.to_string();
            if let Some(failure) = far.and_then(|far| far.last_failure()) {
                line = format!("{line}; {failure}");
            }
            Err(Failure::new(line))
        }
    }
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
    if streams::release().is_ok() {
        let _ = dup2_stderr(stdout());
    }
}

/// Has a panic of any thread tell the front and end this process: a program whose memory is not
/// served would hang.
fn fail_loudly(socket: UnixStream) {
    std::panic::set_hook(Box::new(move |panic| {
        let line = format!("this is a bug in zfold, please report it: {panic}").replace('\n', " ");
        let _ = channel::send(&socket, &ToFront::Failed { status: FAILED, line });
        std::process::exit(FAILED.into());
    }));
}

/// Passes signals on to the program once it runs (F1), and ends this process with the front (F3).
fn listen(
    heard: impl Iterator<Item = ToManager> + Send + 'static,
    program: Arc<Program>,
) -> io::Result<()> {
    let listen = move || {
        for message in heard {
            let ToManager::Signal(signal) = message else { continue };
            program.told_to_end.fetch_or(signal == SIGTERM, Ordering::Relaxed);
            if take_signal(signal, GRACE) {
                continue;
            }
            let process = *program.process.wait();
            let has_ended = program.has_ended.lock();
            if !*has_ended {
                tell(process, signal);
            }
        }
        if !*program.has_ended.lock() {
            std::process::exit(FAILED.into());
        }
    };
    std::thread::Builder::new().name("zfold-front".to_owned()).spawn(listen).map(drop)
}

/// Tells the front when no more is resident than may be, or that it takes longer.
fn tell_when_kept(control: Control, outbox: Outbox, processes: usize, threads: usize) {
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
