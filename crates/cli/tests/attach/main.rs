//! `zfold attach` from outside: what processes notice of it, what is refused, how they end.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "a part is used")]
#[path = "../common/granted.rs"]
mod granted;

mod held;
mod refused;
mod rights;
mod target;
