//! A server: `host`, `host:port`, `[ip]` or `[ip]:port`.

use std::fmt;
use std::sync::Arc;

use super::error::{PlaceError, place_error};

/// The port of Redis.
const REDIS_PORT: u16 = 6379;

/// A server's name and port.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

impl Address {
    /// Returns the address of a host's port.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Reads `host`, `host:port`, `[ip]` or `[ip]:port`; without a port it is that of Redis.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn parse(text: &str) -> Result<Self, PlaceError> {
        Self::parse_with(text, REDIS_PORT)
    }

    /// Reads the same; without a port it is `port`.
    pub(super) fn parse_with(text: &str, port: u16) -> Result<Self, PlaceError> {
        let wrong = || place_error!("`{text}` is not a server: give HOST or HOST:PORT");
        let bare = text.matches(':').count() > 1 && !text.starts_with('[');
        let (host, port) = match text.rsplit_once(':') {
            // An IPv6 address as servers write it: the last colon is the port's.
            Some((host, port)) if bare || !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (text, port),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let usable = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
        if host.is_empty() || !host.chars().all(usable) || port == 0 {
            return Err(wrong());
        }
        Ok(Self::new(host, port))
    }

    /// Returns the name or the number of the machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}{}{}:{}", brackets.0, self.host, brackets.1, self.port)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
