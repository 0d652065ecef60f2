//! Memory of virtual machines, kept compressed once in a store, and restored any number of times.
//!
//! - [`Images`]: memory files of snapshots, whole or as differences over others. Equal pages of
//!   all of them are kept once, pages of zeros cost nothing.
//! - [`Server`]: the userfaultfd handler of a VMM. Each connection to an image's socket is a
//!   guest, whose pages are put in as it touches them.
//!
//! The design is in `docs/design/guests.md`. `core` decides, `serve` acts. What both keep true, of
//! guests and of images:
//!
//! - G1: a page of the image is put in at most once. It was put in, or the guest gave it up:
//!   then its contents are zeros for zfold, and what the guest wrote since is in the guest. So
//!   what is discarded never comes back with old contents, even where no discard is reported.
//!   Pages that zfold itself takes out are put in again (core/evict/L1 to L6).
//! - G2: all messages are read before one is answered; the discards among them count first.
//! - G3: a fault that was read is answered, or waits and is tried again by a timer. No error
//!   drops it while the guest lives.
//! - G4: the descriptor stays open while the guest's address space exists: memory whose last
//!   descriptor is closed reads as zeros. The end of the connection is a reason to look; the
//!   kernel says that the address space is gone. A server that ends puts in what is missing and
//!   unregisters the memory before it closes anything.
//! - G5: a page that cannot be loaded is not answered, with zeros least of all.
//! - G6: what a peer sends is checked against the image before the first page is put in. A peer
//!   whose regions are refused is held, not served (G4).
//! - G7: where no place is free, nobody is accepted: a connection waits in the socket's queue
//!   with its message and its descriptor.
//! - I1: an image does not change. It is complete before its name appears, and goes only when
//!   no guest and no image uses it. Nothing reads the file from which it came.
//! - I2: a page that an image does not hold is its base's; one that no image of the chain holds
//!   is zeros.
//! - I3: a snapshot holds whole images. Nothing is removed while it is written, and what is
//!   imported meanwhile is not in its list. Pages of no image are dropped when it is loaded.

#![cfg(target_os = "linux")]

mod core;
mod images;
mod keep;
mod serve;

pub use images::{
    Claim, Image, ImageError, ImageInfo, Images, Imported, KEYS, Origin, check_name, images_options,
};
pub use keep::{Begin, End, Front, FrontOptions, Heard, Link, OnLoss, Sockets, Told, renew};
pub use serve::{
    Given, GuestState, GuestStats, NoOrigin, Served, Server, ServerOptions, ServerStats, TABLE,
};
