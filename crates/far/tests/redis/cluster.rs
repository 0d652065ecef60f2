//! A cluster of three masters with a replica each.

use zfold_far::testing::conformance;
use zfold_testing::redis::{Cluster, Server, ready};
use zfold_testing::{needs, wait_until};

use crate::{connect, missing, put, soon};

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
    needs!(ready());
    let cluster = Cluster::start();
    for copies in 1..=2 {
        conformance(&*connect(&cluster.place(copies)));
    }
    let values = |node: &usize| cluster.nodes[*node].values();
    let masters = cluster.masters();
    let before: Vec<_> = masters.iter().map(values).collect();
    put(&*connect(&cluster.place(2)), 0..60);
    let new: Vec<_> = masters.iter().zip(before).map(|(at, before)| values(at) - before).collect();
    assert!(new.iter().sum::<usize>() == 60 && new.iter().all(|new| *new > 0), "{new:?}");
}

#[test]
fn with_two_copies_a_cluster_that_loses_masters_loses_nothing() {
    needs!(ready());
    let mut cluster = Cluster::start();
    let engine = connect(&cluster.place(2));
    put(&*engine, 0..60);

    // A master that stops is replaced by its replica, and comes back as one.
    let masters = cluster.masters();
    cluster.nodes[masters[0]].stop();
    assert_eq!(missing(&*engine, 0..60), 0, "one is stopped");
    cluster.nodes[masters[0]].go_on();
    wait_until_whole(&cluster, &[]);
    put(&*engine, 60..90);
    assert_eq!(missing(&*engine, 0..90), 0, "it goes on");

    // A master that ends.
    let killed = cluster.masters()[1];
    cluster.nodes[killed].kill();
    assert_eq!(missing(&*engine, 0..90), 0, "one is killed");
    wait_until_whole(&cluster, &[killed]);
    engine.renew(&(0..90).collect::<Vec<_>>(), soon()).expect("a renewal");
}

#[test]
fn a_cluster_loses_what_one_master_forgets() {
    needs!(ready());
    let cluster = Cluster::start();
    let engine = connect(&cluster.place(1));
    put(&*engine, 0..60);
    let master = &cluster.nodes[cluster.masters()[0]];
    let lost = master.values();
    master.cli(&["FLUSHALL"]);
    assert_eq!(missing(&*engine, 0..60), lost);
    put(&*engine, 60..90);
    assert_eq!(missing(&*engine, 60..90), 0);
}
