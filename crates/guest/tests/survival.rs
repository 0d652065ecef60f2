//! Servers that are killed, and guests that notice nothing but a pause.
//!
//! What is missing for a test is told in a line that begins with `SKIPPED:`.

mod common;
mod vmm;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::sockets;
use rustix::process::{Pid, Signal, kill_process};
use vmm::{Vmm, page};
use zfold_guest::{
    End, Front, FrontOptions, Images, Link, Order, Server, ServerOptions, images_options, renew,
};
use zfold_store::CodecKind;
use zfold_testing::wait::PATIENCE;
use zfold_testing::{Random, needs, skip, wait_for, wait_until};

const SEED: u64 = 7;

/// Said by a server in the place of its number: it has made a new stock.
const RENEWED: i32 = i32::MAX;

/// Not a test: the process of a stand-in. Without its environment it does nothing.
#[test]
fn stand_in() {
    vmm::inside::run();
}

/// Not a test: the first server of a front. Without its environment it does nothing.
#[test]
fn server() {
    let Some(at) = std::env::var_os("ZFOLD_SERVER_TELLS") else { return };
    let number = |name| std::env::var(name).expect("set").parse().expect("a number");
    let images = Images::new(&images_options(CodecKind::Lz4.into(), None)).expect("a store");
    let mut file = tempfile::tempfile().expect("a file");
    (0..number("ZFOLD_SERVER_PAGES"))
        .for_each(|number| file.write_all(&page(SEED, number)).expect("written"));
    images.import("web", &file, None).expect("imported");
    let channel = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).expect("a channel");
    let served = Serving {
        images: Arc::new(images),
        at: at.into(),
        has_stock: number("ZFOLD_SERVER_STOCK") == 1,
    };
    // The harness of tests has nothing to say.
    std::process::exit(i32::from(serve(&served, channel)));
}

/// What all servers of a front have in common.
#[derive(Clone)]
struct Serving {
    images: Arc<Images>,
    at: PathBuf,
    has_stock: bool,
}

fn serve(serving: &Serving, channel: OwnedFd) -> u8 {
    let tells = UnixDatagram::unbound().expect("a socket");
    tells.send_to(&std::process::id().to_ne_bytes(), &serving.at).expect("told");
    let server =
        Server::new(Arc::clone(&serving.images), ServerOptions::default(), |line: &str| {
            eprintln!("{line}");
        });
    let server = Arc::new(server.expect("a server"));
    let (events, happened) = mpsc::channel();
    let tell = move |told| {
        let _ = events.send(told);
    };
    let (link, mut begin) = Link::start(channel, Arc::clone(&server), tell).expect("a front");
    let link = Arc::new(link);
    let again = {
        let (serving, link) = (serving.clone(), Arc::clone(&link));
        move || {
            if serving.has_stock {
                let next = |channel| serve(&serving, channel);
                renew(&serving.images, &link, &next).expect("a process");
            }
        }
    };
    if begin.takeovers == 0 {
        again();
    }
    for image in serving.images.list() {
        link.listen(&image.name).expect("a socket");
    }
    let (asked, renewed, opened) = (Arc::clone(&server), again.clone(), Arc::clone(&link));
    let images = Arc::clone(&serving.images);
    std::thread::spawn(move || {
        let control = UnixListener::from(begin.sockets.remove(0));
        while let Ok((stream, _)) = control.accept() {
            let hibernated = hibernate(&stream, &asked, &images).map(|name| {
                renewed();
                opened.listen(&name).expect("a socket");
            });
            let answer = hibernated.map_or_else(|no| no, |()| "asleep".to_owned());
            // Whoever asked may have been killed.
            let _ = (&stream).write_all(answer.as_bytes());
        }
    });
    link.ready();
    loop {
        match happened.recv().expect("a front") {
            Order::Renew => {
                again();
                tells.send_to(&RENEWED.to_ne_bytes(), &serving.at).expect("told");
            }
            Order::Release => {
                let left = server.release(PATIENCE);
                link.done(left as u8);
                return left as u8;
            }
            Order::Machine(_) => {}
            Order::Gone => return 1,
        }
    }
}

