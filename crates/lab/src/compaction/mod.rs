//! Compaction: many callers or one at a time, how long one call takes, and how many objects it
//! copies.
//!
//! After "zsmalloc: allow only one active pool compaction context" (2023) and, for the copies, the
//! kernel's change of the compaction algorithm and of the fullness groups in the same year:
//! - `pressure`: threads insert and free, and under memory pressure they and others call `compact`,
//!   as direct reclaim does. The counts of the pool's locks, and the cost of counting.
//! - `one_call`: a half of a pool is freed at random, then one call compacts it beside a thread
//!   that goes on working.
//! - `copies`: a synthetic test whose figure is a count and does not depend on the machine.

mod copies;
mod foreground;
mod one_call;
mod pressure;

use crate::experiment::content::Content;
use crate::experiment::{Error, Outcome, Progress, Settings};
pub use foreground::NAME;

/// Shares of the time that the parts take, roughly, for progress.
const SHARES: [f64; 3] = [0.75, 0.2, 0.05];

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a pool cannot be made or refuses a call, or a byte comes back wrong.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let content = &Content::all();
    let part = |place: usize| {
        let (before, own) = (SHARES[..place].iter().sum::<f64>(), SHARES[place]);
        move |what: &str, share: f64| progress(what, before + own * share)
    };
    let pressure = pressure::run(settings, content, &part(0))?;
    let one_call = one_call::run(settings, content, &part(1))?;
    let copies = copies::run(settings, content, &part(2))?;
    let figures = [
        pressure.figures(NAME, &pressure::PUBLISHED),
        one_call.figures(NAME, &[]),
        copies.figures(NAME, &copies::PUBLISHED),
    ];
    let remarks =
        [pressure::remarks(settings), one_call::remarks(settings), copies::remarks(settings)];
    Ok(Outcome {
        experiment: NAME,
        title: "compaction of a zsmalloc pool: how many at a time, how long, how many copies"
            .to_owned(),
        figures: figures.concat(),
        histograms: Vec::new(),
        remarks: remarks.concat(),
    })
}

#[cfg(test)]
mod tests {
    use super::foreground::Foreground;
    use super::*;
    use crate::experiment::harness::Published;
    use crate::experiment::harness::testing::{check_outcome, tiny};
    use zfold_compare::latency::Latency;

    #[test]
    fn all_parts_have_their_figures() {
        let told = std::sync::Mutex::new(Vec::new());
        let tell = |_: &str, share: f64| told.lock().unwrap().push(share);
        let outcome = run(&tiny(), &tell).unwrap();
        let published: Vec<Published> =
            pressure::PUBLISHED.into_iter().chain(copies::PUBLISHED).collect();
        check_outcome(&outcome, NAME, &published);
        let told = told.into_inner().unwrap();
        assert!(told.is_sorted() && told[0] == 0.0 && told[told.len() - 1] < 1.0, "{told:?}");
    }

    #[test]
    fn foreground_notices_a_wrong_byte() {
        let options = zfold_pool::PoolOptions::new(zfold_pool::Allocator::Zsmalloc);
        let pool = &*zfold_pool::create(NAME, &options).unwrap();
        let (content, mut times) = (Content::all(), Latency::new());
        let mut foreground = Foreground::new(pool, &content, 8, 1).unwrap();
        for _ in 0..100 {
            foreground.step(0, 4, &mut times).unwrap();
        }
        assert!(times.count() > 100);
        let wrong = foreground.keeper.overwrite_all(b"wrong");
        assert!(wrong > 0);
        let all = (0..100).try_for_each(|_| foreground.step(0, 4, &mut times));
        assert!(matches!(all, Err(Error::WrongBytes { experiment: NAME, .. })));
    }
}
