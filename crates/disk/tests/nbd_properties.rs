//! Properties of the transmission, with random requests.
//!
//! - Several connections at once, each in its own part of the device, with many requests in
//!   flight: every read gives what that connection wrote last, and at the end the device holds
//!   what the model does.
//! - One connection with requests of up to the whole device, many in flight, replies in any order:
//!   every read gives what was written last to each of its blocks. The requests are like those of
//!   the NBD project's own integrity test of huge ones (`make-integrityhuge`): 50 million bytes,
//!   lengths and places at random, as many reads as writes, some of these with FUA, some flushes.

mod client;

use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use client::*;
use proptest::prelude::*;
use zfold_disk::nbd::NbdOptions;
use zfold_testing::random::mixed;
use zfold_testing::wait::at_once;

const CONNECTIONS: u64 = 3;
/// Bytes of the device that one connection has for itself; no multiple of a page, so that
/// connections share pages.
const PART: u64 = 50_001;

#[derive(Clone, Debug)]
enum Op {
    Write { at: u64, len: u64, salt: u64, fua: bool },
    Trim { at: u64, len: u64 },
    WriteZeroes { at: u64, len: u64, no_hole: bool },
    Read { at: u64, len: u64, whole: bool },
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    // Mostly pages and pieces of them, sometimes much of the part.
    let len = prop_oneof![4 => 1..200u64, 4 => Just(4096), 1 => 1..PART];
    let range = (0..PART, len).prop_map(|(at, len)| (at, len.min(PART - at)));
    prop_oneof![
        4 => (range.clone(), 0..250u64, any::<bool>())
            .prop_map(|((at, len), salt, fua)| Op::Write { at, len, salt, fua }),
        1 => range.clone().prop_map(|(at, len)| Op::Trim { at, len }),
        1 => (range.clone(), any::<bool>())
            .prop_map(|((at, len), no_hole)| Op::WriteZeroes { at, len, no_hole }),
        4 => (range, any::<bool>()).prop_map(|((at, len), whole)| Op::Read { at, len, whole }),
        1 => Just(Op::Flush),
    ]
}

/// A connection with its model. Requests that overlap are not in flight together: their order is
/// nobody's promise.
struct Run {
    client: Client<std::os::unix::net::UnixStream>,
    base: u64,
    model: Vec<u8>,
    /// Ranges of the requests in flight, and what reads are to give.
    in_flight: HashMap<u64, (u64, u64, Option<Vec<u8>>)>,
}

impl Run {
    fn apply(&mut self, op: &Op) {
        let (at, len, changes) = match *op {
            Op::Write { at, len, .. } | Op::Trim { at, len } | Op::WriteZeroes { at, len, .. } => {
                (at, len, true)
            }
            Op::Read { at, len, .. } => (at, len, false),
            Op::Flush => (0, 0, false),
        };
        let overlaps = |&(start, other, ref read): &(u64, u64, Option<Vec<u8>>)| {
            at < start + other && start < at + len && (changes || read.is_none())
        };
        while self.in_flight.len() >= 16 || self.in_flight.values().any(overlaps) {
            self.receive();
        }
        let (from, to) = (self.base + at, at as usize..(at + len) as usize);
        let mut expected = None;
        let cookie = match *op {
            Op::Write { salt, fua, .. } => {
                let data = bytes(len as usize, salt);
                let flags = if fua { FUA } else { 0 };
                let cookie = self.client.request(WRITE, flags, from, len as u32);
                self.client.send(&data);
                self.model[to].copy_from_slice(&data);
                cookie
            }
            Op::Trim { .. } => {
                self.model[to].fill(0);
                self.client.request(TRIM, 0, from, len as u32)
            }
            Op::WriteZeroes { no_hole, .. } => {
                self.model[to].fill(0);
                let flags = if no_hole { NO_HOLE } else { 0 };
                self.client.request(WRITE_ZEROES, flags, from, len as u32)
            }
            Op::Read { whole, .. } => {
                expected = Some(self.model[to].to_vec());
                self.client.request(READ, if whole { DF } else { 0 }, from, len as u32)
            }
            Op::Flush => self.client.request(FLUSH, 0, 0, 0),
        };
        self.in_flight.insert(cookie, (at, len, expected));
    }

