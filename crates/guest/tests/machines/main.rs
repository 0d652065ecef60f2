//! Machines of cloud-hypervisor, by a stand-in for it: every byte that was saved is restored, and
//! no peer, however it behaves, leaves anything behind.

mod hostile;

use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use zfold_guest::{
    Images, OnDemand, ReceiveError, Received, Restore, RestoreError, Restored, images_options,
    receive, restore,
};
use zfold_store::CodecKind;
use zfold_testing::Random;
use zfold_testing::machines::{
    self, COMPLETE, COMPLETE_PAUSED, CONFIG, DONE, Faults, How, MEMORY_FD, Machine, REFUSED, START,
    STATE, Slot, is_there, memory,
};
use zfold_testing::wait::{at_once, wait_until};

pub(crate) const PAGE: u64 = 4096;

/// Images, and a folder for sockets.
pub(crate) struct World {
    pub(crate) images: Arc<Images>,
    demand: OnDemand,
    said: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let images = Images::new(&images_options(CodecKind::Lz4.into(), limit)).expect("a store");
        let (demand, said) = (OnDemand::default(), Arc::default());
        let folder = tempfile::tempdir().expect("a folder");
        Self { images: Arc::new(images), demand, said, folder }
    }

    pub(crate) fn listen(&self) -> (PathBuf, UnixListener) {
        let path = self.folder.path().join(format!("{:?}", std::time::Instant::now()));
        let listener = UnixListener::bind(&path).expect("bound");
        (path, listener)
    }

    /// Receives one machine; returns where to send it.
    pub(crate) fn receives(&self, name: &str, base: Option<&str>) -> (PathBuf, Receiving) {
        let (path, listener) = self.listen();
        let (images, name, base) =
            (Arc::clone(&self.images), name.to_owned(), base.map(str::to_owned));
        let work = move || {
            let stream = listener.accept().expect("a sender").0;
            receive(stream, &images, (&*name, base.as_deref()), |_| Ok(()))
        };
        (path, thread::spawn(work))
    }

    pub(crate) fn save(&self, name: &str, machine: &Machine, base: Option<&str>) -> Received {
        let (path, receiving) = self.receives(name, base);
        assert_eq!(machine.send(&path, COMPLETE_PAUSED), DONE);
        receiving.join().expect("no panic").expect("received")
    }

    pub(crate) fn restore(&self, name: &str, how: Restore, stand_in: How) -> Outcome {
        let (path, listener) = self.listen();
        let receiving = thread::spawn(move || machines::receive(&listener, stand_in));
        let said = Arc::clone(&self.said);
        let tell = move |line: &str| said.lock().expect("no panic").push(line.to_owned());
        let restored = restore(&self.images, name, &path, how, (&self.demand, None, tell));
        (restored, receiving.join().expect("no panic"))
    }

    /// Checks that nothing of a machine is left.
    pub(crate) fn has_nothing(&self) {
        assert!(self.images.list().is_empty());
        assert_eq!(self.images.store().len(), 0);
    }
}

pub(crate) type Receiving = JoinHandle<Result<Received, ReceiveError>>;
pub(crate) type Outcome = (Result<Restored, RestoreError>, Option<machines::Received>);

pub(crate) fn restored((restored, received): Outcome) -> (Restored, machines::Received) {
    (restored.expect("restored"), received.expect("received"))
}

pub(crate) fn same(one: &Machine, other: &Machine) {
    let numbers = |machine: &Machine| -> Vec<_> {
        machine.slots.iter().map(|slot| (slot.number, slot.gpa, slot.bytes, slot.from)).collect()
    };
    assert_eq!(numbers(one), numbers(other));
    assert!(one.config == other.config && one.state == other.state, "the documents differ");
    assert!(one.contents() == other.contents(), "the memory differs");
}

pub(crate) fn how(resume: bool, on_demand: bool) -> Restore {
    let mut how = Restore::default();
    (how.resume, how.on_demand) = (resume, on_demand);
    how
}

