//! Guests outlive their server: three processes, each of which can be killed.
//!
//! The **front** keeps sockets, guests' descriptors and journals, and nothing else. A **server**
//! has the images and serves guests. The **stock** is a copy of a server's memory, made by `fork`,
//! which does nothing but wait: when the server is lost, it makes a copy of itself, which is the
//! next server and has all images at once.
//!
//! - H1: a guest's descriptor is the front's first. It accepts guests itself, and writes what they
//!   are into a journal before it hands anything on.
//! - H2: the front closes a descriptor when a server reports that the guest needs no server, or
//!   when it finds that the guest is gone; never because a server is lost. A server closes its copy
//!   of a descriptor when the guest needs no server, or when it ends. So as long as either process
//!   lives, the descriptor of a living guest is open outside the guest's own process.
//! - H3: a server begins when its predecessor has ended with all its threads, which the end of its
//!   channel reports. Other processes have a copy of that channel only for moments, which can only
//!   delay the report. Threads that read what strangers send have none (apart/T1), and fill no
//!   guest's memory. So no call that fills a guest's memory runs beside a successor's.
//! - H4: a server that takes over processes the messages that its predecessor read last, and then
//!   wakes all waiting threads, before it answers anything (core/guest/U4).
//! - H5: no guest of an image is accepted before the stock has that image. A server that adds an
//!   image makes a new stock before it reports the image.
//! - H6: a copy is made while no thread is within the store (gate/F1) or writes to stderr; it has
//!   one thread, uses the images and its channel, and has no other descriptor than theirs. It is
//!   the stock only once a thread has started and ended in it.
//! - H7: a server does not end because its front is gone: it serves the guests it has.
//! - H8: what the stock has of the images lies where it lay when it was made, also in the file to
//!   which pages are written beyond the limit: a server uses what it has of that file, and what is
//!   free there, and frees an image's part of it when no stock has the image any longer.
//!
//! Lock order: a front's state is its only lock; no thread waits for a message with it.

mod accept;
mod channel;
mod front;
mod kept;
mod link;
mod listening;
#[cfg(test)]
mod model;
mod places;
mod stock;
mod terms;

pub use front::Front;
pub use link::{Begin, Handed, Link, Order};
pub use stock::renew;
pub use terms::{Bind, End, FrontOptions, News};
