//! The memory and the work of this user's runs, disks and guest servers: looks at all of them, what
//! they were at one with their rates since another, and the table of it that `zfold ps` and `zfold
//! top` show.

pub(crate) mod look;
pub(crate) mod machine;
pub(crate) mod rates;
pub(crate) mod rows;
pub(crate) mod seen;
