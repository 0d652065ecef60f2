//! One connection to one server: commands out, replies in, each by a deadline.
//!
//! The crate `redis` writes commands and parses replies; its own connections bound each read, not
//! a whole call, so a server that trickles would hold a caller forever.
//!
//! - R1: no call takes longer than its deadline, whatever the server sends and however slowly.
//! - R2: a link that failed is not used again: what it would read next may belong to a request
//!   that was given up.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, Parser, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::trouble::Trouble;
use crate::engines::said::short;
use crate::engines::tcp::Timed;
use crate::place::{Address, Login};

/// The parameters of a connection.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) login: Login,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Longest reply: an object is shorter.
const REPLY_MAX: usize = 4 << 20;

/// How long an unused connection is taken to be open.
const FRESH: Duration = Duration::from_secs(1);

/// A connection on which nothing is under way.
pub(super) struct Connection {
    stream: Stream,
    parser: Parser,
    used: Instant,
}

enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Connection {
    /// Connects to `address` and logs in.
    pub(super) fn open(
        address: &Address,
        access: &Access,
        deadline: Instant,
    ) -> Result<Self, Trouble> {
        let timed = Timed::connect(address, deadline)?;
        let stream = match &access.tls {
            None => Stream::Plain(timed),
            Some(config) => {
                let name = ServerName::try_from(address.host().to_owned())
                    .map_err(|error| Trouble::Lost(error.to_string()))?;
                let session = ClientConnection::new(Arc::clone(config), name)
                    .map_err(|error| Trouble::Lost(error.to_string()))?;
                Stream::Tls(Box::new(StreamOwned::new(session, timed)))
            }
        };
        let mut link = Self::over(stream);
        if let Some(password) = access.login.password() {
            let mut auth = redis::cmd("AUTH");
            if let Some(user) = access.login.user() {
                auth.arg(user);
            }
            link.call(auth.arg(password), deadline)?;
        }
        Ok(link)
    }

    fn over(stream: Stream) -> Self {
        Self { stream, parser: Parser::new(), used: Instant::now() }
    }

    /// Returns a connection to what is at the other end of a socket.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn plain(timed: Timed) -> Self {
        Self::over(Stream::Plain(timed))
    }

    /// Sends a command and returns its reply.
    fn call(&mut self, command: &Cmd, deadline: Instant) -> Result<Value, Trouble> {
        self.send(&command.get_packed_command(), deadline)?;
        self.receive(deadline)
    }

    /// Sends packed commands.
    pub(super) fn send(&mut self, packed: &[u8], deadline: Instant) -> Result<(), Trouble> {
        let stream = self.stream(deadline);
        stream.write_all(packed)?;
        Ok(stream.flush()?)
    }

    /// Returns whether the server has not closed it since it was used, as servers do with those
    /// that are unused for long.
    pub(super) fn is_open(&self) -> bool {
        let tcp = match &self.stream {
            Stream::Plain(timed) => timed,
            Stream::Tls(session) => &session.sock,
        };
        self.used.elapsed() < FRESH || tcp.is_quiet()
    }

    /// Returns the next reply. An error reply is an error, after which the link is still good.
    pub(super) fn receive(&mut self, deadline: Instant) -> Result<Value, Trouble> {
        // Not `stream`: the parser is borrowed, too.
        let value = match &mut self.stream {
            Stream::Plain(timed) => {
                (timed.deadline, timed.allowed) = (deadline, REPLY_MAX);
                self.parser.parse_value(timed)
            }
            Stream::Tls(session) => {
                (session.sock.deadline, session.sock.allowed) = (deadline, REPLY_MAX);
                self.parser.parse_value(session.as_mut())
            }
        };
        self.used = Instant::now();
        value.and_then(Value::extract_error).map_err(Trouble::from)
    }

    fn stream(&mut self, deadline: Instant) -> &mut dyn Write {
        match &mut self.stream {
            Stream::Plain(timed) => {
                timed.deadline = deadline;
                timed
            }
            Stream::Tls(session) => {
                session.sock.deadline = deadline;
                session.as_mut()
            }
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match error.kind() {
            _ if matches!(tls, Some(rustls::Error::InvalidCertificate(_))) => {
                Self::Refused(format!("{error}; name its authority's certificate in SSL_CERT_FILE"))
            }
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Late,
            _ => Self::Lost(short(&error.to_string())),
        }
    }
}

impl From<redis::RedisError> for Trouble {
    fn from(error: redis::RedisError) -> Self {
        let said = error.detail().unwrap_or_default();
        let coded = || short(&format!("{} {said}", error.code().unwrap_or("ERR")));
        match error.kind() {
            ErrorKind::Io if error.is_timeout() => Self::Late,
            ErrorKind::Server(_) | ErrorKind::Extension => Self::of_answer(coded()),
            _ => Self::Lost(short(&error.to_string())),
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
