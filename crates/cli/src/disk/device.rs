//! A device at work: made from its plan, filled from a snapshot, tuned and saved.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use zfold_disk::{Disk, DiskOptions};
use zfold_far::FarBacking;
use zfold_pool::{KernelRules, PoolOptions};
use zfold_store::files::open_believed;
use zfold_store::pressure::SystemPressure;
use zfold_store::shrinker::{Shrinker, ShrinkerOptions};
use zfold_store::snapshot::SnapshotError;
use zfold_store::{CodecChoice, Dictionary, Store, StoreOptions};

use super::plan::DiskPlan;
use super::snapshot::{Label, SnapshotPlace};
use crate::settings::{Knobs, Setting};
use crate::shared::backing;
use crate::shared::exit::{Failure, remark};
use crate::shared::far_watch::{self, FarWatch};
use crate::shared::size::{PAGE_LEN, Size, format_size};

/// Longest dictionary in bytes.
const DICTIONARY_LEN_MAX: u64 = 1 << 20;

/// How often the shrinker looks at pages and memory.
const SHRINKER_INTERVAL: Duration = Duration::from_secs(1);

/// A device that is served.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) plan: DiskPlan,
    pub(crate) disk: Arc<Disk>,
    shrinker: Shrinker,
    /// The backing, if it is on other machines.
    pub(crate) far: Option<Arc<FarBacking>>,
    /// Tells when these go and come.
    _watch: Option<FarWatch>,
}

