//! Machines of cloud-hypervisor: saved as images and restored from them, by its own protocol.
//!
//! cloud-hypervisor migrates a machine on one host by passing the files of its memory to the
//! receiver, with two documents: the configuration, and the state of processors and devices. Its
//! documentation calls a program that takes part in that an offload daemon. zfold is the receiver
//! to save a machine, and the sender to restore one.
//!
//! - O1: a machine that is saved gets the answer that it is whole only when its memory and its
//!   documents are in the store, its image has its name, and every process that may serve has it.
//!   The VMM ends the machine after this answer.
//! - O2: if a machine cannot be saved, its VMM is told so and goes on with it, and nothing of it is
//!   in the store.
//! - O3: memory is read when the last request has come: until the state is sent, the machine runs.
//! - O4: every length that a peer sends is checked before memory is taken for it. Files are read by
//!   calls, not mapped, so one that becomes shorter is an error. No call takes a lock of a file
//!   that a VMM has sent, since the VMM may hold it for ever.
//! - O5: a page of a machine that is restored on demand is written into its file from the image
//!   once, before the fault on it is answered, and only where the file has a hole. After that only
//!   the machine writes there; but if it has given the page up, so that it is missing when it is
//!   asked for again, zeros are written. What the machine gives up while a server is at the page's
//!   unit, until that is noted, is zeros or as in the image.
//! - O6: a page that cannot be loaded is refused; no answer stands for zeros.
//! - O7: a machine that is restored on demand is completed only when its VMM has asked for a page:
//!   one that does not ask would read zeros.
//! - O8: a machine on demand outlives its server: the front has its connection and its files, which
//!   units are written, and an answer that was decided. Each request gets one answer.
//!
//! `wire`, `layout`, `incoming` and `filling` are plain data; the others act.

mod demand;
mod filling;
mod huge;
mod incoming;
mod layout;
#[cfg(test)]
mod model;
mod receive;
mod restore;
mod socket;
mod wire;

pub use demand::OnDemand;
pub use receive::{ReceiveError, Received, receive};
pub use restore::{Restore, RestoreError, Restored, adopt, restore};
pub use socket::Broken;
pub use wire::Refused;
