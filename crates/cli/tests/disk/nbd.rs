//! The least of an NBD client: one request at a time, simple replies.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;
const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;

/// The error number for a lack of space.
pub(crate) const ENOSPC: u32 = 28;

/// A connection to an export.
pub(crate) struct Client {
    stream: UnixStream,
    /// Size of the export in bytes.
    pub(crate) size: u64,
}

impl Client {
    /// Connects to the export of that name, the empty one for the default.
    pub(crate) fn connect(socket: &Path, name: &str) -> Self {
        let mut stream = UnixStream::connect(socket).expect("a server listens");
        let greeting: [u8; 18] = take(&mut stream);
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(OPTION_MAGIC);
        hello.extend(GO.to_be_bytes());
        hello.extend((name.len() as u32 + 6).to_be_bytes());
        hello.extend((name.len() as u32).to_be_bytes());
        hello.extend(name.as_bytes());
        hello.extend(0_u16.to_be_bytes());
        stream.write_all(&hello).expect("sent");
        let mut size = None;
        loop {
            assert_eq!(u64::from_be_bytes(take(&mut stream)), OPTION_REPLY_MAGIC);
            assert_eq!(u32::from_be_bytes(take(&mut stream)), GO);
            let kind = u32::from_be_bytes(take(&mut stream));
            let mut data = vec![0; u32::from_be_bytes(take(&mut stream)) as usize];
            stream.read_exact(&mut data).expect("received");
            match kind {
                ACK => break,
                INFO if data[..2] == [0, 0] => {
                    size = Some(u64::from_be_bytes(data[2..10].try_into().expect("8 bytes")));
                }
                INFO => {}
                kind => panic!("refused with {kind:x}: {}", String::from_utf8_lossy(&data)),
            }
        }
        Self { stream, size: size.expect("a size") }
    }

    /// Sends a request and takes the reply's head; the inner error is an error number.
    fn request(
        &mut self,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> io::Result<Result<(), u32>> {
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(7_u64.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let word = |at: usize| u32::from_be_bytes(reply[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!((word(0), word(8), word(12)), (REPLY_MAGIC, 0, 7));
        Ok(if word(4) == 0 { Ok(()) } else { Err(word(4)) })
    }

    /// Writes `data`; the error is an error number.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.try_write(offset, data).expect("answered")
    }

    /// Writes `data` to a server that may go away; the inner error is an error number.
    pub(crate) fn try_write(&mut self, offset: u64, data: &[u8]) -> io::Result<Result<(), u32>> {
        self.request(WRITE, offset, data.len() as u32, data)
    }

    /// Reads `len` bytes.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        self.try_read(offset, len).expect("read")
    }

    /// Reads `len` bytes; the error is an error number.
    pub(crate) fn try_read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, u32> {
        self.request(READ, offset, len as u32, &[]).expect("answered")?;
        let mut data = vec![0; len];
        self.stream.read_exact(&mut data).expect("received");
        Ok(data)
    }

    /// Sends what keeps memory busy: a write whose payload never comes to its end, or reads whose
    /// replies nobody takes, of a mebibyte each.
    pub(crate) fn burden(&mut self, reads: bool) {
        let head = |command: u16, len: u32| {
            let mut head = REQUEST_MAGIC.to_be_bytes().to_vec();
            head.extend(0_u16.to_be_bytes());
            head.extend(command.to_be_bytes());
            head.extend([0; 16]);
            head.extend(len.to_be_bytes());
            head
        };
        let all = match reads {
            true => head(READ, 1 << 20).repeat(64),
            false => [head(WRITE, 30 << 20), vec![0xA5; 20 << 20]].concat(),
        };
        let patience = std::time::Duration::from_millis(20);
        self.stream.set_write_timeout(Some(patience)).expect("a socket");
        // The server takes as much as it likes.
        let _ = self.stream.write_all(&all);
    }

    /// Discards a range.
    pub(crate) fn trim(&mut self, offset: u64, len: u32) {
        self.request(TRIM, offset, len, &[]).expect("answered").expect("discarded");
    }
}

fn take<const N: usize>(stream: &mut UnixStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).expect("received");
    bytes
}
