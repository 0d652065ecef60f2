//! Requests to one bucket: each with a bound of its time, each failure in the words of an engine.
//!
//! - T1: a request ends when the server says nothing for [`SILENCE`], and in [`LONGEST`] in any
//!   case. One that failed is made again for [`PATIENCE`].
//! - T2: no text that leaves here has a value of the environment other than the endpoint
//!   (place/U1).

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{HttpClient, HttpConnector};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use rustls::ClientConfig;
use tokio::runtime::{Builder, Handle, Runtime};

use super::bounded::{Bounded, TooLong};
use crate::engine::EngineError;
use crate::engines::said::short;
use crate::engines::tls;
use crate::place::{PlaceError, S3Place, place_error};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a server may say nothing to a request, and how long all of it may take: to complete an
/// upload, a server may copy all parts.
const SILENCE: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(600);

/// How long a request is made again that failed, and how often.
const PATIENCE: Duration = Duration::from_secs(60);
const RETRIES: usize = 60;

/// The wait before a request is made again, at first and at most.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Threads that talk to a bucket.
const THREADS: usize = 2;

/// A bucket, and the threads that talk to it.
pub(super) struct Bucket {
    store: AmazonS3,
    /// None once it is dropped.
    runtime: Option<Runtime>,
}

impl Bucket {
    /// Returns the bucket of `place`. Sends no request.
    ///
    /// # Errors
    /// What the environment says makes no sense, or the system has no threads.
    pub(super) fn open(place: &S3Place) -> Result<Self, PlaceError> {
        let plain = place.endpoint().is_some_and(|endpoint| endpoint.starts_with("http://"));
        Self::over(place, plain, Connector { tls: tls::client("s3://", !plain)? }, RETRIES)
    }

    /// Returns the bucket of `place` behind connections that the caller makes.
    pub(super) fn over(
        place: &S3Place,
        plain: bool,
        connector: impl HttpConnector,
        max_retries: usize,
    ) -> Result<Self, PlaceError> {
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: BACKOFF, max_backoff: BACKOFF_MAX, base: 2.0 },
            max_retries,
            retry_timeout: PATIENCE,
        };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&place.bucket)
            .with_retry(retry)
            .with_allow_http(plain)
            // TLS makes sure that the bytes that arrive are those that were sent: a hash of it all
            // would only cost time.
            .with_unsigned_payload(!plain)
            .with_http_connector(connector);
        for (name, value) in place.variables() {
            let key = name.to_ascii_lowercase().parse();
            let key =
                key.map_err(|_| place_error!("{place}: {name} is not understood: unset it"))?;
            builder = builder.with_config(key, value);
        }
        let store = builder.build().map_err(|error| place_error!("{place}: {}", said(&error).1))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("zfold-s3")
            .enable_all()
            .build()
            .map_err(|error| place_error!("{place}: no threads: {error}; raise ulimit -u"))?;
        Ok(Self { store, runtime: Some(runtime) })
    }

    /// Returns what makes requests.
    pub(super) fn store(&self) -> &AmazonS3 {
        &self.store
    }

    /// Returns the threads that make them.
    pub(super) fn threads(&self) -> &Handle {
        self.runtime.as_ref().expect("there until it is dropped").handle()
    }

    /// Makes a request and waits for its answer (T1).
    pub(super) fn call<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> io::Result<T> {
        self.threads().block_on(request).map_err(|error| failed(&error))
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // No thread waits for a look-up of a name, which knows no deadline.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").finish_non_exhaustive()
    }
}

/// Makes connections that trust what those of other engines do.
#[derive(Debug)]
struct Connector {
    tls: Arc<ClientConfig>,
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .timeout(LONGEST)
            .tls_backend_preconfigured((*self.tls).clone())
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "S3",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(Bounded(client)))
    }
}

/// Returns a failure in the words of an engine, with the remedy if there is one.
pub(super) fn failed(error: &object_store::Error) -> io::Error {
    let error = reason(error);
    io::Error::new(error.kind(), error)
}

fn reason(error: &object_store::Error) -> EngineError {
    use object_store::Error as Failed;
    if let Some(too_long) = innermost(error).downcast_ref::<TooLong>() {
        return EngineError::Refused(too_long.to_string());
    }
    let (code, said) = said(error);
    let remedy = match (error, code.as_deref()) {
        (_, Some("InvalidRange")) => return EngineError::Missing,
        _ if passes(error) => return EngineError::Unreachable(said),
        (_, Some("NoSuchBucket")) => "create the bucket, or name another",
        (_, Some("AuthorizationHeaderMalformed" | "PermanentRedirect")) => {
            "set AWS_REGION to that of the bucket"
        }
        (Failed::NotFound { .. }, _) => return EngineError::Missing,
        (Failed::PermissionDenied { .. } | Failed::Unauthenticated { .. }, _) => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a user who may list, get, put and \
             delete there"
        }
        (_, None) => return EngineError::Unreachable(said),
        (_, Some(_)) => return EngineError::Refused(said),
    };
    EngineError::Refused(format!("{said}; {remedy}"))
}

/// Returns whether the server says that it cannot now: an internal error, too many requests, or a
/// time that is over. `object_store` reports the status in words only.
fn passes(error: &object_store::Error) -> bool {
    const BEFORE: &str = "status code: ";
    let text = innermost(error).to_string();
    let status = text.split_once(BEFORE).map(|(_, rest)| rest);
    let status = status.is_some_and(|status| {
        status.starts_with('5') || status.starts_with("429") || status.starts_with("408")
    });
    // With status 200: completing an upload may take longer than a server keeps its status back.
    status || text.starts_with("Server returned error response")
}

fn innermost(error: &object_store::Error) -> &(dyn Error + 'static) {
    let mut inner: &(dyn Error + 'static) = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner
}

/// Returns the code that the server answered, and in words what it says, or else the innermost
/// reason.
fn said(error: &object_store::Error) -> (Option<String>, String) {
    let text = innermost(error).to_string();
    let field = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once('<').map(|(value, _)| value.trim())
    };
    match field("Code") {
        Some(code) => {
            let message = field("Message").unwrap_or("it gives no reason");
            (Some(code.to_owned()), short(&format!("{code}: {message}")))
        }
        None => (None, short(&text)),
    }
}
