//! How results are written.

use clap::ValueEnum;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people.
    Table,
    /// One document, schema zfold.compare/2 or zfold.lab/1.
    Json,
    /// A line of names, then a line per record.
    Csv,
}
