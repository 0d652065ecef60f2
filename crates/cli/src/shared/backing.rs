//! The file or block device to which pages are written back.

use std::path::PathBuf;
use std::sync::Arc;

use zfold_store::BackingOptions;
use zfold_store::backing::FileBacking;

use crate::shared::exit::Failure;

/// Where cold pages go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackingPlan {
    pub(crate) path: PathBuf,
    pub(crate) size: Option<u64>,
    pub(crate) raw: bool,
}

/// Opens the file or device of `plan`. A file that is not there yet gets `size` bytes unless the
/// plan says how many; one that is there keeps its size.
///
/// # Errors
/// It cannot be used.
pub(crate) fn open(plan: &BackingPlan, size: u64) -> Result<BackingOptions, Failure> {
    let len = plan.size.or((!plan.path.exists()).then_some(size));
    let backing = FileBacking::open(&plan.path, len).map_err(|e| Failure::new(e.to_string()))?;
    Ok(BackingOptions::new(Arc::new(backing)).with_compressed(!plan.raw))
}
