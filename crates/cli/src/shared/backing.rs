//! Where pages are written back to: a file, a block device, or other machines.
//!
//! The store's `FileBacking` decides what may be overwritten.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use zfold_far::FarBacking;
use zfold_far::place::Place;
use zfold_store::BackingOptions;
use zfold_store::backing::{BackingError, FileBacking, FileOptions};

use crate::shared::exit::Failure;
use crate::shared::far;

/// Where cold pages go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackingPlan {
    pub(crate) target: Target,
    pub(crate) size: Option<u64>,
    /// Whether a file that is not zfold's may be overwritten.
    pub(crate) force: bool,
}

/// Their place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// A file or a block device.
    File(PathBuf),
    /// Other machines.
    Far(Place),
}

/// A backing for a store, and the same if it is on other machines.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) options: BackingOptions,
    pub(crate) far: Option<Arc<FarBacking>>,
}

impl Target {
    /// Returns what the argument of `--backing` names.
    ///
    /// # Errors
    /// It is no place that zfold knows; status 2.
    pub(crate) fn parse(path: &Path) -> Result<Self, Failure> {
        match path.to_str().filter(|text| Place::is_meant(text)) {
            Some(text) => Ok(Self::Far(far::parse("--backing", text)?)),
            None => Ok(Self::File(path.to_owned())),
        }
    }
}

/// Opens what `plan` names. It gets `size` bytes for pages unless it is a file that has a length,
/// or the plan says how many.
///
/// # Errors
/// It cannot be used, or it is a file that zfold did not make and may not overwrite.
pub(crate) fn open(plan: &BackingPlan, size: u64) -> Result<Opened, Failure> {
    match &plan.target {
        Target::File(path) => Ok(Opened { options: open_file(plan, path, size)?, far: None }),
        Target::Far(place) => connect(plan, place, size),
    }
}

/// Connects to other machines. Room for pages is what the plan says, and `usual` otherwise, or less
/// if there is less.
fn connect(plan: &BackingPlan, place: &Place, usual: u64) -> Result<Opened, Failure> {
    let engine = far::connect(place)?;
    let room = engine.room().unwrap_or(u64::MAX);
    let len = match plan.size {
        Some(asked) if asked > room => {
            return Err(Failure::new(format!(
                "--backing: {place} has room for {room} bytes of pages; half of the export is \
                 reserved for garbage: give a smaller --backing-size, or a longer export"
            )));
        }
        Some(asked) => asked,
        None => usual.min(room),
    };
    let backing = far::open(engine, len)?;
    let options = BackingOptions::new(Arc::clone(&backing) as _);
    Ok(Opened { options, far: Some(backing) })
}

/// Opens the file or device of `plan`. A file that is not there yet, or is empty, gets `size` bytes
/// for pages unless the plan says how many; another keeps its size.
///
/// # Errors
/// It cannot be used, or it is a file that zfold did not make and may not overwrite.
fn open_file(plan: &BackingPlan, path: &Path, size: u64) -> Result<BackingOptions, Failure> {
    let asked = FileOptions::new().with_len(plan.size).with_len_if_new(Some(size));
    let backing = FileBacking::open(path, &asked.with_force(plan.force));
    let backing = backing.map_err(|error| match error {
        BackingError::Foreign { path } => Failure::new(format!(
            "{} has no mark of zfold, and its contents would be lost: name another for \
             --backing, or give --force to overwrite it (files of earlier versions have no mark)",
            path.display()
        )),
        error => Failure::new(error.to_string()),
    })?;
    Ok(BackingOptions::new(Arc::new(backing)))
}
