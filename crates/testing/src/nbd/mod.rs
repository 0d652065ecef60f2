//! A client and a server of NBD, each of which can do wrong what a test asks for.

pub mod client;
mod plain;
pub mod server;

pub use plain::Plain;
pub use zfold_nbd as protocol;
