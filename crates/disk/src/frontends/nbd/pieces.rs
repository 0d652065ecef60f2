//! Requests that are too large to be held whole, served in pieces by the thread that reads them.
//!
//! - P1: a request goes in pieces only while it is the only one of its connection, so nothing else
//!   is sent between its pieces.
//! - P2: a range is checked before the first piece, so one that lies beyond the end changes
//!   nothing. Pieces end at borders of pages, so a page changes as a whole.
//! - P3: a read that fails after its first piece ends the connection where the reply has no way to
//!   say so: without structured replies, or as one chunk.

use std::io;
use std::ops::Range;

use zfold_nbd::{Request, chunk, command, command_flag};

use super::channel::{Channel, Input};
use super::protocol::{chunk_head, simple_reply};
use super::serve::{Refusal, Responder};

/// Bytes of a piece: a multiple of every page length.
const PIECE: u64 = 64 << 10;

/// Serves `request`, whose head was read, in pieces. `send` sends what it is given, and empties it.
/// Returns whether it succeeded.
///
/// # Errors
/// Of the socket, or [P3](self): the connection is to be ended.
pub(super) fn serve(
    responder: &Responder<'_>,
    request: &Request,
    (channel, input): (&Channel, &mut Input),
    mut send: impl FnMut(&mut Vec<u8>),
) -> io::Result<bool> {
    let mut out = Vec::new();
    let served = if request.command == command::WRITE {
        let served = write(responder, request, |data| input.read_exact(channel, data))?;
        served.inspect(|()| simple_reply(&mut out, request.cookie, 0))
    } else if responder.structured && request.flags & command_flag::DF == 0 {
        read_chunks(responder, request, &mut out, &mut send)
    } else {
        read_whole(responder, request, &mut out, &mut send)?
    };
    if let Err(refusal) = served {
        responder.refuse(request, refusal, &mut out);
    }
    send(&mut out);
    Ok(served.is_ok())
}

/// Returns the ranges of a request's pieces.
fn pieces(request: &Request) -> impl Iterator<Item = Range<u64>> + use<> {
    let (mut at, end) = (request.offset, request.offset + u64::from(request.len));
    std::iter::from_fn(move || {
        let begin = at;
        at = (begin / PIECE + 1).saturating_mul(PIECE).min(end);
        (begin < end).then_some(begin..at)
    })
}

fn check(responder: &Responder<'_>, request: &Request) -> Result<(), Refusal> {
    responder.check(request)?;
    Ok(responder.disk.check(request.offset, request.len.into())?)
}

/// Takes the whole payload, and writes it unless something fails.
fn write(
    responder: &Responder<'_>,
    request: &Request,
    mut receive: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<Result<(), Refusal>> {
    let disk = responder.disk;
    let mut served = check(responder, request);
    let mut data = vec![0; PIECE as usize];
    // Nothing is written beyond the end; there it is the length alone that counts.
    let placed = if served.is_ok() { *request } else { Request { offset: 0, ..*request } };
    for piece in pieces(&placed) {
        let data = &mut data[..(piece.end - piece.start) as usize];
        receive(data)?;
        if served.is_ok() {
            // Each counts alone: no payload is waited for in between (fence/F3).
            served = match responder.activity.begin(true) {
                Some(_busy) => disk.write(piece.start, data).map_err(Refusal::from),
                None => Err(Refusal::Broken),
            };
        }
    }
    if served.is_ok() && request.flags & command_flag::FUA != 0 {
        let _busy = responder.activity.begin(false);
        served = disk.flush().map_err(Refusal::from);
    }
    Ok(served)
}

fn read_chunks(
    responder: &Responder<'_>,
    request: &Request,
    out: &mut Vec<u8>,
    send: &mut impl FnMut(&mut Vec<u8>),
) -> Result<(), Refusal> {
    check(responder, request)?;
    let end = request.offset + u64::from(request.len);
    for piece in pieces(request) {
        let len = (piece.end - piece.start) as u32;
        let part = Request { offset: piece.start, len, ..*request };
        let read = responder.read_chunks(&part, piece.end == end, out);
        // The prepared part of a piece that failed is wrong.
        read.inspect_err(|_| out.clear())?;
        if piece.end < end {
            send(out);
        }
    }
    Ok(())
}

fn read_whole(
    responder: &Responder<'_>,
    request: &Request,
    out: &mut Vec<u8>,
    send: &mut impl FnMut(&mut Vec<u8>),
) -> io::Result<Result<(), Refusal>> {
    if let Err(refusal) = check(responder, request) {
        return Ok(Err(refusal));
    }
    if responder.structured {
        chunk_head(out, request.cookie, true, chunk::OFFSET_DATA, 8 + request.len);
        out.extend_from_slice(&request.offset.to_be_bytes());
    } else {
        simple_reply(out, request.cookie, 0);
    }
    for piece in pieces(request) {
        let len = (piece.end - piece.start) as u32;
        match responder.read(piece.start, len, out) {
            Ok(()) => send(out),
            Err(refusal) if piece.start == request.offset => {
                out.clear();
                return Ok(Err(refusal));
            }
            Err(_) => return Err(io::Error::other("a page in the middle of a read is damaged")),
        }
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_request_and_end_at_borders() {
        for (offset, len) in [(0, 1 << 20), (4095, 2), (PIECE - 1, 200_000), (7, 0)] {
            let request = Request { flags: 0, command: command::READ, cookie: 0, offset, len };
            let all: Vec<_> = pieces(&request).collect();
            let mut at = offset;
            for piece in &all {
                assert_eq!(piece.start, at);
                assert!(piece.start < piece.end && piece.end - piece.start <= PIECE);
                at = piece.end;
            }
            assert_eq!(at, offset + u64::from(len));
            assert!(all.iter().rev().skip(1).all(|piece| piece.end % PIECE == 0));
        }
    }
}
