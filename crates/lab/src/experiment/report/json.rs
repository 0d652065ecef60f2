//! Figures as one JSON document.

use serde::Serialize;

use crate::experiment::machine::Machine;
use crate::experiment::{Figure, Outcome};

/// Version of the document; it changes when a field goes or changes its meaning.
pub const SCHEMA: &str = "zfold.lab/1";

/// Returns the JSON document, ended by a newline: schema, machine, and a record per figure.
pub fn json(machine: &Machine, outcomes: &[Outcome]) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'static str,
        machine: &'a Machine,
        records: Vec<&'a Figure>,
    }
    let records = outcomes.iter().flat_map(|outcome| &outcome.figures).collect();
    let document = Document { schema: SCHEMA, machine, records };
    let mut text = serde_json::to_string_pretty(&document).expect("figures have plain fields");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::experiment::machine::tests::machine;
    use crate::experiment::report::testing::outcome;

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().expect("an object").keys().map(String::as_str).collect()
    }

    #[test]
    fn documents_have_these_keys_in_this_order_and_figures_as_they_were() {
        let document: Value = serde_json::from_str(&json(&machine(), &[outcome()])).expect("JSON");
        assert_eq!(keys(&document), ["schema", "machine", "records"]);
        assert_eq!(document["schema"], "zfold.lab/1");
        let of_machine = ["cpu_model", "cpus", "memory_bytes", "os", "kernel", "zfold_version"];
        assert_eq!(keys(&document["machine"]), of_machine);
        let of_record = "experiment variant workers metric unit value min max repeats published \
                         simulated";
        let records = document["records"].as_array().expect("records");
        assert_eq!(records.len(), 5);
        assert!(records.iter().all(|record| keys(record).join(" ") == of_record));
        let [first, _, third, ..] = &records[..] else { panic!("{records:?}") };
        assert_eq!((&first["value"], &first["published"]), (&1100.5.into(), &900.0.into()));
        assert_eq!((&first["repeats"], &first["simulated"]), (&3.into(), &false.into()));
        assert_eq!((&third["published"], &third["simulated"]), (&Value::Null, &true.into()));
    }
}
