//! Values that have names, for all commands.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use zfold_compare::compare::{Allocator, PageSize, Preset};

/// How figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    Table,
    /// One document.
    Json,
}

pub(super) fn allocators() -> impl TypedValueParser<Value = Allocator> {
    choice(Allocator::ALL.map(|allocator| (PossibleValue::new(allocator.name()), allocator)))
}

pub(super) fn presets() -> impl TypedValueParser<Value = Preset> {
    choice(Preset::ALL.map(|preset| (PossibleValue::new(preset.name()), preset)))
}

pub(super) fn page_sizes() -> impl TypedValueParser<Value = PageSize> {
    choice([
        (PossibleValue::new("4KiB").alias("4096"), PageSize::KIB4),
        (PossibleValue::new("16KiB").alias("16384"), PageSize::KIB16),
        (PossibleValue::new("64KiB").alias("65536"), PageSize::KIB64),
    ])
}

/// Returns a parser of named values, which lists the names in help, errors and completions.
pub(super) fn choice<T, const N: usize>(
    values: [(PossibleValue, T); N],
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = values.clone().map(|(name, _)| name);
    PossibleValuesParser::new(names).map(move |typed| {
        let found = values.iter().find(|(name, _)| name.matches(&typed, false));
        found.expect("the parser lets only these names pass").1
    })
}
