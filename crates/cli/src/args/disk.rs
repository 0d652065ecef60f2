//! The arguments of `zfold disk`.

use std::path::PathBuf;

use clap::ValueHint::{CommandString, FilePath};
use clap::builder::TypedValueParser;
use clap::value_parser;
use zfold_disk::SectorSize;
use zfold_disk::nbd::Address;
use zfold_pool::Allocator;
use zfold_store::CodecSpec;

use super::values::{allocators, choice};
use crate::shared::duration::Interval;
use crate::shared::size::Size;

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

While it runs, zfold stat shows its statistics and zfold ctl changes its settings. SIGTERM and
SIGINT shut it down cleanly, a second signal at once.

Exit status: 0 done, 1 failed, 2 wrong usage; with --run the status of the command.";

const DEVICE: &str = "Device";
const MEMORY: &str = "Memory";
const COLD: &str = "Cold pages";
const CONTENTS: &str = "Contents";
const FRONTENDS: &str = "Frontends";
const PROCESS: &str = "Process";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DiskArgs {
    /// Size of the device, such as 64GiB, 64G or bytes; it may be larger than memory, and costs
    /// address space only [default: the size of the --load snapshot].
    #[arg(long, help_heading = DEVICE)]
    pub(crate) size: Option<Size>,

    /// Sector size reported to clients, in bytes.
    #[arg(long, value_name = "BYTES", help_heading = DEVICE, default_value = "4096")]
    #[arg(value_parser = sectors())]
    pub(crate) sector: SectorSize,

    /// Name of the device and of its NBD export.
    #[arg(long, help_heading = DEVICE, default_value = "disk", value_parser = name)]
    pub(crate) name: String,

    /// Refuse writes.
    #[arg(long, help_heading = DEVICE)]
    pub(crate) read_only: bool,

    /// Codec, optionally with a level: page, lz4, zstd, lzo; page:deep, zstd:3
    /// [default: page; lz4 with --dictionary].
    #[arg(long, help_heading = MEMORY)]
    pub(crate) codec: Option<CodecSpec>,

    /// Dictionary for the codecs, at most 1 MiB (lz4 and zstd can use one).
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = MEMORY)]
    pub(crate) dictionary: Option<PathBuf>,

    /// Up to three codecs with which pages can be compressed again, by priority 1 to 3.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = MEMORY)]
    pub(crate) recompress: Vec<CodecSpec>,

    /// How compressed pages are packed.
    #[arg(long, default_value = "zsmalloc", value_parser = allocators(), help_heading = MEMORY)]
    pub(crate) allocator: Allocator,

    /// Most memory for pages and tables; writes beyond it fail for lack of space [default:
    /// none].
    #[arg(long, value_name = "SIZE", help_heading = MEMORY)]
    pub(crate) limit: Option<Size>,

    /// Store equal pages once.
    #[arg(long, help_heading = MEMORY)]
    pub(crate) dedup: bool,

    /// File or block device to which pages can be written back, or redis://HOST,.. or
    /// nbd://HOST/EXPORT for other machines. Its contents cannot be used after this process
    /// has ended.
    #[arg(long, value_name = "PLACE", value_hint = FilePath, help_heading = COLD)]
    pub(crate) backing: Option<PathBuf>,

    /// Overwrite the backing file even if zfold did not make it.
    #[arg(long, help_heading = COLD, requires = "backing")]
    pub(crate) force: bool,

    /// Size of the backing file [default: that of the file, or of the device if there is none].
    #[arg(long, value_name = "SIZE", help_heading = COLD, requires = "backing")]
    pub(crate) backing_size: Option<Size>,

    /// Most that may be written to the backing file from now on [default: no limit].
    #[arg(long, value_name = "SIZE", help_heading = COLD, requires = "backing")]
    pub(crate) writeback_limit: Option<Size>,

    /// Write back or recompress pages that have not been used for this long, such as 10min.
    #[arg(long, value_name = "DURATION", help_heading = COLD)]
    pub(crate) idle_after: Option<Interval>,

    /// Write back the least recently used pages when the system is short of memory; without a
    /// backing file, recompress them and compact the pool.
    #[arg(long, help_heading = COLD)]
    pub(crate) shrinker: bool,

    /// Start with the contents of a snapshot, a file or s3://BUCKET/KEY. The snapshot may be
    /// missing if --save names the same.
    #[arg(long, value_name = "PLACE", value_hint = FilePath, help_heading = CONTENTS)]
    pub(crate) load: Option<PathBuf>,

    /// Write a snapshot of the contents on shutdown, to a file or s3://BUCKET/KEY.
    #[arg(long, value_name = "PLACE", value_hint = FilePath, help_heading = CONTENTS)]
    pub(crate) save: Option<PathBuf>,

    /// Serve the device as the file FILE, by FUSE.
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
    pub(crate) fuse: Option<PathBuf>,

    /// Serve the device to a virtual machine on this Unix socket, by vhost-user-blk.
    #[arg(long, value_name = "SOCKET", value_hint = FilePath, help_heading = FRONTENDS)]
    pub(crate) vhost_user: Option<PathBuf>,

    /// Serve NBD at unix:PATH or tcp:HOST:PORT; may be given several times [default, without
    /// any other frontend: a Unix socket in the runtime directory].
    #[arg(long, value_name = "ADDRESS", help_heading = FRONTENDS)]
    pub(crate) nbd: Vec<Address>,

    /// Offer TLS to NBD clients, with this certificate chain (PEM).
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
    #[arg(requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
    #[arg(requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Require client certificates signed by this authority (PEM).
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = FRONTENDS)]
    #[arg(requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Refuse NBD clients without TLS.
    #[arg(long, help_heading = FRONTENDS, requires = "tls_cert")]
    pub(crate) tls_required: bool,

    /// Most NBD connections at a time, 1 to 65536.
    #[arg(long, value_name = "NUMBER", help_heading = FRONTENDS, default_value_t = 256)]
    #[arg(value_parser = value_parser!(u32).range(1..=65536))]
    pub(crate) max_connections: u32,

    /// Unix socket for zfold ctl and zfold stat [default: one in the runtime directory, where
    /// these look for it].
    #[arg(long, value_name = "PATH", value_hint = FilePath, help_heading = PROCESS)]
    pub(crate) control: Option<PathBuf>,

    /// Serve metrics for Prometheus over HTTP at unix:PATH or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS", help_heading = PROCESS)]
    pub(crate) metrics: Option<Address>,

    /// Let the system page this process out. By default its memory is locked where that is
    /// permitted, because paging it in could mean waiting for its own device.
    #[arg(long, help_heading = PROCESS)]
    pub(crate) no_mlock: bool,

    /// Run COMMAND in a shell once the device is served, with $uri, $unixsocket, $nbd, $fuse and
    /// $size set, and exit with its status.
    #[arg(long, value_name = "COMMAND", value_hint = CommandString)]
    #[arg(help_heading = PROCESS)]
    pub(crate) run: Option<String>,
}

fn sectors() -> impl TypedValueParser<Value = SectorSize> {
    choice([("512".into(), SectorSize::B512), ("4096".into(), SectorSize::B4096)])
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || text.contains(char::is_control) {
        return Err("a name has 1 to 255 bytes and no control characters".to_owned());
    }
    Ok(text.to_owned())
}
