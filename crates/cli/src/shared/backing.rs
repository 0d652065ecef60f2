//! Where pages are written back to: a file, a block device, or other machines.
//!
//! The store's `FileBacking` decides what may be overwritten.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use zfold_far::place::Place;
use zfold_far::{FarBacking, NearOptions};
use zfold_store::BackingOptions;
use zfold_store::backing::{BackingError, FileBacking, FileOptions};

use crate::shared::duration::Interval;
use crate::shared::exit::Failure;
use crate::shared::far;
use crate::shared::size::at_least;

/// Least bandwidth: a batch of pages goes out within a second.
const BANDWIDTH_MIN: u64 = 1 << 20;

/// Default age at which pages go from a file to other machines, and the least possible.
const FAR_AFTER: Duration = Duration::from_secs(600);
const FAR_AFTER_MIN: Duration = Duration::from_secs(1);

/// Least room there, and least that is written to a file in a day.
const FAR_BYTES_MIN: u64 = 1 << 20;

/// Where cold pages go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackingPlan {
    pub(crate) target: Target,
    /// Where they go from there.
    pub(crate) far: Option<FarPlan>,
    pub(crate) size: Option<u64>,
    pub(crate) raw: bool,
    /// Whether a file that is not zfold's may be overwritten.
    pub(crate) force: bool,
    /// Most bytes a second that go to other machines.
    pub(crate) bandwidth: Option<u64>,
}

impl BackingPlan {
    /// Returns the plan if all of it goes together.
    ///
    /// # Errors
    /// A bandwidth for a backing on this machine, or one that is too low; status 2.
    pub(crate) fn checked(self) -> Result<Self, Failure> {
        match (&self.target, &self.far, self.bandwidth) {
            (Target::Far(_), Some(_), _) => Err(Failure::usage(
                "--far takes pages from a backing file: give --backing FILE, or leave --far out",
            )),
            (Target::File(_), None, Some(_)) => Err(Failure::usage(
                "--far-bandwidth is for pages on other machines: give --backing redis://HOST, or \
                 leave it out",
            )),
            (_, _, Some(bytes)) => at_least("--far-bandwidth", bytes, BANDWIDTH_MIN).map(|()| self),
            (_, _, None) => Ok(self),
        }
    }
}

/// Where pages go from a file or a device when they are old.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FarPlan {
    place: Place,
    after: Duration,
    /// Room there.
    size: Option<u64>,
    /// Most that is written to the file in a day.
    per_day: Option<u64>,
}

impl FarPlan {
    /// Returns the plan, if all of it makes sense.
    ///
    /// # Errors
    /// The place is on this machine, or the age or a size too little; status 2.
    pub(crate) fn new(
        place: &Path,
        after: Option<Interval>,
        size: Option<u64>,
        per_day: Option<u64>,
    ) -> Result<Self, Failure> {
        let text = place.to_str().filter(|text| Place::is_meant(text)).ok_or_else(|| {
            Failure::usage(
                "--far is for other machines: give redis://HOST, s3://BUCKET/PATH or \
                 nbd://HOST/EXPORT",
            )
        })?;
        let after = after.map_or(FAR_AFTER, |after| after.0);
        if after < FAR_AFTER_MIN {
            return Err(Failure::usage("--far-after is too little: give 1s or more"));
        }
        for (flag, bytes) in [("--far-size", size), ("--backing-per-day", per_day)] {
            bytes.map_or(Ok(()), |bytes| at_least(flag, bytes, FAR_BYTES_MIN))?;
        }
        Ok(Self { place: far::parse("--far", text)?, after, size, per_day })
    }
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

    /// Returns the file or device, if it is one.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::File(path) => Some(path),
            Self::Far(_) => None,
        }
    }
}

/// Opens what `plan` names, for a store with that limit. What is not a file has `size` bytes for
/// pages unless the plan says how many.
///
/// # Errors
/// It cannot be used, or it is a file that zfold did not make and may not overwrite.
pub(crate) fn open(plan: &BackingPlan, size: u64, limit: Option<u64>) -> Result<Opened, Failure> {
    match &plan.target {
        Target::File(path) => {
            let options = open_file(plan, path, size)?;
            match &plan.far {
                None => Ok(Opened { options, far: None }),
                Some(far) => {
                    let near = NearOptions::new(options.backing).with_after(far.after);
                    let near = near.with_bytes_per_day(far.per_day);
                    let wanted = Room { flag: "--far-size", asked: far.size, usual: size };
                    connect(plan, "--far", &far.place, wanted, limit, Some(near))
                }
            }
        }
        Target::Far(place) => {
            let wanted = Room { flag: "--backing-size", asked: plan.size, usual: size };
            connect(plan, "--backing", place, wanted, limit, None)
        }
    }
}

