//! Where pages are that have left their address space.
//!
//! | file | what is there |
//! | --- | --- |
//! | `swap_cache` | pages that left last, uncompressed |
//! | `keys` | which keys of the store are in use |
//! | `copies` | what the store keeps of pages that came back |

pub(crate) mod copies;
pub(crate) mod keys;
pub(crate) mod swap_cache;
