//! What becomes of a page's bytes: placed into the pool, read back, and released.

pub(crate) mod contexts;
pub(crate) mod duplicates;
pub(crate) mod same;
