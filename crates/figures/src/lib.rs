//! Figures: what a program counts and holds, each declared once.
//!
//! A line of [`figures!`] has a figure's name, unit, kind and meaning, and where it is shown. All
//! lines together give the atomics that threads count in, a snapshot with a field for each, and a
//! table, [`Figures::ALL`], from which a program makes its documents, its tables for people, its
//! metrics and their documentation. So a new figure is one line, and one more where it is counted.
//!
//! ```
//! use zfold_figures::{Figures as _, Doc, figures, report, state};
//!
//! figures! {
//!     /// What a cache holds and has done.
//!     pub struct CacheStats;
//!     /// What its threads count.
//!     struct Counters;
//!
//!     gauge pages: Count, "pages that it holds", [state("memory")];
//!     counter hits_total: Count, "pages found", [state("work").row("hits"), report("work")];
//! }
//!
//! let counters = Counters::default();
//! counters.hits_total.add(2);
//! let stats = CacheStats { pages: 7, ..counters.read() };
//! assert_eq!((stats.pages, stats.hits_total), (7, 2));
//!
//! let hits = &CacheStats::ALL[1];
//! assert_eq!((hits.name, (hits.of)(&stats)), ("hits_total", 2));
//! assert_eq!(hits.field(Doc::Report).map(|field| field.name), Some("hits"));
//! ```
//!
//! | kind | counted in | it is |
//! | --- | --- | --- |
//! | `counter` | a [`Counter`] | a number that only grows |
//! | `total` | elsewhere | the same, which the reader finds when a snapshot is made |
//! | `peak` | a [`Peak`] | the most so far |
//! | `gauge` | elsewhere | a number of now |
//!
//! Times are recorded in a [`Histogram`]; it is shown as gauges, its quantiles.

mod counter;
mod histogram;
mod view;

pub use counter::{Counter, Elsewhere, Peak};
pub use histogram::{Histogram, Quantiles};
pub use view::{Doc, FIELD, Field, View, metric, report, state};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things, which the meaning names.
    Count,
    /// Pages of 4 KiB.
    Pages,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
}

/// How a figure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; its name ends in `_total`.
    Counter,
    /// It goes up and down, or is the most so far.
    Gauge,
}

impl Kind {
    /// Returns what documents and metrics call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A figure of the snapshots `S`.
#[derive(Debug)]
pub struct Figure<S> {
    /// The name of its field.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// How it changes.
    pub kind: Kind,
    /// Its meaning, for tables and documentation.
    pub meaning: &'static str,
    /// Where it is shown.
    pub views: &'static [View],
    /// Reads it.
    pub of: fn(&S) -> u64,
    /// Writes it.
    pub set: fn(&mut S, u64),
}

/// A snapshot whose figures are declared.
pub trait Figures: Default + 'static {
    /// All of them, in the order in which they are shown.
    const ALL: &'static [Figure<Self>];

    /// Returns by how much each has grown since `before`. One that has become less has not grown.
    #[must_use]
    fn since(&self, before: &Self) -> Self {
        let mut grown = Self::default();
        for figure in Self::ALL {
            (figure.set)(&mut grown, (figure.of)(self).saturating_sub((figure.of)(before)));
        }
        grown
    }
}

impl<S> Figure<S> {
    /// Returns the name of a counter without `_total`, that of a gauge.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        self.name.strip_suffix("_total").unwrap_or(self.name)
    }

    /// Returns its field in a document, with the names that it and its row have there; `None` if it
    /// has none.
    #[must_use]
    pub fn field(&self, doc: Doc) -> Option<Field> {
        self.views.iter().find_map(|view| match view {
            View::Field(field) if field.doc == doc => {
                let name = match doc {
                    _ if !field.name.is_empty() => field.name,
                    Doc::Report => self.short_name(),
                    Doc::State => self.name,
                };
                let label = if field.label.is_empty() { name } else { field.label };
                Some(Field { name, label, ..*field })
            }
            _ => None,
        })
    }

    /// Returns the name of its metric.
    #[must_use]
    pub fn metric(&self) -> Option<&'static str> {
        self.views.iter().find_map(|view| match view {
            View::Metric(name) => Some(*name),
            _ => None,
        })
    }

    /// Returns whether documents have its rate.
    #[must_use]
    pub fn has_rate(&self) -> bool {
        self.views.contains(&View::Rate)
    }
}

