//! A server that answers more than it is asked for: it fills no memory, and what was asked fails.

use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use zfold_far::place::PlaceError;
use zfold_far::{Engine, EngineError, Object};
use zfold_testing::skip::has_loopback;

use crate::gate::request;
use crate::{place, soon};

/// What a server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// A list does not end.
    List,
    /// There is always one more page of the list.
    Pages,
    /// An object has a TiB, whatever range of it is asked for.
    Range,
    /// The same, without saying how long it is.
    Unsaid,
    /// What it says of an error does not end.
    Error,
    /// The list of parts has 3 MiB, and a range of it comes as it should.
    Parts,
}

const TIB: u64 = 1 << 40;

/// Starts a server, which runs as long as the process; returns the variables by which it is found.
fn start(does: Does) -> Vec<(&'static str, String)> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            // A client that has read enough goes away.
            thread::spawn(move || drop(serve(client, does)));
        }
    });
    vec![
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "hunter2".to_owned()),
    ]
}

/// Answers one request.
#[expect(clippy::too_many_lines, reason = "one way of going wrong after the other")]
fn serve(mut client: TcpStream, does: Does) -> io::Result<()> {
    let (head, _) = request(&mut client)?;
    let line = head.lines().next().unwrap_or_default();
    let is_list = line.contains("list-type");
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
        _ if line.starts_with("PUT") => answer(client, "200 OK", "", ""),
        _ if line.starts_with("HEAD") => {
            answer(client, "200 OK", &format!("Content-Length: {TIB}\r\n"), "")
        }
        _ if line.starts_with("POST") && line.contains("?uploads") => {
            let upload = "<Bucket>b</Bucket><Key>k</Key><UploadId>u</UploadId>";
            let name = "InitiateMultipartUploadResult";
            answer(client, "200 OK", "", &format!("<{name}>{upload}</{name}>"))
        }
        _ if line.starts_with("POST") || line.starts_with("DELETE") => answer(
            client,
            "200 OK",
            "",
            "<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>",
        ),
        (_, Does::List) if is_list => answer(client, "200 OK", chunked, ""),
        (_, Does::Pages) if is_list => {
            let prefix = format!("<Prefix>cold/zfold-{}/</Prefix>", "a".repeat(32));
            let prefixes = format!("<CommonPrefixes>{prefix}</CommonPrefixes>").repeat(1000);
            let next = "<NextContinuationToken>more</NextContinuationToken>";
            let list = format!("<ListBucketResult>{next}{prefixes}</ListBucketResult>");
            answer(client, "200 OK", "", &list)
        }
        _ if is_list => answer(client, "200 OK", "", "<ListBucketResult></ListBucketResult>"),
        (_, Does::Error) => {
            let body = "<Error><Code>AccessDenied</Code><Message>no</Message>";
            let body = format!("{:x}\r\n{body}\r\n", body.len());
            answer(client, "403 Forbidden", chunked, &body)
        }
        (_, Does::Parts) => {
            let (first, last) = range.expect("a range is asked for");
            let fields = format!("Content-Range: bytes {first}-{last}/{}\r\n", 3 << 20);
            let len = (last - first + 1) as usize;
            answer(client, "206 Partial Content", &fields, &" ".repeat(len))
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

fn engine(does: Does, deadline: Instant) -> Result<Arc<dyn Engine>, PlaceError> {
    zfold_far::connect(&place("s3://b/cold", &start(does)).expect("a place"), deadline)
}

fn object(does: Does) -> Box<dyn Object> {
    zfold_far::object(&place("s3://b/k", &start(does)).expect("a place")).expect("an object")
}

/// Asserts that an error came at once and says what it must.
fn told(begun: Instant, error: &str, part: &str) {
    assert!(error.contains(part) && !error.contains('\n'), "no {part:?} in: {error}");
    // Not after the attempts of a minute.
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}: {error}", begun.elapsed());
}

#[test]
fn a_list_of_parts_that_does_not_end_is_an_error_of_the_save() {
    if !has_loopback("a_list_of_parts_that_does_not_end_is_an_error_of_the_save") {
        return;
    }
    for (does, part) in [
        (Does::Range, "1099511627776 bytes where 2097152 at most were asked for"),
        (Does::Parts, "k.parts beside it has 3145728 bytes and is no list of parts: remove it"),
    ] {
        let begun = Instant::now();
        let object = object(does);
        let error = object.write().err().expect("no list of parts").to_string();
        told(begun, &error, part);
    }
}

#[test]
fn a_list_that_does_not_end_is_refused() {
    if !has_loopback("a_list_that_does_not_end_is_refused") {
        return;
    }
    let begun = Instant::now();
    let error = engine(Does::List, soon()).expect_err("it does not end").to_string();
    told(begun, &error, "more bytes where 8388608 at most were asked for");
}

#[test]
fn a_list_with_ever_more_pages_holds_nobody_and_is_not_kept() {
    if !has_loopback("a_list_with_ever_more_pages_holds_nobody_and_is_not_kept") {
        return;
    }
    // One page tells whether lists are allowed.
    let engine = engine(Does::Pages, soon()).expect("an engine");
    let until = Instant::now() + Duration::from_secs(2);
    engine.renew(until).expect("what is left is for the next renewal");
    assert!(until.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_range_that_brings_more_than_it_has_is_refused() {
    if !has_loopback("a_range_that_brings_more_than_it_has_is_refused") {
        return;
    }
    for (does, said) in [(Does::Range, "1099511627776 bytes"), (Does::Unsaid, "more bytes")] {
        let begun = Instant::now();
        let engine = engine(does, soon()).expect("an engine");
        let error = engine.get(7, 0, &mut [0; 5000], soon()).expect_err("too much");
        assert!(matches!(error, EngineError::Refused(_)), "{error:?}");
        told(begun, &error.to_string(), &format!("{said} where 5000 at most were asked for"));
    }
    // An object that is read as a stream.
    let object = object(Does::Range);
    let begun = Instant::now();
    let error = object.read().expect("there").read(&mut [0; 9]).expect_err("too much");
    told(begun, &error.to_string(), "1099511627776 bytes where 262144 at most were asked for");
}

#[test]
fn an_error_that_does_not_end_is_told_all_the_same() {
    if !has_loopback("an_error_that_does_not_end_is_told_all_the_same") {
        return;
    }
    let begun = Instant::now();
    let engine = engine(Does::Error, soon()).expect("an engine");
    let error = engine.get(7, 0, &mut [0; 5000], soon()).expect_err("refused").to_string();
    told(begun, &error, "AccessDenied: no; set AWS_ACCESS_KEY_ID");
}