/// Makes an image of a guest, as a line says: its process, the image's name, its difference.
fn hibernate(mut stream: &UnixStream, server: &Server, images: &Images) -> Result<String, String> {
    let mut line = String::new();
    stream.read_to_string(&mut line).map_err(|error| error.to_string())?;
    let words: Vec<_> = line.split(' ').collect();
    let pid = words[0].parse().ok();
    let guest = server.stats().guests.into_iter().find(|guest| guest.pid == pid);
    let number = guest.map_or(u64::MAX, |guest| guest.number);
    let origin = server.origin(number).map_err(|error| error.to_string())?;
    let file = File::open(words[2]).expect("a difference");
    let imported = images.import_over(words[1], &file, &origin, None);
    imported.map(|_| words[1].to_owned()).map_err(|error| error.to_string())
}

/// A front at work.
struct World {
    front: Front,
    runs: Option<JoinHandle<End>>,
    /// The first server.
    first: Child,
    pids: UnixDatagram,
    folder: tempfile::TempDir,
    pages: u64,
    said: Arc<Mutex<VecDeque<String>>>,
}

impl World {
    fn new(pages: u64, has_stock: bool, options: FrontOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().join("pids");
        let pids = UnixDatagram::bind(&at).expect("bound");
        pids.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let told = Arc::clone(&said);
        let tell = move |line: &str| told.lock().expect("no panic").push_back(line.to_owned());
        let (front, channel) =
            Front::new(sockets(folder.path().to_owned()), options, tell).expect("a front");
        let first = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", "server", "--nocapture", "--test-threads=1"])
            .env("ZFOLD_SERVER_TELLS", &at)
            .env("ZFOLD_SERVER_PAGES", pages.to_string())
            .env("ZFOLD_SERVER_STOCK", if has_stock { "1" } else { "0" })
            .stdin(channel)
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        let control = UnixListener::bind(folder.path().join("control")).expect("bound");
        let (ready, is_ready) = mpsc::channel();
        let mine = front.clone();
        let runs = std::thread::spawn(move || {
            mine.run(&[control.into()], |heard| {
                let _ = ready.send(heard);
            })
        });
        is_ready.recv_timeout(PATIENCE).expect("ready");
        Self { front, runs: Some(runs), first, pids, folder, pages, said }
    }

    /// Waits for the next server, and returns its number.
    fn server(&self) -> Pid {
        let mut bytes = [0; 4];
        self.pids.recv(&mut bytes).expect("a server begins");
        Pid::from_raw(i32::from_ne_bytes(bytes)).expect("a number")
    }

    fn vmm(&self) -> Option<Vmm> {
        Vmm::start(&self.folder.path().join("web"), self.pages, "whole")
    }

    fn hears(&self, part: &str) {
        wait_for(|| {
            let said = self.said.lock().expect("no panic");
            if said.iter().any(|line| line.contains(part)) { Ok(()) } else { Err(said.clone()) }
        });
    }

    /// Waits for the end of the front.
    fn end(&mut self) -> End {
        let runs = self.runs.take().expect("it ends once");
        wait_until("the front ends", || runs.is_finished());
        runs.join().expect("no panic")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.front.release();
        if let Some(runs) = self.runs.take() {
            // A panic there was reported.
            let _ = runs.join();
        }
        // It has ended, or does now.
        let _ = self.first.wait();
    }
}

/// Returns the children of a process.
fn children(of: Pid) -> Vec<Pid> {
    let parent = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:").map(str::to_owned))?;
        Pid::from_raw(line.trim().parse().ok()?)
    };
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |number: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{number}/status"));
        status.is_ok_and(|status| parent(status) == Some(of))
    };
    numbers.filter(is_child).filter_map(Pid::from_raw).collect()
}

fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).expect("it runs");
}

/// Returns how many servers are killed.
fn kills(unless_said: u64) -> u64 {
    std::env::var("ZFOLD_KILLS").map_or(unless_said, |kills| kills.parse().expect("a number"))
}

