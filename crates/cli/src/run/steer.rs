//! The control socket of a run, at which `zfold ps`, `stat` and `ctl` ask.

use serde_json::{Value, json};
use zfold_disk::nbd::{Address, Listener};
use zfold_vmem::run::Control;

use super::plan::RunPlan;
use crate::control::protocol::{self, Request};
use crate::control::runtime;
use crate::control::service::Service;
use crate::control::state::{LIMIT_MIN, RunState, SCHEMA};
use crate::shared::size::{format_size, parse_size};

/// What pages may stay when all are asked to leave: the least limit.
const LEAST: u64 = LIMIT_MIN;

/// Answers at the control socket of a run until the returned value is dropped. Without a runtime
/// directory of this user's there is no socket, and the run goes on without.
pub(super) fn serve(control: Control, front: u32, plan: &RunPlan) -> Option<Service> {
    runtime::sweep();
    let listener = Listener::bind(&Address::Unix(runtime::run_path(front).ok()?)).ok()?;
    let words = std::iter::once(&plan.program).chain(&plan.args);
    let command: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let steered = Steered { control, front, command: command.join(" ") };
    Service::start(listener, protocol::TERMS, move |stream| {
        // No request ends a run.
        let _ = protocol::answer(stream, &|request| Ok((steered.answer(&request)?, false)));
    })
    .ok()
}

/// A run that is asked.
struct Steered {
    control: Control,
    front: u32,
    command: String,
}

impl Steered {
    /// Carries out a request.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    fn answer(&self, request: &Request) -> Result<Value, String> {
        let words: Vec<&str> = request.arguments.iter().map(String::as_str).collect();
        match (&*request.command, &words[..]) {
            ("stat" | "get", []) => Ok(self.state()),
            ("set", [_, ..]) => {
                let limits = words.iter().map(|word| limit(word));
                // The last one counts, once all of them are right.
                if let Some(bytes) = limits.collect::<Result<Vec<u64>, String>>()?.last() {
                    self.control.set_limit(*bytes);
                }
                Ok(self.state())
            }
            ("page-out", []) => Ok(json!({ "resident_bytes": self.control.page_out(LEAST) })),
            (name, _) => {
                Err(format!("a run knows get, set limit=SIZE, page-out and stat, not '{name}'"))
            }
        }
    }

    fn state(&self) -> Value {
        let state = self.control.state();
        let state = RunState {
            schema: SCHEMA.to_owned(),
            pid: self.front,
            command: self.command.clone(),
            limit_bytes: state.limit_bytes,
            resident_bytes: state.resident_bytes,
            stored_pages_bytes: state.stored_pages_bytes,
            stored_bytes: state.stored_bytes,
            spaces: state.spaces,
            managed: state.managed,
            unmanaged_total: state.unmanaged_total,
            faults_total: state.faults_total,
            refaults_total: state.refaults_total,
            loads_total: state.loads_total,
            evictions_total: state.evictions_total,
            over_limit_total: state.over_limit_total,
            fault_p50_ns: state.fault_p50_ns,
            fault_p99_ns: state.fault_p99_ns,
        };
        serde_json::to_value(state).expect("numbers and text are JSON")
    }
}

/// Returns the bytes of `limit=SIZE`.
fn limit(word: &str) -> Result<u64, String> {
    let size = word.strip_prefix("limit=");
    let size = size.ok_or_else(|| format!("'{word}' is not limit=SIZE, which a run can set"))?;
    match parse_size(size)? {
        bytes if bytes < LIMIT_MIN => Err(format!(
            "{word} is too small to work with: give {} or more",
            format_size(LIMIT_MIN)
        )),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_sizes_that_a_run_can_work_with() {
        assert_eq!(limit("limit=64M"), Ok(64 << 20));
        for (word, told) in
            [("limit=1MiB", "4MiB or more"), ("codec=lz4", "limit=SIZE"), ("limit=x", "a size is")]
        {
            assert!(limit(word).expect_err(word).contains(told), "{word}");
        }
    }
}
