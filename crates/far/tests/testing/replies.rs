//! Any bytes as what a server says: engines read or refuse them and come to an end, and what they
//! tell of it is one line. For the fuzzer, and for a test with what is worth keeping.

use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::EngineError;

/// How long one input may take, on a busy machine and under a sanitizer.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most characters of an error.
const ERROR_MAX: usize = 600;

/// Takes `said` as replies of a server of Redis.
///
/// # Panics
/// If the engine does not do what it must.
#[cfg(feature = "redis")]
pub fn redis(said: &[u8]) {
    check(&over_a_socket(said, crate::engines::redis::heard::hear));
}

/// Takes `said` as what a server of NBD says, from its greeting on.
///
/// # Panics
/// If the engine does not do what it must.
#[cfg(feature = "nbd")]
pub fn nbd(said: &[u8]) {
    check(&over_a_socket(said, crate::engines::nbd::heard::hear));
}

/// Takes `said` as the answer of a server of S3 to every request: its first byte as status and
/// fields, the others as body.
///
/// # Panics
/// If the object does not do what it must.
#[cfg(feature = "s3")]
pub fn s3(said: &[u8]) {
    use std::sync::LazyLock;

    use crate::s3::heard::Client;

    static CLIENT: LazyLock<Client> = LazyLock::new(Client::new);
    let deadline = Instant::now() + PATIENCE;
    CLIENT.hear(said).iter().for_each(check);
    assert!(Instant::now() < deadline, "it took too long");
}

/// Has a server at the other end of a socket say something, while `hear` hears it.
fn over_a_socket(said: &[u8], hear: fn(UnixStream, Instant) -> EngineError) -> EngineError {
    let (client, mut server) = UnixStream::pair().expect("sockets are to be had");
    let said = said.to_vec();
    let saying = thread::spawn(move || {
        // A client that has heard enough hangs up.
        let mut requests = server.try_clone().expect("descriptors are to be had");
        let _ = server.write_all(&said).and_then(|()| server.shutdown(Shutdown::Write));
        let _ = io::copy(&mut requests, &mut io::sink());
    });
    let deadline = Instant::now() + PATIENCE;
    let error = hear(client, deadline);
    assert!(error != EngineError::Late && Instant::now() < deadline, "it took too long");
    saying.join().expect("the server does not panic");
    error
}

/// Checks the messages for people.
fn check(error: &impl ToString) {
    let told = error.to_string();
    assert!(told.chars().count() <= ERROR_MAX && !told.contains('\n'), "{told}");
}
