//! Variants of an experiment in turn: one after the other within each repeat, so that all see the
//! same machine. Contestants outside this process may be missing: missing contestants are left out
//! and named.

use std::fmt::Display;
use std::io;

use crate::experiment::error::Error;
use crate::experiment::harness::samples::{Published, Samples};
use crate::experiment::machine::load_remark;
use crate::experiment::outcome::{Outcome, Progress, Settings};

/// Returns how many of something there are: `full` at scale 1, at most `quick` of them if the
/// experiment should be quick, at least one.
pub(crate) fn sized(settings: &Settings, full: usize, quick: usize) -> usize {
    let scaled = (full as f64 * settings.scale).round() as usize;
    if settings.quick { scaled.min(quick) } else { scaled }.max(1)
}

/// Repeats of a quick experiment, at most.
const QUICK_REPEATS: u32 = 3;

/// A turn of one variant.
struct Turn<'a, V> {
    variant: &'a V,
    /// Which variant.
    place: usize,
    /// 0: a warm-up that does not count.
    repeat: u32,
    /// The present run, for people.
    what: String,
    /// Share of all turns that are done.
    done: f64,
}

/// Returns all turns from repeat `first` on; not more than `most` repeats if quick.
fn turns<'a, V: Display>(
    settings: &Settings,
    variants: &'a [V],
    first: u32,
    most: u32,
) -> impl Iterator<Item = Turn<'a, V>> {
    let most = if settings.quick { most } else { u32::MAX };
    let repeats = settings.repeats.clamp(1, most);
    let total = f64::from(repeats + 1 - first) * variants.len() as f64;
    let places = (first..=repeats)
        .flat_map(move |repeat| variants.iter().enumerate().map(move |(at, of)| (repeat, at, of)));
    places.zip(0..).map(move |((repeat, place, variant), done)| {
        let what = match repeat {
            0 => format!("{variant}, warm-up"),
            _ => format!("{variant}, repeat {repeat} of {repeats}"),
        };
        Turn { variant, place, repeat, what, done: f64::from(done) / total }
    })
}

/// Runs every variant once as a warm-up that does not count, then as often as `settings` want, at
/// most [`QUICK_REPEATS`] times if quick.
///
/// `once` runs a variant in the repeat of this number, 0 being the warm-up, and adds what it
/// measured.
///
/// # Errors
/// That of the first run that fails.
pub(crate) fn alternate<V: Display>(
    settings: &Settings,
    progress: Progress<'_>,
    variants: &[V],
    mut once: impl FnMut(&V, u64, &mut Samples) -> Result<(), Error>,
) -> Result<Samples, Error> {
    let (mut warm_up, mut samples) = (Samples::default(), Samples::default());
    for Turn { variant, repeat, what, done, .. } in turns(settings, variants, 0, QUICK_REPEATS) {
        progress(&what, done);
        let samples = if repeat == 0 { &mut warm_up } else { &mut samples };
        once(variant, repeat.into(), samples)?;
    }
    Ok(samples)
}

/// Why something has no figures.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A tool or a right that it needs is missing: it is left out.
    Missing(String),
    /// The experiment ends.
    Failed(Error),
}

impl From<Error> for Fault {
    fn from(source: Error) -> Self {
        Self::Failed(source)
    }
}

impl From<io::Error> for Fault {
    fn from(source: io::Error) -> Self {
        Self::Failed(source.into())
    }
}

/// The outcome.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) samples: Samples,
    /// What was left out, and why; which contestants returned wrong bytes.
    pub(crate) notes: Vec<String>,
    /// How busy the machine was at the start.
    load: Option<String>,
}

impl Found {
    /// Nothing yet: the experiment begins.
    pub(crate) fn nothing() -> Self {
        Self { load: load_remark(), ..Self::default() }
    }

    /// Returns the outcome of an experiment, with the document's figures.
    pub(crate) fn outcome(
        self,
        experiment: &'static str,
        title: &str,
        published: &[Published],
        remarks: Vec<String>,
    ) -> Outcome {
        let all = [self.notes, remarks, self.load.into_iter().collect()];
        self.samples.outcome(experiment, title, published, all.concat())
    }
}

