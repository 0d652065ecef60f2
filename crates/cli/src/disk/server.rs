//! The state of a running server, and how it carries out commands.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use zfold_store::files::{self, Readers};
use zfold_store::{CodecSpec, Processed};

use crate::control::protocol::Request;

use super::command::ControlCommand;
use super::device::Device;
use super::frontends::Frontends;
use super::report::{DiskReport, Report, SCHEMA};
use super::snapshot::SnapshotPlace;

/// The events for which the main thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// End in order.
    Stop,
    /// The command of `--run` has ended, with this status.
    Ended(u8),
}

/// A server at work, shared by the threads that answer.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) device: Device,
    pub(crate) frontends: Frontends,
    pub(crate) started: Instant,
}

impl Server {
    /// Carries out a request; returns what it found, and whether this process is to end.
    ///
    /// # Errors
    /// Why it was not carried out, in a line.
    pub(crate) fn answer(&self, request: Request) -> Result<(Value, bool), String> {
        match ControlCommand::parse(&request.command, &request.arguments)? {
            ControlCommand::Shutdown => Ok((json!({ "stopping": true }), true)),
            command => self.execute(command).map(|found| (found, false)),
        }
    }

    /// Returns the statistics.
    pub(crate) fn report(&self) -> Report {
        Report {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            nbd: self.frontends.nbd_stats(),
            disks: [DiskReport::of(&self.device, self.frontends.addresses().to_vec())],
        }
    }

    /// Carries out a command.
    ///
    /// # Errors
    /// Why it was not carried out, in a line.
    fn execute(&self, command: ControlCommand) -> Result<Value, String> {
        let device = &self.device;
        let store = device.store();
        match command {
            ControlCommand::Stat => {
                Ok(serde_json::to_value(self.report()).expect("numbers and text are JSON"))
            }
            ControlCommand::Get => Ok(device.settings()),
            ControlCommand::Set(settings) => {
                device.set(&settings)?;
                Ok(device.settings())
            }
            ControlCommand::Compact => Ok(json!({ "pages_freed": store.compact() })),
            ControlCommand::Idle(age) => Ok(json!({ "idle_pages": store.mark_idle(age) })),
            ControlCommand::Writeback { selection, max_pages } => {
                let done = store.writeback(&selection, max_pages);
                done.map(processed).map_err(|error| error.to_string())
            }
            ControlCommand::Recompress(mut how, codec) => {
                if let Some(name) = codec {
                    how.priority = priority(device, &name)?;
                }
                store.recompress(&how).map(processed).map_err(|error| error.to_string())
            }
            ControlCommand::Save(place) => {
                if let SnapshotPlace::File(path) = &place {
                    absolute(path)?;
                }
                device.save_to(&place)
            }
            ControlCommand::Train { path, max_len } => train(device, absolute(&path)?, max_len),
            ControlCommand::Shutdown => unreachable!("the caller's"),
        }
    }
}

/// Clients make paths absolute, since the server's directory is another one.
fn absolute(path: &Path) -> Result<&Path, String> {
    if path.is_absolute() { Ok(path) } else { Err("give the absolute path of a file".to_owned()) }
}

/// Returns the place of a codec in the device's list for recompression, from 1.
fn priority(device: &Device, name: &str) -> Result<u8, String> {
    let is = |codec: &CodecSpec| codec.to_string() == name || codec.kind().name() == name;
    let place = device.plan.args.recompress.iter().position(is);
    place.map(|place| place as u8 + 1).ok_or_else(|| {
        format!("{} does not recompress with '{name}' (see get)", device.plan.args.name)
    })
}

/// Trains a dictionary on the contents of a device and writes it to a file.
fn train(device: &Device, path: &Path, max_len: usize) -> Result<Value, String> {
    let trained = device.store().train_dictionary(max_len);
    let dictionary = trained.map_err(|error| format!("{}: {error}", device.plan.args.name))?;
    let bytes = dictionary.bytes();
    // It contains parts of the pages on which it was trained.
    files::replace(path, Readers::Owner, |out| out.write_all(bytes))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(json!({ "bytes": bytes.len() }))
}

fn processed(done: Processed) -> Value {
    let freed = done.bytes_before.saturating_sub(done.bytes_after);
    json!({ "pages": done.pages, "bytes_freed": freed })
}

/// A server, as threads share it.
pub(crate) type Shared = Arc<Server>;
