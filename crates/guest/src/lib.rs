//! Memory of virtual machines, stored once in compressed form, and restored any number of times.
//!
//! - [`Images`]: memory files of snapshots, whole or as differences over others. Equal pages of
//!   all of them are kept once, pages of zeros cost nothing.
//! - [`Server`]: the userfaultfd handler of a VMM. Each connection to an image's socket is a
//!   guest, whose pages are put in as it touches them.
//! - [`receive`] and [`restore`]: machines of cloud-hypervisor, saved as images and restored by its
//!   protocol for migrations.
//!
//! The design is in `docs/design/guests.md`. `core` decides, `serve` and `offload` act. Invariants
//! of guests and images:
//!
//! - G1: a page of the image is put in at most once. After it was put in, or the guest gave it up,
//!   zfold treats it as zeros, and only the guest has what it wrote since. So a discarded page
//!   never comes back with old contents, even if no discard is reported.
//! - G2: all messages are read before one is answered, and discards are processed first.
//! - G3: a fault that was read is answered, or waits and is tried again by a timer. No error
//!   drops it while the guest lives.
//! - G4: the descriptor stays open while the guest's address space exists: memory whose last
//!   descriptor is closed reads as zeros. When the connection ends, the kernel is asked whether the
//!   address space is gone. A server that ends puts in missing pages and unregisters the memory
//!   before it closes anything.
//! - G5: a fault on a page that cannot be loaded gets no answer; least of all zeros.
//! - G6: a peer's message is checked against the image before the first page is put in. A peer
//!   whose regions are refused is held, not served (G4).
//! - G7: while no place is free, no connection is accepted: it waits in the socket's queue with its
//!   message and its descriptor.
//! - I1: an image does not change. It is complete before its name appears, and is removed only when
//!   no guest and no image uses it. Nothing reads the file from which it came.
//! - I2: a page that an image does not hold comes from its base; a page that no image of the chain
//!   holds is zeros.
//! - I3: a snapshot holds whole images. No image is removed while it is written, and images
//!   imported meanwhile are not in its list. Pages that belong to no image are dropped when it is
//!   loaded.

#![cfg(target_os = "linux")]

mod core;
mod images;
mod keep;
#[cfg(test)]
mod model;
mod offload;
mod serve;
mod sys;

pub use images::{
    Claim, Image, ImageError, ImageInfo, Images, Imported, KEYS, Origin, check_name, images_options,
};
pub use keep::{Begin, Bind, End, Front, FrontOptions, Handed, Link, News, Order, renew};
pub use offload::{
    Broken, OnDemand, ReceiveError, Received, Refused, Restore, RestoreError, Restored, adopt,
    receive, restore,
};
pub use serve::{
    Given, GuestState, GuestStats, NoOrigin, Served, Server, ServerOptions, ServerStats, TABLE,
};
