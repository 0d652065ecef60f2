//! Outcomes as text: tables for people, JSON for programs, and a page with charts.
//!
//! JSON has the figures as they are. Tables and page group them by metric and set each beside the
//! first contestant's with as many workers; the page needs no network and no script.

mod json;
mod page;
mod table;
#[cfg(test)]
mod testing;

pub use json::{SCHEMA, json};
pub use page::page;
pub use table::table;
