//! An NBD client and server, each of which can make the mistakes that a test requests.

pub mod client;
mod plain;
pub mod server;

pub use plain::Plain;
pub use zfold_nbd as protocol;
