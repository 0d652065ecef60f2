//! The answers of an outcome, in a sentence for each metric: the best contestant beside the first.

use super::grid::{grouped, metric, metrics, number, variant};
use crate::experiment::Figure;

/// Returns a sentence for each metric with several contestants and a best one, at the largest
/// number of workers.
pub(super) fn answers(figures: &[Figure]) -> Vec<String> {
    metrics(figures).iter().filter_map(|group| answer(group)).collect()
}

/// Which values of a unit are better.
enum Better {
    Less,
    More,
}

fn better(unit: &str) -> Option<Better> {
    match unit {
        "ns" | "us" | "µs" | "ms" | "s" | "bytes" | "KiB" | "MiB" | "pages" => Some(Better::Less),
        unit if unit.ends_with("/s") => Some(Better::More),
        // For a count, unknown.
        _ => None,
    }
}

fn answer(group: &[&Figure]) -> Option<String> {
    let better = better(group[0].unit)?;
    let by_workers = grouped(group.iter().copied(), |figure| (figure.workers, figure.simulated));
    let most = by_workers.into_iter().max_by_key(|of| (of[0].workers, !of[0].simulated))?;
    let (base, rivals) = most.split_first()?;
    let order = |one: &&&Figure, other: &&&Figure| one.value.total_cmp(&other.value);
    let finite = rivals.iter().filter(|figure| figure.value.is_finite());
    let best = match better {
        Better::Less => finite.min_by(order),
        Better::More => finite.max_by(order),
    }?;
    if base.value <= 0.0 || !base.value.is_finite() {
        return None;
    }
    let ratio = number(best.value / base.value, 2);
    let (verb, loses) = match better {
        Better::Less => ("takes", best.value > base.value),
        Better::More => ("reaches", best.value < base.value),
    };
    let workers = match base.workers {
        1 => String::new(),
        workers => format!(" with {workers} workers"),
    };
    let (metric, base_name, name) = (metric(base), variant(base), variant(best));
    // Repeats that overlap say nothing about which is better.
    let overlap = best.min <= base.max && base.min <= best.max;
    Some(if overlap {
        format!(
            "{metric}: {name} {verb} {ratio} of {base_name}{workers}; their repeats overlap, so \
             this is no difference."
        )
    } else if loses {
        format!("{metric}: {base_name} is best{workers}; {name}, the next, {verb} {ratio} of it.")
    } else {
        let best_of = if rivals.len() > 1 { ", the best," } else { "" };
        format!("{metric}: {name}{best_of} {verb} {ratio} of {base_name}{workers}.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(variant: &str, unit: &'static str, values: &[f64]) -> Figure {
        Figure::measured("free", variant, 2, "work", unit, values)
    }

    #[test]
    fn the_best_is_named_beside_the_first() {
        let times = [("a", 4.0), ("b", 2.0), ("c", 3.0)].map(|(v, t)| figure(v, "ms", &[t]));
        assert_eq!(answers(&times), ["work, ms: b, the best, takes 0.50 of a with 2 workers."]);
        let slower = [("b", 2.0), ("a", 4.0), ("c", 3.0)].map(|(v, t)| figure(v, "ms", &[t]));
        assert_eq!(
            answers(&slower),
            ["work, ms: b is best with 2 workers; c, the next, takes 1.50 of it."]
        );
        let rates = [("a", 4.0), ("b", 6.0)].map(|(v, r)| figure(v, "MiB/s", &[r]));
        assert_eq!(answers(&rates), ["work, MiB/s: b reaches 1.50 of a with 2 workers."]);
    }

    #[test]
    fn noise_is_no_answer_and_counts_have_none() {
        let close = [figure("a", "s", &[1.0, 3.0]), figure("b", "s", &[2.0, 2.5])];
        assert!(answers(&close)[0].ends_with("so this is no difference."), "{:?}", answers(&close));
        assert!(answers(&[figure("a", "count", &[1.0]), figure("b", "count", &[2.0])]).is_empty());
        assert!(answers(&[figure("a", "s", &[1.0])]).is_empty());
    }
}
