//! Frontends: each speaks one protocol and knows only the device.

#[cfg(feature = "fuse")]
pub mod fuse;
#[cfg(feature = "nbd")]
pub mod nbd;
#[cfg(feature = "vhost-user")]
pub mod vhost_user;
