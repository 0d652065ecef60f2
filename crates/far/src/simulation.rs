//! The whole tier under faults: one seed is one run.
//!
//! A run writes, reads, discards and cleans. Time is virtual; the engine has faults and is absent
//! for a while. While the engine works at one call, other calls come in between, as from other
//! threads: a read may meet a write, a discard and the cleaner; a write may meet the cleaner, and
//! others elsewhere. The model knows which contents a unit may have.
//!
//! Checked of each run: a read brings what was written, or fails because of a fault; nothing is
//! sent to an absent engine but a probe; after all is well again, every acknowledged unit comes
//! back, every write succeeds, what is stored is at most twice what lives and the small objects,
//! and the engine holds nothing else; after the end it holds nothing. Where there was no fault, no
//! failure is counted.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use zfold_store::backing::AlignedBuffer;
use zfold_store::pool::Lock;
use zfold_testing::Random;

use crate::cleaner::Round;
use crate::far::Far;
use crate::link::Failure;
use crate::log::{Piece, Span};
use crate::map::UNIT;
use crate::options::FarOptions;
use crate::testing::{SimEngine, SimFaults};
use crate::twin::{Twin, broken, with};

const UNITS: u32 = 1536;

/// Steps of a run.
const STEPS: u32 = 250;

/// Calls within calls within calls.
const DEPTH_MAX: usize = 2;

/// What a unit may hold.
#[derive(Clone, Debug, Default)]
struct Unit {
    versions: Vec<u32>,
    /// It may also be nothing.
    empty: bool,
}

#[derive(Debug)]
struct Model {
    units: Vec<Unit>,
    version: u32,
    /// Changes of units, by time: what a read that met them may bring. `None`: discarded.
    changes: Vec<(u32, Option<u32>)>,
    /// What is being written.
    busy: Vec<Span>,
    cleaning: bool,
    depth: usize,
    random: Random,
    wrong: Option<String>,
}

struct Run {
    far: Far,
    engine: Arc<SimEngine>,
    model: Lock<Model>,
    round: Lock<(Instant, Round)>,
    /// The engine is absent for a while.
    leaves: bool,
}

fn content(unit: u32, version: u32) -> [u8; UNIT] {
    let mut bytes = [0; UNIT];
    Random::new(u64::from(unit) << 32 | u64::from(version)).fill(&mut bytes);
    bytes
}

impl Run {
    fn new(seed: u64, faults: SimFaults) -> Arc<Self> {
        let engine = Arc::new(SimEngine::new(seed, faults));
        let options = FarOptions::new(u64::from(UNITS) * UNIT as u64)
            .with_deadline(Duration::from_secs(3600))
            .with_backoff(Duration::ZERO);
        let far = Far::new(Arc::clone(&engine) as _, options).unwrap();
        let model = Model {
            units: vec![Unit { empty: true, ..Unit::default() }; UNITS as usize],
            version: 0,
            changes: Vec::new(),
            busy: Vec::new(),
            cleaning: false,
            depth: 0,
            random: Random::new(seed ^ 0x5eed),
            wrong: None,
        };
        let round = Lock::new((Instant::now(), Round::default()));
        let leaves = !seed.is_multiple_of(6);
        let run = Arc::new(Self { far, engine, model: Lock::new(model), round, leaves });
        let weak: Weak<Self> = Arc::downgrade(&run);
        run.engine.on_calls(move || {
            if let Some(run) = weak.upgrade() {
                run.between();
            }
        });
        run
    }

    fn below(&self, end: u32) -> u32 {
        self.model.lock().random.below(end.into()) as u32
    }

    fn span(&self) -> Span {
        let longest = [4, 4, 30, 200][self.below(4) as usize];
        let unit = self.below(UNITS);
        Span { unit, len: (1 + self.below(longest)).min(UNITS - unit) }
    }

    fn wrong(&self, what: String) {
        self.model.lock().wrong.get_or_insert(what);
    }

    /// What other threads do while the engine works.
    fn between(&self) {
        if self.model.lock().depth < DEPTH_MAX && self.below(4) == 0 {
            self.model.lock().depth += 1;
            self.step();
            self.model.lock().depth -= 1;
        }
    }

