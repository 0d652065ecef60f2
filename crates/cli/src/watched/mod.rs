//! The memory and the work of this user's runs, disks and guest servers: looks at all of them, and
//! rates between two looks.

pub(crate) mod columns;
pub(crate) mod guests;
pub(crate) mod look;
pub(crate) mod machine;
pub(crate) mod rates;
pub(crate) mod subject;
