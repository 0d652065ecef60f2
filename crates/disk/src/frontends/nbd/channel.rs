//! The two directions of a connection, encrypted or not.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use super::buffer::Buffer;
use super::socket::Socket;
use super::tls::{Config, Session};

/// Bytes that one system call receives at most, payloads that go straight to their place aside.
const INPUT_BYTES: usize = 256 << 10;
/// Bytes of ciphertext that one system call receives at most.
const CIPHER_BYTES: usize = 64 << 10;

/// A connection's socket and its encryption.
#[derive(Debug)]
pub(super) struct Channel {
    socket: Arc<Socket>,
    session: Option<Session>,
}

/// The receiving side of a channel: one thread at a time has it.
#[derive(Debug)]
pub(super) struct Input {
    plain: Buffer,
    /// Empty unless the channel is encrypted.
    cipher: Buffer,
}

impl Channel {
    /// Returns an unencrypted channel and its receiving side.
    pub(super) fn new(socket: Arc<Socket>) -> (Self, Input) {
        let input = Input { plain: Buffer::new(INPUT_BYTES), cipher: Buffer::new(0) };
        (Self { socket, session: None }, input)
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.session.is_some()
    }

    /// Shakes hands and encrypts from here on. Bytes that were already received count as
    /// ciphertext, so no machine in between can forge an encrypted client's messages.
    pub(super) fn encrypt(&mut self, input: &mut Input, config: &Config) -> io::Result<()> {
        input.cipher = std::mem::replace(&mut input.plain, Buffer::new(INPUT_BYTES));
        if input.cipher.is_empty() {
            input.cipher = Buffer::new(CIPHER_BYTES);
        }
        self.session = Some(Session::accept(config, &self.socket, &mut input.cipher)?);
        Ok(())
    }

    /// Sends all of `slices`. One thread at a time.
    pub(super) fn send_all(&self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        match &self.session {
            None => self.socket.send_all(slices),
            Some(session) => session.send_all(&self.socket, slices),
        }
    }

    /// Sets when calls give up waiting for the peer, however slowly it goes on; `None` is never.
    pub(super) fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.socket.set_deadline(deadline)
    }

    /// Says farewell and ends both directions.
    pub(super) fn close(&self) {
        if let Some(session) = &self.session {
            session.close(&self.socket);
        }
        self.abort();
    }

    /// Ends both directions at once.
    pub(super) fn abort(&self) {
        self.socket.close();
    }

    fn receive(&self, cipher: &mut Buffer, out: &mut [u8]) -> io::Result<usize> {
        match &self.session {
            None => self.socket.receive(out),
            Some(session) => session.receive(&self.socket, cipher, out),
        }
    }
}

impl Input {
    /// Returns what was received and not used yet.
    pub(super) fn buffered(&self) -> &[u8] {
        self.plain.bytes()
    }

    /// Returns whether `len` bytes can be waited for in the buffer.
    pub(super) fn holds(&self, len: usize) -> bool {
        len <= self.plain.capacity()
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.plain.consume(len);
    }

    /// Receives more; 0 means that the peer sends no more.
    pub(super) fn fill(&mut self, channel: &Channel) -> io::Result<usize> {
        self.plain.fill(|space| channel.receive(&mut self.cipher, space))
    }

    /// Fills `out`; if much is missing, bytes are received straight into it.
    ///
    /// # Errors
    /// `UnexpectedEof` if the peer sends no more.
    pub(super) fn read_exact(&mut self, channel: &Channel, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            let buffered = self.plain.bytes();
            let received = if !buffered.is_empty() {
                let len = out.len().min(buffered.len());
                out[..len].copy_from_slice(&buffered[..len]);
                self.plain.consume(len);
                len
            } else if out.len() >= self.plain.capacity() / 4 {
                let received = channel.receive(&mut self.cipher, out)?;
                if received == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                received
            } else {
                if self.fill(channel)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                0
            };
            out = &mut out[received..];
        }
        Ok(())
    }
}
