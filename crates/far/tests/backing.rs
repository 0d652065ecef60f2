//! A far backing over an engine in memory: what comes back, what fails and how, what is removed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use zfold_far::testing::{SimEngine, SimFaults};
use zfold_far::{Engine, EngineError, FarBacking, FarOptions};
use zfold_store::backing::Backing;
use zfold_testing::Random;
use zfold_testing::random::noise as bytes;
use zfold_testing::wait::{at_once, wait_until};

const LEN: u64 = 8 << 20;

fn engine() -> Arc<SimEngine> {
    Arc::new(SimEngine::new(1, SimFaults::default()))
}

/// Options of tests: no wait, and nobody in the background unless he is called.
fn quiet() -> FarOptions {
    FarOptions::new(LEN).with_backoff(Duration::ZERO).with_tend(Duration::from_secs(3600))
}

fn open(engine: &Arc<SimEngine>, options: FarOptions) -> FarBacking {
    FarBacking::open(Arc::clone(engine) as _, options).unwrap()
}

fn read(far: &FarBacking, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut out = vec![0xdd; len];
    far.read_at(offset, &mut out).map(|()| out)
}

#[test]
fn wrong_ranges_are_refused_and_ask_for_nothing() {
    let engine = engine();
    let far = open(&engine, quiet());
    assert_eq!((far.len(), far.align()), (LEN, 512));
    let mut out = [0; 1024];
    let calls = engine.calls_total();
    for (offset, len) in [(1, 512), (0, 100), (LEN, 512), (LEN - 512, 1024), (u64::MAX - 511, 512)]
    {
        let wrong = io::ErrorKind::InvalidInput;
        assert_eq!(far.read_at(offset, &mut out[..len]).unwrap_err().kind(), wrong);
        assert_eq!(far.write_at(offset, &out[..len]).unwrap_err().kind(), wrong);
        assert_eq!(far.discard(offset, len as u64).unwrap_err().kind(), wrong);
    }
    assert_eq!(engine.calls_total(), calls);
}

