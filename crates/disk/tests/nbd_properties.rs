//! Properties of the transmission, with random requests.
//!
//! - Several connections at once, each in its own part of the device, with many requests in
//!   flight: every read gives what that connection wrote last, and at the end the device holds
//!   what the model does.
//! - Random bytes in the place of a header, or a header with random fields: the server answers or
//!   hangs up, and goes on serving others.

mod client;

use std::collections::HashMap;
use std::net::Shutdown;

use client::*;
use proptest::prelude::*;

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
        let models = std::thread::scope(|scope| {
            let threads: Vec<_> = runs
                .into_iter()
                .zip(&ops)
                .map(|(mut run, ops)| {
                    scope.spawn(move || {
                        ops.iter().for_each(|op| run.apply(op));
                        while !run.in_flight.is_empty() {
                            run.receive();
                        }
                        run.model
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let mut held = vec![0; (CONNECTIONS * PART) as usize];
        disk.read(0, &mut held).unwrap();
        prop_assert!(held == models.concat());
        served.finish();
        disk.store().check();
    }

    #[test]
    fn random_words_harm_nobody(
        valid_magic: bool,
        handshake: bool,
        words in prop::collection::vec(any::<[u8; 7]>(), 1..40),
    ) {
        let disk = disk(16);
        let mut served = Served::one(&disk);
        let mut client = if handshake { served.client() } else { served.ready() };
        let mut sent = Vec::new();
        for word in words.chunks(4) {
            if valid_magic {
                sent.extend(if handshake { &b"IHAVEOPT"[..] } else { b"\x25\x60\x95\x13" });
                // Small numbers where the protocol has its few valid ones.
                sent.extend([0, word[0][0] & 0x1f, 0, word[0][1] & 0x0f]);
                sent.extend(word[0][2..].iter().map(|byte| byte & 1));
            }
            sent.extend(word.concat());
        }
        // The server may hang up in the middle of it.
        let _ = std::io::Write::write_all(&mut client.stream, &sent);
        let _ = client.stream.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let _ = std::io::Read::read_to_end(&mut client.stream, &mut answers);
        let mut other = served.ready();
        prop_assert_eq!(other.write(0, 0, b"still there"), 0);
        drop((client, other));
        served.finish();
    }
}
