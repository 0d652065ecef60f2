//! Cold pages on other machines: connecting, and reporting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use zfold_far::place::{Place, Source};
use zfold_far::{Engine, FarBacking, FarOptions, FarStats};

use crate::shared::exit::Failure;
use crate::shared::figures::in_state;
use crate::shared::secret::variable;
use crate::shared::table::Row;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a read or a write may take, with all its attempts: a replica may take over meanwhile.
const DEADLINE: Duration = Duration::from_secs(30);

/// Reads a place that stands behind `flag`.
///
/// # Errors
/// It is none, or has a password where all users can see it; status 2.
pub(crate) fn parse(flag: &str, text: &str) -> Result<Place, Failure> {
    let place = Place::parse(text, Source::Arguments, variable);
    place.map_err(|error| Failure::usage(format!("{flag}: {error}")))
}

/// Connects to `place`, which stands behind `--backing`.
///
/// # Errors
/// It cannot be reached, or is not fit.
pub(crate) fn connect(place: &Place) -> Result<Arc<dyn Engine>, Failure> {
    zfold_far::connect(place, Instant::now() + CONNECT)
        .map_err(|error| Failure::new(format!("--backing: {error}")))
}

/// Returns a backing over the engine that stands behind `--backing`, for at most `len` bytes of
/// pages.
///
/// # Errors
/// The options make no backing; the system's error.
pub(crate) fn open(engine: Arc<dyn Engine>, len: u64) -> Result<Arc<FarBacking>, Failure> {
    let backing = FarBacking::open(engine, FarOptions::new(len).with_deadline(DEADLINE));
    backing.map(Arc::new).map_err(|error| Failure::new(format!("--backing: {error}")))
}

/// [`FarStats`] and the engine that they are of.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct FarReport {
    /// The engine's name in messages.
    pub(crate) engine: String,
    /// It was given up for now, so that nothing is written.
    pub(crate) absent: bool,
    /// It has not answered for some seconds though it was asked.
    pub(crate) away: bool,
    /// Its last failure, in words.
    pub(crate) last_failure: Option<String>,
    #[serde(flatten, with = "in_state")]
    pub(crate) stats: FarStats,
}

impl FarReport {
    /// Returns the report on a backing.
    pub(crate) fn of(backing: &FarBacking) -> Self {
        let stats = backing.stats();
        Self {
            engine: backing.engine_name().to_owned(),
            absent: stats.absent,
            away: backing.is_away(),
            last_failure: backing.last_failure(),
            stats,
        }
    }

    /// Returns the engine, its trouble, and the rows of the figures.
    pub(crate) fn rows(&self, figures: Vec<Row>) -> Vec<Row> {
        let mut rows = vec![("engine", self.engine.clone(), "")];
        if self.absent {
            rows.push(("absent", "yes".to_owned(), "pages stay here until it is back"));
        }
        if self.away {
            rows.push(("away", "yes".to_owned(), "reads wait until it answers again"));
        }
        if let Some(failure) = &self.last_failure {
            rows.push(("last_failure", failure.clone(), ""));
        }
        rows.extend(figures);
        rows
    }
}