#[test]
fn a_machine_comes_back_byte_for_byte() {
    let world = World::new(None);
    let machine = Machine::new(9000, 1);
    let received = world.save("web", &machine, None);
    assert!(received.was_heard);
    let text = |slot: &Slot| (slot.bytes / PAGE).div_ceil(3);
    let (all, text) = (machine.pages(), machine.slots.iter().map(text).sum::<u64>());
    assert_eq!((received.imported.pages, received.imported.stored_pages), (all, text));
    for (resume, last) in [(true, COMPLETE), (false, COMPLETE_PAUSED)] {
        let how = how(resume, false);
        let (told, received) = restored(world.restore("web", how, How::default()));
        assert_eq!((told.pages, told.written_pages), (all, text));
        same(&received.machine, &machine);
        assert!(!is_there(&received.machine.slots[0], 1), "zeros take memory");
        assert_eq!(received.last, last);
    }
    // Both were done with it.
    world.images.remove("web").expect("not in use");
    world.has_nothing();
}

/// Each of its slots is a file that is as long as it may become, and a hole where no memory is
/// plugged in.
#[test]
fn memory_of_virtio_mem_comes_back_as_it_was() {
    let world = World::new(None);
    let mut machine = Machine::new(300, 1);
    let file = memory(64 << 20);
    file.write_all_at(&[7; 2 << 20], 4 << 20).expect("written");
    machine.slots.push(Slot { number: 9, gpa: 8 << 30, bytes: 64 << 20, from: 0, file });
    machine.config = machines::config(&machine.slots, r#","virtio_mem":true"#);
    let received = world.save("web", &machine, None);
    assert_eq!(received.imported.stored_pages, 100 + 11 + 3 + 512);
    for on_demand in [false, true] {
        let stand_in = How { asks: on_demand.then_some(3), ..How::default() };
        let (_, received) = restored(world.restore("web", how(true, on_demand), stand_in));
        wait_until("all is there", || received.machine.contents() == machine.contents());
        let plugged = &received.machine.slots[3];
        assert!(on_demand || !is_there(plugged, 0), "what is not plugged in takes memory");
    }
}

/// Asks for pages from several threads, as several processors do; each is there when that is told.
fn hammer(faults: Faults, machine: &Machine, wanted: &[u8]) -> Faults {
    let faults = Mutex::new(faults);
    let touch = |slot: &Slot, before: u64, page: u64| {
        assert_eq!(faults.lock().expect("no panic").ask(slot.gpa + page * PAGE, PAGE), DONE);
        assert!(is_there(slot, page), "page {page} is not there");
        let mut bytes = vec![0; PAGE as usize];
        slot.file.read_exact_at(&mut bytes, slot.from + page * PAGE).expect("read");
        let at = (before + page) as usize * PAGE as usize;
        assert!(bytes == wanted[at..at + PAGE as usize], "page {page} is wrong");
    };
    at_once(0..4, |seed| {
        let mut random = Random::new(seed);
        for _ in 0..300 {
            let place = random.word() as usize % machine.slots.len();
            let before = machine.slots[..place].iter().map(|slot| slot.bytes / PAGE).sum();
            let slot = &machine.slots[place];
            touch(slot, before, random.word() % (slot.bytes / PAGE));
        }
    });
    faults.into_inner().expect("no panic")
}

#[test]
fn pages_come_on_demand_and_then_all_of_them() {
    let world = World::new(None);
    let machine = Machine::new(5000, 4);
    world.save("web", &machine, None);
    let stand_in = How { asks: Some(40), ..How::default() };
    let (told, received) = restored(world.restore("web", how(true, true), stand_in));
    assert_eq!((told.pages, told.written_pages, received.last), (machine.pages(), 0, COMPLETE));
    let wanted = machine.contents();
    let faults = hammer(received.faults.expect("a connection"), &received.machine, &wanted);
    // What the machine writes after it got a page stays.
    let slot = &received.machine.slots[0];
    slot.file.write_all_at(&[5; 4096], slot.from).expect("written");
    wait_until("all is there", || {
        received.machine.slots.iter().all(|slot| (0..slot.bytes / PAGE).all(|n| is_there(slot, n)))
    });
    let mut wanted = wanted;
    wanted[..4096].fill(5);
    assert!(received.machine.contents() == wanted, "the memory differs");
    assert!(world.images.remove("web").is_err(), "it is in use");
    assert_eq!((world.demand.number(), world.demand.wait(Duration::ZERO)), (1, 1));
    drop(faults);
    assert_eq!(world.demand.wait(Duration::from_secs(60)), 0);
    wait_until("it is not in use", || world.images.remove("web").is_ok());
    assert!(world.said.lock().expect("no panic").is_empty());
}

/// A balloon punches a hole into the file; the page is zeros when it is touched again.
#[test]
fn what_a_machine_gives_up_while_pages_come_is_zeros() {
    let world = World::new(None);
    let machine = Machine::new(5000, 4);
    world.save("web", &machine, None);
    let stand_in = How { asks: Some(1), ..How::default() };
    let (_, received) = restored(world.restore("web", how(true, true), stand_in));
    let (mut faults, slot) = (received.faults.expect("a connection"), &received.machine.slots[0]);
    for page in [0, 3, 4, 13] {
        assert_eq!(faults.ask(slot.gpa + page * PAGE, PAGE), DONE);
        let mut bytes = [0; PAGE as usize];
        let at = slot.from + page * PAGE;
        slot.file.write_all_at(&[7; 8], at).expect("written");
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&slot.file, how, at, PAGE).expect("a hole");
        assert!(!is_there(slot, page));
        // Pages beside it that are there stay as the machine left them.
        slot.file.write_all_at(&[9; 8], at + PAGE).expect("written");
        assert_eq!(faults.ask(slot.gpa + page * PAGE, 2 * PAGE), DONE);
        assert!(is_there(slot, page), "page {page} is a hole still");
        slot.file.read_exact_at(&mut bytes, at).expect("read");
        assert!(bytes == [0; PAGE as usize], "page {page} came back");
        slot.file.read_exact_at(&mut bytes, at + PAGE).expect("read");
        assert_eq!(bytes[..8], [9; 8]);
    }
    drop(faults);
    assert_eq!(world.demand.wait(Duration::from_secs(60)), 0);
}

