//! How an experiment is run: its variants in turn, threads that start together, what a run cost.

use std::fmt::Display;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{Error, Figure, Progress, Settings};

/// A figure of a document: variant, workers, metric, value.
pub(super) type Published = (&'static str, u32, &'static str, f64);

/// Returns how many of something there are: `full` at scale 1, at most `quick` of them if the
/// experiment should be quick, at least one.
pub(super) fn sized(settings: &Settings, full: usize, quick: usize) -> usize {
    let scaled = (full as f64 * settings.scale).round() as usize;
    if settings.quick { scaled.min(quick) } else { scaled }.max(1)
}

/// Repeats of a quick experiment, at most.
const QUICK_REPEATS: u32 = 3;

/// Runs every variant once as a warm-up that does not count, then as often as `settings` want, at
/// most [`QUICK_REPEATS`] times if quick: one after the other within each repeat, so that all see
/// the same machine.
///
/// `once` runs a variant in the repeat of this number, 0 being the warm-up, and adds what it
/// measured.
///
/// # Errors
/// That of the first run that fails.
pub(super) fn alternate<V: Display>(
    settings: &Settings,
    progress: Progress<'_>,
    variants: &[V],
    mut once: impl FnMut(&V, u64, &mut Samples) -> Result<(), Error>,
) -> Result<Samples, Error> {
    let most = if settings.quick { QUICK_REPEATS } else { u32::MAX };
    let repeats = settings.repeats.clamp(1, most);
    let total = (repeats as usize + 1) * variants.len();
    let (mut warm_up, mut samples) = (Samples::default(), Samples::default());
    for repeat in 0..=repeats {
        for (place, variant) in variants.iter().enumerate() {
            let done = repeat as usize * variants.len() + place;
            let (turn, samples) = match repeat {
                0 => ("warm-up".to_owned(), &mut warm_up),
                _ => (format!("repeat {repeat} of {repeats}"), &mut samples),
            };
            progress(&format!("{variant}, {turn}"), done as f64 / total as f64);
            once(variant, repeat.into(), samples)?;
        }
    }
    Ok(samples)
}

/// What was measured: the repeats of every metric of every variant, in the order in which they
/// first came.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Series>);

#[derive(Debug)]
struct Series {
    variant: String,
    workers: u32,
    metric: String,
    unit: &'static str,
    repeats: Vec<f64>,
}

impl Samples {
    /// Adds one repeat.
    pub(super) fn push(
        &mut self,
        variant: &str,
        workers: u32,
        metric: &str,
        unit: &'static str,
        value: f64,
    ) {
        if let Some(series) = self.0.iter_mut().find(|series| series.is(variant, workers, metric)) {
            series.repeats.push(value);
        } else {
            let (variant, metric) = (variant.to_owned(), metric.to_owned());
            self.0.push(Series { variant, workers, metric, unit, repeats: vec![value] });
        }
    }

    /// Returns the repeats of a metric; none if nothing was added.
    pub(super) fn repeats(&self, variant: &str, workers: u32, metric: &str) -> &[f64] {
        let found = self.0.iter().find(|series| series.is(variant, workers, metric));
        found.map_or(&[], |series| &series.repeats)
    }

    /// Returns the figures, those of one metric together, with what the document says of them.
    pub(super) fn figures(&self, experiment: &'static str, published: &[Published]) -> Vec<Figure> {
        let mut series: Vec<&Series> = self.0.iter().collect();
        let first_of = |metric: &str| self.0.iter().position(|series| series.metric == metric);
        series.sort_by_key(|series| first_of(&series.metric));
        let figure = |series: &Series| {
            let Series { variant, workers, metric, unit, repeats } = series;
            let figure = Figure::measured(experiment, variant, *workers, metric, unit, repeats);
            let value = published.iter().find(|(v, w, m, _)| series.is(v, *w, m));
            value.map_or(figure.clone(), |&(.., value)| figure.with_published(value))
        };
        series.into_iter().map(figure).collect()
    }
}

impl Series {
    fn is(&self, variant: &str, workers: u32, metric: &str) -> bool {
        (&*self.variant, self.workers, &*self.metric) == (variant, workers, metric)
    }
}

