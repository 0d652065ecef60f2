//! Any bytes as what a server of S3 answers.

use std::io::{self, Read as _, Write as _};
use std::pin::Pin;
use std::sync::Arc;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use object_store::path::Path;
use zfold_store::pool::Lock;

use super::S3Object;
use super::bounded::Bounded;
use super::bucket::Bucket;
use crate::object::Object as _;
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
    object: S3Object,
}

impl Client {
    pub(crate) fn new() -> Self {
        let variable = |name: &str| match name {
            "AWS_ENDPOINT_URL" => Some("http://127.0.0.1:1".to_owned()),
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("test".to_owned()),
            _ => None,
        };
        let place = match Place::parse("s3://b/disk", Source::Arguments, variable) {
            Ok(Place::S3(place)) => place,
            other => panic!("{other:?}"),
        };
        let server = Server::default();
        let bucket = Bucket::over(&place, true, server.clone(), 0).expect("a bucket");
        Self { server, object: S3Object { bucket, key: Path::from("disk") } }
    }

    /// Uses an object in each way, with `said` as every answer; returns what was wrong.
    pub(crate) fn hear(&self, said: &[u8]) -> Vec<io::Error> {
        said.clone_into(&mut self.server.0.lock());
        let object = &self.object;
        let read = || object.read()?.take(1 << 20).read_to_end(&mut Vec::new()).map(drop);
        let write = || {
            let mut upload = object.write()?;
            upload.write_all(b"contents")?;
            upload.complete()
        };
        let uses = [object.size().map(drop), object.try_write(), read(), write()];
        uses.into_iter().filter_map(Result::err).collect()
    }
}
