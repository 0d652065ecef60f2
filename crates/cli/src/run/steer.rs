//! The control socket of a run, for `zfold ps`, `stat` and `ctl`.

use std::sync::Arc;

use serde_json::{Value, json};
use zfold_disk::nbd::{Address, Listener};
use zfold_far::FarBacking;
use zfold_run::{Control, GroupLimit, LIMIT_MIN};
use zfold_store::{CodecError, CodecSpec};

use super::plan::RunPlan;
use crate::args::Limit;
use crate::control::metrics::Text;
use crate::control::protocol::{self, Request};
use crate::control::runtime;
use crate::control::service::Service;
use crate::control::state::{RunState, SCHEMA};
use crate::settings::STORE_LIMIT_MIN;
use crate::shared::far::FarReport;
use crate::shared::figures::Known;
use crate::shared::size::{Size, format_size};
use crate::shared::table::size;

/// Answers at the control socket of a run until the returned value is dropped. Without a runtime
/// directory of this user's there is no socket, and the run goes on without.
pub(super) fn serve(
    control: Control,
    front: u32,
    plan: &RunPlan,
    group: Option<GroupLimit>,
    far: Option<Arc<FarBacking>>,
) -> Option<Service> {
    runtime::sweep();
    let listener = Listener::bind(&Address::Unix(runtime::run_path(front).ok()?)).ok()?;
    let words = plan.typed.command.iter();
    let command: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let (command, codecs) = (command.join(" "), plan.codecs.clone());
    let steered = Steered { control, front, command, codecs, group, far };
    Service::start(listener.into_parts(), protocol::TERMS, move |stream| {
        // No request ends a run.
        let execute = |request| Ok((steered.answer(&request)?, false));
        let _ = protocol::answer(stream, &execute, Some(&|| steered.metrics()));
    })
    .ok()
}

/// A run that answers requests.
struct Steered {
    control: Control,
    front: u32,
    command: String,
    codecs: Vec<CodecSpec>,
    /// What sees to it that the run fits into its control group.
    group: Option<GroupLimit>,
    /// The backing, if it is on other machines.
    far: Option<Arc<FarBacking>>,
}

impl Steered {
    /// Carries out a request.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    fn answer(&self, request: &Request) -> Result<Value, String> {
        let words: Vec<&str> = request.arguments.iter().map(String::as_str).collect();
        match (&*request.command, &words[..]) {
            ("stat", []) => {
                let mut state = self.state();
                state["fault_histogram_ns"] = json!(self.control.fault_latency());
                Ok(state)
            }
            ("get", []) => Ok(self.state()),
            ("set", [_, ..]) => {
                for now in [false, true] {
                    words.iter().try_for_each(|word| self.set(word, now))?;
                }
                Ok(self.state())
            }
            ("page-out", []) => {
                let resident_bytes = self.control.page_out(LIMIT_MIN);
                Ok(json!({ "resident_bytes": resident_bytes }))
            }
            (name, _) => Err(format!(
                "a run supports get, set limit=SIZE, set store-limit=SIZE, set codec=NAME, \
                 page-out and stat, not '{name}'"
            )),
        }
    }

    /// Checks what a word sets, and sets it if that is to be done `now`.
    fn set(&self, word: &str, now: bool) -> Result<(), String> {
        let at_least = |least: u64, bytes: u64| match bytes < least {
            true => Err(format!(
                "{word} is too small to work with: give {} or more",
                format_size(least)
            )),
            false => Ok(()),
        };
        match word.split_once('=') {
            Some(("limit", value)) => match (value.parse()?, &self.group) {
                (Limit::Auto, None) => {
                    return Err("limit=auto is for zfold run, and for zfold attach --limit auto \
                                from the start"
                        .to_owned());
                }
                (Limit::Auto, Some(group)) if now => group.be_the_limit(),
                (Limit::Auto, Some(_)) => {}
                (Limit::Size(Size(bytes)), group) => {
                    at_least(LIMIT_MIN, bytes)?;
                    if now {
                        group.iter().for_each(GroupLimit::leave_limit);
                        self.control.set_limit(bytes);
                    }
                }
            },
            Some(("store-limit", value)) => {
                let Size(bytes) = value.parse()?;
                at_least(STORE_LIMIT_MIN, bytes)?;
                if now {
                    self.set_store_limit(bytes)?;
                }
            }
            Some(("codec", name)) => {
                let codec: CodecSpec =
                    name.parse().map_err(|error: CodecError| error.to_string())?;
                let known = self.codecs.iter().position(|known| *known == codec);
                let Some(number) = known else {
                    let known: Vec<_> = self.codecs.iter().map(ToString::to_string).collect();
                    return Err(format!(
                        "this run can use {}: start it with --codec {codec} for another",
                        known.join(", ")
                    ));
                };
                if now {
                    self.control.set_codec(number as u8);
                }
            }
            _ => {
                return Err(format!(
                    "'{word}' is not limit=SIZE, store-limit=SIZE or codec=NAME, which a run can \
                     set"
                ));
            }
        }
        Ok(())
    }

    fn set_store_limit(&self, bytes: u64) -> Result<(), String> {
        self.group.iter().for_each(GroupLimit::leave_store);
        self.control.set_store_limit(bytes).map_err(|held| {
            let (asked, held) = (format_size(bytes), size(held));
            format!(
                "store-limit={asked} is below the {} that compressed pages take now, and there is \
                 no backing file to take the rest: give more",
                held.trim_end()
            )
        })
    }

    fn metrics(&self) -> String {
        let (state, pid) = (self.control.state(), self.front.to_string());
        let mut text = Text::new(env!("CARGO_PKG_VERSION"));
        text.of_run(&pid, &state.figures);
        if let Some(touched) = &state.touched {
            text.of_run(&pid, touched);
        }
        text.end()
    }

    fn state(&self) -> Value {
        let state = self.control.state();
        let state = RunState {
            schema: SCHEMA.to_owned(),
            pid: self.front,
            command: self.command.clone(),
            limit_auto: self.group.as_ref().is_some_and(GroupLimit::is_auto),
            codec: self.codecs[usize::from(state.codec)].to_string(),
            far: self.far.as_deref().map(FarReport::of).map(Box::new),
            figures: state.figures,
            touched: state.touched.map(Known),
            fault_histogram_ns: Vec::new(),
        };
        serde_json::to_value(state).expect("numbers and text are JSON")
    }
}
