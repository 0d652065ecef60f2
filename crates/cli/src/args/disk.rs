//! The arguments of `zfold disk`, which are also the keys of its configuration file.
//!
//! Every setting is declared once: its flag, its help and its key in the file are one field.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueHint::{CommandString, FilePath};
use clap::value_parser;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use zfold_pool::Allocator;
use zfold_store::CodecSpec;

use super::values::{allocators, choice};
use crate::settings::CONNECTIONS;
use crate::shared::duration::Interval;
use crate::shared::size::Size;
use zfold_disk::nbd::Address;

pub(super) const EXAMPLES: &str = "\
Examples:
  A device of 8 GiB in compressed memory; prints the URI under which it is served:
    zfold disk --size 8GiB
  Run a program on it and exit with the program's status:
    zfold disk --size 1GiB --run 'nbdcopy image.raw $uri && nbdinfo --map $uri'
  At most 2 GiB of memory; cold pages go to a file, chosen by time and memory pressure:
    zfold disk --size 32GiB --limit 2GiB --backing /var/tmp/cold --idle-after 10min --shrinker
  A file that a loop device can use:
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

While it runs, zfold stat shows its statistics and zfold ctl changes its settings. SIGTERM and
SIGINT shut it down cleanly, a second signal at once.

Exit status: 0 done, 1 failed, 2 wrong usage; with --run the status of the command.";

const DEVICE: &str = "Device";
const MEMORY: &str = "Memory";
const COLD: &str = "Cold pages";
const CONTENTS: &str = "Contents";
const FRONTENDS: &str = "Frontends";
const PROCESS: &str = "Process";

/// Declares settings, which can lie in layers.
macro_rules! settings {
    ($(#[$of:meta])* struct $name:ident { $($(#[$about:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        pub(crate) struct $name { $($(#[$about])* pub(crate) $field: $type,)* }

        impl $name {
            /// Returns these settings, and those of `below` where these have no value.
            pub(crate) fn over(self, below: Self) -> Self {
                Self { $($field: Layer::over(self.$field, below.$field),)* }
            }
        }
    };
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiskArgs {
    #[command(flatten)]
    pub(crate) device: DeviceSettings,

    #[command(flatten)]
    pub(crate) server: ServerSettings,

    /// Read settings from FILE (TOML): these flags as keys, and a table `[[disk]]` for each device.
    /// Flags override it.
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = PROCESS)]
    pub(crate) config: Option<PathBuf>,

    /// Run COMMAND in a shell once the device is served, with $uri, $unixsocket, $nbd, $fuse and
    /// $size set, and exit with its status.
    #[arg(long, value_name = "COMMAND", value_hint = CommandString)]
    #[arg(help_heading = PROCESS)]
    pub(crate) run: Option<String>,
}