    /// Takes one reply or chunk.
    fn receive(&mut self) {
        match self.client.reply() {
            Reply::Simple { cookie, error } => {
                assert_eq!(error, 0);
                let (_, _, expected) = self.in_flight.remove(&cookie).expect("a request of ours");
                assert_eq!(expected, None, "reads come in chunks");
            }
            Reply::Chunk { cookie, done, kind, data } => {
                let (at, _, expected) = &self.in_flight[&cookie];
                let expected = expected.as_ref().expect("only reads come in chunks");
                let offset = u64::from_be_bytes(data[..8].try_into().unwrap());
                let begin = (offset - self.base - at) as usize;
                match kind {
                    1 => assert_eq!(data[8..], expected[begin..begin + data.len() - 8]),
                    2 => {
                        let len = u32::from_be_bytes(data[8..].try_into().unwrap()) as usize;
                        assert!(expected[begin..begin + len].iter().all(|byte| *byte == 0));
                    }
                    kind => panic!("a chunk of kind {kind}"),
                }
                if done {
                    self.in_flight.remove(&cookie);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn connections_read_what_they_wrote(
        ops in prop::collection::vec(prop::collection::vec(op(), 1..200), CONNECTIONS as usize),
    ) {
        let disk = disk((CONNECTIONS * PART).div_ceil(PAGE));
        let mut served = Served::one(&disk);
        let runs = (0..CONNECTIONS).map(|n| Run {
            client: served.ready(),
            base: n * PART,
            model: vec![0; PART as usize],
            in_flight: HashMap::new(),
        });
        let runs: Vec<Run> = runs.collect();
        let models = at_once(runs.into_iter().zip(&ops), |(mut run, ops)| {
            ops.iter().for_each(|op| run.apply(op));
            while !run.in_flight.is_empty() {
                run.receive();
            }
            run.model
        });
        let mut held = vec![0; (CONNECTIONS * PART) as usize];
        disk.read(0, &mut held).unwrap();
        prop_assert!(held == models.concat());
        served.finish();
        disk.store().check();
    }
}

/// Bytes of the device of the NBD project's integrity test.
const HUGE: u64 = 50_000_000;
/// What requests are made of.
const BLOCK: u64 = 512;
/// How long requests in the way of the next one may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What request `number` writes to a block: noise in every third, which is kept as it is, a few
/// words again and again in the others.
fn block(number: u64, at: u64) -> [u8; BLOCK as usize] {
    let mut block = [0; BLOCK as usize];
    if number > 0 {
        let key = mixed(number << 32 | at);
        for (n, word) in (0u64..).zip(block.as_chunks_mut::<8>().0) {
            let n = if at.is_multiple_of(3) { n } else { n % 3 };
            *word = key.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
        }
    }
    block
}

#[derive(Clone, Debug)]
struct Request {
    /// From 1.
    number: u64,
    command: u16,
    flags: u16,
    offset: u64,
    len: u64,
}

impl Request {
    fn random(number: u64, seed: u64) -> Self {
        let draw = |n: u64| mixed(mixed(seed << 32 | number).wrapping_add(n));
        let rounded = |bytes: u64| bytes - bytes % 1024;
        let len = rounded(draw(0) % (HUGE - 2048)) + 1024;
        let (offset, kind) = (rounded(draw(1) % (HUGE - len)), draw(2));
        let (command, flags) = match (kind / 16 % 16, kind % 16) {
            (0, _) => return Self { number, command: FLUSH, flags: 0, offset: 0, len: 0 },
            (_, 0) => (WRITE, FUA),
            (_, kind) => (if kind % 2 == 1 { READ } else { WRITE }, 0),
        };
        Self { number, command, flags, offset, len }
    }

    fn cookie(&self) -> u64 {
        mixed(self.number)
    }

    fn blocks(&self) -> std::ops::Range<usize> {
        (self.offset / BLOCK) as usize..((self.offset + self.len) / BLOCK) as usize
    }

    /// Whether the order of both decides what a block holds, or what is read.
    fn conflicts(&self, other: &Self) -> bool {
        (self.command == WRITE || other.command == WRITE)
            && self.offset < other.offset + other.len
            && other.offset < self.offset + self.len
    }
}

/// Sends `count` requests, and takes their replies meanwhile.
fn huge_requests(count: u64, seed: u64, options: NbdOptions) {
    println!("seed {seed}");
    let disk = disk(HUGE.div_ceil(PAGE));
    let mut served = Served::new(&disk, options);
    let mut client = served.client();
    client.go("");
    let mut sender = Client { stream: client.stream.try_clone().unwrap(), next_cookie: 1 };
    let (in_flight, answered) = (Mutex::new(HashMap::new()), Condvar::new());
    // The request that wrote each block last.
    let mut last = vec![0u64; HUGE.div_ceil(BLOCK) as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=count {
                let next = Request::random(number, seed);
                let (mut others, late) = answered
                    .wait_timeout_while(in_flight.lock().unwrap(), PATIENCE, |others| {
                        others.values().any(|other| next.conflicts(other))
                    })
                    .unwrap();
                assert!(!late.timed_out(), "{next:?} waits for {others:?}");
                others.insert(next.cookie(), next.clone());
                drop(others);
                let (offset, len) = (next.offset, next.len as u32);
                sender.send(&request(next.command, next.flags, next.cookie(), offset, len));
                if next.command == WRITE {
                    // Not block by block, each of which would be a call.
                    let data: Vec<_> =
                        next.blocks().flat_map(|at| block(number, at as u64)).collect();
                    sender.send(&data);
                }
            }
        });
        for _ in 0..count {
            let Reply::Simple { cookie, error: 0 } = client.reply() else { panic!("an error") };
            let known = in_flight.lock().unwrap().get(&cookie).cloned();
            let request: Request = known.expect("a request that is in flight");
            if request.command == READ {
                let data = client.take_vec(request.len as usize);
                for (at, read) in request.blocks().zip(data.as_chunks().0) {
                    assert!(*read == block(last[at], at as u64), "block {at} of {request:?}");
                }
            } else {
                last[request.blocks()].fill(request.number);
            }
            in_flight.lock().unwrap().remove(&cookie);
            answered.notify_all();
        }
    });
    drop((client, sender));
    served.finish();
    let mut held = [0; BLOCK as usize];
    for (at, &number) in last[..(HUGE / BLOCK) as usize].iter().enumerate() {
        disk.read(at as u64 * BLOCK, &mut held).unwrap();
        assert!(held == block(number, at as u64), "block {at}");
    }
    disk.store().check();
}

/// `ZFOLD_NBD_REQUESTS=250` sends as many as the NBD project's test.
#[test]
fn requests_of_up_to_the_whole_device_are_served_in_any_order() {
    let told = std::env::var("ZFOLD_NBD_REQUESTS");
    let count = told.map_or(24, |told| told.parse().expect("a number"));
    huge_requests(count, 1, NbdOptions::default());
    // All in pieces; and all at once, also those that are longer than what clients count upon.
    huge_requests(count / 2, 2, NbdOptions::default().with_max_held_bytes(0));
    huge_requests(count / 2, 3, NbdOptions::default().with_max_held_bytes(1 << 30));
}
