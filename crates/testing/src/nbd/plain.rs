//! The least of a client: one request at a time, simple replies.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use zfold_nbd::{Request, SIMPLE_REPLY_MAGIC, command};

use super::client::Client;

/// The cookie of every request.
const COOKIE: u64 = 7;

/// A connection to an export.
pub struct Plain {
    stream: UnixStream,
    /// Size of the export in bytes.
    pub size: u64,
}

impl Plain {
    /// Connects to the export of that name, the empty one for the default.
    pub fn connect(socket: &Path, name: &str) -> Self {
        let stream = UnixStream::connect(socket).expect("a server listens");
        let mut client = Client::greet(stream);
        let (size, _) = client.go(name);
        Self { stream: client.stream, size }
    }

    /// Sends a request and takes the reply's head; the inner error is an error number.
    fn request(
        &mut self,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> io::Result<Result<(), u32>> {
        let request = Request { flags: 0, command, cookie: COOKIE, offset, len };
        self.stream.write_all(&[&request.to_bytes()[..], data].concat())?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!((word(0), word(8), word(12)), (SIMPLE_REPLY_MAGIC, 0, COOKIE as u32));
        Ok(if word(4) == 0 { Ok(()) } else { Err(word(4)) })
    }

    /// Writes `data`; the error is an error number.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.try_write(offset, data).expect("answered")
    }

    /// Writes `data` to a server that may go away; the inner error is an error number.
    pub fn try_write(&mut self, offset: u64, data: &[u8]) -> io::Result<Result<(), u32>> {
        self.request(command::WRITE, offset, data.len() as u32, data)
    }

    /// Reads `len` bytes.
    pub fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.try_read(offset, len).expect("read")
    }

    /// Reads `len` bytes; the error is an error number.
    pub fn try_read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        self.request(command::READ, offset, len as u32, &[]).expect("answered")?;
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data).expect("received");
        Ok(data)
    }

    /// Sends what keeps memory busy: a write whose payload never comes to its end, or reads whose
    /// replies are not taken, of a mebibyte each.
    pub fn burden(&mut self, reads: bool) {
        let head = |command: u16, len: u32| {
            Request { flags: 0, command, cookie: 0, offset: 0, len }.to_bytes().to_vec()
        };
        let all = match reads {
            true => head(command::READ, 1 << 20).repeat(64),
            false => [head(command::WRITE, 30 << 20), vec![0xA5; 20 << 20]].concat(),
        };
        let patience = Duration::from_millis(20);
        self.stream.set_write_timeout(Some(patience)).expect("a socket");
        // The server takes as much as it likes.
        let _ = self.stream.write_all(&all);
    }

    /// Discards a range.
    pub fn trim(&mut self, offset: u64, len: u32) {
        self.request(command::TRIM, offset, len, &[]).expect("answered").expect("discarded");
    }
}
