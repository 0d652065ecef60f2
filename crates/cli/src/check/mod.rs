//! `zfold check`: what this system grants, and what to do about the rest.

pub(crate) mod need;
mod others;

use std::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use crate::args::CheckArgs;
use crate::run;
use crate::shared::exit::{self, Failure};
use need::{Need, Use};

/// Name of the form of the JSON document.
const SCHEMA: &str = "zfold.check/1";

/// The document.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// Whether `zfold run` works.
    run: bool,
    needs: &'a [Need],
}

/// Writes what was found to stdout. The status is that of `zfold run`: 0 if it works, else 1.
pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let mut needs = run::needs();
    needs.extend(others::others());
    let works = works(&needs, Use::Run);
    match args.json {
        true => {
            let document = Document { schema: SCHEMA, run: works, needs: &needs };
            let json = serde_json::to_string(&document).expect("text is JSON") + "\n";
            exit::write_data(json.as_bytes())?;
        }
        false => exit::write_text(&text(&needs))?,
    }
    Ok(ExitCode::from(u8::from(!works)))
}

/// Returns whether nothing is missing that something cannot do without.
pub(crate) fn works(needs: &[Need], of: Use) -> bool {
    !needs.iter().any(|need| need.blocks(of))
}

fn text(needs: &[Need]) -> String {
    let verdict = if works(needs, Use::Run) { "works" } else { "does not work" };
    format!("{}\nzfold run {verdict} here.\n", lines(needs))
}

/// Returns what a run lacks, with what grants it; nothing if it lacks nothing.
pub(crate) fn lacking(missing: &[Need]) -> String {
    match missing {
        [] => String::new(),
        missing => format!("What it lacks, and what grants it:\n\n{}", lines(missing)),
    }
}

fn lines(needs: &[Need]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for need in needs {
        let uses: Vec<&str> = need.needed_by.iter().map(|of| of.name()).collect();
        let state = match (need.found, need.required) {
            (true, _) => "found",
            (false, true) => "MISSING",
            (false, false) => "without",
        };
        let _ = writeln!(text, "{state:<8} {:<26} for {}", need.name, uses.join(", "));
        if !need.found {
            let _ = writeln!(text, "         {}", need.detail);
            for remedy in &need.remedies {
                let _ = writeln!(text, "           {remedy}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_required_is_no_obstacle() {
        let found = Need::new::<&str>("a", &[Use::Run], true, Ok(""), &[]);
        let without = Need::new::<&str>("b", &[Use::Run], false, Err("less".to_owned()), &[]);
        let remedies = ["do this".to_owned()];
        let missing = Need::new("c", &[Use::Fuse], true, Err("why".to_owned()), &remedies);
        let needs = [found, without, missing];
        assert!(works(&needs, Use::Run) && !works(&needs, Use::Fuse));
        let text = text(&needs);
        for part in
            ["MISSING  c ", "for disk --fuse\n         why\n           do this\n", "works here."]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}
