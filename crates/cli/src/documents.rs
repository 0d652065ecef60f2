//! Tests that the tables of documents are those of the declared figures. They write them, too:
//! `ZFOLD_WRITE_DOCS=1 cargo test -p zfold documents`.

use std::fs;
use std::path::Path;

use zfold_disk::DiskStats;
use zfold_disk::nbd::NbdStats;
use zfold_far::FarStats;
use zfold_figures::{Doc, Figure, Figures};

use crate::disk::figures::DiskFigures;

/// The line that ends a table in a document.
const END: &str = "<!-- end -->\n";

/// Checks that a page has this text between `<!-- name -->` and the end, or writes it there.
fn check(page: &str, name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use");
    if !folder.exists() {
        // The crate alone has no documents.
        return;
    }
    let path = folder.join(page);
    let whole = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = whole.split_once(&begin).expect("a place for the table");
    let (found, after) = rest.split_once(END).expect("an end of the table");
    if found == text {
        return;
    }
    if std::env::var_os("ZFOLD_WRITE_DOCS").is_some() {
        let whole = format!("{before}{begin}{text}{END}{after}");
        return fs::write(&path, whole).expect("the page can be written");
    }
    panic!(
        "docs/use/{page}: the {name} differ from the declared ones. To update them, run\n\n    \
            ZFOLD_WRITE_DOCS=1 cargo test -p zfold documents\n"
    );
}

/// Returns the table of figures that have a state, a report, or both.
fn table<F: Figures>() -> String {
    let name = |figure: &Figure<F>, doc| {
        figure.field(doc).map(|field| format!("`{}`", field.name)).unwrap_or_default()
    };
    let shown = |figure: &&Figure<F>| {
        [Doc::State, Doc::Report].iter().any(|doc| figure.field(*doc).is_some())
    };
    let line = |figure: &Figure<F>| {
        let mut state = name(figure, Doc::State);
        if figure.has_rate() {
            state += &format!(", `{}_per_second`", figure.short_name());
        }
        let (report, kind) = (name(figure, Doc::Report), figure.kind.name());
        let line = format!("| {state} | {report} | {kind} | {} |", figure.meaning);
        line.replace("|  |", "| |") + "\n"
    };
    let head = "| state, rate | report | kind | meaning |\n|:--|:--|:--|:--|\n";
    head.to_owned() + &F::ALL.iter().filter(shown).map(line).collect::<String>()
}

/// Returns the table of all figures, by their names.
fn list<F: Figures>() -> String {
    let line = |figure: &Figure<F>| {
        format!("| `{}` | {} | {} |\n", figure.name, figure.kind.name(), figure.meaning)
    };
    let head = "| name | kind | meaning |\n|:--|:--|:--|\n";
    head.to_owned() + &F::ALL.iter().map(line).collect::<String>()
}

/// Returns the lines of a table of the fields of a group, without its name.
fn lines<F: Figures>(group: &str) -> String {
    let line = |figure: &Figure<F>| {
        let name = figure.field(Doc::State).filter(|field| field.group == group)?.name;
        let metric = figure.metric().map(|metric| format!("`{metric}`")).unwrap_or_default();
        let line = format!("| `{name}` | {metric} | {} | {} |", figure.kind.name(), figure.meaning);
        Some(line.replace("|  |", "| |") + "\n")
    };
    F::ALL.iter().filter_map(line).collect()
}

const HEAD: &str = "| name | metric | kind | meaning |\n|:--|:--|:--|:--|\n";

#[test]
fn documents_have_the_figures_of_disks() {
    let of = |group| lines::<DiskFigures>(group) + &lines::<DiskStats>(group);
    for (name, text) in [
        ("figures of nbd", lines::<NbdStats>("")),
        ("figures of the device", of("")),
        ("figures of mm_stat", of("mm_stat")),
        ("figures of io_stat and bd_stat", of("io_stat") + &of("bd_stat")),
        ("figures of zswap", of("zswap")),
        ("figures of requests", of("device")),
        ("figures of the store", of("store")),
        ("figures of far", lines::<FarStats>("")),
    ] {
        check("stats.md", name, &(HEAD.to_owned() + &text));
    }
}

#[test]
fn documents_have_the_figures_of_regions() {
    check("memory-region.md", "figures of regions", &list::<zfold_region::MemoryStats>());
}

#[test]
fn documents_have_the_figures_of_guests() {
    let all = [lines::<zfold_guest::Served>(""), lines::<zfold_guest::Given>("")];
    check("guests.md", "figures of a server", &(HEAD.to_owned() + &all[0]));
    check("guests.md", "figures of guests", &(HEAD.to_owned() + &all[1]));
}

#[test]
fn documents_have_the_figures_of_runs() {
    check("stats-run.md", "figures of runs", &table::<zfold_run::Figures>());
    check("stats-run.md", "figures of touched memory", &list::<zfold_run::Touched>());
}
