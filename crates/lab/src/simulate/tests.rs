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

fn one_lock() -> Vec<Family> {
    vec![Family::Weighted(vec![1.0])]
}

/// A round of `work` ns and a hold of `hold` ns under one lock.
fn locked(work: f64, hold: f64) -> Vec<Step> {
    let section = Step::Hold { share: 1.0, family: 0, ns: hold, moved_ns: 0.0 };
    vec![Step::Work { ns: work }, section]
}

/// Rounds a second of `cores` cores.
fn throughput(machine: &Machine, families: &[Family], program: &[Step], cores: u32) -> f64 {
    let crew = Crew { cores, program: program.to_vec() };
    run(machine, families, &[crew], 20_000, 1).rounds_per_second(cores)
}

fn assert_close(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 0.02, "{value} is not about {expected}");
}

#[test]
fn a_seed_names_one_result() {
    let result = |seed| {
        let crews = [Crew { cores: 7, program: locked(300.0, 40.0) }];
        run(&MACHINE, &one_lock(), &crews, 5_000, seed)
    };
    assert_eq!(result(1), result(1));
    assert_ne!(result(1), result(2));
}

#[test]
fn one_core_takes_the_time_of_its_steps() {
    assert_close(throughput(&MACHINE, &one_lock(), &locked(60.0, 40.0), 1), 1e7);
}

#[test]
fn cores_that_share_nothing_add_up() {
    for cores in [2, 16, 128] {
        let own = throughput(&MACHINE, &[Family::Own], &locked(60.0, 40.0), cores);
        assert_close(own, 1e7 * f64::from(cores));
    }
}

#[test]
fn a_lock_bounds_the_throughput_by_its_hold() {
    for cores in [1, 2, 4, 16] {
        let rate = throughput(&MACHINE, &one_lock(), &locked(200.0, 100.0), cores);
        assert!(rate <= 1.01e7, "{rate} with {cores} cores");
    }
    let free = Machine { transfer_ns: 0.0, look_ns: 0.0, ..MACHINE };
    assert_close(throughput(&free, &one_lock(), &locked(200.0, 100.0), 16), 1e7);
}

#[test]
fn waiting_cores_make_hand_overs_dearer() {
    let rate =
        |machine: &Machine, cores| throughput(machine, &one_lock(), &locked(1000.0, 100.0), cores);
    assert!(rate(&MACHINE, 64) < 0.5 * rate(&MACHINE, 16));
    let queued = Machine { waiter_transfers: 0.0, ..MACHINE };
    assert_close(rate(&queued, 64), rate(&queued, 32));
}

#[test]
fn a_fair_lock_lets_nobody_overtake() {
    let fair = Machine { fair: true, ..MACHINE };
    let crews = [Crew { cores: 8, program: locked(5.0, 50.0) }];
    let spread = |machine: &Machine| {
        let rounds = run(machine, &one_lock(), &crews, 4_000, 1).rounds;
        let least = rounds.iter().min().copied().unwrap_or(0);
        rounds.iter().max().copied().unwrap_or(0) - least
    };
    assert!(spread(&fair) <= 1, "{}", spread(&fair));
    assert!(spread(&MACHINE) > 20, "{}", spread(&MACHINE));
}

#[test]
fn looks_at_the_word_slow_its_holder_down() {
    // Nobody hands over for long, so that the hold is all there is.
    let rate = |machine: &Machine| throughput(machine, &one_lock(), &locked(10.0, 2000.0), 2);
    let elsewhere = Machine { waiter_transfers: 0.0, ..MACHINE };
    let factor = rate(&elsewhere) / rate(&MACHINE);
    assert!(factor > 1.5 && factor < 1.8, "{factor}");
}

#[test]
fn impatient_cores_do_not_crowd_the_word() {
    let impatient = Machine { patience_ns: 2_000.0, ..MACHINE };
    let rate = |machine: &Machine| throughput(machine, &one_lock(), &locked(1000.0, 100.0), 64);
    assert!(rate(&impatient) > 1.5 * rate(&MACHINE));
}

#[test]
fn lines_that_move_with_the_lock_lengthen_the_hold() {
    let program = |moved_ns| {
        [Step::Work { ns: 500.0 }, Step::Hold { share: 1.0, family: 0, ns: 100.0, moved_ns }]
    };
    let rate = |moved_ns, cores| throughput(&MACHINE, &one_lock(), &program(moved_ns), cores);
    assert_close(rate(200.0, 1), rate(0.0, 1));
    assert!(rate(200.0, 16) < 0.7 * rate(0.0, 16));
}

