//! A guest server at work: images, their sockets, and what it is asked for.
//!
//! An image is there before its socket, and goes before it: whoever connects in between is held.
//! The lock of the sockets is held for moments, and while figures are read; those of the images and
//! of the server come below it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use zfold_guest::{ImageError, Images, Imported, Link, Server};
use zfold_pool::Lock;
use zfold_store::files::open_believed;

use super::failed::LATE;
use super::machines::Machines;
use super::report::{GuestReport, GuestsReport, ImageReport, SCHEMA};
use crate::control::protocol::Request;
use crate::settings::STORE_LIMIT_MIN;
use crate::shared::exit::remark;
use crate::shared::size::{PAGE_LEN, format_size, parse_size};

/// Words of requests that name what they are; no image has such a name.
const STATE: &str = "state=";
const WITHIN: &str = "within=";

/// Makes a new process that stands by, with the images as they are.
pub(super) type Renew = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A server, shared by the threads that answer.
pub(super) struct Served {
    pub(super) images: Arc<Images>,
    pub(super) server: Arc<Server>,
    pub(super) link: Arc<Link>,
    pub(super) renew: Renew,
    pub(super) codec: String,
    pub(super) started: Instant,
    /// The front's process.
    pub(super) front: u32,
    /// Servers before this one.
    pub(super) takeovers: u64,
    /// Where guests of images connect.
    pub(super) sockets: Lock<BTreeMap<String, PathBuf>>,
    /// No image comes any longer. Held while one gets its socket, before all other locks.
    pub(super) ends: Lock<bool>,
    pub(super) machines: Machines,
}

/// Returns what an import found, for an answer.
pub(super) fn found(imported: &Imported) -> Value {
    json!({
        "pages": imported.pages,
        "stored_pages": imported.stored_pages,
        "read_pages": imported.read_pages,
    })
}

impl Served {
    /// Accepts guests of an image.
    ///
    /// # Errors
    /// Its socket cannot be made.
    pub(super) fn open(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.link.listen(name)?;
        self.sockets.lock().insert(name.to_owned(), path.clone());
        Ok(path)
    }

    /// Makes an image of a file, and accepts guests of it once another process has it, too.
    ///
    /// # Errors
    /// Why it could not be done; nothing is left of it.
    fn import(
        &self,
        name: &str,
        path: &Path,
        base: Option<&str>,
        state: Option<&Path>,
    ) -> Result<Value, String> {
        let done = import(&self.images, name, path, base, state)?;
        self.enter(name, &done)
    }

    /// Makes an image of the difference of a guest, as `import` does.
    ///
    /// # Errors
    /// As of `import`.
    fn hibernate(
        &self,
        guest: &str,
        name: &str,
        path: &Path,
        state: Option<&Path>,
    ) -> Result<Value, String> {
        let number =
            guest.parse().map_err(|_| format!("'{guest}' is not the number of a guest"))?;
        let origin = self.server.origin(number).map_err(|error| error.to_string())?;
        let failed =
            |error: &dyn std::fmt::Display| format!("cannot import {}: {error}", path.display());
        let file = open_believed(path).map_err(|error| failed(&error))?;
        let state = state.map(opened).transpose()?;
        let done = self.images.import_over(name, &file, &origin, state.as_ref());
        let done = done.map_err(|error| match error {
            ImageError::Chain(base) => format!(
                "guest {number} cannot sleep over {base}, whose chain of bases is as long as it \
                    may be: take a snapshot of type Full, and import that without --base"
            ),
            error => failed(&error),
        })?;
        self.enter(name, &done)
    }

    /// Accepts guests of an image that is new.
    fn enter(&self, name: &str, done: &Imported) -> Result<Value, String> {
        let socket = self.accept(name).inspect_err(|_| {
            // Nobody can use it, nor may a server that comes look for its socket.
            let _ = self.images.remove_after(name, || self.renewed());
        })?;
        let mut found = found(done);
        found["socket"] = json!(socket);
        Ok(found)
    }

