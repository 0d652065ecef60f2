//! Cold pages on other machines: connecting, and what is told of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use zfold_far::place::{Place, Source};
use zfold_far::{Engine, FarBacking, FarOptions, FarStats};

use crate::shared::exit::Failure;
use crate::shared::secret::variable;
use crate::shared::table::{Row, count, size, time};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a read or a write may take, with all its attempts: a cluster of Redis takes 15 s to
/// find that a master is gone, unless it is told otherwise.
const DEADLINE: Duration = Duration::from_secs(30);

/// Most memory for what is read ahead, and the share of a limit that it takes at most.
const READ_AHEAD_MAX: u64 = 8 << 20;
const READ_AHEAD_SHARE: u64 = 8;

/// The share of a limit that an object takes at most: three of them are in memory while one is made
/// of others.
const OBJECT_SHARE: u64 = 32;

/// Reads a place that stands behind `flag` on the command line or in the configuration file.
///
/// # Errors
/// It is none, or has a password where everybody sees it; status 2.
pub(crate) fn parse(flag: &str, text: &str) -> Result<Place, Failure> {
    let typed = std::env::args_os().any(|argument| argument.to_string_lossy().contains(text));
    let source = if typed { Source::Arguments } else { Source::File };
    let place = Place::parse(text, source, variable);
    place.map_err(|error| Failure::usage(format!("{flag}: {error}")))
}

/// Returns how a backing on other machines behaves that has at most `len` bytes of pages, of a
/// store with that limit, and is sent at most so many a second.
pub(crate) fn options(len: u64, limit: Option<u64>, bytes_per_second: Option<u64>) -> FarOptions {
    let share = |of: u64| limit.map_or(u64::MAX, |limit| limit / of);
    FarOptions::new(len)
        .with_deadline(DEADLINE)
        .with_read_ahead(share(READ_AHEAD_SHARE).min(READ_AHEAD_MAX))
        .with_object_bytes(share(OBJECT_SHARE))
        .with_bytes_per_second(bytes_per_second)
}

/// Connects to `place`, which stands behind `flag`.
///
/// # Errors
/// It cannot be reached, or is not fit.
pub(crate) fn connect(flag: &str, place: &Place) -> Result<Arc<dyn Engine>, Failure> {
    zfold_far::connect(place, Instant::now() + CONNECT)
        .map_err(|error| Failure::new(format!("{flag}: {error}")))
}

/// Returns a backing over the engine that stands behind `flag`.
///
/// # Errors
/// The options make no backing; what the system says.
pub(crate) fn open(
    flag: &str,
    engine: Arc<dyn Engine>,
    options: FarOptions,
) -> Result<Arc<FarBacking>, Failure> {
    let backing = FarBacking::open(engine, options);
    backing.map(Arc::new).map_err(|error| Failure::new(format!("{flag}: {error}")))
}

/// A figure: its name, where it is found, how it is told, and what it means.
pub(crate) type Figure = (&'static str, fn(&FarReport) -> u64, fn(u64) -> String, &'static str);

/// Declares the figures by the names that [`FarStats`] gives them, with their meaning.
macro_rules! figures {
    ($($figure:ident: $form:ident, $meaning:literal;)*) => {
        /// [`FarStats`] and the engine that they are of.
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(default)]
        pub(crate) struct FarReport {
            /// What messages call the engine.
            pub(crate) engine: String,
            /// It was given up for now, so that nothing is written.
            pub(crate) absent: bool,
            /// Those of its servers that do not answer.
            pub(crate) servers_away: Vec<String>,
            /// Its last failure, in words.
            pub(crate) last_failure: Option<String>,
            $(pub(crate) $figure: u64,)*
        }

        /// All figures; those whose names end in `_total` only grow.
        pub(crate) const FIGURES: &[Figure] =
            &[$((stringify!($figure), |far| far.$figure, $form, $meaning),)*];

        impl FarReport {
            /// Returns what is to be told of a backing.
            pub(crate) fn of(backing: &FarBacking) -> Self {
                let stats: FarStats = backing.stats();
                Self {
                    engine: backing.engine_name().to_owned(),
                    absent: stats.absent,
                    servers_away: backing.servers_away(),
                    last_failure: backing.last_failure(),
                    $($figure: stats.$figure,)*
                }
            }
        }
    };
}

figures! {
    objects: count, "that have something that is needed";
    object_bytes: size, "that they take there";
    live_bytes: size, "of these, what is needed";
    dead_objects: count, "not needed, and not yet removed";
    copies_missing: count, "that are gone and not made again";
    copies_made_total: count, "that were gone";
    metadata_bytes: size, "of memory here, for the map and what is read ahead";
    near_bytes: size, "that lie in the backing file first";
    moved_bytes_total: size, "sent from there because they were old";
    puts_total: count, "objects sent";
    put_bytes_total: size, "";
    gets_total: count, "ranges fetched";
    got_bytes_total: size, "";
    read_ahead_total: count, "reads that needed none";
    deletes_total: count, "objects removed";
    cleaned_bytes_total: size, "sent again to make room";
    retries_total: count, "calls made again";
    failures_total: count, "calls that failed";
    forged_total: count, "of these, other bytes than were sent";
    absences_total: count, "times that it was given up for a while";
    waited_us_total: microseconds, "that writes waited for --far-bandwidth";
    get_us_p50: microseconds, "half took at most this";
    get_us_p99: microseconds, "99 % did";
    put_us_p50: microseconds, "half took at most this";
    put_us_p99: microseconds, "99 % did";
}

impl FarReport {
    /// Returns in few words whether the engine is there.
    pub(crate) fn state(&self) -> String {
        match self.servers_away.len() {
            _ if self.absent => "absent".to_owned(),
            0 => "there".to_owned(),
            1 => "1 server away".to_owned(),
            away => format!("{away} servers away"),
        }
    }

    /// Returns the engine, what is wrong with it, and the figures, as `told` tells these.
    pub(crate) fn rows(&self, told: impl Fn(&Figure) -> String) -> Vec<Row> {
        let mut rows = vec![("engine", self.engine.clone(), "")];
        if self.absent {
            rows.push(("absent", "yes".to_owned(), "pages stay here until it is back"));
        }
        if !self.servers_away.is_empty() {
            rows.push(("servers_away", self.servers_away.join(", "), ""));
        }
        if let Some(failure) = &self.last_failure {
            rows.push(("last_failure", failure.clone(), ""));
        }
        rows.extend(FIGURES.iter().map(|figure| (figure.0, told(figure), figure.3)));
        rows
    }

    /// Returns the value of a figure.
    pub(crate) fn value(&self, (_, of, form, _): &Figure) -> String {
        form(of(self))
    }
}

fn microseconds(us: u64) -> String {
    time(us.saturating_mul(1000))
}
