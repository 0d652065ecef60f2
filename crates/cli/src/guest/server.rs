//! A server of guests at work: images, their sockets, and what it is asked for.
//!
//! An image is there before its socket, and goes before it: whoever connects in between is refused
//! with a line. The lock of the sockets is held for moments, and while figures are read; those of
//! the images and of the server come below it.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zfold_disk::nbd::{Address, Listener, SocketFile};
use zfold_guest::{Images, Server};
use zfold_store::files::open_believed;

use super::report::{GuestsReport, SCHEMA};
use crate::control::protocol::Request;
use crate::control::runtime;
use crate::shared::exit::Failure;

/// A server, shared by the threads that answer.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) images: Arc<Images>,
    pub(super) server: Server,
    pub(super) codec: String,
    /// Where sockets are put, if not into the runtime directory.
    pub(super) folder: Option<PathBuf>,
    pub(super) mode: u32,
    pub(super) started: Instant,
    sockets: Mutex<BTreeMap<String, Socket>>,
}

/// The socket of an image; its file goes with it.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    _file: Option<SocketFile>,
}

impl Served {
    pub(super) fn new(
        images: Arc<Images>,
        server: Server,
        codec: String,
        folder: Option<PathBuf>,
        mode: u32,
    ) -> Self {
        let (started, sockets) = (Instant::now(), Mutex::default());
        Self { images, server, codec, folder, mode, started, sockets }
    }

    fn sockets(&self) -> MutexGuard<'_, BTreeMap<String, Socket>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a line for each image: its name, and where guests connect.
    pub(super) fn addresses(&self) -> String {
        let sockets = self.sockets();
        let lines = sockets.iter().map(|(name, one)| format!("{name} {}\n", one.path.display()));
        lines.collect()
    }

    /// Accepts guests of an image.
    ///
    /// # Errors
    /// Its socket cannot be made.
    pub(super) fn open(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = match &self.folder {
            Some(folder) => folder.join(format!("{name}.sock")),
            None => runtime::guest_path(name)?,
        };
        let failed = |error: &dyn std::fmt::Display| Failure::new(format!("image {name}: {error}"));
        let bound = Listener::bind(&Address::Unix(path.clone())).map_err(|error| failed(&error))?;
        let Listener::Unix(listener, file) = bound else { unreachable!("a path was asked for") };
        fs::set_permissions(&path, Permissions::from_mode(self.mode))
            .and_then(|()| self.server.listen(name, listener))
            .map_err(|error| failed(&error))?;
        self.sockets().insert(name.to_owned(), Socket { path: path.clone(), _file: file });
        Ok(path)
    }

    /// Makes an image of a file, and accepts guests of it.
    ///
    /// # Errors
    /// Why it could not be done; nothing is left of it.
    pub(super) fn import(
        &self,
        name: &str,
        path: &Path,
        base: Option<&str>,
    ) -> Result<Value, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot import {}: {error}", path.display());
        let file = open_believed(path).map_err(|error| failed(&error))?;
        let done = self.images.import(name, &file, base).map_err(|error| failed(&error))?;
        let socket = self.open(name).map_err(|failure| {
            // Nobody can use it.
            let _ = self.images.remove(name);
            failure.line().to_owned()
        })?;
        Ok(json!({
            "pages": done.pages,
            "stored_pages": done.stored_pages,
            "read_pages": done.read_pages,
            "socket": socket,
        }))
    }

    /// Carries out a request; returns what it found, and whether this process is to end.
    ///
    /// # Errors
    /// Why it was not carried out, in a line.
    pub(super) fn answer(&self, request: &Request) -> Result<(Value, bool), String> {
        let words: Vec<&str> = request.arguments.iter().map(String::as_str).collect();
        let found = match (&*request.command, &words[..]) {
            ("import", [name, file]) => self.import(name, given(file)?, None)?,
            ("import", [name, file, base]) => self.import(name, given(file)?, Some(base))?,
            ("export", [name, file]) => self.export(name, given(file)?)?,
            ("rm", [name]) => self.remove(name)?,
            ("record", [name, what]) => self.record(name, what)?,
            ("save", [file]) => {
                let saved = self.images.save_to(given(file)?);
                let saved = saved.map_err(|error| format!("cannot save to {file}: {error}"))?;
                json!({ "pages": saved.pages, "bytes": saved.bytes })
            }
            ("stat", []) => serde_json::to_value(self.report()).expect("numbers and text are JSON"),
            ("shutdown", []) => return Ok((json!({ "stopping": true }), true)),
            ("import" | "export" | "rm" | "record" | "save" | "stat" | "shutdown", _) => {
                return Err(format!("{} has other arguments (see zfold guest)", request.command));
            }
            (command, _) => {
                return Err(format!("a server of guests knows no '{command}' (see zfold guest)"));
            }
        };
        Ok((found, false))
    }

    fn export(&self, name: &str, path: &Path) -> Result<Value, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot export to {}: {error}", path.display());
        if !self.images.contains(name) {
            // Before a file is made.
            self.images.claim(name).map_err(|error| error.to_string())?;
        }
        let file = File::options().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| failed(&error))?;
        match self.images.export(name, &file) {
            Ok(pages) => Ok(json!({ "pages": pages })),
            Err(error) => {
                // It is this one's, and not whole.
                let _ = fs::remove_file(path);
                Err(failed(&error))
            }
        }
    }

    fn remove(&self, name: &str) -> Result<Value, String> {
        self.images.remove(name).map_err(|error| error.to_string())?;
        self.server.close(name);
        self.sockets().remove(name);
        Ok(json!({}))
    }

    fn record(&self, name: &str, what: &str) -> Result<Value, String> {
        let image = self.images.claim(name).map_err(|error| error.to_string())?;
        match what {
            "on" => image.record(true),
            "off" => image.record(false),
            "clear" => image.forget(),
            _ => return Err(format!("'{what}' is not on, off or clear")),
        }
        Ok(json!({ "working_set_pages": image.working_set_pages() }))
    }

    /// Returns the statistics.
    pub(super) fn report(&self) -> GuestsReport {
        let sockets = self.sockets();
        let sockets = sockets.iter().map(|(name, one)| (name.clone(), one.path.clone())).collect();
        let store = self.images.store();
        let report = GuestsReport {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            codec: self.codec.clone(),
            ..GuestsReport::default()
        };
        report
            .with_store(&store.stats(), store.tunables().limit_bytes)
            .with_guests(&self.server.stats())
            .with_images(self.images.list(), &sockets)
    }

    /// Accepts nobody, and gives each guest all that it needs; returns how many could not be given
    /// it within that time.
    pub(super) fn release(&self, patience: Duration) -> usize {
        let left = self.server.release(patience);
        self.sockets().clear();
        left
    }
}

/// Clients make paths absolute, since the server's directory is another one.
fn given(path: &str) -> Result<&Path, String> {
    let path = Path::new(path);
    if path.is_absolute() { Ok(path) } else { Err("give the absolute path of a file".to_owned()) }
}
