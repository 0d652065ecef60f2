//! What is to be served: settings checked against each other, and every default filled in.

use std::io;
use std::path::PathBuf;

use zfold_disk::SectorSize;
use zfold_pool::Allocator;
use zfold_store::{CodecKind, CodecSpec};

use super::config;
use super::snapshot::SnapshotPlace;
use crate::args::{DeviceSettings, DiskArgs, ServerSettings};
use crate::settings::{CONNECTIONS, STORE_LIMIT_MIN};
use crate::shared::backing::{BackingPlan, Target};
use crate::shared::exit::Failure;
use crate::shared::size::{Size, at_least, format_size};

/// Most devices of one process.
const DEVICES_MAX: usize = 256;

/// Least size up to which a device can grow by default, in bytes.
const ROOM_MIN: u64 = 1 << 40;

/// A process and its devices.
#[derive(Debug, PartialEq)]
pub(crate) struct DiskPlan {
    pub(crate) devices: Vec<DevicePlan>,
    pub(crate) server: ServerSettings,
    pub(crate) tls: Option<TlsPlan>,
    pub(crate) run: Option<String>,
}

/// How NBD connections are encrypted.
#[derive(Debug, PartialEq)]
pub(crate) struct TlsPlan {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) required: bool,
}

/// A device: its settings, and what follows from them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DevicePlan {
    pub(crate) settings: DeviceSettings,
    pub(crate) name: String,
    pub(crate) sector: SectorSize,
    /// Size of the device in bytes; it only grows.
    pub(crate) size: u64,
    /// Size in bytes up to which the device can grow.
    pub(crate) max_size: u64,
    pub(crate) codec: CodecSpec,
    pub(crate) allocator: Allocator,
    pub(crate) backing: Option<BackingPlan>,
    pub(crate) load: Option<SnapshotPlace>,
    pub(crate) save: Option<SnapshotPlace>,
}

impl DiskPlan {
    /// Returns the plan that the flags and their configuration file describe.
    ///
    /// # Errors
    /// Settings that are missing or do not go together (status 2), or a file that cannot be read.
    pub(crate) fn new(args: &DiskArgs) -> Result<Self, Failure> {
        let file = args.config.as_deref().map(config::read).transpose()?.unwrap_or_default();
        let mut server = args.server.clone().over(file);
        let devices = devices(&args.device, std::mem::take(&mut server.disk))?;
        let tls = tls(&server)?;
        if server.max_connections.is_some_and(|number| !CONNECTIONS.contains(&number.into())) {
            let (least, most) = (CONNECTIONS.start(), CONNECTIONS.end());
            return usage(format!(
                "max-connections is not in {least} to {most}: give such a number"
            ));
        }
        Ok(Self { devices, server, tls, run: args.run.clone() })
    }

    /// Returns whether this system itself reads and writes a device, through a file or as a block
    /// device. For attaching one by NBD, docs/use/disk.md names the risk.
    pub(crate) fn serves_this_system(&self) -> bool {
        let mut settings = self.devices.iter().map(|device| &device.settings);
        settings.any(|of| of.fuse.is_some() || of.ublk)
    }
}

/// Returns the devices: those of the file, or the one of the flags.
fn devices(typed: &DeviceSettings, file: Vec<DeviceSettings>) -> Result<Vec<DevicePlan>, Failure> {
    let settings = match file.len() {
        0 => vec![typed.clone()],
        1 => file.into_iter().map(|below| typed.clone().over(below)).collect(),
        number if number > DEVICES_MAX => {
            return usage("the file has more than 256 disks: start several processes");
        }
        _ if *typed == DeviceSettings::default() => file,
        _ => {
            return usage(
                "the file has several disks, so flags cannot say which is meant: put the settings \
                 of a device into its table",
            );
        }
    };
    let several = settings.len() > 1;
    let plans: Vec<_> =
        settings.into_iter().map(|one| device(one, several)).collect::<Result<_, _>>()?;
    check_distinct(&plans)?;
    Ok(plans)
}

