//! Outcomes as text: tables for people, JSON and CSV for programs, and a page with plots.
//!
//! JSON and CSV have the figures as they are. Tables and page group them by metric, set each
//! beside the first contestant's, and lay statistics of locks out as `/proc/lock_stat` does. Tables
//! fit a terminal whose width is given; the page needs no network and no script.

mod answer;
mod csv;
mod fit;
mod grid;
mod html;
mod json;
mod plot;
mod remarks;
mod table;
#[cfg(test)]
mod testing;

pub use csv::csv;
pub use html::html;
pub use json::{SCHEMA, json};
pub use table::table;