impl Device {
    /// Returns the device of `plan`, with the contents of its snapshot if it has one.
    ///
    /// # Errors
    /// What cannot be had, and the remedy.
    pub(crate) fn new(plan: DiskPlan) -> Result<Self, Failure> {
        let DiskPlan { args, .. } = &plan;
        let name = &args.name;
        let failure = |error: &dyn std::fmt::Display| Failure::new(format!("{name}: {error}"));
        // Long zspages: their classes waste less, and a device fills many of each.
        let pool = PoolOptions::new(args.allocator)
            .with_rules(KernelRules { chain: 16, ..KernelRules::default() });
        let pool = zfold_pool::create(name, &pool).map_err(|error| failure(&error))?;
        let (options, far) = store_options(&plan)?;
        let store = Store::new(pool, &options).map_err(|error| failure(&error))?;
        let mut tunables = store.tunables();
        let pages = |limit: Size| limit.0.div_ceil(PAGE_LEN);
        tunables.writeback_limit_pages = args.writeback_limit.map(pages);
        store.tune(&tunables).map_err(|error| failure(&error))?;
        if let Some(limit) = options.limit_bytes
            && store.held_bytes() >= limit
        {
            return Err(failure(&format_args!(
                "tables alone take {} of the limit of {}: raise --limit, or give a smaller \
                 --backing-size",
                format_size(store.held_bytes().next_multiple_of(1 << 20)),
                format_size(limit),
            )));
        }
        load(&plan, &store)?;
        if let Some(place) = &plan.save {
            place.try_save().map_err(|error| {
                failure(&format_args!(
                    "cannot save to {place}: {error}; give --save a file name or s3://BUCKET/KEY"
                ))
            })?;
        }
        let options = DiskOptions::new(plan.size);
        let options = options.with_sector(args.sector).with_read_only(args.read_only);
        let store = Arc::new(store);
        let disk = Disk::new(Arc::clone(&store), &options).map_err(|error| failure(&error))?;
        let shrinker = ShrinkerOptions::default()
            .with_interval(SHRINKER_INTERVAL)
            .with_idle_after(args.idle_after.map(|after| after.0))
            .with_pressure(SystemPressure::new());
        let shrinker = Shrinker::start(store, shrinker).map_err(|error| failure(&error))?;
        shrinker.enable(args.shrinker);
        let watch = far.clone().map(|far| {
            let name = name.clone();
            FarWatch::start(far, far_watch::of_a_disk(), move |line| {
                remark(&format!("{name}: {line}"));
            })
        });
        let watch = watch.transpose().map_err(|error| failure(&error))?;
        Ok(Self { plan, disk: Arc::new(disk), shrinker, far, _watch: watch })
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &Arc<Store> {
        self.disk.store()
    }

    /// Returns the knobs as they are.
    fn knobs(&self) -> Knobs {
        Knobs {
            store: self.store().tunables(),
            shrinker: self.shrinker.enabled(),
            idle_after: self.shrinker.idle_after(),
        }
    }

    /// Turns knobs, all or none.
    ///
    /// # Errors
    /// What this device cannot do.
    pub(crate) fn set(&self, settings: &[Setting]) -> Result<(), String> {
        let before = self.knobs();
        let mut knobs = before.clone();
        settings.iter().for_each(|setting| setting.apply(&mut knobs));
        if knobs.idle_after.is_some() && !self.plan.can_age() {
            return Err(format!(
                "{} has nowhere to put idle pages: start it with --backing or --recompress",
                self.plan.args.name
            ));
        }
        self.store().tune(&knobs.store).map_err(|error| error.to_string())?;
        if knobs.shrinker != before.shrinker {
            self.shrinker.enable(knobs.shrinker);
        }
        if knobs.idle_after != before.idle_after {
            self.shrinker.set_idle_after(knobs.idle_after);
        }
        Ok(())
    }

    /// Returns all knobs, and the settings chosen at the start.
    pub(crate) fn settings(&self) -> Value {
        let mut shown = json!({
            "disksize": self.disk.size(),
            "comp_algorithm": self.plan.codec.to_string(),
            "recomp_algorithm": list(&self.plan.args.recompress),
        });
        for (name, value) in self.knobs().shown() {
            shown[name] = value.into();
        }
        shown
    }

    /// Writes the snapshot that the plan contains, if any.
    ///
    /// # Errors
    /// Why it could not be written; a file of before stays as it was.
    pub(crate) fn save(&self) -> Result<(), String> {
        self.plan.save.as_ref().map_or(Ok(()), |place| self.save_to(place).map(drop))
    }

    /// Writes a snapshot to `place`; returns what it holds.
    ///
    /// # Errors
    /// As [`save`](Self::save).
    pub(crate) fn save_to(&self, place: &SnapshotPlace) -> Result<Value, String> {
        let label = serde_json::to_vec(&Label { size: self.disk.size() }).expect("JSON");
        place.save(self.store(), &label).map_err(|error| {
            let remedy = match (&error, place) {
                (SnapshotError::Lost { .. }, _) => "",
                (_, SnapshotPlace::File(_)) => "; name another file (zfold ctl save FILE)",
                (_, SnapshotPlace::Object(_)) => {
                    "; save again when that is mended (zfold ctl save)"
                }
            };
            format!("cannot save {} to {place}: {error}{remedy}", self.plan.args.name)
        })
    }
}

/// Returns the options of the store of a device, and its backing if that is on other machines.
fn store_options(plan: &DiskPlan) -> Result<(StoreOptions, Option<Arc<FarBacking>>), Failure> {
    let args = &plan.args;
    let dictionary = args.dictionary.as_deref().map(dictionary).transpose()?;
    let choice = |spec: &_| CodecChoice::from(*spec).with_dictionary(dictionary.clone());
    let open = |backing| backing::open(backing, plan.size);
    let opened = plan.backing.as_ref().map(open).transpose()?;
    let (backing, far) = opened.map(|opened| (opened.options, opened.far)).unzip();
    let mut options = StoreOptions::new(plan.size.div_ceil(PAGE_LEN), plan.codec);
    options.recompression = args.recompress.iter().map(choice).collect();
    options.dictionary = dictionary;
    options.deduplicate = args.dedup;
    options.limit_bytes = args.limit.map(|limit| limit.0).filter(|limit| *limit > 0);
    options.backing = backing;
    Ok((options, far.flatten()))
}

fn dictionary(path: &Path) -> Result<Dictionary, Failure> {
    let failure = |why: &dyn std::fmt::Display| {
        let path = path.display();
        Failure::new(format!(
            "cannot use {path} as a dictionary: {why}; give --dictionary a file of at most 1 MiB, \
             such as zfold ctl train writes"
        ))
    };
    let file = open_believed(path).map_err(|error| failure(&error))?;
    let mut bytes = Vec::new();
    let read = file.take(DICTIONARY_LEN_MAX + 1).read_to_end(&mut bytes);
    if read.map_err(|error| failure(&error))? as u64 > DICTIONARY_LEN_MAX {
        return Err(failure(&"it is longer"));
    }
    Dictionary::new(bytes).map_err(|error| failure(&error))
}

/// Fills the store from the snapshot that the plan names.
fn load(plan: &DiskPlan, store: &Store) -> Result<(), Failure> {
    let (name, size, Some(place)) = (&plan.args.name, plan.size, &plan.load) else { return Ok(()) };
    let failure = |error: &dyn std::fmt::Display| place.not_loaded(name, error);
    if plan.load == plan.save && !place.exists().map_err(|error| failure(&error))? {
        remark(&format!("{name} starts empty: {place} does not exist yet"));
        return Ok(());
    }
    let was = place.device_size().map_err(|error| failure(&error))?;
    if let Some(was) = was.filter(|was| *was > size) {
        let was = format_size(was);
        return Err(Failure::new(format!(
            "{name}: {place} holds a device of {was}: give --size at least that"
        )));
    }
    let report = place.restore(store).map_err(|error| failure(&error))?;
    if report.lost_pages > 0 {
        remark(&format!(
            "{name}: {} of the {} pages in {place} could not be read when it was saved: reading \
             them fails until they are written again",
            report.lost_pages, report.pages,
        ));
    }
    Ok(())
}

fn list(codecs: &[zfold_store::CodecSpec]) -> String {
    codecs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
