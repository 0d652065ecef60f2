//! `zfold demo`: a program alone, then in a quarter of its memory, with the same result.
//!
//! The program is zfold itself ([`mod@work`]), started as another process and measured from outside
//! ([`watch`]). Its limit is that of a `zfold run`; where none is permitted, that of a `Region`.

mod figures;
mod view;
mod watch;
mod work;

use rustix::param::page_size;

use crate::args::{DemoArgs, Format};
use crate::check::need::{Need, Use};
use crate::check::{lacking, works};
use crate::run;
use crate::shared::exit::{self, Failure};
use crate::shared::size::at_least;
use figures::{Document, SCHEMA, Way, text};
use view::View;
use watch::Started;

pub(crate) use work::{NAME, work};

/// A quarter of this is the least limit of a run.
const SIZE_MIN: u64 = 16 << 20;

/// Shows the demo.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    at_least("--size", args.size.0, SIZE_MIN)?;
    let page = page_size() as u64;
    let size = args.size.0 / page * page;
    let limit = size / 4;
    let needs = run::needs();
    let missing: Vec<Need> = match works(&needs, Use::Run) {
        true => Vec::new(),
        false => needs.into_iter().filter(|need| need.blocks(Use::Run)).collect(),
    };
    let way = if missing.is_empty() { Way::Run } else { Way::Region };
    let view = View::new();
    let alone = Started::alone(size)?.follow(&view, "alone", None)?;
    let limited = match way {
        Way::Run => Started::under_run(size, limit)?,
        Way::Region => Started::with_region(size, limit)?,
    };
    let limited = limited.follow(&view, "in a quarter", Some(limit))?;
    drop(view);
    let same = alone.checksum == limited.checksum;
    let document = Document {
        schema: SCHEMA,
        way,
        size_bytes: size,
        limit_bytes: limit,
        alone,
        limited,
        same,
        missing: &missing,
    };
    match args.format {
        Format::Json => {
            let json = serde_json::to_string(&document).expect("numbers and text are JSON") + "\n";
            exit::write_data(json.as_bytes())?;
        }
        Format::Table => exit::write_text(&(text(&document) + &lacking(&missing)))?,
    }
    match same {
        true => Ok(()),
        false => Err(Failure::new(
            "the program had another result in a quarter of its memory: please report this, with \
             the output of zfold check",
        )),
    }
}