settings! {
    /// The settings of one device.
    #[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
    struct DeviceSettings {
        /// Size of the device, such as 64GiB, 64G or bytes; it may be larger than memory [default:
        /// the size of the --load snapshot].
        #[arg(long, help_heading = DEVICE)]
        #[serde(deserialize_with = "text")]
        size: Option<Size>,

        /// Sector size reported to clients, in bytes [default: 4096].
        #[arg(long, value_name = "BYTES", help_heading = DEVICE)]
        #[arg(value_parser = choice([("512".into(), 512_u32), ("4096".into(), 4096)]))]
        sector: Option<u32>,

        /// Name of the device and of its NBD export, and for --disk in other commands [default:
        /// disk].
        #[arg(long, help_heading = DEVICE)]
        name: Option<String>,

        /// Refuse writes.
        #[arg(long, help_heading = DEVICE)]
        read_only: bool,

        /// Size up to which the device can grow; costs address space only [default: four times the
        /// size, at least 1TiB].
        #[arg(long, value_name = "SIZE", help_heading = DEVICE)]
        #[serde(deserialize_with = "text")]
        max_size: Option<Size>,

        /// Codec, optionally with a level: page, lz4, lz4hc, zstd, lzo; page:deep, zstd:3
        /// [default: page; lz4 with --dictionary].
        #[arg(long, help_heading = MEMORY)]
        #[serde(deserialize_with = "text")]
        codec: Option<CodecSpec>,

        /// Dictionary for the codecs, at most 1 MiB (lz4, lz4hc and zstd can use one).
        #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = MEMORY)]
        dictionary: Option<PathBuf>,

        /// Up to three codecs with which pages can be compressed again, by priority 1 to 3.
        #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = MEMORY)]
        #[serde(deserialize_with = "texts")]
        recompress: Vec<CodecSpec>,

        /// How compressed pages are packed: zsmalloc, fit, z3fold or zbud [default: zsmalloc].
        #[arg(long, value_parser = allocators(), help_heading = MEMORY)]
        #[serde(deserialize_with = "text")]
        allocator: Option<Allocator>,

        /// Most memory for pages and tables; writes beyond it fail for lack of space [default:
        /// none].
        #[arg(long, value_name = "SIZE", help_heading = MEMORY)]
        #[serde(deserialize_with = "text")]
        limit: Option<Size>,

        /// Store equal pages once.
        #[arg(long, help_heading = MEMORY)]
        dedup: bool,

        /// File or block device to which pages can be written back, or redis://HOST,.. or
        /// nbd://HOST/EXPORT for other machines. Its contents cannot be used after this process
        /// has ended.
        #[arg(long, value_name = "PLACE", value_hint = FilePath, help_heading = COLD)]
        backing: Option<PathBuf>,

        /// Overwrite the backing file even if zfold did not make it.
        #[arg(long, help_heading = COLD)]
        force: bool,

        /// Size of the backing file [default: that of the file, or of the device if there is none].
        #[arg(long, value_name = "SIZE", help_heading = COLD)]
        #[serde(deserialize_with = "text")]
        backing_size: Option<Size>,

        /// Send at most SIZE per second to other machines, such as 50MiB; reads are not limited
        /// [default: no limit].
        #[arg(long, value_name = "SIZE", help_heading = COLD)]
        #[serde(deserialize_with = "text")]
        far_bandwidth: Option<Size>,

        /// Most that may be written to the backing file from now on [default: no limit].
        #[arg(long, value_name = "SIZE", help_heading = COLD)]
        #[serde(deserialize_with = "text")]
        writeback_limit: Option<Size>,

        /// Write back or recompress pages that have not been used for this long, such as 10min.
        #[arg(long, value_name = "DURATION", help_heading = COLD)]
        #[serde(deserialize_with = "text")]
        idle_after: Option<Interval>,

        /// Write back the least recently used pages when the system is short of memory; without a
        /// backing file, recompress them and compact the pool.
        #[arg(long, help_heading = COLD)]
        shrinker: bool,

        /// Start with the contents of a snapshot, a file or s3://BUCKET/KEY. The snapshot may be
        /// missing if --save names the same.
        #[arg(long, value_name = "PLACE", value_hint = FilePath, help_heading = CONTENTS)]
        load: Option<PathBuf>,

        /// Write a snapshot of the contents on shutdown, to a file or s3://BUCKET/KEY.
        #[arg(long, value_name = "PLACE", value_hint = FilePath, help_heading = CONTENTS)]
        save: Option<PathBuf>,

        /// Serve the device as the file FILE, by FUSE.
        #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
        fuse: Option<PathBuf>,

        /// Serve the device to a virtual machine on this Unix socket, by vhost-user-blk.
        #[arg(long, value_name = "SOCKET", value_hint = FilePath, help_heading = FRONTENDS)]
        vhost_user: Option<PathBuf>,

        /// Add the device to this system as /dev/ublkbN (needs a build with the feature ublk).
        #[arg(long, help_heading = FRONTENDS)]
        ublk: bool,
    }
}

settings! {
    /// The settings of the process, besides its devices.
    #[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
    struct ServerSettings {
        /// Serve NBD at unix:PATH or tcp:HOST:PORT; may be given several times [default, without
        /// any other frontend: a Unix socket in the runtime directory].
        #[arg(long, value_name = "ADDRESS", help_heading = FRONTENDS)]
        #[serde(deserialize_with = "texts")]
        nbd: Vec<Address>,

        /// Offer TLS to NBD clients, with this certificate chain (PEM).
        #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
        tls_cert: Option<PathBuf>,

        /// Private key of the certificate (PEM).
        #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
        tls_key: Option<PathBuf>,

        /// Require client certificates signed by this authority (PEM).
        #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
        tls_ca: Option<PathBuf>,

        /// Refuse NBD clients without TLS.
        #[arg(long, help_heading = FRONTENDS)]
        tls_required: bool,

        /// Most NBD connections at a time, 1 to 65536 [default: 256].
        #[arg(long, value_name = "NUMBER", help_heading = FRONTENDS)]
        #[arg(value_parser = value_parser!(u32).range(CONNECTIONS))]
        max_connections: Option<u32>,

        /// Unix socket for zfold ctl and zfold stat [default: one in the runtime directory, where
        /// these look for it].
        #[arg(long, value_name = "PATH", value_hint = FilePath, help_heading = PROCESS)]
        control: Option<PathBuf>,

        /// Serve metrics for Prometheus over HTTP at unix:PATH or tcp:HOST:PORT.
        #[arg(long, value_name = "ADDRESS", help_heading = PROCESS)]
        #[serde(deserialize_with = "text")]
        metrics: Option<Address>,

        /// Let the system page this process out. By default its memory is locked where that is
        /// permitted, because paging it in could mean waiting for its own device.
        #[arg(long, help_heading = PROCESS)]
        no_mlock: bool,

        /// The devices of a configuration file.
        #[arg(skip)]
        disk: Vec<DeviceSettings>,
    }
}

/// A value of two layers of settings.
trait Layer {
    /// Returns this value, or that of `below` if this has none.
    fn over(self, below: Self) -> Self;
}

impl<T> Layer for Option<T> {
    fn over(self, below: Self) -> Self {
        self.or(below)
    }
}

impl<T> Layer for Vec<T> {
    fn over(self, below: Self) -> Self {
        if self.is_empty() { below } else { self }
    }
}

impl Layer for bool {
    fn over(self, below: Self) -> Self {
        self || below
    }
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