/// Room for pages on other machines.
struct Room {
    /// The source of its size.
    flag: &'static str,
    asked: Option<u64>,
    /// The default size, or less if there is less.
    usual: u64,
}

impl Room {
    /// Returns how many bytes of pages fit into a place with this much room, if it is known.
    fn len(&self, flag: &str, place: &Place, room: Option<u64>) -> Result<u64, Failure> {
        let room = room.unwrap_or(u64::MAX);
        match self.asked {
            Some(asked) if asked > room => Err(Failure::new(format!(
                "{flag}: {place} has room for {room} bytes of pages; half of the export is \
                 reserved for garbage: give a smaller {}, or a longer export",
                self.flag
            ))),
            Some(asked) => Ok(asked),
            None => Ok(self.usual.min(room)),
        }
    }
}

/// Connects to other machines, for pages that lie in `near` first, if there is one.
fn connect(
    plan: &BackingPlan,
    flag: &str,
    place: &Place,
    wanted: Room,
    limit: Option<u64>,
    near: Option<NearOptions>,
) -> Result<Opened, Failure> {
    let engine = far::connect(flag, place)?;
    let len = wanted.len(flag, place, engine.room())?;
    let len = len.saturating_add(near.as_ref().map_or(0, |near| near.backing.len()));
    let options = far::options(len, limit, plan.bandwidth).with_near(near);
    let backing = far::open(flag, engine, options)?;
    let options = BackingOptions::new(Arc::clone(&backing) as _);
    Ok(Opened { options: options.with_compressed(!plan.raw), far: Some(backing) })
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
    Ok(BackingOptions::new(Arc::new(backing)).with_compressed(!plan.raw))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn plan(path: &Path, force: bool) -> BackingPlan {
        BackingPlan {
            target: Target::File(path.to_owned()),
            far: None,
            size: None,
            raw: false,
            force,
            bandwidth: None,
        }
    }

    #[test]
    fn a_bandwidth_is_for_other_machines_and_not_too_little() {
        let here = plan(Path::new("/var/tmp/cold"), false);
        let there = BackingPlan {
            target: Target::parse(Path::new("redis://a")).expect("a place"),
            ..here.clone()
        };
        let at =
            |plan: &BackingPlan, bandwidth| BackingPlan { bandwidth, ..plan.clone() }.checked();
        assert!(at(&here, None).is_ok() && at(&there, Some(1 << 20)).is_ok());
        for (plan, bandwidth, told) in [(&here, 1 << 30, "redis://HOST"), (&there, 7, "1MiB")] {
            let refused = at(plan, Some(bandwidth)).expect_err("refused");
            assert!(refused.line().contains(told) && refused.status() == 2, "{refused:?}");
        }
    }

    #[test]
    fn what_goes_from_a_file_to_other_machines_makes_sense() {
        let far = |place: &str, after: u64, size| {
            let after = Interval(Duration::from_secs(after));
            FarPlan::new(Path::new(place), Some(after), Some(size), None)
        };
        let redis = far("redis://a", 1, 1 << 20).expect("valid");
        for (place, after, size, told) in [
            ("/tmp/f", 9, 1 << 30, "redis://HOST"),
            ("redis://a", 0, 1 << 30, "1s"),
            ("redis://a", 9, 7, "--far-size"),
        ] {
            let refused = far(place, after, size).expect_err("refused");
            assert!(refused.line().contains(told) && refused.status() == 2, "{refused:?}");
        }
        let file = BackingPlan { far: Some(redis), ..plan(Path::new("/tmp/f"), false) };
        assert!(BackingPlan { bandwidth: Some(1 << 20), ..file.clone() }.checked().is_ok());
        let target = Target::parse(Path::new("redis://b")).expect("a place");
        let refused = BackingPlan { target, ..file }.checked().expect_err("refused");
        assert!(refused.line().contains("--backing FILE"), "{refused:?}");
    }
}