#[test]
fn other_clusters_cost_throughput() {
    let clusters = Machine { cluster: 4, ..MACHINE };
    let rate = |machine| throughput(machine, &one_lock(), &locked(100.0, 100.0), 8);
    assert!(rate(&clusters) < 0.8 * rate(&MACHINE));
    let near = |machine| throughput(machine, &one_lock(), &locked(100.0, 100.0), 4);
    assert_eq!(near(&clusters), near(&MACHINE));
}

#[test]
fn a_shared_counter_takes_one_transfer_each_time() {
    let counted = [
        Step::Work { ns: 1000.0 },
        Step::Count { share: 1.0, counter: 0 },
        Step::Count { share: 1.0, counter: 0 },
    ];
    let rate = |cores| throughput(&MACHINE, &[], &counted, cores);
    assert_close(rate(1), 1e6);
    // Both changes of a round come from the same core, one at least needs a transfer.
    let most = 1e9 / MACHINE.transfer_ns;
    assert!(rate(64) <= 1.01 * most, "{}", rate(64));
    assert!(rate(128) <= 1.01 * most && rate(128) > 0.4 * most, "{}", rate(128));
}

#[test]
fn lines_that_others_wrote_cost_by_their_distance() {
    let program = [Step::Work { ns: 100.0 }, Step::Fetch { ns: 100.0 }];
    let rate = |machine, cores| throughput(machine, &[], &program, cores) / f64::from(cores);
    assert_close(rate(&MACHINE, 1), 1e7);
    // Three of four were written by another core.
    assert_close(rate(&MACHINE, 4), 1e9 / 175.0);
    // One of two by a core of the other cluster.
    let pair = Machine { cluster: 1, ..MACHINE };
    assert_close(rate(&pair, 2), 1e9 / 300.0);
}

#[test]
fn a_lock_of_many_is_taken_by_its_weight() {
    let families = [Family::Weighted(vec![0.0, 3.0, 1.0]), Family::Weighted(vec![1.0; 8])];
    let rate = |family| {
        let hold = Step::Hold { share: 1.0, family, ns: 100.0, moved_ns: 0.0 };
        throughput(&MACHINE, &families, &[Step::Work { ns: 10.0 }, hold], 16)
    };
    let one = throughput(&MACHINE, &one_lock(), &locked(10.0, 100.0), 16);
    // Three quarters of all rounds queue at one lock.
    assert!(rate(0) > 1.1 * one && rate(0) < 1.5 * one, "{} {one}", rate(0));
    assert!(rate(1) > 3.0 * one, "{} {one}", rate(1));
}

#[test]
fn a_share_of_a_step_is_taken_in_that_share_of_rounds() {
    let hold = Step::Hold { share: 0.25, family: 0, ns: 100.0, moved_ns: 0.0 };
    let crew = Crew { cores: 3, program: vec![Step::Work { ns: 500.0 }, hold] };
    let result = run(&MACHINE, &one_lock(), &[crew], 20_000, 1);
    assert_close(result.acquisitions[0] as f64 / 20_000.0, 0.25);
    assert!(result.contentions[0] > 0 && result.contentions[0] < result.acquisitions[0] / 2);
}

#[test]
fn what_is_handed_over_is_worked_off_by_its_owner() {
    let program = |share| {
        vec![
            Step::Work { ns: 500.0 },
            Step::Push { share, ns: 100.0 },
            Step::Hold { share: 1.0, family: 0, ns: 100.0, moved_ns: 0.0 },
        ]
    };
    let rate = |share| throughput(&MACHINE, &[Family::Own], &program(share), 8);
    assert_close(rate(0.0), 8.0 / 600.0 * 1e9);
    // Every push takes 100 ns of work and a transfer there and one back; several share one back.
    assert!(rate(1.0) > 8.0 / 800.0 * 1e9 && rate(1.0) < 8.0 / 750.0 * 1e9, "{}", rate(1.0));
}

#[test]
fn every_core_gets_on() {
    for cores in [2, 8, 128] {
        let crews = [Crew { cores, program: locked(50.0, 50.0) }];
        let result = run(&MACHINE, &one_lock(), &crews, u64::from(cores) * 500, 3);
        assert_eq!(result.rounds.iter().sum::<u64>(), u64::from(cores) * 500);
        let least = result.rounds.iter().min().copied().unwrap_or(0);
        assert!(least > 100, "{least} rounds of the unluckiest of {cores}");
        assert!(result.acquisitions[0] >= u64::from(cores) * 500);
    }
}

#[test]
fn a_second_crew_runs_until_the_first_is_done() {
    let crews = [
        Crew { cores: 2, program: locked(1000.0, 10.0) },
        Crew { cores: 1, program: locked(10.0, 10.0) },
    ];
    let result = run(&MACHINE, &one_lock(), &crews, 1_000, 1);
    assert_eq!(result.rounds[..2].iter().sum::<u64>(), 1_000);
    assert!(result.rounds[2] > 5_000, "{:?}", result.rounds);
}