/// Runs every contestant of a section once in each repeat: once only if quick. One of which
/// something is missing is left out from then on.
///
/// # Errors
/// The first [`Fault::Failed`].
pub(crate) fn in_turns<V: Display>(
    settings: &Settings,
    (section, progress): (&str, Progress<'_>),
    variants: &[V],
    found: &mut Found,
    mut once: impl FnMut(&V, u32, &mut Samples) -> Result<(), Fault>,
) -> Result<(), Error> {
    let mut missing = vec![false; variants.len()];
    for Turn { variant, place, repeat, what, done } in turns(settings, variants, 1, 1) {
        if missing[place] {
            continue;
        }
        progress(&format!("{section}, {what}"), done);
        match once(variant, repeat, &mut found.samples) {
            Ok(()) => {}
            Err(Fault::Missing(reason)) => {
                missing[place] = true;
                found.notes.push(format!("SKIPPED: {section}, {variant}: {reason}."));
            }
            Err(Fault::Failed(error)) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::tiny;
    use std::sync::Mutex;

    #[test]
    fn variants_alternate_and_the_warm_up_does_not_count() {
        let (order, told) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let tell = |what: &str, share: f64| told.lock().unwrap().push((what.to_owned(), share));
        let settings = Settings { repeats: 2, quick: false, ..tiny() };
        let samples = alternate(&settings, &tell, &["a", "b"], |variant, repeat, samples| {
            order.lock().unwrap().push((*variant, repeat));
            samples.push(variant, 1, "time", "s", repeat as f64);
            Ok(())
        });
        let samples = samples.unwrap();
        let expected = [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)];
        assert_eq!(order.into_inner().unwrap(), expected);
        assert_eq!(samples.repeats("b", 1, "time"), [1.0, 2.0]);
        assert!(samples.repeats("b", 2, "time").is_empty());
        let told = told.into_inner().unwrap();
        assert_eq!(told[0], ("a, warm-up".to_owned(), 0.0));
        assert_eq!(told[5], ("b, repeat 2 of 2".to_owned(), 5.0 / 6.0));
    }

    #[test]
    fn sizes_follow_the_scale_and_quick_bounds_them() {
        let settings = Settings { scale: 0.5, quick: false, ..tiny() };
        assert_eq!((sized(&settings, 100, 10), sized(&settings, 1, 1)), (50, 1));
        let quick = Settings { quick: true, ..settings };
        assert_eq!((sized(&quick, 100, 10), sized(&quick, 10, 10)), (10, 5));
        let none = Settings { scale: 0.0, ..quick };
        assert_eq!(sized(&none, 100, 10), 1);
    }

    #[test]
    fn what_is_missing_is_left_out_and_what_fails_ends_all() {
        let (settings, mut found) =
            (Settings { quick: false, repeats: 3, ..tiny() }, Found::default());
        let mut order = Vec::new();
        let once = |variant: &&str, repeat, samples: &mut Samples| {
            order.push(format!("{variant} {repeat}"));
            match *variant {
                "absent" => Err(Fault::Missing("nobody installed it".to_owned())),
                "broken" if repeat == 2 => Err(Error::Other("it broke".to_owned()).into()),
                variant => {
                    samples.push(variant, 1, "x", "s", 1.0);
                    Ok(())
                }
            }
        };
        let tell: (&str, Progress<'_>) = ("toys", &|_, _| ());
        let ended = in_turns(&settings, tell, &["absent", "good", "broken"], &mut found, once);
        assert_eq!(ended.unwrap_err().to_string(), "it broke");
        assert_eq!(order, ["absent 1", "good 1", "broken 1", "good 2", "broken 2"]);
        assert_eq!(found.notes, ["SKIPPED: toys, absent: nobody installed it."]);
        assert_eq!(found.samples.repeats("good", 1, "x").len(), 2);
    }
}