/// Runs `prepare` and then `work` on each of `threads` threads, told their number from 0; none
/// begins its work before all are prepared. Returns what `work` returned, by number, and the time
/// from the first beginning to the last end.
///
/// # Errors
/// That of the thread of the lowest number that fails; the others run to their end.
///
/// # Panics
/// If a thread panics or cannot be started.
pub(super) fn together<P, R: Send>(
    threads: u32,
    prepare: impl Fn(u32) -> Result<P, Error> + Sync,
    work: impl Fn(u32, P) -> Result<R, Error> + Sync,
) -> Result<(Vec<R>, Duration), Error> {
    /// Waits for the others when dropped, which a panic does, too.
    struct Ready<'a>(&'a Barrier);
    impl Drop for Ready<'_> {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let barrier = Barrier::new(threads as usize);
    let run = |number| {
        let ready = Ready(&barrier);
        let prepared = prepare(number);
        drop(ready);
        let start = Instant::now();
        let result = prepared.and_then(|prepared| work(number, prepared));
        (start, Instant::now(), result)
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || run(n))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let start = ended.iter().map(|(start, ..)| *start).min();
    let end = ended.iter().map(|(_, end, _)| *end).max();
    let elapsed = end.zip(start).map_or(Duration::ZERO, |(end, start)| end - start);
    let results: Result<Vec<R>, Error> = ended.into_iter().map(|(.., result)| result).collect();
    Ok((results?, elapsed))
}

/// What a run cost, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) real: f64,
    /// Processor time of all threads in user mode, in steps of a clock tick.
    pub(super) user: f64,
    /// The same in the kernel.
    pub(super) sys: f64,
}

/// Says what [`Cost`] cannot.
pub(super) const COST_REMARK: &str =
    "User and sys times are those of the process in steps of 10 ms, the kernel's clock tick.";

/// Runs `work` and returns its result and cost.
///
/// # Errors
/// That of `work`, or [`Error::Io`] if `/proc` cannot be read.
pub(super) fn cost_of<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<(R, Cost), Error> {
    let (user_before, sys_before) = processor_time()?;
    let start = Instant::now();
    let result = work()?;
    let real = start.elapsed().as_secs_f64();
    let (user, sys) = processor_time()?;
    Ok((result, Cost { real, user: user - user_before, sys: sys - sys_before }))
}

/// Returns the processor time of this process, ended threads included: user and system, in
/// seconds.
fn processor_time() -> Result<(f64, f64), Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let times = parse_processor_time(&stat, 14);
    times.ok_or_else(|| Error::Other("/proc/self/stat has no processor times".to_owned()))
}

/// Returns the processor time of all descendants that have ended and been waited for, as
/// [`processor_time`] does that of this process.
///
/// # Errors
/// [`Error::Io`] if `/proc` cannot be read.
pub(super) fn children_time() -> Result<(f64, f64), Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let times = parse_processor_time(&stat, 16);
    times.ok_or_else(|| Error::Other("/proc/self/stat has no times of children".to_owned()))
}

