//! The events for those who watch, with the feature `tracing`.

mod harness;

use harness::{Fate, Net, data};
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects events as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("memory");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "multidata"
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no panic").push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn states_losses_timers_and_drops_are_told() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let mut net = Net::new(device::TransmitMode::Multidata, false);
        let (client, server) = net.connect(false);
        let mut sent = 0;
        net.fate = Box::new(move |from, _| {
            sent += usize::from(from == 0);
            if from == 0 && sent <= 3 { Fate::Lose } else { Fate::Deliver }
        });
        net.inject(1, [vec![0x45; 5]]);
        net.transfer((0, client), (1, server), &data(3_000), Duration::from_secs(5));
        net.hosts[1].shard.close(net.now, server);
        net.run(Duration::from_secs(1));
    });
    let lines = lines.0.lock().expect("no panic").join("\n");
    for expected in [
        "before=SynSent now=Established",
        "message=timer went off",
        "message=sent again",
        "reason=\"drop_truncated\"",
        "now=TimeWait",
        "now=Closed",
    ] {
        assert!(lines.contains(expected), "no {expected} in:\n{lines}");
    }
}
