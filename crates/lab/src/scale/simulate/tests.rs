//! Tests of the simulator.

use super::*;

/// One cluster in which a line costs 50 ns.
const MACHINE: Machine = Machine {
    cluster: 256,
    transfer_ns: 50.0,
    far_factor: 4.0,
    fair: false,
    look_ns: 20.0,
    waiter_transfers: 0.5,
    patience_ns: f64::INFINITY,
    yield_ns: 500.0,
};

fn one_lock() -> Family {
    Family::Weighted(vec![1.0])
}

fn hold(ns: f64, moved_ns: f64) -> Step {
    Step::Hold { share: 1.0, family: 0, ns, moved_ns }
}

/// A round of `work` ns and a hold of `ns` under one lock.
fn locked(work: f64, ns: f64) -> Vec<Step> {
    vec![Step::Work { ns: work }, hold(ns, 0.0)]
}

/// Rounds a second of `cores` cores.
fn throughput(machine: &Machine, family: Family, program: &[Step], cores: u32) -> f64 {
    let crew = Crew { cores, program: program.to_vec() };
    let result = run(machine, &[family], &[crew], 20_000, 1);
    20_000.0 / result.elapsed_ns * 1e9
}

fn assert_close(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.03, "{value} is not about {expected}");
}

#[test]
fn a_seed_names_one_result_and_every_core_gets_on() {
    for cores in [2, 8, 128] {
        let crews = [Crew { cores, program: locked(50.0, 50.0) }];
        let rounds = u64::from(cores) * 500;
        let result = |seed| run(&MACHINE, &[one_lock()], &crews, rounds, seed);
        assert_eq!(result(1), result(1));
        assert_ne!(result(1), result(2));
        assert_eq!(result(3).rounds.iter().sum::<u64>(), rounds);
        let least = result(3).rounds.iter().min().copied().unwrap_or(0);
        assert!(least > 100, "{least} rounds of the unluckiest of {cores}");
    }
}

#[test]
fn cores_that_share_nothing_add_up_and_a_lock_bounds_them_by_its_hold() {
    assert_close(throughput(&MACHINE, one_lock(), &locked(60.0, 40.0), 1), 1e7);
    for cores in [2, 16, 128] {
        let own = throughput(&MACHINE, Family::Own, &locked(60.0, 40.0), cores);
        assert_close(own, 1e7 * f64::from(cores));
        let rate = throughput(&MACHINE, one_lock(), &locked(200.0, 100.0), cores);
        assert!(rate <= 1.01e7, "{rate} with {cores} cores");
    }
    let free = Machine { transfer_ns: 0.0, look_ns: 0.0, ..MACHINE };
    assert_close(throughput(&free, one_lock(), &locked(200.0, 100.0), 16), 1e7);
    // Three quarters of all rounds queue at one of these locks.
    let weighted = Family::Weighted(vec![0.0, 3.0, 1.0]);
    let rate = |family| throughput(&MACHINE, family, &locked(10.0, 100.0), 16);
    let (one, two) = (rate(one_lock()), rate(weighted));
    assert!(two > 1.1 * one && two < 1.6 * one, "{two} {one}");
}

#[test]
fn waiters_and_distance_cost_throughput() {
    let program = [Step::Work { ns: 200.0 }, hold(100.0, 50.0)];
    let rate = |machine: &Machine, cores| throughput(machine, one_lock(), &program, cores);
    assert!(rate(&MACHINE, 64) < 0.5 * rate(&MACHINE, 4), "the crowd at the word");
    let far = Machine { cluster: 4, ..MACHINE };
    assert!(rate(&far, 16) < 0.9 * rate(&MACHINE, 16));
    let queued = Machine { waiter_transfers: 0.0, fair: true, ..MACHINE };
    assert!(rate(&queued, 64) > 2.0 * rate(&MACHINE, 64));
    // A lock that is held for a quarter of the time, as the pool lock of z3fold, and lists.
    let ticket = Machine { fair: true, ..far };
    let program = [Step::Work { ns: 750.0 }, hold(250.0, 100.0)];
    let rate = |family, cores| throughput(&ticket, family, &program, cores);
    assert!(rate(one_lock(), 8) < 0.9 * rate(one_lock(), 4));
    assert!(rate(Family::Own, 8) > 1.9 * rate(Family::Own, 4));
}

#[test]
fn a_counter_and_lines_of_others_are_fetched() {
    let count = Step::Count { share: 1.0 };
    let program = [Step::Work { ns: 10.0 }, count];
    // The counter goes from core to core, one at a time.
    assert_close(throughput(&MACHINE, Family::Own, &program, 16), 1e9 / 50.0);
    let program = [Step::Work { ns: 100.0 }, Step::Fetch { ns: 100.0 }];
    // Three of four were written by another core.
    let rate = throughput(&MACHINE, Family::Own, &program, 4) / 4.0;
    assert_close(rate, 1e9 / 175.0);
}

#[test]
fn a_second_crew_runs_until_the_first_is_done_and_shares_are_of_rounds() {
    let seldom = Step::Hold { share: 0.25, family: 0, ns: 10.0, moved_ns: 0.0 };
    let crews = [
        Crew { cores: 2, program: vec![Step::Work { ns: 1000.0 }, seldom] },
        Crew { cores: 1, program: vec![Step::Work { ns: 20.0 }] },
    ];
    let result = run(&MACHINE, &[one_lock()], &crews, 20_000, 1);
    assert_eq!(result.rounds[..2].iter().sum::<u64>(), 20_000);
    assert!(result.rounds[2] > 100_000, "{:?}", result.rounds);
    assert_close(result.acquisitions[0] as f64 / 20_000.0, 0.25);
    assert!(result.contentions[0] < result.acquisitions[0]);
}