/// Declares figures; see the [crate].
///
/// First come the types that it makes, the snapshot and the atomics, with their documentation and
/// visibility; the snapshot may have fields beside the figures, and needs no atomics if all figures
/// are kept elsewhere. Then comes a line for each figure: `KIND NAME: UNIT, "MEANING", [VIEWS];`.
#[macro_export]
macro_rules! figures {
    (
        $(#[$of_set:meta])*
        $set_visible:vis struct $Set:ident $({
            $($(#[$of_field:meta])* $field_visible:vis $field:ident: $Field:ty,)*
        })?;
        $(#[$of_counters:meta])*
        $counters_visible:vis struct $Counters:ident;

        $($kind:ident $name:ident: $unit:ident, $meaning:literal, [$($view:expr),* $(,)?];)*
    ) => {
        $crate::figures! {
            $(#[$of_set])*
            $set_visible struct $Set $({
                $($(#[$of_field])* $field_visible $field: $Field,)*
            })?;

            $($kind $name: $unit, $meaning, [$($view),*];)*
        }

        $(#[$of_counters])*
        #[derive(Debug, Default)]
        $counters_visible struct $Counters {
            $(pub(crate) $name: $crate::__figures!(atomic $kind),)*
        }

        impl $Counters {
            /// Returns what is counted here; figures that are kept elsewhere are zero.
            pub(crate) fn read(&self) -> $Set {
                let mut set = $Set::default();
                $(set.$name = self.$name.get();)*
                set
            }
        }
    };
    (
        $(#[$of_set:meta])*
        $set_visible:vis struct $Set:ident $({
            $($(#[$of_field:meta])* $field_visible:vis $field:ident: $Field:ty,)*
        })?;

        $($kind:ident $name:ident: $unit:ident, $meaning:literal, [$($view:expr),* $(,)?];)*
    ) => {
        $(#[$of_set])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $set_visible struct $Set {
            $(#[doc = $meaning] pub $name: u64,)*
            $($($(#[$of_field])* $field_visible $field: $Field,)*)?
        }

        impl $crate::Figures for $Set {
            const ALL: &'static [$crate::Figure<Self>] = &[$($crate::Figure {
                name: stringify!($name),
                unit: $crate::Unit::$unit,
                kind: $crate::__figures!(kind $kind),
                meaning: $meaning,
                views: &[$($view),*],
                of: |set| set.$name,
                set: |set, value| set.$name = value,
            },)*];
        }
    };
}

/// The meaning of the kinds.
#[doc(hidden)]
#[macro_export]
macro_rules! __figures {
    (atomic counter) => {
        $crate::Counter
    };
    (atomic peak) => {
        $crate::Peak
    };
    (atomic total) => {
        $crate::Elsewhere
    };
    (atomic gauge) => {
        $crate::Elsewhere
    };
    (kind counter) => {
        $crate::Kind::Counter
    };
    (kind total) => {
        $crate::Kind::Counter
    };
    (kind peak) => {
        $crate::Kind::Gauge
    };
    (kind gauge) => {
        $crate::Kind::Gauge
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    figures! {
        /// The figures of a test.
        struct Held {
            /// Not a figure.
            pub ready: bool,
        };
        /// The counters of a test.
        struct Counters;

        gauge pages: Count, "pages", [];
        counter loads_total: Count, "loads", [report("work").row("  loads"), View::Rate];
        total faults_total: Count, "faults", [];
        peak peak_bytes: Bytes, "the most", [state("memory").named("peak").within("memory")];
    }

    #[test]
    fn a_snapshot_has_what_was_counted_and_what_the_reader_knows() {
        let counters = Counters::default();
        counters.loads_total.add(3);
        counters.loads_total.add(1);
        [7, 9, 8].into_iter().for_each(|bytes| counters.peak_bytes.raise(bytes));
        let held = Held { faults_total: 5, ready: true, ..counters.read() };
        assert_eq!(Held::ALL.iter().map(|figure| (figure.of)(&held)).sum::<u64>(), 4 + 5 + 9);
        assert!(held.ready);
        let grown = held.since(&Held { loads_total: 1, faults_total: 9, ..Held::default() });
        assert_eq!((grown.loads_total, grown.faults_total), (3, 0));
    }

    #[test]
    fn each_document_has_its_names() {
        let [_, loads, faults, peak] = Held::ALL else { panic!("four") };
        assert_eq!(
            (loads.kind, faults.kind, peak.kind),
            (Kind::Counter, Kind::Counter, Kind::Gauge)
        );
        let name = |figure: &Figure<Held>, doc| figure.field(doc).map(|field| field.name);
        assert_eq!((name(loads, Doc::Report), name(loads, Doc::State)), (Some("loads"), None));
        let field = peak.field(Doc::State).expect("a field");
        assert_eq!((field.group, field.name, field.label), ("memory", "peak", "peak"));
        assert_eq!(loads.field(Doc::Report).map(|field| field.label), Some("  loads"));
        assert!(loads.has_rate() && !faults.has_rate());
    }
}
