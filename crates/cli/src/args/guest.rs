//! The arguments of `zfold guest`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Subcommand, ValueEnum, ValueHint};
use zfold_disk::nbd::Address;
use zfold_store::CodecSpec;

use crate::shared::duration::Interval;
use crate::shared::size::Size;

pub(super) const EXAMPLES: &str = "\
Examples:
  A server with an image of a snapshot's memory; prints the socket for backend_path:
    zfold guest serve --image web=/snapshots/web.mem
  Restore it, any number of times, by PUT /snapshot/load of Firecracker, with the mem_backend
  {\"backend_type\": \"Uffd\", \"backend_path\": \"SOCKET\"}.
  Add images, whole or the difference to another one (snapshot_type Diff):
    zfold guest import db /snapshots/db.mem
    zfold guest import web-2 /snapshots/web-2.mem --base web
  Record which pages guests of an image request, so that later guests get them in advance:
    zfold guest record web
    zfold guest record web off
  Save a machine of cloud-hypervisor, and restore it:
    zfold guest receive vm
    zfold guest send vm SOCKET --resume
  Write an image to a file again, for other backends:
    zfold guest export web-2 /var/tmp/web-2.mem

Exit status: 0 done, 1 failed, 2 wrong usage.";

pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  Images that survive a restart of the server:
    zfold guest serve --load images.zfs --save images.zfs
  Sockets at fixed places, for VMMs of another user in the group that owns the folder:
    zfold guest serve --sockets /srv/guests --socket-mode 660 --image web=/snapshots/web.mem

SIGTERM and SIGINT end the server: each guest first gets all of its pages, and needs no server from
then on. A second signal ends it at once, and guests wait for ever.

It runs three processes: one keeps the guests' descriptors, one serves the guests, and one waits
with a copy of the images. If the second is lost, for whatever reason, the third takes over, and
guests continue after a moment.

Exit status: 0 done, 1 failed, 2 wrong usage.";

pub(super) const RECEIVE_EXAMPLES: &str = "\
Examples:
  Save a machine whose memory has shared=on; it ends when it is saved:
    zfold guest receive vm
    ch-remote --api-socket=API send-migration destination_url=unix:SOCKET,local=on
  with the socket that the first command has printed. If it fails, the machine continues.

Exit status: 0 done, 1 failed, 2 wrong usage.";

pub(super) const SEND_EXAMPLES: &str = "\
Examples:
  Restore a machine, all pages first:
    ch-remote --api-socket=API receive-migration receiver_url=unix:$XDG_RUNTIME_DIR/restore &
    zfold guest send vm $XDG_RUNTIME_DIR/restore --resume
  Restore it, and put in pages as it needs them:
    ch-remote --api-socket=API \\
      receive-migration receiver_url=unix:$XDG_RUNTIME_DIR/restore,memory_mode=postcopy &
    zfold guest send vm $XDG_RUNTIME_DIR/restore --resume --on-demand

Exit status: 0 done, 1 failed, 2 wrong usage.";

const MEMORY: &str = "Memory";
const IMAGES: &str = "Images";
const SOCKETS: &str = "Sockets";
const PROCESS: &str = "Process";

#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = false)]
pub(crate) struct GuestArgs {
    #[command(subcommand)]
    pub(crate) command: GuestCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GuestCommand {
    /// Serve images of guests' memory: a socket for each, at which Firecracker restores guests.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<GuestServeArgs>),
    /// Make an image of a memory file, whole or over a base; the file is not needed afterwards.
    Import {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image.
        name: String,
        /// The memory file of a snapshot.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The image from which that guest was restored: it provides the pages that are holes in
        /// the file, and equal pages. Without it, holes are zeros.
        #[arg(long, value_name = "IMAGE")]
        base: Option<String>,
        /// The state file of the same snapshot, which is kept with the image: zfold guest state
        /// writes it again.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        state: Option<PathBuf>,
    },
    /// Make an image of a paused guest from its difference snapshot, and print the socket from
    /// which to restore the guest; end its VMM afterwards.
    Hibernate {
        #[command(flatten)]
        server: GuestTarget,
        /// Number of the guest (zfold guest stat), which must be paused.
        guest: u64,
        /// Name of the image.
        name: String,
        /// The memory file of its snapshot, of type Diff.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The state file of the same snapshot, which is kept with the image: zfold guest state
        /// writes it again.
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        state: Option<PathBuf>,
    },
    /// Save a machine of cloud-hypervisor as an image: print the socket to which to send it, and
    /// wait until it is stored.
    #[command(after_help = RECEIVE_EXAMPLES)]
    Receive {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image.
        name: String,
        /// An image of the same size, such as the one from which the machine was restored: equal
        /// pages are not stored again.
        #[arg(long, value_name = "IMAGE")]
        base: Option<String>,
        /// Time within which its VMM has to connect.
        #[arg(long, value_name = "DURATION", default_value = "10min")]
        timeout: Interval,
    },
    /// Restore a machine of cloud-hypervisor from an image.
    #[command(after_help = SEND_EXAMPLES)]
    Send {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image, which receive made.
        name: String,
        /// The socket at which a cloud-hypervisor without a machine listens (receive-migration).
        #[arg(value_hint = ValueHint::FilePath)]
        socket: PathBuf,
        /// Let the machine run at once; otherwise it stays paused.
        #[arg(long)]
        resume: bool,
        /// Put pages in as the machine touches them, and all others meanwhile. It needs
        /// receive-migration with memory_mode=postcopy.
        #[arg(long)]
        on_demand: bool,
    },
    /// Write the memory of an image to a new sparse file.
    Export {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image.
        name: String,
        /// The file; it must not exist.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// List the images, with the memory that they take and their sockets.
    List {
        #[command(flatten)]
        server: GuestTarget,
    },
    /// Write the state file that is kept with an image to a new file.
    State {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image.
        name: String,
        /// The file; it must not exist.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Put in all pages of the guests that an image has now, at --fill-rate: then they need no
    /// server, and cannot be hibernated.
    Fill {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image.
        name: String,
    },
    /// Remove an image that no guest and no other image uses.
    Rm {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image.
        name: String,
    },
    /// Record which pages guests of an image request; later guests get them in advance.
    Record {
        #[command(flatten)]
        server: GuestTarget,
        /// Name of the image.
        name: String,
        /// Start or stop recording, or forget the recorded pages.
        #[arg(value_enum, default_value_t = Recording::On)]
        what: Recording,
    },
    /// Change the most memory that images may take.
    Set {
        #[command(flatten)]
        server: GuestTarget,
        /// limit=SIZE, such as limit=512MiB; limit=none removes it.
        #[arg(value_name = "limit=SIZE")]
        word: String,
    },
    /// Write all images to a file, for --load; an existing file is replaced when the new one is
    /// complete.
    Save {
        #[command(flatten)]
        server: GuestTarget,
        /// The file.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Show the guests, the pages that they got, and how long they waited for them.
    Stat {
        #[command(flatten)]
        server: GuestTarget,
    },
}

/// Selects the server.
#[derive(Debug, clap::Args)]
pub(crate) struct GuestTarget {
    /// Control socket of the server [default: that of this user's only one].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,

    /// Print the answer as JSON (list and stat: schema zfold.guests/1).
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Recording {
    /// Start recording.
    On,
    /// Stop recording.
    Off,
    /// Forget the recorded pages.
    Clear,
}

impl Recording {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Clear => "clear",
        }
    }
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GuestServeArgs {
    /// Import a memory file as an image; may be given several times.
    #[arg(long, value_name = "NAME=FILE", value_hint = ValueHint::Other, help_heading = IMAGES)]
    pub(crate) image: Vec<NamedFile>,

    /// Start with the images of a file that --save or zfold guest save wrote. The file may be
    /// missing if --save names the same.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = IMAGES)]
    pub(crate) load: Option<PathBuf>,

    /// Write all images to a file on shutdown.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = IMAGES)]
    pub(crate) save: Option<PathBuf>,

    /// Most memory that images may take, compressed; imports beyond it are refused, unless there is
    /// a --backing [default: no limit].
    #[arg(long, value_name = "SIZE", help_heading = MEMORY)]
    pub(crate) limit: Option<Size>,

    /// Write the pages that have not been used for the longest time to this file or block device,
    /// compressed, when --limit is reached. Its contents cannot be used after the end of the
    /// server: see --save.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = MEMORY)]
    #[arg(requires = "limit")]
    pub(crate) backing: Option<PathBuf>,

    /// Size of the backing file [default: that of the file, or 64 GiB for a new one, which takes as
    /// much room as is written].
    #[arg(long, value_name = "SIZE", help_heading = MEMORY, requires = "backing")]
    pub(crate) backing_size: Option<Size>,

    /// Overwrite the file of --backing even if zfold did not make it.
    #[arg(long, help_heading = MEMORY, requires = "backing")]
    pub(crate) force: bool,

    /// Codec, optionally with a level: lz4, page, zstd, lzo; zstd:3.
    #[arg(long, default_value = "lz4", help_heading = MEMORY)]
    pub(crate) codec: CodecSpec,

    /// Put the sockets into this folder, as NAME.sock [default: the runtime directory].
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = SOCKETS)]
    pub(crate) sockets: Option<PathBuf>,

    /// Permissions of the sockets, in octal: any user who may write to a socket gets its image's
    /// memory.
    #[arg(long, value_name = "MODE", default_value = "600", help_heading = SOCKETS)]
    pub(crate) socket_mode: Mode,

    /// Most guests at a time, 1 to 65536; further ones wait.
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, help_heading = SOCKETS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_guests: u32,

    /// Unix socket for the other commands [default: one in the runtime directory, where these look
    /// for it].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = PROCESS)]
    pub(crate) control: Option<PathBuf>,

    /// Serve metrics for Prometheus over HTTP at unix:PATH or tcp:HOST:PORT.
    #[arg(long, value_name = "ADDRESS", help_heading = PROCESS)]
    pub(crate) metrics: Option<Address>,

    /// What happens to guests when the process that serves them is lost together with the one that
    /// would take over.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Loss::Wait)]
    #[arg(help_heading = PROCESS)]
    pub(crate) on_loss: Loss,

    /// What happens to guests that do not fit the image to which they connect. Those that wait keep
    /// the VMM's request to load a snapshot waiting, too.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Loss::Wait)]
    #[arg(help_heading = PROCESS)]
    pub(crate) on_refusal: Loss,

    /// Put all pages into each guest, the working set first: then it needs no server, and cannot be
    /// hibernated.
    #[arg(long, help_heading = MEMORY)]
    pub(crate) fill: bool,

    /// Most bytes a second that guests get by --fill and zfold guest fill, all together.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", help_heading = MEMORY)]
    pub(crate) fill_rate: Size,

    /// Do not record the first guest of each image. By default, the pages that it requests in its
    /// first 30 seconds are the image's working set.
    #[arg(long, help_heading = MEMORY)]
    pub(crate) no_record: bool,

    /// Let the system page this process out. By default its memory is locked where that is
    /// permitted, since guests wait for it.
    #[arg(long, help_heading = PROCESS)]
    pub(crate) no_mlock: bool,

    /// Serve, for the front whose channel is standard input.
    #[arg(long, hide = true)]
    pub(crate) for_front: bool,
}

/// What happens to guests that cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Loss {
    /// They wait, and can be looked at and ended.
    Wait,
    /// Their VMMs are killed.
    Kill,
}

/// An image and its file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedFile {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
}

impl FromStr for NamedFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, file)) if !file.is_empty() => {
                zfold_guest::check_name(name).map_err(|error| error.to_string())?;
                Ok(Self { name: name.to_owned(), file: file.into() })
            }
            _ => Err("an image is NAME=FILE, such as web=/snapshots/web.mem".to_owned()),
        }
    }
}

/// Permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode(pub(crate) u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
        // A socket that its owner may not use is of no use.
        let mode = mode.filter(|mode| mode & 0o600 == 0o600);
        mode.map(Self).ok_or_else(|| "permissions are 600, 660 or 666".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_permissions_are_read() {
        let image: NamedFile = "web=/a=b".parse().expect("right");
        assert_eq!((&*image.name, image.file.to_str()), ("web", Some("/a=b")));
        for wrong in ["web", "web=", "=x", "a/b=x"] {
            assert!(wrong.parse::<NamedFile>().is_err(), "{wrong}");
        }
        assert_eq!("660".parse(), Ok(Mode(0o660)));
        for wrong in ["", "1660", "060", "rw", "8"] {
            assert!(wrong.parse::<Mode>().is_err(), "{wrong}");
        }
    }
}
