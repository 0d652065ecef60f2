//! The arguments of `zfold disk`, which are also the keys of its configuration file.
//!
//! Every setting is declared once: its flag, its help and its key in the file are one field.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueHint;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use zfold_pool::Allocator;
use zfold_store::CodecSpec;

use super::choice;
use crate::duration::Interval;
use crate::size::Size;
use zfold_disk::nbd::Address;

pub(super) const EXAMPLES: &str = "\
Examples:
  A device of 8 GiB in compressed memory; prints the URI under which it is served:
    zfold disk --size 8GiB
  Run a program on it and leave with the program's exit status:
    zfold disk --size 1GiB --run 'nbdcopy image.raw $uri && nbdinfo --map $uri'
  At most 2 GiB of memory; cold pages go to a file, chosen by time and memory pressure:
    zfold disk --size 32GiB --limit 2GiB --backing /var/tmp/cold --idle-after 10min --shrinker
  A file that a loop device can be made of:
    zfold disk --size 4GiB --fuse /run/disk.img
    losetup --find --show --direct-io=on --sector-size 4096 /run/disk.img
  A disk of a QEMU guest (its memory must be shared: -object memory-backend-memfd,share=on):
    zfold disk --size 16GiB --sector 512 --vhost-user /run/user/1000/vhost.sock
  Over TCP, with certificates on both sides:
    zfold disk --size 8GiB --nbd tcp:0.0.0.0:10809 --tls-cert cert.pem --tls-key key.pem \\
      --tls-ca ca.pem --tls-required
  Contents that survive a restart:
    zfold disk --size 1GiB --load disk.zfs --save disk.zfs
  Several devices in one process (see contrib/zfold.toml):
    zfold disk --config /etc/zfold.toml

While it runs: zfold stat, zfold ctl. SIGTERM and SIGINT end it in order, a second one at once;
SIGHUP reads the configuration file again.

Exit status: 0 done, 1 failed, 2 wrong usage; with --run that of the command.";

const DEVICE: &str = "Device";
const MEMORY: &str = "Memory";
const COLD: &str = "Cold pages";
const CONTENTS: &str = "Contents";
const DOORS: &str = "Doors";
const PROCESS: &str = "Process";

#[derive(Debug, clap::Args)]
pub(crate) struct DiskArgs {
    #[command(flatten)]
    pub(crate) device: DeviceSettings,

    #[command(flatten)]
    pub(crate) server: ServerSettings,

    /// Read settings from FILE (TOML): these flags as keys, and a table `[[disk]]` for each device.
    /// Flags override it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = PROCESS)]
    pub(crate) config: Option<PathBuf>,

    /// Run COMMAND in a shell once the device is served, with $uri, $unixsocket, $nbd, $fuse and
    /// $size set, and leave with its exit status.
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString)]
    #[arg(help_heading = PROCESS)]
    pub(crate) run: Option<String>,
}