/// `ZFOLD_KILLS` says how many; what guests waited for is printed, and decides nothing.
#[test]
fn guests_read_no_wrong_byte_while_servers_are_killed() {
    let kills = kills(8);
    let mut world = World::new(256 + kills * 256, true, FrontOptions::default());
    let mut guests: Vec<_> = (0..8).filter_map(|_| world.vmm()).collect();
    needs!(!guests.is_empty(), "no userfaultfd");
    let time = 400 + kills * 60;
    guests.iter_mut().for_each(|guest| guest.say(&format!("live {SEED} {time}")));
    let mut rng = Random::new(u64::from(std::process::id()));
    for _ in 0..kills {
        let server = world.server();
        // The moment of its end, before or after it has begun.
        std::thread::sleep(Duration::from_micros(rng.below(80_000)));
        kill(server);
    }
    let (mut longest, mut accesses) = (Vec::new(), 0);
    for guest in &mut guests {
        let said = guest.hear();
        let words: Vec<&str> = said.split(' ').collect();
        assert_eq!((words[0], words.len()), ("right", 3), "{said}");
        longest.push(words[1].parse::<u64>().expect("a number"));
        accesses += words[2].parse::<u64>().expect("a number");
    }
    let own = world.said.lock().expect("no panic").clone();
    println!("{kills} kills, {accesses} accesses; longest waits in us: {longest:?}; {own:?}");
    world.front.release();
    assert_eq!(world.end(), End::Done(0));
    // They need nobody.
    let all = format!("read {}", world.pages - 1);
    guests.iter_mut().for_each(|guest| assert!(guest.ask(&all).parse::<u64>().is_ok()));
}

/// Has a server make an image of a guest, again and again until one has lived long enough.
fn asleep(folder: &Path, guest: &Vmm, name: &str, file: &Path) {
    wait_for(|| {
        let Ok(mut stream) = UnixStream::connect(folder.join("control")) else {
            return Err("nobody is there".to_owned());
        };
        let mut answer = String::new();
        let line = format!("{} {name} {}", guest.pid(), file.display());
        let asked = stream
            .write_all(line.as_bytes())
            .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
            .and_then(|()| stream.read_to_string(&mut answer).map(drop));
        match (asked, &*answer) {
            (Ok(()), "asleep") => Ok(()),
            // The one before was killed when it had done it, before it said so.
            (Ok(()), said) if said.starts_with("there is already an image") => Ok(()),
            (asked, said) => Err(format!("{asked:?} {said}")),
        }
    });
}

/// Lives after a guest was restored from the image itself: another one is upon as many images.
const LIVES: u64 = 14;

