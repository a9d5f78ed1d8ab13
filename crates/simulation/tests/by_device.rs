//! Hosts to whose squeues the device has spread the flows: what it brings elsewhere finds its connection.

use simulation::scenario::Scenario;
use simulation::{Keep, World};
use steering::{Layout, Policy, Spread};

/// A device that follows the rings by which flows go out, and knows nothing of those of which none did; and a
/// middlebox that cuts long segments, whose fragments come by any ring.
#[test]
fn segments_find_their_connections_where_the_device_spreads_flows() {
    let (mut cut, mut handed_on, mut in_order) = (0, 0, 0);
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
        (cut, handed_on) = (cut + counters.segments_cut, handed_on + counters.handed_on);
        in_order += counters.ended_in_order;
    }
    assert!(cut > 1_000, "only {cut} segments were cut");
    assert!(handed_on > 200, "only {handed_on} segments came by another ring");
    assert!(in_order > 300, "only {in_order} ends were in order");
}
