//! Cold pages on other machines: connecting, and what is told of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use zfold_far::place::{Place, Source};
use zfold_far::{FarBacking, FarOptions, FarStats};

use crate::shared::exit::Failure;
use crate::shared::table::{Row, count, size, time};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a read or a write may take, with all its attempts: a cluster of Redis takes 15 s to
/// find that a master is gone, unless it is told otherwise.
const DEADLINE: Duration = Duration::from_secs(30);

/// Reads a place that stands behind `flag` on the command line or in the configuration file.
///
/// # Errors
/// It is none, or has a password where everybody sees it; status 2.
pub(crate) fn parse(flag: &str, text: &str) -> Result<Place, Failure> {
    let typed = std::env::args_os().any(|argument| argument.to_string_lossy().contains(text));
    let source = if typed { Source::Arguments } else { Source::File };
    let place = Place::parse(text, source, |name| std::env::var(name).ok());
    place.map_err(|error| Failure::usage(format!("{flag}: {error}")))
}

/// Connects to `place`, which is to hold at most `len` bytes of pages.
///
/// # Errors
/// It cannot be reached, or is not fit.
pub(crate) fn connect(place: &Place, len: u64) -> Result<Arc<FarBacking>, Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::new(format!("--backing: {error}"));
    let engine =
        zfold_far::connect(place, Instant::now() + CONNECT).map_err(|error| failure(&error))?;
    let options = FarOptions::new(len).with_deadline(DEADLINE);
    let backing = FarBacking::open(engine, options).map_err(|error| failure(&error))?;
    Ok(Arc::new(backing))
}

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
            /// Its last failure, in words.
            pub(crate) last_failure: Option<String>,
            $(pub(crate) $figure: u64,)*
        }

        impl FarReport {
            /// Returns what is to be told of a backing.
            pub(crate) fn of(backing: &FarBacking) -> Self {
                let stats: FarStats = backing.stats();
                Self {
                    engine: backing.engine_name().to_owned(),
                    absent: stats.absent,
                    last_failure: backing.last_failure(),
                    $($figure: stats.$figure,)*
                }
            }

            /// Returns the figures for people; a failure that never was is left out.
            pub(crate) fn rows(&self) -> Vec<Row> {
                let mut rows = vec![("engine", self.engine.clone(), "")];
                if self.absent {
                    rows.push(("absent", "yes".to_owned(), "pages stay here until it is back"));
                }
                if let Some(failure) = &self.last_failure {
                    rows.push(("last_failure", failure.clone(), ""));
                }
                $(rows.push((stringify!($figure), $form(self.$figure), $meaning));)*
                rows
            }
        }
    };
}

figures! {
    objects: count, "that have something that is needed";
    object_bytes: size, "that they take there";
    live_bytes: size, "of these, what is needed";
    dead_objects: count, "not needed, and not yet removed";
    metadata_bytes: size, "of memory here, for the map";
    puts_total: count, "objects sent";
    put_bytes_total: size, "";
    gets_total: count, "ranges fetched";
    got_bytes_total: size, "";
    deletes_total: count, "objects removed";
    cleaned_bytes_total: size, "sent again to make room";
    retries_total: count, "calls made again";
    failures_total: count, "calls that failed";
    forged_total: count, "of these, other bytes than were sent";
    absences_total: count, "times that it was given up for a while";
    get_us_p50: microseconds, "half took at most this";
    get_us_p99: microseconds, "99 % did";
    put_us_p50: microseconds, "half took at most this";
    put_us_p99: microseconds, "99 % did";
}

fn microseconds(us: u64) -> String {
    time(us.saturating_mul(1000))
}