    fn step(&self) {
        match self.below(20) {
            0..=6 => self.write(self.span()),
            7..=12 => self.read(self.span()),
            13..=14 => self.discard(self.span()),
            15 => self.engine.set_absent(self.below(3) == 0 && self.leaves),
            _ => self.tend(),
        }
    }

    fn write(&self, span: Span) {
        let version = {
            let mut model = self.model.lock();
            let meets =
                |busy: &Span| busy.unit < span.unit + span.len && span.unit < busy.unit + busy.len;
            if model.busy.iter().any(meets) {
                return;
            }
            model.busy.push(span);
            model.version += 1;
            let version = model.version;
            model.changes.extend((0..span.len).map(|at| (span.unit + at, Some(version))));
            version
        };
        let units = span.units();
        let mut data = AlignedBuffer::new(span.len as usize * UNIT);
        for (bytes, unit) in data.chunks_exact_mut(UNIT).zip(units.clone()) {
            bytes.copy_from_slice(&content(unit, version));
        }
        let absent = self.far.link.absent();
        let written = self.far.write(span.unit, &data);
        if absent && self.model.lock().depth == 0 && written.is_ok() {
            self.wrong("a write went to an absent engine".into());
        }
        let mut model = self.model.lock();
        model.busy.retain(|busy| *busy != span);
        for unit in units {
            let unit = &mut model.units[unit as usize];
            match &written {
                Ok(()) => *unit = Unit { versions: vec![version], empty: false },
                Err(_) => unit.versions.push(version),
            }
        }
        drop(model);
        if written.is_err() && self.below(2) == 0 {
            self.discard(span);
        }
    }

    fn discard(&self, span: Span) {
        let mut model = self.model.lock();
        let meets =
            |busy: &Span| busy.unit < span.unit + span.len && span.unit < busy.unit + busy.len;
        if model.busy.iter().any(meets) {
            return;
        }
        for unit in span.units() {
            model.units[unit as usize] = Unit { versions: Vec::new(), empty: true };
            model.changes.push((unit, None));
        }
        drop(model);
        self.far.discard(span);
    }

    fn read(&self, span: Span) {
        let (begun, before) = {
            let model = self.model.lock();
            let units = &model.units[span.unit as usize..][..span.len as usize];
            // A write that is under way may be seen, or seen in part.
            (model.changes.len(), units.to_vec())
        };
        let under_way = self.model.lock().busy.clone();
        let version = self.model.lock().version;
        let faults = self.engine.faults_total();
        let mut out = AlignedBuffer::new(span.len as usize * UNIT);
        out.fill(0xdd);
        let read = self.far.read(span.unit, &mut out);
        let failed = self.engine.faults_total() > faults;
        let model = self.model.lock();
        let met = &model.changes[begun..];
        let mut may_fail = failed;
        for (at, bytes) in (0..span.len).zip(out.chunks_exact(UNIT)) {
            let (unit, known) = (span.unit + at, &before[at as usize]);
            let writes = under_way.iter().any(|busy| busy.units().contains(&unit));
            let changed = met.iter().any(|&(changed, _)| changed == unit);
            may_fail |= known.empty || changed || writes;
            let ever = |version: u32| bytes == content(unit, version);
            let right = known.versions.iter().any(|&version| ever(version))
                || met.iter().any(|&(u, new)| u == unit && new.is_some_and(ever))
                || (writes && (1..=version).any(ever));
            if read.is_ok() && !right {
                drop(model);
                return self.wrong(format!("unit {unit} brought other bytes"));
            }
        }
        drop(model);
        if let (Err(error), false) = (read, may_fail) {
            self.wrong(format!("a read of {span:?} failed without a reason: {error}"));
        }
    }

    fn tend(&self) {
        if std::mem::replace(&mut self.model.lock().cleaning, true) {
            return;
        }
        let mut held = self.round.lock();
        let (now, round) = &mut *held;
        *now += Duration::from_millis(250);
        let now = *now;
        self.far.tend(now, round);
        drop(held);
        self.model.lock().cleaning = false;
    }

