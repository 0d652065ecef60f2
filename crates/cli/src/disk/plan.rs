//! What is to be served: arguments checked against each other, and defaults filled in.

use std::io;
use std::path::Path;

use zfold_store::{CodecKind, CodecSpec};

use super::snapshot::SnapshotPlace;
use crate::args::DiskArgs;
use crate::settings::STORE_LIMIT_MIN;
use crate::shared::backing::{BackingPlan, Target};
use crate::shared::exit::Failure;
use crate::shared::size::{Size, at_least};

/// A process and its device: the arguments, and what follows from them.
#[derive(Debug)]
pub(crate) struct DiskPlan {
    /// Without the backing, whose address may have a password.
    pub(crate) args: DiskArgs,
    /// Size of the device in bytes.
    pub(crate) size: u64,
    pub(crate) codec: CodecSpec,
    pub(crate) backing: Option<BackingPlan>,
    pub(crate) load: Option<SnapshotPlace>,
    pub(crate) save: Option<SnapshotPlace>,
}

impl DiskPlan {
    /// Returns the plan that the arguments describe.
    ///
    /// # Errors
    /// Arguments that are missing or do not go together (status 2), or a snapshot that cannot be
    /// read.
    pub(crate) fn new(mut args: DiskArgs) -> Result<Self, Failure> {
        let name = &args.name;
        let snapshot = |flag, path: &Option<_>| {
            let path: Option<&Path> = path.as_deref();
            path.map(|path| SnapshotPlace::parse(flag, path)).transpose()
        };
        let (load, save) = (snapshot("--load", &args.load)?, snapshot("--save", &args.save)?);
        if let Some(place) = load.as_ref().filter(|place| place.is_no_file())
            && load != save
        {
            return Err(place.not_loaded(name, &"there is no such file"));
        }
        let size = match (args.size, &load) {
            (Some(size), _) => Some(size.0),
            (None, Some(place)) => size_in_snapshot(place, load == save, name)?,
            (None, None) => None,
        };
        let Some(size) = size else {
            return usage(format!("{name} has no size: give one, such as --size 1GiB"));
        };
        check(&args, size)?;
        let backing = args.backing.take().map(|path| {
            let target = Target::parse(&path)?;
            let size = args.backing_size.map(|size| size.0);
            Ok(BackingPlan { target, size, force: args.force })
        });
        // page has no dictionaries.
        let usual = if args.dictionary.is_some() { CodecKind::Lz4 } else { CodecKind::Page };
        let codec = args.codec.unwrap_or(usual.into());
        Ok(Self { args, size, codec, backing: backing.transpose()?, load, save })
    }

    /// Returns whether idle pages can be written back or compressed again.
    pub(crate) fn can_age(&self) -> bool {
        self.backing.is_some() || !self.args.recompress.is_empty()
    }
}

/// Refuses arguments that do not go together.
fn check(args: &DiskArgs, size: u64) -> Result<(), Failure> {
    let name = &args.name;
    if let Some(Size(limit)) = args.limit.filter(|limit| limit.0 > 0) {
        at_least("--limit", limit, STORE_LIMIT_MIN)?;
    }
    if args.idle_after.is_some() && args.backing.is_none() && args.recompress.is_empty() {
        return usage(format!(
            "{name}: --idle-after needs somewhere for pages to go: give --backing or --recompress"
        ));
    }
    let bytes = u64::from(args.sector.bytes());
    if size == 0 || !size.is_multiple_of(bytes) {
        return usage(format!("{name}: give a size that is a positive multiple of {bytes} bytes"));
    }
    if args.recompress.len() > 3 {
        return usage(format!("{name}: --recompress takes at most 3 codecs: name fewer"));
    }
    Ok(())
}

/// Returns the size that a snapshot gives its device; none if there is none yet and `may_lack`.
fn size_in_snapshot(
    place: &SnapshotPlace,
    may_lack: bool,
    name: &str,
) -> Result<Option<u64>, Failure> {
    match place.device_size() {
        Ok(size) => Ok(size),
        Err(error) if may_lack && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(place.not_loaded(name, &error)),
    }
}

/// Refuses the arguments.
fn usage<T>(line: String) -> Result<T, Failure> {
    Err(Failure::usage(line))
}
