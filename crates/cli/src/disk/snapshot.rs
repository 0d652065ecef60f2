//! Where a snapshot of a device is kept: in a file, or in an object on other machines.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zfold_far::place::Place;
use zfold_far::{Object, object};
use zfold_store::Store;
use zfold_store::files;
use zfold_store::snapshot::{self, SnapshotError, SnapshotReport};

use crate::shared::exit::Failure;
use crate::shared::far;

/// A snapshot's description of its device.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Label {
    /// Size in bytes.
    pub(super) size: u64,
}

/// Where a snapshot is kept. It need not be there yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SnapshotPlace {
    /// A file.
    File(PathBuf),
    /// An object on other machines.
    Object(Place),
}

impl SnapshotPlace {
    /// Returns what the argument of `flag` names.
    ///
    /// # Errors
    /// It is no place where a snapshot can be kept; status 2.
    pub(crate) fn parse(flag: &str, path: &Path) -> Result<Self, Failure> {
        let Some(text) = path.to_str().filter(|text| Place::is_meant(text)) else {
            return Ok(Self::File(path.to_owned()));
        };
        let place = far::parse(flag, text)?;
        let usable = object(&place).map(drop);
        usable.map_err(|error| Failure::usage(format!("{flag}: {error}")))?;
        Ok(Self::Object(place))
    }

    /// Returns whether it is known to be missing, without asking other machines.
    pub(crate) fn is_no_file(&self) -> bool {
        matches!(self, Self::File(path) if !path.exists())
    }

    /// Returns whether a snapshot is there.
    ///
    /// # Errors
    /// Other machines cannot be reached.
    pub(crate) fn exists(&self) -> io::Result<bool> {
        match self {
            Self::File(path) => Ok(path.exists()),
            Self::Object(place) => Ok(opened(place)?.size()?.is_some()),
        }
    }

    /// Returns the size of the device of which the snapshot is, if it says.
    ///
    /// # Errors
    /// It is not there, or cannot be reached.
    pub(crate) fn device_size(&self) -> io::Result<Option<u64>> {
        match self {
            Self::File(path) => Ok(size_told(&mut BufReader::new(files::open_believed(path)?))),
            Self::Object(place) => Ok(size_told(&mut opened(place)?.read()?)),
        }
    }

    /// Returns the failure of a device `name` that should begin with this snapshot.
    pub(crate) fn not_loaded(&self, name: &str, why: &dyn fmt::Display) -> Failure {
        Failure::new(format!(
            "{name}: cannot load {self}: {why}; give another snapshot, or no --load to begin empty"
        ))
    }

    /// Tries whether a snapshot could be saved there.
    ///
    /// # Errors
    /// It could not.
    pub(crate) fn try_save(&self) -> io::Result<()> {
        match self {
            Self::File(path) => files::replaceable(path).map(drop),
            Self::Object(place) => opened(place)?.try_write(),
        }
    }

    /// Fills the empty store from the snapshot.
    ///
    /// # Errors
    /// [`SnapshotError`]; the store is then empty.
    pub(crate) fn restore(&self, store: &Store) -> Result<SnapshotReport, SnapshotError> {
        match self {
            Self::File(path) => store.restore_from(path),
            Self::Object(place) => {
                let object = opened(place)?;
                store.restore(&mut object.read()?)
            }
        }
    }

    /// Saves what the store holds, with a label; returns what that took.
    ///
    /// # Errors
    /// [`SnapshotError`]; the snapshot of before stays as it was.
    pub(crate) fn save(&self, store: &Store, label: &[u8]) -> Result<Value, SnapshotError> {
        match self {
            Self::File(path) => {
                let report = store.save_to(label, path)?;
                Ok(json!({ "pages": report.pages, "bytes": report.bytes }))
            }
            Self::Object(place) => save_object(place, store, label),
        }
    }
}

/// Saves to an object; pages that cannot be read are reported, and all others are in another
/// object.
fn save_object(place: &Place, store: &Store, label: &[u8]) -> Result<Value, SnapshotError> {
    let object = opened(place)?;
    let mut upload = object.write()?;
    let report = store.save(label, &mut upload)?;
    if report.lost_pages == 0 {
        upload.complete()?;
        return Ok(json!({ "pages": report.pages, "bytes": report.bytes }));
    }
    drop(upload);
    let name = format!("{place}.incomplete");
    let beside = far::parse("--save", &name).map_err(|failure| other(failure.line()))?;
    let beside = opened(&beside)?;
    let mut upload = beside.write()?;
    let pages = store.save(label, &mut upload)?.lost_pages;
    upload.complete()?;
    Err(SnapshotError::Lost { pages, saved: name.into() })
}

/// Returns the size of the device of which a snapshot is, if its beginning says.
fn size_told(input: &mut dyn Read) -> Option<u64> {
    let header = snapshot::header(input).ok()?;
    let label: Label = serde_json::from_slice(&header.label).ok()?;
    Some(label.size)
}

fn opened(place: &Place) -> io::Result<Box<dyn Object>> {
    object(place).map_err(|error| other(&error.to_string()))
}

fn other(why: &str) -> io::Error {
    io::Error::other(why.to_owned())
}

impl fmt::Display for SnapshotPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Object(place) => place.fmt(f),
        }
    }
}
