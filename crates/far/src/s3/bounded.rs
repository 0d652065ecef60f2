//! Answers of a server, each no longer than requested: another writer to the bucket, or a machine
//! in between, cannot fill memory.
//!
//! - B1: a body is read up to the length that its request can be answered with: a range brings its
//!   bytes, anything else [`ANSWER_MAX`]. A longer one is an error, before anything is read if the
//!   server announces it. The text of an error is cut at [`ERROR_MAX`].
//!
//! Heads have the bounds of the HTTP library: 100 fields, half a MiB. `object_store` reads whole
//! bodies and allocates memory for the announced length, so this stands between the two.

use std::pin::Pin;

use futures_util::TryStreamExt as _;
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use thiserror::Error;

/// Longest answer that is no range: a list of 1000 keys of 1 KiB, each byte of which is escaped.
const ANSWER_MAX: u64 = 8 << 20;

/// The most that is read of the text of an error.
const ERROR_MAX: u64 = 64 << 10;

/// Makes requests; reads of each answer what it may have.
#[derive(Debug)]
pub(super) struct Bounded<C>(pub(super) C);

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl<C: HttpService> HttpService for Bounded<C> {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        let asked = asked(&request);
        let has_body = request.method().as_str() != "HEAD";
        Box::pin(async move {
            let (head, body) = self.0.call(request).await?.into_parts();
            if !head.status.is_success() {
                let (bytes, _) = read(body, ERROR_MAX).await?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                return Ok(HttpResponse::from_parts(head, text.into()));
            }
            let announced = head.headers.get("content-length");
            let announced = announced.and_then(|len| len.to_str().ok()?.parse().ok());
            match announced.filter(|announced| has_body && *announced > asked) {
                Some(_) => Err(too_long(asked, announced)),
                None => match read(body, asked).await? {
                    (_, true) => Err(too_long(asked, None)),
                    (bytes, false) => Ok(HttpResponse::from_parts(head, bytes.into())),
                },
            }
        })
    }
}

/// Returns the most bytes that a request can be answered with (B1).
fn asked(request: &HttpRequest) -> u64 {
    let range = request.headers().get("range").and_then(|range| {
        let (first, last) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    range.unwrap_or(ANSWER_MAX)
}

/// Reads up to `most` bytes; returns them, and whether there are more.
async fn read(body: HttpResponseBody, most: u64) -> Result<(Vec<u8>, bool), HttpError> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut bytes, mut parts) = (Vec::new(), body.bytes_stream());
    while let Some(part) = parts.try_next().await? {
        let room = most - bytes.len();
        bytes.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() > room {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

fn too_long(asked: u64, announced: Option<u64>) -> HttpError {
    // An error of a kind for which `object_store` does not retry.
    HttpError::new(HttpErrorKind::Decode, TooLong { asked, announced })
}

/// An answer is longer than requested.
#[derive(Debug, Error)]
#[error(
    "it answers with {} bytes where {asked} at most were asked for; see that AWS_ENDPOINT_URL \
     names S3",
    announced.map_or("more".to_owned(), |bytes| bytes.to_string())
)]
pub(super) struct TooLong {
    asked: u64,
    announced: Option<u64>,
}