#[test]
fn options_that_make_no_backing_are_refused() {
    let wrong = [
        FarOptions::new(4095),
        FarOptions::new(1 << 41),
        FarOptions::new(LEN).with_attempts(0),
        FarOptions::new(LEN).with_deadline(Duration::ZERO),
    ];
    for options in wrong {
        let error = FarBacking::open(engine(), options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn what_was_never_written_or_was_discarded_is_an_error() {
    let far = open(&engine(), quiet());
    let nothing = |offset| match read(&far, offset, 512) {
        Ok(_) => false,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    assert!(nothing(0));
    far.write_at(0, &bytes(1, 1536)).unwrap();
    far.discard(512, 512).unwrap();
    assert!(!nothing(0) && nothing(512) && !nothing(1024));
    assert!(read(&far, 0, 1536).is_err(), "not all of the range");
}

#[test]
fn bytes_that_were_changed_or_lost_are_an_error() {
    for (lose, kind) in [(false, io::ErrorKind::InvalidData), (true, io::ErrorKind::NotFound)] {
        let engine = engine();
        let far = open(&engine, quiet());
        far.write_at(0, &bytes(1, 4096)).unwrap();
        engine.damage(lose);
        let before = engine.calls_total();
        assert_eq!(read(&far, 0, 4096).unwrap_err().kind(), kind);
        assert_eq!(engine.calls_total(), before + 3, "three attempts");
        assert!(far.last_failure().unwrap().contains("a simulated engine"));
        far.write_at(0, &bytes(2, 4096)).unwrap();
        assert!(read(&far, 0, 4096).unwrap() == bytes(2, 4096));
    }
}

#[test]
fn nothing_is_sent_to_an_absent_engine_until_it_is_back() {
    let engine = engine();
    let hour = Duration::from_secs(3600);
    let far = open(&engine, quiet().with_probe(hour).with_probe_max(hour));
    far.write_at(0, &bytes(1, 4096)).unwrap();
    engine.set_absent(true);
    let error = far.write_at(4096, &bytes(2, 4096)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::HostUnreachable);
    assert!(far.stats().absent);
    let calls = engine.calls_total();
    for _ in 0..100 {
        let error = far.write_at(4096, &bytes(2, 4096)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(error.to_string().contains("it is absent"), "{error}");
    }
    assert_eq!(engine.calls_total(), calls, "none of these writes asked the engine");
    assert!(read(&far, 0, 4096).is_err());
    assert_eq!(engine.calls_total(), calls + 3, "a read is tried three times");
    engine.set_absent(false);
    assert!(read(&far, 0, 4096).unwrap() == bytes(1, 4096), "reads need no probe");
    assert_eq!(far.stats().absences_total, 1);
}

#[test]
fn an_engine_absent_for_good_does_not_keep_the_end() {
    let engine = engine();
    let far = open(&engine, quiet());
    far.write_at(0, &bytes(1, 4096)).unwrap();
    engine.set_absent(true);
    drop(far);
    assert_eq!(engine.objects(), 1);
}

/// An engine that answers nothing, and keeps the latest deadline.
#[derive(Debug)]
struct Silent(Mutex<Option<Instant>>);

impl Silent {
    fn late<T>(&self, deadline: Instant) -> Result<T, EngineError> {
        let mut latest = self.0.lock().unwrap();
        *latest = (*latest).max(Some(deadline));
        drop(latest);
        thread::sleep(deadline.saturating_duration_since(Instant::now()));
        Err(EngineError::Late)
    }
}

impl Engine for Silent {
    fn name(&self) -> &str {
        "a silent engine"
    }

    fn object_bytes(&self) -> usize {
        1 << 20
    }

    fn put(&self, _: u64, _: &[u8], deadline: Instant) -> Result<(), EngineError> {
        self.late(deadline)
    }

    fn get(&self, _: u64, _: usize, _: &mut [u8], deadline: Instant) -> Result<(), EngineError> {
        self.late(deadline)
    }

    fn delete(&self, _: &[u64], deadline: Instant) -> Result<(), EngineError> {
        self.late(deadline)
    }
}

#[test]
fn a_silent_engine_holds_nobody_beyond_the_deadline() {
    let engine = Arc::new(Silent(Mutex::default()));
    let deadline = Duration::from_millis(60);
    let hour = Duration::from_secs(3600);
    let options = quiet().with_deadline(deadline).with_probe(hour).with_probe_max(hour);
    let far = FarBacking::open(Arc::clone(&engine) as _, options).unwrap();
    let error = far.write_at(0, &bytes(1, 4 << 20)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let over = Instant::now();
    // What the engine was allowed is over by the time the write is.
    assert!(engine.0.lock().unwrap().unwrap() <= over);
    let error = far.write_at(0, &bytes(1, 4096)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
}

#[test]
fn threads_read_what_they_wrote_while_the_cleaner_works() {
    const THREADS: u64 = 4;
    const PAGES: u64 = 64;
    let engine = Arc::new(SimEngine::new(5, SimFaults::all(3)));
    let short = Duration::from_millis(1);
    let options = FarOptions::new(LEN)
        .with_backoff(Duration::ZERO)
        .with_attempts(8)
        .with_tend(short)
        .with_probe(short)
        .with_probe_max(short);
    let far = open(&engine, options);
    let reads = AtomicU64::new(0);
    at_once(0..THREADS, |thread| {
        let mut known = vec![None; PAGES as usize];
        let mut random = Random::new(thread);
        for round in 0..3000_u64 {
            let page = random.below(PAGES);
            let (at, known) = ((thread * PAGES + page) * 4096, &mut known[page as usize]);
            match round % 5 {
                0 | 1 => {
                    let len = 512 * (1 + round as usize % 8);
                    let new = bytes(thread << 32 | round, len);
                    *known = far.write_at(at, &new).ok().map(|()| new);
                }
                2 if round % 3 == 0 => {
                    far.discard(at, 4096).unwrap();
                    *known = None;
                }
                _ => {
                    if let Some(known) = known {
                        let got = read(&far, at, known.len());
                        assert!(got.expect("eight attempts") == *known);
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    });
    println!("{} reads; {:?}", reads.into_inner(), far.stats());
    assert!(far.stats().retries_total > 0, "what failed was asked for again");
    wait_until("something is cleaned", || {
        let stats = far.stats();
        stats.cleaned_bytes_total > 0 && stats.deletes_total > 0
    });
    engine.set_faults(SimFaults::default());
    far.discard(0, LEN).unwrap();
    wait_until("all is cleaned", || far.stats().objects == 0);
}

#[test]
fn nothing_is_put_by_who_writes_while_all_is_removed() {
    for _ in 0..20 {
        let engine = engine();
        let far = open(&engine, quiet());
        thread::scope(|scope| {
            for at in 0..4 {
                let far = &far;
                scope.spawn(move || {
                    let mine = bytes(at, 64 << 10);
                    let failed = (0..100_000).find_map(|_| far.write_at(at << 20, &mine).err());
                    assert!(failed.is_some_and(|e| e.kind() == io::ErrorKind::NotConnected));
                });
            }
            wait_until("something is written", || engine.objects() > 8);
            far.close();
        });
        assert_eq!(engine.objects(), 0, "nothing is left");
    }
}
