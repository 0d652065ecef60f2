//! A gate before a real server: it answers some requests itself, as an overloaded server does, and
//! lets the others through.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use zfold_testing::net::serve;
use zfold_testing::s3::S3;

/// Returns what to answer to a request line, if it is not let through: a status, and a code.
type Answer = dyn FnMut(&str) -> Option<(u16, &'static str)> + Send;

/// A gate, which is open as long as the test lasts.
pub(crate) struct Gate {
    address: SocketAddr,
    answer: Arc<Mutex<Box<Answer>>>,
}

impl Gate {
    /// Starts a gate that lets everything through.
    pub(crate) fn before(server: &S3) -> Self {
        let behind = server.port();
        let answer: Arc<Mutex<Box<Answer>>> = Arc::new(Mutex::new(Box::new(|_: &str| None)));
        let answers = Arc::clone(&answer);
        // A client that goes away in the midst is none of ours.
        let address = serve(move |client| drop(pass(client, behind, &answers)));
        Self { address, answer }
    }

    /// Answers from now on what `answer` says.
    pub(crate) fn answers(
        &self,
        answer: impl FnMut(&str) -> Option<(u16, &'static str)> + Send + 'static,
    ) {
        *self.answer.lock().expect("no panic") = Box::new(answer);
    }

    /// Returns the variables by which programs find the gate instead of the server.
    pub(crate) fn variables(&self, server: &S3) -> Vec<(&'static str, String)> {
        let mut variables = server.variables().to_vec();
        variables[0].1 = format!("http://{}", self.address);
        variables
    }
}

/// Serves one request of a client.
fn pass(mut client: TcpStream, behind: u16, answers: &Mutex<Box<Answer>>) -> io::Result<()> {
    let (head, body) = request(&mut client)?;
    let line = head.lines().next().unwrap_or_default();
    let answer = (answers.lock().expect("no panic"))(line);
    if let Some((status, code)) = answer {
        let text = format!("<Error><Code>{code}</Code><Message>Not now.</Message></Error>");
        return write!(
            client,
            "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
    }
    let mut server = TcpStream::connect(("127.0.0.1", behind))?;
    let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    server.write_all(head.as_bytes())?;
    server.write_all(&body)?;
    io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}

/// Reads a request: its head with the empty line, and its body.
pub(crate) fn request(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut part) = (Vec::new(), [0; 1 << 16]);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|at| at == b"\r\n\r\n") {
            break end + 4;
        }
        match client.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(&part[..len]),
        }
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes).expect("text");
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().expect("a number"))
    });
    let begun = body.len();
    body.resize(len.unwrap_or(0), 0);
    client.read_exact(&mut body[begun..])?;
    Ok((head, body))
}
