//! Guests outlive their server: processes, of which each can be killed.
//!
//! The **front** keeps sockets, guests' descriptors and journals, and nothing else. A **server**
//! has the images and serves guests. The **stock** is a copy of a server's memory, made by `fork`,
//! which does nothing but wait: when the server is lost, it makes a copy of itself, which is the
//! next server and has all images at once.
//!
//! - H1: a guest's descriptor is the front's first. It accepts guests itself, and writes what they
//!   are into a journal before it hands anything on.
//! - H2: the front closes a descriptor when a server says that the guest needs nobody, or when it
//!   sees itself that the guest is gone; not because a server is lost. A server closes its copy of
//!   a descriptor when its guest needs nobody, or when it ends. So as long as either of the two
//!   lives, a guest that lives has its descriptor open outside of its own process.
//! - H3: a server begins when the one before has ended with all of its threads: the end of its
//!   channel says so, of which no other process has a copy but for moments, during which the end
//!   only comes later. So no call that fills a guest's memory goes on beside a successor's.
//! - H4: a server that takes over looks at the messages that the one before read last, and then
//!   has all who wait look again, before it answers anything (core/guest/U4).
//! - H5: no guest of an image is accepted before the stock has that image. What a server adds,
//!   it has in a new stock before it says so.
//! - H6: a copy is made while nobody is within the store (gate/F1) and nobody writes to stderr; it
//!   has one thread, uses the images and its channel, and has no other descriptor.
//! - H7: a front that is gone is no reason to end for a server: it serves the guests it has.
//!
//! Lock order: a front's state is its only lock, and no message is waited for with it.

mod channel;
mod front;
mod kept;
mod link;
#[cfg(test)]
mod model;
mod stock;
mod terms;

pub use front::Front;
pub use link::{Begin, Link, Told};
pub use stock::renew;
pub use terms::{End, FrontOptions, Heard, OnLoss, Sockets};
