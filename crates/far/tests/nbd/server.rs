//! A small server of NBD with one export in memory, which does wrong what a test asks for.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// How a server is, from the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) size: u64,
    pub(crate) flags: u16,
    pub(crate) block: u32,
    pub(crate) payload: u32,
    /// Whether it says ever more of the export before it opens it.
    pub(crate) talks: bool,
}

pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const TRIMS: u16 = 1 << 5;
pub(crate) const MANY: u16 = 1 << 8;

impl Default for Kind {
    fn default() -> Self {
        Self { size: 16 << 20, flags: 1 | TRIMS | MANY, block: 1, payload: 32 << 20, talks: false }
    }
}

/// What happens to a request that comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Does {
    #[default]
    Right,
    /// It is answered with this error.
    Error(u32),
    /// The connection ends without an answer.
    Ends,
    /// It waits, with what comes behind it, and is done when the server goes on.
    Waits,
}

#[derive(Debug, Default)]
struct State {
    does: Does,
    /// For so many requests.
    times: u32,
    /// How often the server went on.
    gone_on: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Nbd {
    port: u16,
    kind: Kind,
    pub(crate) bytes: Mutex<Vec<u8>>,
    state: Mutex<State>,
    goes_on: Condvar,
    pub(crate) connections: AtomicU32,
    /// Those that are open, and the most that were.
    open: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
}

impl Nbd {
    /// Starts a server, which runs as long as the process.
    pub(crate) fn start(kind: Kind) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let server = Arc::new(Self {
            port: listener.local_addr().expect("an address").port(),
            kind,
            bytes: Mutex::new(vec![0x77; kind.size as usize]),
            state: Mutex::default(),
            goes_on: Condvar::new(),
            connections: AtomicU32::new(0),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&server);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.expect("a connection"), Arc::clone(&serving));
                thread::spawn(move || {
                    server.connections.fetch_add(1, Ordering::SeqCst);
                    let open = server.open.fetch_add(1, Ordering::SeqCst) + 1;
                    server.most_open.fetch_max(open, Ordering::SeqCst);
                    // A client that goes away is none of ours.
                    drop(server.serve(client));
                    server.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    pub(crate) fn place(&self) -> String {
        format!("nbd://127.0.0.1:{}/cold", self.port)
    }

    /// Does this with the next requests.
    pub(crate) fn does(&self, does: Does, times: u32) {
        let mut state = self.state.lock().expect("no panic");
        (state.does, state.times) = (does, times);
    }

    /// Goes on with what waits.
    pub(crate) fn go_on(&self) {
        let mut state = self.state.lock().expect("no panic");
        (state.does, state.times) = (Does::Right, 0);
        state.gone_on += 1;
        self.goes_on.notify_all();
    }

    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
        let mut head = [0; 4 + 16 + 4];
        client.read_exact(&mut head)?;
        let len = u32::from_be_bytes(head[16..20].try_into().expect("4 bytes"));
        let mut rest = vec![0; len as usize - 4];
        client.read_exact(&mut rest)?;
        let name_len = u32::from_be_bytes(head[20..].try_into().expect("4 bytes"));
        let option = |kind: u32, data: &[u8]| {
            let head = [0x0003_e889_0455_65a9_u64.to_be_bytes()].concat();
            let numbers = [7, kind, data.len() as u32].map(u32::to_be_bytes).concat();
            [&head[..], &numbers, data].concat()
        };
        if &rest[..name_len as usize] != b"cold" {
            return client.write_all(&option((1 << 31) + 6, b"try cold"));
        }
        let Kind { size, flags, block, payload, talks } = self.kind;
        if talks {
            loop {
                client.write_all(&option(3, &[7; 60_000]))?;
            }
        }
        let export = [&0_u16.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
        let blocks = [block, 4096, payload].map(u32::to_be_bytes).concat();
        client.write_all(&option(3, &[&3_u16.to_be_bytes()[..], &blocks].concat()))?;
        client.write_all(&option(3, &export))?;
        client.write_all(&option(1, &[]))?;
        loop {
            let mut head = [0; 28];
            client.read_exact(&mut head)?;
            assert_eq!(head[..4], 0x2560_9513_u32.to_be_bytes());
            let command = u16::from_be_bytes([head[6], head[7]]);
            let at = u64::from_be_bytes(head[16..24].try_into().expect("8 bytes"));
            let len = u32::from_be_bytes(head[24..].try_into().expect("4 bytes"));
            assert!(at % u64::from(block) == 0 && len % block == 0 && at + u64::from(len) <= size);
            assert!(command == 4 || len <= payload, "{len} bytes in a request");
            let mut data = vec![0; if command == 1 { len as usize } else { 0 }];
            client.read_exact(&mut data)?;
            let error = match self.next() {
                Does::Right | Does::Waits => 0,
                Does::Error(error) => error,
                Does::Ends => return Ok(()),
            };
            let range = at as usize..at as usize + len as usize;
            let mut bytes = self.bytes.lock().expect("no panic");
            let read = match command {
                _ if error != 0 => Vec::new(),
                0 => bytes[range].to_vec(),
                1 => {
                    bytes[range].copy_from_slice(&data);
                    Vec::new()
                }
                4 => {
                    bytes[range].fill(0);
                    Vec::new()
                }
                _ => panic!("command {command}"),
            };
            drop(bytes);
            let reply = [0x6744_6698, error].map(u32::to_be_bytes).concat();
            client.write_all(&[&reply[..], &head[8..16], &read].concat())?;
        }
    }

    /// Returns what happens to a request, after it has waited if it shall.
    fn next(&self) -> Does {
        let mut state = self.state.lock().expect("no panic");
        if state.times == 0 {
            return Does::Right;
        }
        state.times -= 1;
        let (does, before) = (state.does, state.gone_on);
        if does == Does::Waits {
            drop(self.goes_on.wait_while(state, |state| state.gone_on == before));
        }
        does
    }
}
