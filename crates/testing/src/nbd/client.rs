//! A small client, which sends what a test gives it, byte by byte if need be.

use std::io::{self, Read, Write};

use zfold_nbd::{
    BASE_ALLOCATION, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, Request, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, chunk, command, option, reply,
};

/// A chunk of a structured reply, or a simple reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Simple { cookie: u64, error: u32 },
    Chunk { cookie: u64, done: bool, kind: u16, data: Vec<u8> },
}

pub struct Client<S> {
    pub stream: S,
    pub next_cookie: u64,
}

impl<S: Read + Write> Client<S> {
    /// Takes the greeting and answers it.
    pub fn greet(stream: S) -> Self {
        let mut client = Self { stream, next_cookie: 1 };
        let greeting: [u8; 18] = client.take();
        assert_eq!(&greeting[..16], [MAGIC, OPTION_MAGIC].map(u64::to_be_bytes).concat());
        assert_eq!(greeting[16..], [0, 3]);
        client.send(&3u32.to_be_bytes());
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server listens");
    }

    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    pub fn take_vec(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Asserts that the server has hung up, with nothing left to say.
    pub fn assert_closed(&mut self) {
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("the connection is still open: {other:?}"),
        }
    }

    pub fn send_option(&mut self, option: u32, data: &[u8]) {
        let head = [
            &OPTION_MAGIC.to_be_bytes()[..],
            &option.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
        ];
        self.send(&[&head.concat(), data].concat());
    }

    /// Sends an option and returns its replies, the last of which is an ACK or an error.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send_option(option, data);
        let mut replies = Vec::new();
        loop {
            let (kind, data) = self.option_reply(option);
            replies.push((kind, data));
            if kind == reply::ACK || kind & reply::ERROR != 0 {
                return replies;
            }
        }
    }

    pub fn option_reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        assert_eq!(u64::from_be_bytes(self.take()), OPTION_REPLY_MAGIC);
        assert_eq!(u32::from_be_bytes(self.take()), option);
        let kind = u32::from_be_bytes(self.take());
        let len = u32::from_be_bytes(self.take());
        (kind, self.take_vec(len as usize))
    }

    /// Agrees on structured replies and block status of the empty name.
    pub fn structured(&mut self) {
        assert_eq!(self.option(option::STRUCTURED_REPLY, &[]), [(reply::ACK, vec![])]);
        let replies = self.option(option::SET_META_CONTEXT, &queries("", &[BASE_ALLOCATION]));
        assert_eq!(replies.len(), 2);
    }

    /// Begins the transmission; returns the export's size and flags.
    pub fn go(&mut self, name: &str) -> (u64, u16) {
        let replies = self.option(option::GO, &info_request(name, &[]));
        assert_eq!(replies.last(), Some(&(reply::ACK, vec![])));
        let export = &replies[replies.len() - 2].1;
        assert_eq!(export[..2], [0, 0]);
        let size = u64::from_be_bytes(export[2..10].try_into().unwrap());
        (size, u16::from_be_bytes(export[10..].try_into().unwrap()))
    }

    /// Sends a request and returns its cookie.
    pub fn request(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.send(&request(command, flags, cookie, offset, len));
        cookie
    }

    pub fn reply(&mut self) -> Reply {
        match u32::from_be_bytes(self.take()) {
            SIMPLE_REPLY_MAGIC => {
                let error = u32::from_be_bytes(self.take());
                Reply::Simple { cookie: u64::from_be_bytes(self.take()), error }
            }
            STRUCTURED_REPLY_MAGIC => {
                let done = u16::from_be_bytes(self.take()) == 1;
                let kind = u16::from_be_bytes(self.take());
                let cookie = u64::from_be_bytes(self.take());
                let len = u32::from_be_bytes(self.take());
                Reply::Chunk { cookie, done, kind, data: self.take_vec(len as usize) }
            }
            magic => panic!("{magic:#x} begins no reply"),
        }
    }

    /// Returns the error of the next reply, of a request that is not read or block status.
    pub fn outcome(&mut self, cookie: u64) -> u32 {
        match self.reply() {
            Reply::Simple { cookie: theirs, error } if theirs == cookie => error,
            Reply::Chunk { cookie: theirs, done: true, kind: chunk::ERROR, data }
                if theirs == cookie =>
            {
                error_of(&data)
            }
            other => panic!("no reply to {cookie}: {other:?}"),
        }
    }

    /// Sends a request without payload and returns its error, 0 for success.
    pub fn simple(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> u32 {
        let cookie = self.request(command, flags, offset, len);
        self.outcome(cookie)
    }

    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        let cookie = self.request(command::WRITE, flags, offset, data.len() as u32);
        self.send(data);
        self.outcome(cookie)
    }

    /// Reads with structured replies, and checks that the chunks cover the range once.
    pub fn read(&mut self, flags: u16, offset: u64, len: u32) -> Result<Vec<u8>, u32> {
        let cookie = self.request(command::READ, flags, offset, len);
        let mut out = vec![0xEE; len as usize];
        let mut covered = 0;
        loop {
            let Reply::Chunk { cookie: theirs, done, kind, data } = self.reply() else {
                panic!("a read has no simple reply");
            };
            assert_eq!(theirs, cookie);
            if kind == chunk::ERROR {
                assert!(done);
                return Err(error_of(&data));
            }
            let (at, rest) = data.split_at(if kind == chunk::NONE { 0 } else { 8 });
            let at = at.try_into().map_or(offset, u64::from_be_bytes);
            let begin = (at - offset) as usize;
            match kind {
                chunk::NONE => assert!(done && rest.is_empty()),
                chunk::OFFSET_DATA => {
                    out[begin..begin + rest.len()].copy_from_slice(rest);
                    covered += rest.len();
                }
                chunk::OFFSET_HOLE => {
                    let len = u32::from_be_bytes(rest.try_into().unwrap()) as usize;
                    out[begin..begin + len].fill(0);
                    covered += len;
                }
                kind => panic!("a read has no chunk of kind {kind}"),
            }
            if done {
                assert_eq!(covered, len as usize);
                return Ok(out);
            }
        }
    }

    /// Returns the lengths and states of a range.
    pub fn block_status(&mut self, flags: u16, offset: u64, len: u32) -> Vec<(u32, u32)> {
        let cookie = self.request(command::BLOCK_STATUS, flags, offset, len);
        let reply = self.reply();
        let Reply::Chunk { cookie: theirs, done: true, kind: chunk::BLOCK_STATUS, data } = reply
        else {
            panic!("no block status: {reply:?}");
        };
        assert_eq!(theirs, cookie);
        assert_eq!(data[..4], [0, 0, 0, 1]);
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        data[4..].chunks(8).map(|run| (word(&run[..4]), word(&run[4..]))).collect()
    }
}

fn error_of(data: &[u8]) -> u32 {
    let message = u16::from_be_bytes(data[4..6].try_into().unwrap());
    assert_eq!(data.len(), 6 + usize::from(message));
    assert!(message > 0, "people are told why");
    u32::from_be_bytes(data[..4].try_into().unwrap())
}

pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    Request { flags, command, cookie, offset, len }.to_bytes().to_vec()
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

pub fn info_request(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|item| item.to_be_bytes()));
    data
}

pub fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    data.extend(queries.iter().flat_map(|query| string(query)));
    data
}
