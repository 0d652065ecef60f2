//! `zfold compare`: from typed arguments to a plan, its inputs, its run and its report.

use zfold_compare::compare::{self, Allocator, Fault, Plan, Record, RunError, report};
use zfold_compare::input::{InputError, PageSet, Sampling};
use zfold_console::format::Format;
use zfold_store::CodecKind;

use crate::args::CompareArgs;
use crate::shared::exit::{self, Failure};
use crate::shared::progress::Progress;
use crate::shared::size::format_size;
use crate::shared::terminal::terminal_width;

/// Runs the requested comparison and writes its results to stdout.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let plan = plan(args);
    let inputs = inputs(args, &plan)?;
    let records = with_progress(|progress| compare::run(&plan, &inputs, progress))?;
    match args.format {
        Format::Json => exit::write_data(report::json(&records).as_bytes()),
        Format::Csv => exit::write_records(&report::csv(&records)),
        Format::Table => exit::write_text(&report::table(&records, terminal_width())),
    }
}

/// Returns what to compare: the preset, or the kernel's and zfold's own, overridden by what was
/// typed.
fn plan(args: &CompareArgs) -> Plan {
    let mut plan = args.preset.map_or_else(Plan::default, Plan::of_preset);
    if args.preset.is_none() {
        plan.allocators.push(Allocator::Fit);
        plan.codecs.push(CodecKind::Page.into());
    }
    if !args.allocators.is_empty() {
        plan.allocators = without_doubles(&args.allocators);
    }
    if !args.codecs.is_empty() {
        plan.codecs = without_doubles(&args.codecs);
    }
    plan.page_size = args.page_size.unwrap_or(plan.page_size);
    plan.chain = args.chain.unwrap_or(plan.chain);
    plan.limit_bytes = args.limit;
    plan.seed = args.seed;
    plan
}

/// Returns the inputs that were named, in the order of the help; the built-in ones without any.
fn inputs(args: &CompareArgs, plan: &Plan) -> Result<Vec<PageSet>, Failure> {
    let page_size = plan.page_size.bytes();
    let sampling = Sampling { limit_bytes: args.sample, seed: args.seed };
    let mut inputs = Vec::new();
    for path in &args.file {
        inputs.push(PageSet::from_file(path, page_size, sampling).map_err(input_failure)?);
    }
    if let Some(pid) = args.pid {
        inputs.push(PageSet::from_process(pid, page_size, sampling).map_err(input_failure)?);
    }
    if inputs.is_empty() {
        inputs = PageSet::builtin(page_size).collect();
    }
    for input in inputs.iter().filter(|input| input.population() > input.len() as u64) {
        let (name, taken, all) = (input.name(), input.len(), input.population());
        let limit = format_size(args.sample);
        exit::remark(&format!(
            "{name} is large: taking a random sample of {taken} of its {all} pages (--sample \
             {limit})"
        ));
    }
    Ok(inputs)
}

/// Runs `work` with a progress bar.
fn with_progress<F>(work: F) -> Result<Vec<Record>, Failure>
where
    F: FnOnce(compare::Progress<'_>) -> Result<Vec<Record>, RunError>,
{
    let bar = Progress::begin();
    work(&|step| bar.show(step.what, step.done as f64 / step.total as f64)).map_err(run_failure)
}

fn without_doubles<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    let mut kept = Vec::new();
    for item in list {
        if !kept.contains(item) {
            kept.push(*item);
        }
    }
    kept
}

/// Returns what is wrong with an input, and the remedy.
fn input_failure(error: InputError) -> Failure {
    let remedy = match &error {
        InputError::Unreadable { .. } => {
            "give a readable file, or no input to use the built-in captures".to_owned()
        }
        InputError::Empty { .. } => "give a file with at least one page".to_owned(),
        InputError::NoProcess { .. } => "give the number of a running process".to_owned(),
        InputError::NotPermitted { pid } => format!(
            "run as the same user with ptrace allowed (kernel.yama.ptrace_scope=0), or as root: \
             sudo zfold compare --pid {pid}"
        ),
        InputError::NoAnonymousMemory { .. } => {
            "give a process that is neither a kernel thread nor exiting".to_owned()
        }
        _ => "try another input".to_owned(),
    };
    Failure::new(format!("{error}; {remedy}"))
}

/// Returns what went wrong in a run, and the remedy where there is one.
fn run_failure(error: RunError) -> Failure {
    match &error.fault {
        Fault::LimitTooLow { .. } => Failure::new(format!("{error}; raise --limit")),
        _ => Failure::new(error.to_string()),
    }
}
