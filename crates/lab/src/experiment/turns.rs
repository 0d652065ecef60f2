//! Contestants outside this process, of which any may be missing: each in its turn, what is not
//! there left out and named.

use std::fmt::Display;
use std::io;

use super::harness::Samples;
use super::{Error, Progress, Settings};

/// Why something has no figures.
#[derive(Debug)]
pub(super) enum Fault {
    /// A tool or a right that it needs is missing: it is left out.
    Missing(String),
    /// Another program gave wrong bytes back: a remark says so, beside its figures.
    Flawed(String),
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

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) samples: Samples,
    /// What was left out, and why; who gave wrong bytes back.
    pub(super) notes: Vec<String>,
}

/// Runs every contestant of a section once in each repeat: once only if quick. One of which
/// something is missing is left out from then on.
///
/// # Errors
/// The first [`Fault::Failed`].
pub(super) fn in_turns<V: Display>(
    settings: &Settings,
    (section, progress): (&str, Progress<'_>),
    variants: &[V],
    found: &mut Found,
    mut once: impl FnMut(&V, u32, &mut Samples) -> Result<(), Fault>,
) -> Result<(), Error> {
    let repeats = if settings.quick { 1 } else { settings.repeats.max(1) };
    let total = f64::from(repeats) * variants.len() as f64;
    let (mut missing, mut flawed) = (vec![false; variants.len()], vec![false; variants.len()]);
    for repeat in 1..=repeats {
        for (place, variant) in variants.iter().enumerate() {
            if missing[place] {
                continue;
            }
            let done = f64::from(repeat - 1) * variants.len() as f64 + place as f64;
            let what = format!("{section}, {variant}, repeat {repeat} of {repeats}");
            progress(&what, done / total);
            match once(variant, repeat, &mut found.samples) {
                Ok(()) => {}
                Err(Fault::Missing(reason)) => {
                    missing[place] = true;
                    found.notes.push(format!("SKIPPED: {section}, {variant}: {reason}."));
                }
                Err(Fault::Flawed(what)) => {
                    if !std::mem::replace(&mut flawed[place], true) {
                        found.notes.push(format!("WRONG BYTES: {section}, {variant}: {what}."));
                    }
                }
                Err(Fault::Failed(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::harness::tests::tiny;
    use super::*;

    #[test]
    fn what_is_missing_is_left_out_and_what_fails_ends_all() {
        let (settings, mut found) =
            (Settings { quick: false, repeats: 3, ..tiny() }, Found::default());
        let mut order = Vec::new();
        let once = |variant: &&str, repeat, samples: &mut Samples| {
            order.push(format!("{variant} {repeat}"));
            match *variant {
                "absent" => Err(Fault::Missing("nobody installed it".to_owned())),
                "flawed" => Err(Fault::Flawed(format!("byte {repeat}"))),
                "broken" if repeat == 2 => Err(Error::Other("it broke".to_owned()).into()),
                variant => {
                    samples.push(variant, 1, "x", "s", 1.0);
                    Ok(())
                }
            }
        };
        let tell: (&str, Progress<'_>) = ("toys", &|_, _| ());
        let ended =
            in_turns(&settings, tell, &["absent", "good", "flawed", "broken"], &mut found, once);
        assert_eq!(ended.unwrap_err().to_string(), "it broke");
        assert_eq!(
            order,
            ["absent 1", "good 1", "flawed 1", "broken 1", "good 2", "flawed 2", "broken 2",]
        );
        let notes =
            ["SKIPPED: toys, absent: nobody installed it.", "WRONG BYTES: toys, flawed: byte 1."];
        assert_eq!(found.notes, notes);
        assert_eq!(found.samples.repeats("good", 1, "x").len(), 2);
    }
}
