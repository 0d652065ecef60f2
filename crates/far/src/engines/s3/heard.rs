//! Any bytes as what a server of S3 answers.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use object_store::path::Path;
use zfold_store::pool::Lock;

use super::bounded::Bounded;
use super::bucket::Bucket;
use super::{FOLDER, LEASE, S3Engine};
use crate::engine::{Engine as _, EngineError};
use crate::place::{Place, Source};

/// A server that answers everything with the same bytes: a status and fields by the first one, and
/// a body of the others.
#[derive(Clone, Debug, Default)]
struct Server(Arc<Lock<Vec<u8>>>);

impl HttpConnector for Server {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Bounded(self.clone())))
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Server {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        let said = self.0.lock().clone();
        let (how, body) = said.split_first().map_or((0, &[][..]), |(how, body)| (*how, body));
        let status = [200_u16, 206, 403, 404, 416, 500, 307, 204][usize::from(how % 8)];
        let len = if how & 8 == 0 { body.len() as u64 } else { u64::MAX };
        let mut answer = HttpResponse::new(body.to_vec().into());
        *answer.status_mut() = status.try_into().expect("a status");
        let range = request.headers().get("range").and_then(|range| range.to_str().ok());
        let range = range.and_then(|range| range.strip_prefix("bytes=")).unwrap_or("0-9");
        for (name, value) in [
            ("etag", "\"x\"".to_owned()),
            ("last-modified", "Wed, 25 Nov 2026 09:00:00 GMT".to_owned()),
            ("content-length", len.to_string()),
            ("content-range", format!("bytes {range}/{}", 1_u64 << 40)),
        ] {
            answer.headers_mut().insert(name, value.parse().expect("a field"));
        }
        Box::pin(async move { Ok(answer) })
    }
}

/// What asks the server.
#[derive(Debug)]
pub(crate) struct Client {
    server: Server,
    engine: S3Engine,
}

impl Client {
    pub(crate) fn new() -> Self {
        let variable = |name: &str| match name {
            "AWS_ENDPOINT_URL" => Some("http://127.0.0.1:1".to_owned()),
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("test".to_owned()),
            _ => None,
        };
        let place = match Place::parse("s3://b/cold", Source::Arguments, variable) {
            Ok(Place::S3(place)) => place,
            other => panic!("{other:?}"),
        };
        let server = Server::default();
        let bucket = Bucket::over(&place, true, server.clone(), 0).expect("a bucket");
        let path = Path::from("cold");
        let run = path.clone().join(format!("{FOLDER}run"));
        let engine = S3Engine { bucket, path, run, lease: LEASE, renewed: Lock::new(None) };
        Self { server, engine }
    }

    /// Makes each call of an engine, which is answered with `said`; returns what was wrong.
    pub(crate) fn hear(&self, said: &[u8], deadline: Instant) -> Vec<EngineError> {
        said.clone_into(&mut self.server.0.lock());
        let engine = &self.engine;
        let calls = [
            engine.put(7, b"sealed", deadline),
            engine.get(7, 528, &mut [0; 5000], deadline),
            engine.delete(&[7, 8], deadline),
            engine.runs(None, deadline).map(drop),
            engine.renew(deadline),
        ];
        calls.into_iter().filter_map(Result::err).collect()
    }
}
