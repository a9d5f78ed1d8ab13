//! Hosts to whose squeues the device has spread the flows: what it cannot place finds its connection.

use simulation::scenario::Scenario;
use simulation::{Keep, World};
use steering::{Layout, Policy, Spread};

/// A middlebox cuts long segments before each host, whose device puts the fragments on any ring.
#[test]
fn segments_in_fragments_find_their_connections_where_the_device_spreads_flows() {
    let (mut cut, mut unknown, mut in_order) = (0, 0, 0);
    for seed in 1..=10 {
        let mut scenario = Scenario::draw(seed);
        for (number, host) in scenario.hosts.iter_mut().enumerate() {
            let layout = Layout::new(2 + number as u16 % 3, 0, false).expect("a layout");
            let spread = Spread::new(layout, Policy::Flow, layout.homes_max());
            host.squeues.spread = spread.expect("a squeue for each ring");
            (host.path_mtu, host.cuts) = (Some(600), true);
        }
        let report = World::new(scenario, Keep::default()).run();
        let counters = report.unwrap_or_else(|failure| panic!("{failure}")).counters;
        (cut, unknown) = (cut + counters.segments_cut, unknown + counters.homes_unknown);
        in_order += counters.ended_in_order;
    }
    assert!(cut > 1_000, "only {cut} segments were cut");
    assert!(unknown * 5 < cut, "{unknown} of {cut} found no connection");
    assert!(in_order > 300, "only {in_order} ends were in order");
}
