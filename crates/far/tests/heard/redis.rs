//! Any bytes as what a server of Redis says.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::connection::Connection;
use super::info::Info;
use crate::engine::EngineError;
use crate::engines::tcp::Timed;
use crate::place::Address;

/// Takes one reply after the other, each as all that it could be, until one is wrong; returns what
/// was.
pub(crate) fn hear(pair: UnixStream, deadline: Instant) -> EngineError {
    let mut link = Connection::plain(Timed::over(pair, deadline));
    loop {
        match link.receive(deadline) {
            Ok(reply) => {
                let _ = Info::of(&reply).map(|info| info.check(&Address::new("self", 1), 2));
            }
            Err(trouble) if trouble.spares_link() => drop(EngineError::from(trouble)),
            Err(trouble) => return trouble.into(),
        }
    }
}
