//! A cluster of three masters with a replica each.

use zfold_far::testing::conformance;
use zfold_testing::redis::{Cluster, Server, ready};
use zfold_testing::wait_until;

use crate::{connect, missing, put};

/// Waits until all nodes that are alive call the cluster whole.
fn wait_until_whole(cluster: &Cluster, without: &[usize]) {
    let is_whole = |node: &Server| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    wait_until("the cluster has healed", || {
        (0..cluster.nodes.len())
            .filter(|node| !without.contains(node))
            .all(|node| is_whole(&cluster.nodes[node]))
    });
}

#[test]
fn a_cluster_does_what_an_engine_must_and_shares_the_objects() {
    if !ready("a_cluster_does_what_an_engine_must_and_shares_the_objects") {
        return;
    }
    let cluster = Cluster::start();
    for copies in 1..=3 {
        conformance(&*connect(&cluster.place(copies)));
    }
    let values = |node: &usize| cluster.nodes[*node].values();
    let masters = cluster.masters();
    let before: Vec<_> = masters.iter().map(values).collect();
    put(&*connect(&cluster.place(2)), 0..60);
    for (master, before) in masters.iter().zip(before) {
        assert_eq!(values(master) - before, 40, "two thirds of 60 on each of three");
    }
}

#[test]
fn with_two_copies_a_cluster_loses_nothing() {
    if !ready("with_two_copies_a_cluster_loses_nothing") {
        return;
    }
    let mut cluster = Cluster::start();
    let engine = connect(&cluster.place(2));
    put(&*engine, 0..60);

    // A master that stops is replaced by its replica, and comes back as one.
    let masters = cluster.masters();
    cluster.nodes[masters[0]].stop();
    assert_eq!(missing(&*engine, 0..60), 0, "one is stopped");
    put(&*engine, 60..90);
    cluster.nodes[masters[0]].go_on();
    assert_eq!(missing(&*engine, 0..90), 0, "it goes on");
    wait_until_whole(&cluster, &[]);

    // A master that ends.
    let killed = cluster.masters()[1];
    cluster.nodes[killed].kill();
    assert_eq!(missing(&*engine, 0..90), 0, "one is killed");
    put(&*engine, 90..120);
    wait_until_whole(&cluster, &[killed]);

    // A master that forgets, and so do its replicas.
    let flushed = cluster.masters()[0];
    assert!(cluster.nodes[flushed].values() > 0);
    cluster.nodes[flushed].cli(&["FLUSHALL"]);
    assert_eq!(missing(&*engine, 0..120), 0, "one is empty");
}

#[test]
fn of_single_copies_a_cluster_loses_what_one_master_forgets() {
    if !ready("of_single_copies_a_cluster_loses_what_one_master_forgets") {
        return;
    }
    let mut cluster = Cluster::start();
    let engine = connect(&cluster.place(1));
    put(&*engine, 0..60);
    let masters = cluster.masters();
    let lost = cluster.nodes[masters[0]].values();
    assert_eq!(lost, 20, "a third of 60");
    cluster.nodes[masters[0]].cli(&["FLUSHALL"]);
    assert_eq!(missing(&*engine, 0..60), lost);

    // What a replica has by then survives its master.
    let killed = masters[1];
    cluster.nodes[killed].cli(&["WAIT", "1", "0"]);
    cluster.nodes[killed].kill();
    assert_eq!(missing(&*engine, 0..60), lost, "the replica took over");
    put(&*engine, 60..90);
    assert_eq!(missing(&*engine, 60..90), 0);
}
