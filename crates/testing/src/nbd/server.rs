//! A small NBD server with one export in memory, which makes the mistakes that a test requests.
//!
//! Each connection has a thread, which answers one request after the other and ends with the
//! process. The test says what happens to the next requests under one lock; a request that waits
//! gives it back. The bytes are under another one, which is never held while a request waits or a
//! socket is used.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use zfold_nbd::{
    COMMON_PAYLOAD, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Request, SIMPLE_REPLY_MAGIC, command,
    export_flag, info, option, reply,
};

/// The behaviour of a server, from the start.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub size: u64,
    pub flags: u16,
    pub block: u32,
    pub payload: u32,
    /// Whether it says ever more of the export before it opens it.
    pub talks: bool,
}

impl Default for Kind {
    fn default() -> Self {
        let flags = export_flag::HAS_FLAGS | export_flag::SEND_TRIM | export_flag::CAN_MULTI_CONN;
        Self { size: 16 << 20, flags, block: 1, payload: COMMON_PAYLOAD, talks: false }
    }
}

/// The treatment of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Does {
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
    /// For this many requests.
    times: u32,
    /// How often the server went on.
    gone_on: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Nbd {
    port: u16,
    kind: Kind,
    pub bytes: Mutex<Vec<u8>>,
    state: Mutex<State>,
    goes_on: Condvar,
    pub connections: AtomicU32,
    /// Those that are open, and the most that were.
    open: AtomicUsize,
    pub most_open: AtomicUsize,
}

impl Nbd {
    /// Starts a server, which runs as long as the process.
    pub fn start(kind: Kind) -> Arc<Self> {
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

    pub fn place(&self) -> String {
        format!("nbd://127.0.0.1:{}/cold", self.port)
    }

    /// Does this with the next requests.
    pub fn does(&self, does: Does, times: u32) {
        let mut state = self.state.lock().expect("no panic");
        (state.does, state.times) = (does, times);
    }

    /// Goes on with what waits.
    pub fn go_on(&self) {
        let mut state = self.state.lock().expect("no panic");
        (state.does, state.times) = (Does::Right, 0);
        state.gone_on += 1;
        self.goes_on.notify_all();
    }

    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let magics = [MAGIC, OPTION_MAGIC].map(u64::to_be_bytes).concat();
        client.write_all(&[&magics[..], &[0, 3]].concat())?;
        let mut head = [0; 4 + 16 + 4];
        client.read_exact(&mut head)?;
        let len = u32::from_be_bytes(head[16..20].try_into().expect("4 bytes"));
        let mut rest = vec![0; len as usize - 4];
        client.read_exact(&mut rest)?;
        let name_len = u32::from_be_bytes(head[20..].try_into().expect("4 bytes"));
        let option = |kind: u32, data: &[u8]| {
            let numbers = [option::GO, kind, data.len() as u32].map(u32::to_be_bytes).concat();
            [&OPTION_REPLY_MAGIC.to_be_bytes()[..], &numbers, data].concat()
        };
        if &rest[..name_len as usize] != b"cold" {
            return client.write_all(&option(reply::UNKNOWN, b"try cold"));
        }
        let Kind { size, flags, block, payload, talks } = self.kind;
        if talks {
            loop {
                client.write_all(&option(reply::INFO, &[7; 60_000]))?;
            }
        }
        let export =
            [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
        let blocks = [block, 4096, payload].map(u32::to_be_bytes).concat();
        client.write_all(&option(
            reply::INFO,
            &[&info::BLOCK_SIZE.to_be_bytes()[..], &blocks].concat(),
        ))?;
        client.write_all(&option(reply::INFO, &export))?;
        client.write_all(&option(reply::ACK, &[]))?;
        loop {
            let mut head = [0; Request::LEN];
            client.read_exact(&mut head)?;
            let request = Request::parse(&head).expect("a request");
            let Request { command, offset: at, len, .. } = request;
            assert!(at % u64::from(block) == 0 && len % block == 0 && at + u64::from(len) <= size);
            assert!(command == command::TRIM || len <= payload, "{len} bytes in a request");
            let mut data = vec![0; request.payload()];
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
                command::READ => bytes[range].to_vec(),
                command::WRITE => {
                    bytes[range].copy_from_slice(&data);
                    Vec::new()
                }
                command::TRIM => {
                    bytes[range].fill(0);
                    Vec::new()
                }
                _ => panic!("command {command}"),
            };
            drop(bytes);
            let reply = [SIMPLE_REPLY_MAGIC, error].map(u32::to_be_bytes).concat();
            client.write_all(&[&reply[..], &request.cookie.to_be_bytes(), &read].concat())?;
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
