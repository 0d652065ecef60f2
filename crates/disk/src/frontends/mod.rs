//! Frontends: each speaks one protocol and knows only the device.

pub mod fuse;
pub mod nbd;
#[cfg(feature = "ublk")]
pub mod ublk;
pub mod vhost_user;
