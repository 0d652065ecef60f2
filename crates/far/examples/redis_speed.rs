//! What a read of a page from Redis takes beside a bare GET of as many bytes, by one thread, in
//! rounds that alternate; and how many reads threads get from a server that is farther away, which
//! a wait before each get stands in for. `cargo run --release --example redis_speed -p zfold-far --
//! HOST:PORT`; the server must be alone, need no password, and may get 64 MiB for a while.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use zfold_far::place::{Place, Source};
use zfold_far::{Engine, EngineError, FarBacking, FarOptions};
use zfold_store::backing::Backing as _;

const LEN: u64 = 64 << 20;
const READS: u64 = 4000;
const ROUNDS: usize = 5;

/// An engine behind a network of this round trip.
#[derive(Debug)]
struct Distant {
    engine: Arc<dyn Engine>,
    round_trip: Duration,
}

impl Engine for Distant {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn object_bytes(&self) -> usize {
        self.engine.object_bytes()
    }

    fn put(&self, number: u64, bytes: &[u8], deadline: Instant) -> Result<(), EngineError> {
        self.engine.put(number, bytes, deadline)
    }

    fn get(
        &self,
        number: u64,
        offset: usize,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), EngineError> {
        if !self.round_trip.is_zero() {
            thread::sleep(self.round_trip);
        }
        self.engine.get(number, offset, out, deadline)
    }

    fn delete(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        self.engine.delete(numbers, deadline)
    }

    fn renew(&self, numbers: &[u64], deadline: Instant) -> Result<(), EngineError> {
        self.engine.renew(numbers, deadline)
    }
}

/// A connection that sends GET and takes the reply, with nothing between.
struct Bare {
    stream: TcpStream,
    /// The reply: its head, the value, its end.
    reply: Vec<u8>,
}

impl Bare {
    /// Connects, and sets `key` to `len` bytes.
    fn open(address: &str, key: &str, len: usize) -> std::io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut set =
            format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len()).into_bytes();
        set.resize(set.len() + len, b'x');
        set.extend(b"\r\n");
        stream.write_all(&set)?;
        stream.read_exact(&mut [0; 5])?;
        Ok(Self { stream, reply: vec![0; format!("${len}\r\n").len() + len + 2] })
    }

    fn get(&mut self, key: &str) -> std::io::Result<()> {
        let get = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
        self.stream.write_all(get.as_bytes())?;
        self.stream.read_exact(&mut self.reply)
    }

    fn delete(&mut self, key: &str) -> std::io::Result<()> {
        let del = format!("*2\r\n$3\r\nDEL\r\n${}\r\n{key}\r\n", key.len());
        self.stream.write_all(del.as_bytes())?;
        self.stream.read_exact(&mut [0; 4])
    }
}

/// Returns the time of each read in order, in microseconds: the median, and what 99 % took at most.
fn quantiles(mut read: impl FnMut(u64)) -> (f64, f64) {
    let mut times: Vec<Duration> = (0..READS)
        .map(|number| {
            let begun = Instant::now();
            read(number);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6;
    (at(50), at(99))
}

/// Returns a backing behind a network of this round trip, full of pages.
fn filled(place: &Place, round_trip: Duration) -> Result<(FarBacking, u64), Box<dyn Error>> {
    let engine = zfold_far::connect(place, Instant::now() + Duration::from_secs(10))?;
    let far = FarBacking::open(Arc::new(Distant { engine, round_trip }), FarOptions::new(LEN))?;
    let batch: Vec<u8> = (0..far.write_bytes()).map(|at| (at / 3) as u8).collect();
    let whole = LEN / batch.len() as u64 * batch.len() as u64;
    for at in (0..whole).step_by(batch.len()) {
        far.write_at(at, &batch)?;
    }
    Ok((far, whole))
}

/// Returns where a page lies: all over the bytes, in no order that anybody could foresee.
fn place_of(number: u64, len: usize, whole: u64) -> u64 {
    number * 2_654_435_761 % (whole / len as u64) * len as u64
}

/// Prints how many reads a second some threads get, at two round trips.
fn from_afar(place: &Place) -> Result<(), Box<dyn Error>> {
    for round_trip in [50, 500] {
        let (far, whole) = filled(place, Duration::from_micros(round_trip))?;
        for threads in [1, 4, 16] {
            let begun = Instant::now();
            thread::scope(|scope| {
                for thread in 0..threads {
                    let far = &far;
                    scope.spawn(move || {
                        let mut page = [0; 2048];
                        for number in (thread * READS..).take(READS as usize / 2) {
                            far.read_at(place_of(number, page.len(), whole), &mut page)
                                .expect("a page");
                        }
                    });
                }
            });
            let reads = (threads * READS / 2) as f64 / begun.elapsed().as_secs_f64();
            println!("{round_trip} us away, {threads} threads: {reads:.0} reads/s");
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("give HOST:PORT of a server of Redis")?;
    let place = Place::parse(&format!("redis://{address}"), Source::Arguments, |_| None)?;
    let begun = Instant::now();
    let (far, whole) = filled(&place, Duration::ZERO)?;
    println!("writes: {:.0} MB/s", whole as f64 / 1e6 / begun.elapsed().as_secs_f64());
    for len in [2048, 4096] {
        let key = format!("zfold:speed:{}", std::process::id());
        let mut bare = Bare::open(&address, &key, len)?;
        let mut page = vec![0; len];
        for _ in 0..ROUNDS {
            let get = quantiles(|_| bare.get(&key).expect("a reply"));
            let read = quantiles(|number| {
                far.read_at(place_of(number, len, whole), &mut page).expect("a page");
            });
            println!(
                "{len} bytes: GET {:.1} us (99 %: {:.0}), read {:.1} us (99 %: {:.0}), {:.2} times",
                get.0,
                get.1,
                read.0,
                read.1,
                read.0 / get.0
            );
        }
        bare.delete(&key)?;
    }
    drop(far);
    from_afar(&place)
}