    /// Makes all well, and checks what must be then.
    fn recover(&self) -> Result<(), String> {
        self.engine.set_faults(SimFaults::default());
        self.engine.set_absent(false);
        self.model.lock().depth = DEPTH_MAX;
        for _ in 0..60 {
            self.tend();
        }
        if self.far.link.absent() {
            return Err("the engine is there and was not found again".into());
        }
        for unit in 0..UNITS {
            self.read(Span { unit, len: 1 });
        }
        for unit in (0..UNITS).step_by(97) {
            self.write(Span { unit, len: 1 });
            self.read(Span { unit, len: 1 });
        }
        if let Some(wrong) = self.model.lock().wrong.take() {
            return Err(wrong);
        }
        self.engine.settle();
        // Doubtful numbers are as old as two deadlines.
        self.round.lock().0 += Duration::from_secs(3600);
        self.tend();
        self.round.lock().0 += Duration::from_secs(3600);
        self.tend();
        self.tidy()
    }

    fn tidy(&self) -> Result<(), String> {
        let stats = self.far.stats();
        let small = 64 << 10;
        if stats.dead_objects > 0 {
            return Err(format!("{} dead objects are left", stats.dead_objects));
        }
        if self.engine.objects() != stats.objects + self.engine.ghosts() {
            return Err(format!("{} objects instead of {stats:?}", self.engine.objects()));
        }
        if stats.object_bytes > 2 * stats.live_bytes + small {
            return Err(format!("what is dead is not cleaned: {stats:?}"));
        }
        self.far.remove_all();
        match self.engine.objects() - self.engine.ghosts() {
            0 => Ok(()),
            left => Err(format!("{left} objects are left at the end")),
        }
    }
}

impl Far {
    /// For twins of the cleaner: does what must wait for the acknowledgement of the copy of `kept`.
    pub(crate) fn rewrite_early(&self, kept: &[Piece], plain: &[u8]) -> Result<(), Failure> {
        if broken(Twin::DeletesEarly) {
            let numbers: Vec<u64> = kept.iter().map(|piece| piece.spot.number).collect();
            let _ = self.link.delete(&numbers, self.until());
        }
        if broken(Twin::MapsEarly) {
            let number = self.log().begin();
            let _ = self.log().relocate(number, kept);
            let mut sealed = Vec::new();
            self.sealer.seal(number, 0, plain, &mut sealed);
            self.link.put(number, &sealed, self.until())?;
        }
        Ok(())
    }
}

/// Runs one seed; returns what went wrong.
fn simulate(seed: u64) -> Result<Arc<Run>, String> {
    // Every third run has no faults but interruptions, every sixth an engine that never leaves, and
    // every third many faults.
    let rate = [0, 15, 60][(seed % 3) as usize];
    let run = Run::new(seed, SimFaults::all(rate));
    for _ in 0..STEPS {
        run.step();
        if let Some(wrong) = run.model.lock().wrong.take() {
            return Err(wrong);
        }
    }
    run.recover()?;
    // A read that meets the cleaner looks again, which is nobody's failure.
    let failures = run.far.stats().failures_total;
    if run.engine.faults_total() == 0 && failures > 0 {
        return Err(format!("{failures} failures without a fault"));
    }
    Ok(run)
}

fn seeds() -> std::ops::Range<u64> {
    let of = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    match of("ZFOLD_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..of("ZFOLD_SIM_SEEDS").unwrap_or(1000),
    }
}

#[test]
fn a_thousand_seeds_bring_no_wrong_byte() {
    let mut reads = 0;
    let (mut cleaned, mut absences, mut forged) = (0, 0, 0);
    for seed in seeds() {
        let run = simulate(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        let stats = run.far.stats();
        reads += stats.gets_total;
        cleaned += stats.cleaned_bytes_total;
        absences += stats.absences_total;
        forged += stats.forged_total;
    }
    println!(
        "{reads} gets, {cleaned} bytes cleaned, {absences} absences, \
         {forged} forged"
    );
    let all = [reads, cleaned, absences, forged];
    assert!(seeds().count() == 1 || all.iter().all(|&sum| sum > 0));
}

/// Each step that is done wrongly in a twin is found by one of the seeds.
#[test]
fn broken_twins_are_found() {
    for twin in [
        Twin::DeletesEarly,
        Twin::MapsEarly,
        Twin::MovesBlindly,
        Twin::ReusesNumbers,
        Twin::OpensAnything,
        Twin::NeverLooksAgain,
    ] {
        let found = (0..1000).find_map(|seed| {
            let wrong = with(twin, || simulate(seed)).err()?;
            Some(format!("seed {seed}: {wrong}"))
        });
        println!("{twin:?} is found by {}", found.expect("one of a thousand seeds"));
    }
}
