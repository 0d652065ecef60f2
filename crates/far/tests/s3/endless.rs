//! A server that answers more than it is asked for: it fills no memory, and what was asked fails.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use zfold_far::Object;
use zfold_testing::net;
use zfold_testing::skip::has_loopback;

use crate::gate::request;
use crate::place;

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// The answer to the beginning of an upload does not end.
    Begun,
    /// An object has a TiB, whatever range of it is asked for.
    Range,
    /// The same, without saying how long it is.
    Unsaid,
    /// What it says of an error does not end.
    Error,
}

const TIB: u64 = 1 << 40;

/// Starts a server, which runs as long as the process; returns the variables by which it is found.
fn start(does: Does) -> Vec<(&'static str, String)> {
    // A client that has read enough goes away.
    let address = net::serve(move |client| drop(serve(client, does)));
    vec![
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "hunter2".to_owned()),
    ]
}

/// Answers one request.
fn serve(mut client: TcpStream, does: Does) -> io::Result<()> {
    let (head, _) = request(&mut client)?;
    let line = head.lines().next().unwrap_or_default();
    let answer = |mut client: TcpStream, status: &str, fields: &str, body: &str| {
        let len = if fields.contains("Content-Length") || fields.contains("Transfer") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        write!(
            client,
            "HTTP/1.1 {status}\r\nLast-Modified: Wed, 25 Nov 2026 09:00:00 GMT\r\nETag: \"x\"\r\n\
             Connection: close\r\n{fields}{len}\r\n{body}"
        )?;
        if len.is_empty() && !line.starts_with("HEAD") {
            endless(client, fields.contains("Transfer"))?;
        }
        Ok(())
    };
    let chunked = "Transfer-Encoding: chunked\r\n";
    let range = head.lines().find_map(|line| {
        let (first, last) = line
            .to_ascii_lowercase()
            .strip_prefix("range: bytes=")?
            .split_once('-')
            .map(|(first, last)| (first.to_owned(), last.to_owned()))?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
    });
    match (line, does) {
        _ if line.starts_with("HEAD") => {
            answer(client, "200 OK", &format!("Content-Length: {TIB}\r\n"), "")
        }
        (_, Does::Begun) => answer(client, "200 OK", chunked, ""),
        (_, Does::Error) => {
            let body = "<Error><Code>AccessDenied</Code><Message>no</Message>";
            let body = format!("{:x}\r\n{body}\r\n", body.len());
            answer(client, "403 Forbidden", chunked, &body)
        }
        (_, does) => {
            let len = match does {
                Does::Unsaid => chunked.to_owned(),
                _ => format!("Content-Length: {TIB}\r\n"),
            };
            match range {
                Some((first, last)) => {
                    let fields = format!("Content-Range: bytes {first}-{last}/{TIB}\r\n{len}");
                    answer(client, "206 Partial Content", &fields, "")
                }
                None => answer(client, "200 OK", &len, ""),
            }
        }
    }
}

/// Writes until the client goes away.
fn endless(mut client: TcpStream, chunked: bool) -> io::Result<()> {
    let spaces = " ".repeat(1 << 20);
    let part = if chunked { format!("{:x}\r\n{spaces}\r\n", spaces.len()) } else { spaces };
    loop {
        client.write_all(part.as_bytes())?;
    }
}

fn object(does: Does) -> Box<dyn Object> {
    zfold_far::object(&place("s3://b/k", &start(does)).expect("a place")).expect("an object")
}

#[test]
fn what_does_not_end_is_refused_at_once() {
    zfold_testing::needs!(has_loopback());
    for (does, told) in [
        (Does::Begun, "more bytes where 8388608 at most were asked for"),
        (Does::Range, "1099511627776 bytes where 262144 at most were asked for"),
        (Does::Unsaid, "more bytes where 262144 at most were asked for"),
        (Does::Error, "AccessDenied: no; set AWS_ACCESS_KEY_ID"),
    ] {
        let (begun, object) = (Instant::now(), object(does));
        let error = match does {
            Does::Begun => object.write().err().expect("it does not end").to_string(),
            _ => object.read().expect("there").read(&mut [0; 9]).expect_err("too much").to_string(),
        };
        assert!(error.contains(told) && !error.contains('\n'), "no {told:?} in: {error}");
        // Not after the attempts of a minute.
        assert!(begun.elapsed() < Duration::from_secs(50), "{:?}: {error}", begun.elapsed());
    }
}
