//! Variants of an experiment in turn: one after the other within each repeat, so that all see the
//! same machine. A variant of which something is missing is left out from then on, and named.

use std::fmt::Display;

use crate::experiment::error::Error;
use crate::experiment::harness::samples::Samples;
use crate::experiment::outcome::{Progress, Settings};

/// Repeats of a quick experiment, at most.
const QUICK_REPEATS: u32 = 3;

/// Returns how many of something there are: `full` at scale 1, at most `quick` of them if the
/// experiment should be quick, at least one.
pub(crate) fn sized(settings: &Settings, full: usize, quick: usize) -> usize {
    let scaled = (full as f64 * settings.scale).round() as usize;
    if settings.quick { scaled.min(quick) } else { scaled }.max(1)
}

/// Runs every variant once as a warm-up that does not count, then as often as `settings` want, at
/// most [`QUICK_REPEATS`] times if quick.
///
/// `once` runs a variant in the repeat of this number, 0 being the warm-up, and adds what it
/// measured.
///
/// # Errors
/// That of the first run that fails, unless it is [`Error::Missing`].
pub(crate) fn alternate<V: Display>(
    settings: &Settings,
    progress: Progress<'_>,
    variants: &[V],
    samples: &mut Samples,
    once: impl FnMut(&V, u64, &mut Samples) -> Result<(), Error>,
) -> Result<(), Error> {
    let repeats = if settings.quick { QUICK_REPEATS } else { u32::MAX };
    turns(progress, variants, samples, 0..=settings.repeats.clamp(1, repeats), once)
}

/// Runs every variant as often as `settings` want, once if quick, and without a warm-up: the
/// variants are whole programs.
///
/// # Errors
/// As [`alternate`].
pub(crate) fn alternate_programs<V: Display>(
    settings: &Settings,
    progress: Progress<'_>,
    variants: &[V],
    samples: &mut Samples,
    once: impl FnMut(&V, u64, &mut Samples) -> Result<(), Error>,
) -> Result<(), Error> {
    let repeats = if settings.quick { 1 } else { settings.repeats.max(1) };
    turns(progress, variants, samples, 1..=repeats, once)
}

fn turns<V: Display>(
    progress: Progress<'_>,
    variants: &[V],
    samples: &mut Samples,
    repeats: std::ops::RangeInclusive<u32>,
    mut once: impl FnMut(&V, u64, &mut Samples) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut warm_up, mut left_out) = (Samples::default(), vec![false; variants.len()]);
    let (last, all) = (*repeats.end(), repeats.clone().count() * variants.len());
    let turns = repeats.flat_map(|repeat| (0..variants.len()).map(move |place| (repeat, place)));
    for (done, (repeat, place)) in turns.enumerate() {
        let variant = &variants[place];
        if left_out[place] {
            continue;
        }
        let what = match repeat {
            0 => format!("{variant}, warm-up"),
            _ => format!("{variant}, repeat {repeat} of {last}"),
        };
        progress(&what, done as f64 / all as f64);
        let to = if repeat == 0 { &mut warm_up } else { &mut *samples };
        match once(variant, repeat.into(), to) {
            Err(Error::Missing(reason)) => {
                left_out[place] = true;
                samples.remarks.push(format!("SKIPPED: {variant}: {reason}."));
            }
            ended => ended?,
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
        let mut samples = Samples::default();
        let once = |variant: &&str, repeat, samples: &mut Samples| {
            order.lock().unwrap().push(format!("{variant}{repeat}"));
            samples.push(variant, 1, "time", "s", repeat as f64);
            Ok(())
        };
        alternate(&settings, &tell, &["a", "b"], &mut samples, once).unwrap();
        assert_eq!(order.into_inner().unwrap(), ["a0", "b0", "a1", "b1", "a2", "b2"]);
        assert_eq!(samples.repeats("b", 1, "time"), [1.0, 2.0]);
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
        let settings = Settings { quick: false, repeats: 3, ..tiny() };
        let (mut order, mut samples) = (Vec::new(), Samples::default());
        let once = |variant: &&str, repeat, samples: &mut Samples| {
            order.push(format!("{variant} {repeat}"));
            match *variant {
                "absent" => Err(Error::Missing("nobody installed it".to_owned())),
                "broken" if repeat == 2 => Err(Error::Other("it broke".to_owned())),
                variant => {
                    samples.push(variant, 1, "x", "s", 1.0);
                    Ok(())
                }
            }
        };
        let variants = ["absent", "good", "broken"];
        let ended = alternate_programs(&settings, &|_, _| (), &variants, &mut samples, once);
        assert_eq!(ended.unwrap_err().to_string(), "it broke");
        assert_eq!(order, ["absent 1", "good 1", "broken 1", "good 2", "broken 2"]);
        assert_eq!(samples.remarks, ["SKIPPED: absent: nobody installed it."]);
        assert_eq!(samples.repeats("good", 1, "x").len(), 2);
    }
}