    /// Has another process have an image, and then guests of it accepted. Not when the server ends:
    /// it might not be saved, and whoever hears that it is there may end its guest.
    fn accept(&self, name: &str) -> Result<PathBuf, String> {
        let ends = self.ends.lock();
        self.keep_before(*ends)?;
        let path = self.open(name)?;
        // The front has heard of the end already.
        if path.as_os_str().is_empty() { Err(LATE.to_owned()) } else { Ok(path) }
    }

    /// Has another process have an image that needs no socket, as `accept` does.
    pub(super) fn keep(&self) -> Result<(), String> {
        self.keep_before(*self.ends.lock())
    }

    fn keep_before(&self, is_ending: bool) -> Result<(), String> {
        if is_ending {
            return Err(LATE.to_owned());
        }
        (self.renew)().map_err(|error| format!("cannot start a process: {error}"))
    }

    /// Returns whether no image comes any longer.
    pub(super) fn is_ending(&self) -> bool {
        *self.ends.lock()
    }

    /// Has no image come from now on; those that came are whole.
    pub(super) fn end(&self) {
        *self.ends.lock() = true;
    }

    /// Carries out a request; returns what it found, and whether this process is to end.
    ///
    /// # Errors
    /// Why it was not carried out, in a line.
    pub(super) fn answer(self: &Arc<Self>, request: &Request) -> Result<(Value, bool), String> {
        let words: Vec<&str> = request.arguments.iter().map(String::as_str).collect();
        let (named, words): (Vec<&str>, Vec<&str>) =
            words.into_iter().partition(|word| word.starts_with(STATE) || word.starts_with(WITHIN));
        let named = |name: &str| named.iter().find_map(|word| word.strip_prefix(name));
        let state = named(STATE).map(given).transpose()?;
        let found = match (&*request.command, &words[..]) {
            ("import", [name, file]) => self.import(name, given(file)?, None, state)?,
            ("import", [name, file, base]) => self.import(name, given(file)?, Some(base), state)?,
            ("hibernate", [guest, name, file]) => {
                self.hibernate(guest, name, given(file)?, state)?
            }
            ("receive", [name]) => self.receive(name, None, named(WITHIN))?,
            ("receive", [name, base]) => self.receive(name, Some(base), named(WITHIN))?,
            ("state", [name, file]) => self.state(name, given(file)?)?,
            ("fill", [name]) => self.fill(name)?,
            ("received", [name]) => self.received(name)?,
            ("send", [name, socket, how @ ..]) => self.send(name, given(socket)?, how)?,
            ("export", [name, file]) => self.export(name, given(file)?)?,
            ("rm", [name]) => self.remove(name)?,
            ("record", [name, what]) => self.record(name, what)?,
            ("set", [word]) => self.set(word)?,
            ("save", [file]) => {
                let saved = self.images.save_to(given(file)?);
                let saved = saved.map_err(|error| format!("cannot save to {file}: {error}"))?;
                json!({ "pages": saved.pages, "bytes": saved.bytes })
            }
            ("stat", []) => serde_json::to_value(self.report()).expect("numbers and text are JSON"),
            ("shutdown", []) => return Ok((json!({ "stopping": true }), true)),
            (
                "import" | "hibernate" | "receive" | "received" | "send" | "export" | "state"
                | "fill" | "rm" | "record" | "set" | "save" | "stat" | "shutdown",
                _,
            ) => {
                return Err(format!("{} has other arguments (see zfold guest)", request.command));
            }
            (command, _) => {
                return Err(format!("a guest server has no command '{command}' (see zfold guest)"));
            }
        };
        Ok((found, false))
    }

    fn export(&self, name: &str, path: &Path) -> Result<Value, String> {
        // Before a file is made.
        let _image = self.images.claim(name).map_err(|error| error.to_string())?;
        make(path, |file| self.images.export(name, file)).map(|pages| json!({ "pages": pages }))
    }

    /// Writes the state file of an image again.
    fn state(&self, name: &str, path: &Path) -> Result<Value, String> {
        let state = self.images.state(name).map_err(|error| error.to_string())?;
        make(path, |mut file| file.write_all(&state))?;
        Ok(json!({ "bytes": state.len() }))
    }

    /// Has all guests of an image get all their pages.
    fn fill(&self, name: &str) -> Result<Value, String> {
        let image = self.images.claim(name).map_err(|error| error.to_string())?;
        Ok(json!({ "guests": self.server.fill(image.name()) }))
    }

