//! The vhost-user-blk frontend: the device as a disk of a virtual machine.
//!
//! A virtual machine monitor (QEMU, cloud-hypervisor, crosvm) connects to a Unix socket and hands
//! over its guest's memory and queues; requests are then served without the monitor. One monitor
//! is served at a time; when it leaves, the socket waits for the next.
//!
//! What the server trusts: the guest is not, neither what it puts into queues nor how it changes
//! memory while it is read. Nor is the monitor in the memory that it shares: a region beyond the
//! end of its file is refused, and one whose file shrinks later costs that monitor its connection.
//! It is trusted in what the protocol leaves to it: not to hand over a descriptor that blocks, for
//! events or for memory. Keep the socket where only it can connect.

mod device;
mod error;
#[allow(unsafe_code, reason = "a handler of SIGBUS cannot be had without")]
mod lost;
mod memory;
mod request;
mod server;
mod vring;

pub use error::VhostUserError;
pub use server::VhostUserFrontend;