/// Returns the plan of a device.
fn device(settings: DeviceSettings, several: bool) -> Result<DevicePlan, Failure> {
    let name = name(settings.name.clone(), several)?;
    if settings.ublk && !cfg!(feature = "ublk") {
        return usage("this zfold was built without ublk: build it with --features ublk");
    }
    let snapshot = |flag, path: &Option<PathBuf>| {
        path.as_deref().map(|path| SnapshotPlace::parse(flag, path)).transpose()
    };
    let (load, save) = (snapshot("--load", &settings.load)?, snapshot("--save", &settings.save)?);
    if let Some(place) = load.as_ref().filter(|place| place.is_no_file())
        && load != save
    {
        return Err(place.not_loaded(&name, &"there is no such file"));
    }
    let size = match (settings.size, &load) {
        (Some(size), _) => Some(size.0),
        (None, Some(place)) => size_in_snapshot(place, load == save, &name)?,
        (None, None) => None,
    };
    let Some(size) = size else {
        return usage(format!("{name} has no size: give one, such as --size 1GiB"));
    };
    let sector = match settings.sector.unwrap_or(4096) {
        512 => SectorSize::B512,
        4096 => SectorSize::B4096,
        _ => return usage(format!("{name}: a sector has 512 or 4096 bytes: give one of them")),
    };
    check_knobs(&name, &settings)?;
    let backing = backing(&name, &settings)?;
    let max_size = settings.max_size.map_or(size.saturating_mul(4).max(ROOM_MIN), |max| max.0);
    let bytes = u64::from(sector.bytes());
    if size == 0 || !size.is_multiple_of(bytes) {
        return usage(format!("{name}: give a size that is a positive multiple of {bytes} bytes"));
    }
    if max_size < size {
        return usage(format!(
            "{name}: --max-size is below --size {}: raise it",
            format_size(size)
        ));
    }
    if settings.recompress.len() > 3 {
        return usage(format!("{name}: --recompress takes at most 3 codecs: name fewer"));
    }
    // page has no dictionaries.
    let default_codec =
        if settings.dictionary.is_some() { CodecKind::Lz4 } else { CodecKind::Page };
    Ok(DevicePlan {
        name,
        sector,
        size,
        max_size,
        codec: settings.codec.unwrap_or(default_codec.into()),
        allocator: settings.allocator.unwrap_or(Allocator::Zsmalloc),
        backing,
        load,
        save,
        // Its address may have a password.
        settings: DeviceSettings { backing: None, ..settings },
    })
}