    fn remove(&self, name: &str) -> Result<Value, String> {
        let forget = || {
            if self.sockets.lock().remove(name).is_some() {
                self.link.close(name);
            }
            self.renewed();
        };
        self.images.remove_after(name, forget).map_err(|error| error.to_string())?;
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
        self.renewed();
        Ok(json!({ "working_set_pages": image.working_set_pages() }))
    }

    /// Changes the most bytes that images may take.
    fn set(&self, word: &str) -> Result<Value, String> {
        let mut tunables = self.images.store().tunables();
        tunables.limit_bytes = match word.strip_prefix("limit=") {
            Some("none") => None,
            Some(size) => Some(parse_size(size)?),
            None => return Err(format!("'{word}' is not limit=SIZE or limit=none")),
        };
        if tunables.limit_bytes.is_some_and(|bytes| bytes < STORE_LIMIT_MIN) {
            let least = format_size(STORE_LIMIT_MIN);
            return Err(format!("{word} is too small to work with: give {least} or more"));
        }
        self.images.store().tune(&tunables).expect("a limit has no range");
        self.renewed();
        Ok(json!({ "limit_bytes": tunables.limit_bytes.unwrap_or(0) }))
    }

    /// Has what changed in the process that stands by, too. Without, it has what was before.
    pub(super) fn renewed(&self) {
        if let Err(error) = (self.renew)() {
            remark(&format!("no standby process has the last change: {error}"));
        }
    }

    /// Returns the statistics.
    pub(super) fn report(&self) -> GuestsReport {
        let sockets = self.sockets.lock();
        let limit = self.images.store().tunables().limit_bytes;
        let (store, stats) = (self.images.stats(), self.server.stats());
        let guests: Vec<_> = stats.guests.into_iter().map(GuestReport::of).collect();
        let images = self.images.list().into_iter().map(|info| {
            let of_it = |guest: &&GuestReport| guest.stats.image == info.name;
            let socket = sockets.get(&info.name).map(|at| at.display().to_string());
            let guests = guests.iter().filter(of_it).count() as u64;
            ImageReport { info, guests, socket: socket.unwrap_or_default() }
        });
        GuestsReport {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.front,
            server_pid: std::process::id(),
            takeovers_total: self.takeovers,
            uptime_seconds: self.started.elapsed().as_secs(),
            codec: self.codec.clone(),
            on_demand: self.machines.demand.number() as u64,
            limit_bytes: limit.unwrap_or(0),
            held_bytes: store.held_bytes(),
            payload_bytes: store.pool.payload_bytes,
            stored_pages_bytes: store.stored_pages * PAGE_LEN,
            duplicate_pages: store.duplicate_pages,
            backing_bytes: store.backing_used_bytes,
            backed_pages: store.backed_pages,
            images: images.collect(),
            served: stats.served,
            given: stats.given,
            guests,
        }
    }
}

/// Makes an image of a file.
///
/// # Errors
/// Why it could not be done; nothing is left of it.
pub(super) fn import(
    images: &Images,
    name: &str,
    path: &Path,
    base: Option<&str>,
    state: Option<&Path>,
) -> Result<Imported, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("cannot import {}: {error}", path.display());
    let file = open_believed(path).map_err(|error| failed(&error))?;
    let state = state.map(opened).transpose()?;
    images.import_with(name, &file, base, state.as_ref()).map_err(|error| failed(&error))
}

/// Opens a state file.
fn opened(path: &Path) -> Result<File, String> {
    open_believed(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Makes a file and writes it; it is removed if that fails.
fn make<T, E: std::fmt::Display>(
    path: &Path,
    write: impl FnOnce(&File) -> Result<T, E>,
) -> Result<T, String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("cannot write {}: {error}", path.display());
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let file = file.map_err(|error| failed(&error))?;
    write(&file).map_err(|error| {
        // It is this one's, and not whole.
        let _ = fs::remove_file(path);
        failed(&error)
    })
}

/// Clients make paths absolute, since the server's directory is another one.
fn given(path: &str) -> Result<&Path, String> {
    let path = Path::new(path);
    if path.is_absolute() { Ok(path) } else { Err("give the absolute path of a file".to_owned()) }
}