/// What one device is made of.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct DeviceSettings {
    /// Size of the device, such as 64GiB; it may be larger than memory [default: that of the
    /// snapshot of --load].
    #[arg(long, help_heading = DEVICE)]
    #[serde(deserialize_with = "text")]
    pub(crate) size: Option<Size>,

    /// Sector size told to clients, in bytes [default: 4096].
    #[arg(long, value_name = "BYTES", help_heading = DEVICE)]
    #[arg(value_parser = choice([("512".into(), 512_u32), ("4096".into(), 4096)]))]
    pub(crate) sector: Option<u32>,

    /// Name of the device: of its NBD export, and for --disk of other commands [default: disk].
    #[arg(long, help_heading = DEVICE)]
    pub(crate) name: Option<String>,

    /// Refuse writes.
    #[arg(long, help_heading = DEVICE)]
    pub(crate) read_only: bool,

    /// Size up to which the device can grow; costs address space only [default: four times the
    /// size, at least 1TiB].
    #[arg(long, value_name = "SIZE", help_heading = DEVICE)]
    #[serde(deserialize_with = "text")]
    pub(crate) max_size: Option<Size>,

    /// Codec, with a level if you like: lz4, lz4hc, page, zstd, deflate, lzo; zstd:3, page:deep
    /// [default: lz4].
    #[arg(long, help_heading = MEMORY)]
    #[serde(deserialize_with = "text")]
    pub(crate) codec: Option<CodecSpec>,

    /// Dictionary for the codecs, at most 1 MiB (lz4, lz4hc and zstd can use one).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = MEMORY)]
    pub(crate) dictionary: Option<PathBuf>,

    /// Up to three codecs with which pages can be compressed again, by priority 1 to 3.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = MEMORY)]
    #[serde(deserialize_with = "texts")]
    pub(crate) recompress: Vec<CodecSpec>,

    /// How compressed pages are packed: zsmalloc, z3fold or zbud [default: zsmalloc].
    #[arg(long, value_parser = super::allocators(), help_heading = MEMORY)]
    #[serde(deserialize_with = "text")]
    pub(crate) allocator: Option<Allocator>,

    /// Most memory for pages and tables; writes beyond it fail for lack of space [default: none].
    #[arg(long, value_name = "SIZE", help_heading = MEMORY)]
    #[serde(deserialize_with = "text")]
    pub(crate) limit: Option<Size>,

    /// Percent of the limit to which a full device must shrink before it takes pages again
    /// [default: 90].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    #[arg(help_heading = MEMORY)]
    pub(crate) accept_threshold: Option<u8>,

    /// Keep equal pages once.
    #[arg(long, help_heading = MEMORY)]
    pub(crate) dedup: bool,

    /// File or block device to which pages can be written back. What it holds is lost with the
    /// process.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = COLD)]
    pub(crate) backing: Option<PathBuf>,

    /// Size of the backing file [default: that of the file, or of the device if there is none].
    #[arg(long, value_name = "SIZE", help_heading = COLD)]
    #[serde(deserialize_with = "text")]
    pub(crate) backing_size: Option<Size>,

    /// Write whole pages to the backing file instead of compressed ones.
    #[arg(long, help_heading = COLD)]
    pub(crate) backing_raw: bool,

    /// Most that may be written to the backing file from now on [default: no limit].
    #[arg(long, value_name = "SIZE", help_heading = COLD)]
    #[serde(deserialize_with = "text")]
    pub(crate) writeback_limit: Option<Size>,

    /// Pages that are written back at a time, 1 to 1024 [default: 32].
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[arg(help_heading = COLD)]
    pub(crate) writeback_batch: Option<u32>,

    /// Treat pages as idle that were not used for this long, such as 10min, and write them back
    /// or compress them again.
    #[arg(long, value_name = "DURATION", help_heading = COLD)]
    #[serde(deserialize_with = "text")]
    pub(crate) idle_after: Option<Interval>,

    /// Write back the least recently used pages when the system is short of memory; without a
    /// backing file, compact and compress again.
    #[arg(long, help_heading = COLD)]
    pub(crate) shrinker: bool,

    /// Start with the contents of a snapshot. It may be missing if --save names the same file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = CONTENTS)]
    pub(crate) load: Option<PathBuf>,

    /// Write a snapshot of the contents at the end.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = CONTENTS)]
    pub(crate) save: Option<PathBuf>,

    /// Show the device as the file FILE, by FUSE.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = DOORS)]
    pub(crate) fuse: Option<PathBuf>,

    /// Serve the device to a virtual machine on this Unix socket, by vhost-user-blk.
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, help_heading = DOORS)]
    pub(crate) vhost_user: Option<PathBuf>,

    /// Add the device to this system as /dev/ublkbN (needs a build with the feature ublk).
    #[arg(long, help_heading = DOORS)]
    pub(crate) ublk: bool,
}