/// Returns the name of a device, which may be left out if it is the only one.
fn name(given: Option<String>, several: bool) -> Result<String, Failure> {
    match given {
        Some(name) if name.is_empty() || name.len() > 255 || name.contains(char::is_control) => {
            usage("a name has 1 to 255 bytes and no control characters: choose another")
        }
        Some(name) => Ok(name),
        None if several => usage("with several disks each needs a name: add the key name"),
        None => Ok("disk".to_owned()),
    }
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

/// Refuses what cannot be chosen of that which can change later.
fn check_knobs(name: &str, settings: &DeviceSettings) -> Result<(), Failure> {
    if let Some(Size(limit)) = settings.limit.filter(|limit| limit.0 > 0) {
        at_least("--limit", limit, STORE_LIMIT_MIN)?;
    }
    let can_age = settings.backing.is_some() || !settings.recompress.is_empty();
    if settings.idle_after.is_some() && !can_age {
        return usage(format!(
            "{name}: --idle-after needs somewhere for pages to go: give --backing or --recompress"
        ));
    }
    Ok(())
}

/// Returns where cold pages go, if anywhere.
fn backing(name: &str, settings: &DeviceSettings) -> Result<Option<BackingPlan>, Failure> {
    let needs = [
        ("--backing-size", settings.backing_size.is_some()),
        ("--force", settings.force),
        ("--far-bandwidth", settings.far_bandwidth.is_some()),
        ("--writeback-limit", settings.writeback_limit.is_some()),
    ];
    match (&settings.backing, needs.iter().find(|(_, given)| *given)) {
        (None, Some((flag, _))) => {
            usage(format!("{name}: {flag} needs a backing file: give --backing FILE too"))
        }
        (None, None) => Ok(None),
        (Some(path), _) => {
            let plan = BackingPlan {
                target: Target::parse(path)?,
                size: settings.backing_size.map(|size| size.0),
                force: settings.force,
                bandwidth: settings.far_bandwidth.map(|size| size.0),
            };
            plan.checked().map(Some)
        }
    }
}

/// Returns how connections are encrypted, if they are.
fn tls(server: &ServerSettings) -> Result<Option<TlsPlan>, Failure> {
    match (server.tls_cert.clone(), server.tls_key.clone()) {
        (Some(cert), Some(key)) => {
            let (ca, required) = (server.tls_ca.clone(), server.tls_required);
            Ok(Some(TlsPlan { cert, key, ca, required }))
        }
        (None, None) if server.tls_ca.is_none() && !server.tls_required => Ok(None),
        _ => usage("TLS needs a certificate and its key: give --tls-cert and --tls-key"),
    }
}

/// Refuses two devices with the same name or file.
fn check_distinct(plans: &[DevicePlan]) -> Result<(), Failure> {
    for (index, one) in plans.iter().enumerate() {
        for other in &plans[..index] {
            if one.name == other.name {
                let name = &one.name;
                return usage(format!("two disks are named '{name}': give them different names"));
            }
            let theirs = other.files();
            if let Some(file) = one.files().into_iter().find(|file| theirs.contains(file)) {
                let (file, one, other) = (file.display(), &one.name, &other.name);
                return usage(format!(
                    "'{one}' and '{other}' both name {file}: give each a file of its own"
                ));
            }
        }
    }
    Ok(())
}

impl DevicePlan {
    /// The files, and objects on other machines, that belong to this device alone.
    fn files(&self) -> Vec<PathBuf> {
        let backing = self.backing.as_ref().and_then(|backing| backing.target.path());
        let files = [self.settings.fuse.as_ref(), self.settings.vhost_user.as_ref(), backing];
        let saved = self.save.as_ref().map(SnapshotPlace::name);
        files.into_iter().flatten().cloned().chain(saved).collect()
    }

    /// Returns whether idle pages can be written back or compressed again.
    pub(crate) fn can_age(&self) -> bool {
        self.backing.is_some() || !self.settings.recompress.is_empty()
    }

    /// Returns whether the device has a frontend of its own.
    pub(crate) fn has_frontend(&self) -> bool {
        let of = &self.settings;
        of.fuse.is_some() || of.vhost_user.is_some() || of.ublk
    }
}

/// Refuses the settings.
fn usage<T>(line: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::usage(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn the_example_of_a_configuration_is_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/zfold.toml");
        let settings = config::read(Path::new(path)).expect("a configuration");
        let plans = devices(&DeviceSettings::default(), settings.disk).expect("valid");
        let names: Vec<_> = plans.iter().map(|plan| &*plan.name).collect();
        assert_eq!(names, ["scratch", "cold", "kept"]);
        assert_eq!(plans[0].max_size, 1 << 40, "the least room to grow");
        assert_eq!(
            plans[1].settings.idle_after.map(|after| after.0),
            Some(Duration::from_secs(600))
        );
        assert!(plans[1].can_age() && !plans[0].can_age());
    }

    #[test]
    fn a_device_may_grow_to_four_times_its_size() {
        let settings = DeviceSettings { size: Some(Size(1 << 40)), ..DeviceSettings::default() };
        assert_eq!(device(settings, false).expect("valid").max_size, 4 << 40);
    }
}