/// Guests that live, sleep as differences to what they were, and wake up, again and again; counts
/// how often they slept.
fn sleeper(folder: &Path, pages: u64, number: u64, (is_over, sleeps): (&AtomicBool, &AtomicU64)) {
    let at = |name: &str| folder.join(format!("{number}.{name}")).display().to_string();
    let (file, mut from, mut to) = (at("mem"), at("a"), at("b"));
    let mut slept = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut image = "web".to_owned();
        for life in 0..LIVES {
            let mut guest = Vmm::start(&folder.join(&image), pages, "whole").expect("as before");
            let before = if life == 0 { "-" } else { &from };
            if life + 1 == LIVES || is_over.load(Ordering::Relaxed) {
                let said = guest.ask(&format!("live {SEED} 1 {before} -"));
                assert!(said.starts_with("right "), "guest {number} of {image}: {said}");
                break;
            }
            let said = guest.ask(&format!("live {SEED} 30 {before} {to}"));
            assert!(said.starts_with("right "), "guest {number} of {image}: {said}");
            std::mem::swap(&mut from, &mut to);
            assert_eq!(guest.ask(&format!("snapshot {file}")), "ok");
            image = format!("asleep-{number}-{slept}");
            slept += 1;
            asleep(folder, &guest, &image, Path::new(&file));
            sleeps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// As above; the guests sleep and wake up meanwhile.
#[test]
fn guests_that_sleep_while_servers_are_killed_wake_up_as_they_were() {
    let kills = kills(8);
    let mut world = World::new(512, true, FrontOptions::default());
    needs!(world.vmm().is_some(), "no userfaultfd");
    let (is_over, slept, mut random) =
        (AtomicBool::new(false), AtomicU64::new(0), Random::new(SEED));
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (folder, pages, told) = (world.folder.path(), world.pages, (&is_over, &slept));
            scope.spawn(move || sleeper(folder, pages, number, told));
        }
        for _ in 0..kills {
            let server = world.server();
            std::thread::sleep(Duration::from_micros(random.below(80_000)));
            kill(server);
        }
        // Where all takes long, they have not come to it yet.
        let late = Instant::now() + PATIENCE;
        while slept.load(Ordering::Relaxed) == 0 && Instant::now() < late {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{kills} kills; guests slept {slept:?} times");
    assert!(slept.into_inner() > 0);
    world.front.release();
    assert_eq!(world.end(), End::Done(0));
}

#[test]
fn a_stock_that_is_lost_is_made_anew() {
    let world = World::new(512, true, FrontOptions::default());
    let Some(mut guest) = world.vmm() else { return skip("no userfaultfd") };
    let server = world.server();
    let began = Instant::now();
    for _ in 0..4 {
        wait_until("one stands by", || children(server).len() == 1);
        kill(children(server)[0]);
        assert_eq!(world.server().as_raw_nonzero().get(), RENEWED);
    }
    // At once, and not when a server that was asked has been silent for 10 s: until there is
    // another one, the images are lost with the server.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert_eq!(guest.ask(&format!("verify {SEED} 0 100 1")), "right");
    kill(server);
    assert_ne!(world.server(), server);
    assert_eq!(guest.ask(&format!("verify {SEED} 0 512 1")), "right");
}

#[test]
fn guests_wait_where_nobody_can_serve_them_or_are_killed() {
    for kills in [false, true] {
        let mut options = FrontOptions::default();
        options.kills_lost = kills;
        let mut world = World::new(256, false, options);
        let Some(mut guest) = world.vmm() else { return skip("no userfaultfd") };
        assert_ne!(guest.ask("read 3"), "0");
        kill(world.server());
        if !kills {
            world.hears("1 guests wait for ever");
            guest.say("read 4");
            assert!(!guest.answers_within(Duration::from_millis(200)), "it was answered");
            guest.kill();
        } else {
            world.hears("killed 1 guests");
        }
        // It has seen that the guest is gone.
        assert_eq!(world.end(), End::Lost(0));
    }
}

#[test]
fn a_guest_that_says_something_odd_keeps_none_from_being_served() {
    let world = World::new(256, false, FrontOptions::default());
    let socket = world.folder.path().join("web");
    let Some(odd) = Vmm::start(&socket, world.pages, "odd") else { return skip("no userfaultfd") };
    let mut guest = world.vmm().expect("as before");
    guest.say("read 3");
    assert!(guest.answers_within(PATIENCE), "nobody serves it");
    drop(odd);
}

/// Returns whether no thread of a process runs: a signal stops each by itself.
fn is_stopped(process: Pid) -> bool {
    let folder = format!("/proc/{}/task", process.as_raw_nonzero());
    let threads = std::fs::read_dir(folder).expect("it is there");
    let state = |thread: &std::path::Path| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        status.lines().any(|line| line == "State:\tT (stopped)")
    };
    threads.flatten().all(|thread| state(&thread.path()))
}

#[test]
fn a_server_that_does_not_look_is_named_and_can_be_ended() {
    let mut options = FrontOptions::default();
    options.patience = Duration::from_millis(50);
    let world = World::new(256, true, options);
    let Some(mut guest) = world.vmm() else { return skip("no userfaultfd") };
    assert_ne!(guest.ask("read 3"), "0");
    let server = world.server();
    kill_process(server, Signal::STOP).expect("it runs");
    wait_until("all of its threads stand still", || is_stopped(server));
    guest.say("read 4");
    world.hears("its server has not answered");
    kill(server);
    assert_ne!(guest.hear(), "0");
}

#[test]
fn a_guest_that_is_held_is_not_blamed_on_its_server() {
    let mut options = FrontOptions::default();
    options.patience = Duration::from_secs(1);
    let world = World::new(256, false, options);
    let socket = world.folder.path().join("web");
    let Some(mut held) = Vmm::start(&socket, 2 * world.pages, "whole") else {
        return skip("no userfaultfd");
    };
    held.say("read 3");
    // The front looks once a second.
    assert!(!held.answers_within(Duration::from_secs(3)), "it was answered");
    assert!(world.said.lock().expect("no panic").is_empty());
}