/// What the process is told besides its devices.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ServerSettings {
    /// Serve NBD at unix:PATH or tcp:HOST:PORT; may be given several times [default, without any
    /// other door: a Unix socket in the runtime directory].
    #[arg(long, value_name = "ADDRESS", help_heading = DOORS)]
    #[serde(deserialize_with = "texts")]
    pub(crate) nbd: Vec<Address>,

    /// Offer TLS to NBD clients, with this certificate chain (PEM).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = DOORS)]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = DOORS)]
    pub(crate) tls_key: Option<PathBuf>,

    /// Ask clients for a certificate that this authority signed (PEM).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = DOORS)]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Refuse NBD clients without TLS.
    #[arg(long, help_heading = DOORS)]
    pub(crate) tls_required: bool,

    /// Most NBD connections at a time, 1 to 65536 [default: 256].
    #[arg(long, value_name = "NUMBER", help_heading = DOORS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) max_connections: Option<u32>,

    /// Unix socket for zfold ctl and zfold stat [default: one in the runtime directory, where
    /// they find it].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = PROCESS)]
    pub(crate) control: Option<PathBuf>,

    /// Serve metrics for Prometheus over HTTP at unix:PATH or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS", help_heading = PROCESS)]
    #[serde(deserialize_with = "text")]
    pub(crate) metrics: Option<Address>,

    /// Let the system page this process out. By default its memory is locked where that is
    /// permitted, since a swap device or file system on it may be what it would wait for.
    #[arg(long, help_heading = PROCESS)]
    pub(crate) no_mlock: bool,

    /// The devices of a configuration file.
    #[arg(skip)]
    pub(crate) disk: Vec<DeviceSettings>,
}

impl DeviceSettings {
    /// Returns these settings, and those of `below` where they say nothing.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            size: self.size.or(below.size),
            sector: self.sector.or(below.sector),
            name: self.name.or(below.name),
            read_only: self.read_only || below.read_only,
            max_size: self.max_size.or(below.max_size),
            codec: self.codec.or(below.codec),
            dictionary: self.dictionary.or(below.dictionary),
            recompress: first_filled(self.recompress, below.recompress),
            allocator: self.allocator.or(below.allocator),
            limit: self.limit.or(below.limit),
            accept_threshold: self.accept_threshold.or(below.accept_threshold),
            dedup: self.dedup || below.dedup,
            backing: self.backing.or(below.backing),
            backing_size: self.backing_size.or(below.backing_size),
            backing_raw: self.backing_raw || below.backing_raw,
            writeback_limit: self.writeback_limit.or(below.writeback_limit),
            writeback_batch: self.writeback_batch.or(below.writeback_batch),
            idle_after: self.idle_after.or(below.idle_after),
            shrinker: self.shrinker || below.shrinker,
            load: self.load.or(below.load),
            save: self.save.or(below.save),
            fuse: self.fuse.or(below.fuse),
            vhost_user: self.vhost_user.or(below.vhost_user),
            ublk: self.ublk || below.ublk,
        }
    }
}

impl ServerSettings {
    /// Returns these settings, and those of `below` where they say nothing.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            nbd: first_filled(self.nbd, below.nbd),
            tls_cert: self.tls_cert.or(below.tls_cert),
            tls_key: self.tls_key.or(below.tls_key),
            tls_ca: self.tls_ca.or(below.tls_ca),
            tls_required: self.tls_required || below.tls_required,
            max_connections: self.max_connections.or(below.max_connections),
            control: self.control.or(below.control),
            metrics: self.metrics.or(below.metrics),
            no_mlock: self.no_mlock || below.no_mlock,
            disk: first_filled(self.disk, below.disk),
        }
    }
}

fn first_filled<T>(above: Vec<T>, below: Vec<T>) -> Vec<T> {
    if above.is_empty() { below } else { above }
}

/// Reads a value that is typed as text.
fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

/// Reads a list of values that are typed as text.
fn texts<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let typed = Vec::<String>::deserialize(deserializer)?;
    typed.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}