/// Returns the times in a `/proc/PID/stat` text, in clock ticks: two fields from `first`, counted
/// from 1. Fields 14 and 15 are those of the process, 16 and 17 those of its children.
fn parse_processor_time(stat: &str, first: usize) -> Option<(f64, f64)> {
    /// Of what the kernel tells user space, on every architecture that Rust's library runs on.
    const TICKS_PER_SECOND: f64 = 100.0;
    // The second field is the program's name in brackets, which may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(first - 3).map(str::parse::<u32>);
    let mut next = || Some(f64::from(ticks.next()?.ok()?) / TICKS_PER_SECOND);
    Some((next()?, next()?))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Display;
    use std::sync::Mutex;

    use super::*;
    use crate::experiment::Outcome;

    /// Settings of the smallest experiment.
    pub(in super::super) fn tiny() -> Settings {
        Settings { scale: 0.01, repeats: 1, quick: true, seed: 1, program: None, project: None }
    }

    /// Asserts what holds of every outcome: figures of `experiment` only, finite, not negative,
    /// those of one metric together, and all of `published` among them.
    pub(in super::super) fn check_outcome(
        outcome: &Outcome,
        experiment: &str,
        published: &[Published],
    ) {
        assert_eq!(outcome.experiment, experiment);
        assert!(!outcome.title.is_empty() && !outcome.figures.is_empty());
        for figure in &outcome.figures {
            assert_eq!((figure.experiment, figure.repeats), (experiment, 1));
            assert!(figure.value.is_finite() && figure.value >= 0.0, "{figure:?}");
            assert!(figure.workers > 0 && !figure.simulated, "{figure:?}");
        }
        let mut metrics: Vec<&str> = outcome.figures.iter().map(|f| &*f.metric).collect();
        let distinct = metrics.iter().collect::<BTreeSet<_>>().len();
        metrics.dedup();
        assert_eq!(metrics.len(), distinct, "{metrics:?}");
        for (variant, workers, metric, value) in published {
            let of = |f: &&Figure| f.variant == *variant && f.metric == *metric;
            let found = outcome.figures.iter().filter(of).find(|f| f.workers == *workers);
            let found = found.unwrap_or_else(|| panic!("{variant}, {workers}, {metric}"));
            assert_eq!(found.published, Some(*value));
        }
        let beside = outcome.figures.iter().filter(|figure| figure.published.is_some());
        assert_eq!(beside.count(), published.len());
    }

    /// Asserts that an outcome has no figures and names all sides of a part as left out.
    pub(in super::super) fn check_left_out(outcome: &Outcome, part: &str, sides: &[impl Display]) {
        assert!(outcome.figures.is_empty());
        for side in sides {
            let skipped = format!("SKIPPED: {part}, {side}: ");
            let named = outcome.remarks.iter().any(|remark| remark.starts_with(&skipped));
            assert!(named, "{skipped}: {:?}", outcome.remarks);
        }
    }

    /// Returns the value of a figure.
    pub(in super::super) fn value(outcome: &Outcome, variant: &str, metric: &str) -> f64 {
        let of = |figure: &&Figure| figure.variant == variant && figure.metric == metric;
        let found = outcome.figures.iter().find(of);
        found.unwrap_or_else(|| panic!("no {metric} of {variant}")).value
    }

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
    fn figures_of_one_metric_stand_together_with_what_was_published() {
        let mut samples = Samples::default();
        for (variant, metric, value) in
            [("a", "x", 1.0), ("a", "y", 2.0), ("b", "x", 3.0), ("b", "y", 4.0), ("a", "x", 2.0)]
        {
            samples.push(variant, 2, metric, "s", value);
        }
        let figures = samples.figures("test", &[("b", 2, "x", 7.0), ("b", 3, "y", 8.0)]);
        let row = |f: &Figure| (f.variant.clone() + &f.metric, f.value, f.published);
        let expected = [
            ("ax".to_owned(), 1.5, None),
            ("bx".to_owned(), 3.0, Some(7.0)),
            ("ay".to_owned(), 2.0, None),
            ("by".to_owned(), 4.0, None),
        ];
        assert_eq!(figures.iter().map(row).collect::<Vec<_>>(), expected);
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
    fn threads_begin_when_all_are_prepared() {
        let prepared = Mutex::new(0);
        let prepare = |number| {
            *prepared.lock().unwrap() += 1;
            Ok(number * 10)
        };
        let work = |number: u32, ten: u32| {
            assert_eq!(*prepared.lock().unwrap(), 3);
            std::thread::sleep(Duration::from_millis(5));
            Ok(number + ten)
        };
        let (results, elapsed) = together(3, prepare, work).unwrap();
        assert_eq!(results, [0, 11, 22]);
        assert!(elapsed >= Duration::from_millis(5));
        let fails = |number| match number {
            1 => Err(Error::Other("one fails".to_owned())),
            _ => Ok(()),
        };
        let error = together(3, fails, |_, ()| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "one fails");
    }

    #[test]
    #[should_panic(expected = "in preparation")]
    fn a_panic_before_the_start_ends_all_threads() {
        let prepare = |number| if number == 1 { panic!("in preparation") } else { Ok(()) };
        let _ = together(2, prepare, |_, ()| Ok(()));
    }

    #[test]
    fn processor_times_follow_the_name_whatever_it_is() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 100 0 0 0 250 31 8 9 20 0 1 0 5 6 7";
        assert_eq!(parse_processor_time(stat, 14), Some((2.5, 0.31)));
        assert_eq!(parse_processor_time(stat, 16), Some((0.08, 0.09)));
        assert_eq!(parse_processor_time("7 (a) R 1 7", 14), None);
    }

    #[test]
    fn work_costs_processor_time() {
        let (count, cost) = cost_of(|| {
            let (start, mut count) = (Instant::now(), 0_u64);
            while start.elapsed() < Duration::from_millis(200) {
                count += 1;
            }
            Ok(count)
        })
        .unwrap();
        assert!(count > 0 && cost.real >= 0.2, "{cost:?}");
        assert!(cost.user + cost.sys > 0.0, "{cost:?}");
    }
}