#[test]
fn a_fault_that_makes_no_sense_ends_the_connection_and_is_reported() {
    let world = World::new(None);
    world.save("web", &Machine::new(100, 1), None);
    let stray = "memory that it does not have";
    for (part, range) in [
        (stray, Some((3 << 30, PAGE))),
        (stray, Some((99 * PAGE, 2 * PAGE))),
        (stray, Some((u64::MAX, PAGE))),
        (stray, Some((0, 0))),
        ("something else than a page fault", None),
    ] {
        let stand_in = How { asks: Some(1), ..How::default() };
        let (_, received) = restored(world.restore("web", how(true, true), stand_in));
        let mut faults = received.faults.expect("a connection");
        let answer = match range {
            Some((at, len)) => faults.ask(at, len),
            None => faults.0.ask(CONFIG, &[1; 16], None),
        };
        assert_eq!(answer, REFUSED, "{part}");
        assert_eq!(faults.ask(0, PAGE), 0, "it goes on");
        assert_eq!(world.demand.wait(Duration::from_secs(60)), 0);
        let said = std::mem::take(&mut *world.said.lock().expect("no panic"));
        assert!(said.len() == 1 && said[0].contains(part), "{said:?}");
    }
}

#[test]
fn a_machine_that_is_not_taken_is_no_longer_in_use() {
    let world = World::new(None);
    world.save("web", &Machine::new(100, 1), None);
    for (refuses, part) in [
        (START, "refuses Start"),
        (MEMORY_FD, "refuses its memory"),
        (CONFIG, "refuses its configuration"),
        (STATE, "refuses its state"),
        (COMPLETE, "refuses to run it"),
    ] {
        let stand_in = How { refuses: Some(refuses), ..How::default() };
        let (told, received) = world.restore("web", how(true, false), stand_in);
        let told = told.expect_err("refused").to_string();
        assert!(told.contains(part) && received.is_none(), "{told}");
    }
    // One that asks for no pages would read zeros.
    let (told, _) = world.restore("web", how(true, true), How::default());
    assert!(matches!(told, Err(RestoreError::Broken(_) | RestoreError::NotAsked)), "{told:?}");
    let nobody = world.folder.path().join("nobody");
    let all = (&world.demand, None, |_: &str| {});
    let told = restore(&world.images, "web", &nobody, how(true, true), all);
    assert!(matches!(told, Err(RestoreError::Nobody(..))), "{told:?}");
    assert_eq!(world.demand.wait(Duration::from_secs(60)), 0);
    wait_until("it is not in use", || world.images.remove("web").is_ok());
}
