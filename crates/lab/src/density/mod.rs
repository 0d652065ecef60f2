//! Density: the memory that the same pages take in the kernel's zram and in stores, everything
//! included, and how long it takes to store and to load them.
//!
//! Pages come in random order, a random half of them goes, they come back, and then each is
//! replaced many times, with loads between. At each of these moments it is looked at what is held:
//! pages, idle pages, tables, slots. Pages of one repeated word, which take no memory anywhere, are
//! left out.
//!
//! Where there is no zram, or no right to use it, its rows are left out, and a remark says so. In
//! each repeat the holders run one after the other; there is no turn for warming up, since each is
//! filled first.

mod course;
mod holder;
mod pages;

use crate::experiment::content::PAGE_BYTES;
use crate::experiment::harness::turns::{Found, in_turns};
use crate::experiment::harness::{Samples, sized};
use crate::experiment::{Error, Outcome, Progress, Settings};
use course::{Course, Done, MOMENTS};
use holder::Variant;
pub use pages::NAME;
use pages::Pages;

/// Keys of a quick run, at most.
const QUICK_KEYS: usize = 1024;
/// How often each page is replaced on average; in a quick run, at most the other.
const REPLACED: [usize; 2] = [8, 4];

/// Runs the experiment.
///
/// # Errors
/// [`Error`] when a byte comes back wrong, a holder that is there fails, or pages cannot be read;
/// not when something is missing. No device is left behind, even if this process is killed.
pub fn run(settings: &Settings, progress: Progress<'_>) -> Result<Outcome, Error> {
    let (pages, mut found) = (Pages::of(&settings.pages)?, Found::nothing());
    let course = course(settings, &pages);
    in_turns(
        settings,
        ("pages held", progress),
        &Variant::ALL,
        &mut found,
        |variant, repeat, samples| {
            let seed = settings.seed.wrapping_add(repeat.into());
            let course = Course { seed, ..course };
            let holder = variant.open(course.keys)?;
            note(&variant.to_string(), &course.run(&*holder)?, samples);
            Ok(())
        },
    )?;
    let title = "the same pages in the kernel's zram and in stores: what they take";
    Ok(found.outcome(NAME, title, &[], remarks(&course)))
}

fn course<'a>(settings: &Settings, pages: &'a Pages) -> Course<'a> {
    // The number of replacements stays the same when the run is scaled.
    let [full, quick] = REPLACED;
    Course {
        pages,
        keys: sized(settings, pages.len(), QUICK_KEYS).max(2),
        replaced: if settings.quick { quick } else { full },
        seed: settings.seed,
    }
}

fn note(variant: &str, done: &Done, samples: &mut Samples) {
    let mut push = |metric: &str, unit, value| samples.push(variant, 1, metric, unit, value);
    for (moment, (pages, held)) in MOMENTS.into_iter().zip(&done.held) {
        push(&format!("{moment}: a page"), "bytes", held.bytes as f64 / *pages as f64);
        let over = held.bytes as f64 / held.payload_bytes as f64;
        push(&format!("{moment}: held over payload"), "x", over);
    }
    for (name, times) in [("store", &done.stores), ("load", &done.loads)] {
        let summary = times.summary();
        push(&format!("{name} p50"), "us", summary.p50 as f64 / 1e3);
        push(&format!("{name} p99.9"), "us", summary.p999 as f64 / 1e3);
    }
}

fn remarks(course: &Course<'_>) -> Vec<String> {
    let Course { pages, keys, replaced, .. } = course;
    vec![
        format!(
            "{keys} pages, {} MiB, of {} distinct places in memory; {} pages of one repeated word \
             are left out. They come in random order, a random half goes and comes back, and then \
             each is replaced {replaced} times on average, by another of the same pages.",
            (keys * PAGE_BYTES) >> 20,
            pages.len(),
            pages.same_filled,
        ),
        "Held is everything. Of a store: pages, idle pages, tables, slots, the working memory of \
         its codecs. Of zram: mem_used_total and the table of entries; not the 8 bytes of a handle \
         and the records of zspages, which the kernel does not tell, nor the working memory of \
         codecs. Payload is the compressed pages alone, by the same codec."
            .to_owned(),
        "A store closes holes by itself, as its shrinker does; zram does when it is asked to, in \
         the rows that say compacted. With page:deep pages are stored by page, and all are \
         compressed again before each look but those at freed halves. Times are of single calls \
         while pages are replaced: a system call past the page cache for zram."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::harness::testing::{check_outcome, tiny, value};

    #[test]
    fn every_holder_is_measured_or_named() {
        let outcome = run(&tiny(), &|_, _| ()).unwrap();
        check_outcome(&outcome, NAME, &[]);
        for variant in Variant::ALL.map(|variant| variant.to_string()) {
            if outcome.figures.iter().any(|figure| figure.variant == variant) {
                for moment in MOMENTS {
                    let over = value(&outcome, &variant, &format!("{moment}: held over payload"));
                    assert!(over > 1.0, "{variant}, {moment}: {over}");
                }
                assert!(value(&outcome, &variant, "load p99.9") > 0.0);
                continue;
            }
            let skipped = format!("SKIPPED: pages held, {variant}: ");
            let named = outcome.remarks.iter().find(|remark| remark.starts_with(&skipped));
            assert!(variant.starts_with("zram"), "{variant} needs nothing of the system");
            eprintln!("{}", named.expect("it is named"));
        }
    }

    #[test]
    fn all_stores_have_the_same_pages_and_deep_has_fewer_bytes() {
        let outcome = run(&tiny(), &|_, _| ()).unwrap();
        let bytes = |variant: &str| {
            let page = value(&outcome, variant, "filled: a page");
            page / value(&outcome, variant, "filled: held over payload")
        };
        for codec in ["lz4", "page", "page:deep", "zstd:3"] {
            // zsmalloc keeps a page as it is that would cost as much compressed.
            let [zsmalloc, fit] = ["zsmalloc", "fit"].map(|of| bytes(&format!("{of} {codec}")));
            assert!((-1e-9..0.1).contains(&(zsmalloc / fit - 1.0)), "{codec}: {zsmalloc}, {fit}");
        }
        assert!(bytes("fit page") < bytes("fit lz4"));
        assert!(bytes("fit page:deep") < bytes("fit page"));
    }

    #[test]
    fn sizes_shrink_with_the_experiment() {
        let pages = Pages::of(&[]).unwrap();
        let of = |settings: &Settings| {
            let course = course(settings, &pages);
            (course.keys, course.replaced)
        };
        let full = Settings { scale: 1.0, quick: false, ..tiny() };
        assert_eq!(of(&full), (pages.len(), 8));
        assert_eq!(of(&Settings { quick: true, ..full.clone() }), (1024, 4));
        assert_eq!(of(&Settings { scale: 4.0, ..full }), (4 * pages.len(), 8));
    }
}
