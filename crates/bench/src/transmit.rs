//! `multidata bench transmit`: every transmit scheme on every device, side by side.
//!
//! The axes are those of seed 000, section 6: the length of a write, one connection or several, and
//! the scheme; to which come the device, and whether the application's memory is copied (as by
//! netperf there) or lent (as by knetperf, whose sender sits in the kernel). A combination that a
//! device cannot do - super-frames without offload - is left out, not failed; so is a scheme that would
//! be only another name for `multidata` on a device, and of that a sentence is left.

use crate::plan::each_once;
use crate::scenario::{Amount, DeviceKind, Direction, Scenario, Times, TransformKind};
use device::TransmitMode;
use std::time::Duration;

/// The axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Devices.
    pub devices: Vec<DeviceKind>,
    /// Schemes.
    pub modes: Vec<TransmitMode>,
    /// Lengths of one write, in bytes.
    pub write_len_bytes: Vec<usize>,
    /// Numbers of connections.
    pub connections: Vec<usize>,
    /// Whether the application's memory is lent.
    pub zero_copy: Vec<bool>,
    /// Whether the kernel polls a TAP in a thread of its own.
    pub napi: Vec<bool>,
    /// Whether frames reach a TAP or TUN device many by one call.
    pub io_uring: Vec<bool>,
    /// What a tunnel does to each packet.
    pub transforms: Vec<TransformKind>,
    /// Whether many datagrams of a tunnel leave and come by one call.
    pub udp_offload: Vec<bool>,
    /// Whether it is measured where the senders' time goes.
    pub times: Vec<bool>,
}

impl Axes {
    /// What was asked for and is no scenario: a sentence for each scheme that a device has no form for.
    #[must_use]
    pub fn left_out(&self, common: &Scenario) -> Vec<String> {
        let mut sentences = Vec::new();
        for &device in &self.devices {
            let each = self.modes.iter().map(|&mode| Scenario { device, mode, ..common.clone() });
            for why in each.filter_map(|scenario| scenario.lacks_form()) {
                if !sentences.contains(&why) {
                    sentences.push(why);
                }
            }
        }
        sentences
    }

    /// Every sound combination, each run for this long. Neighbours differ in the scheme only, so that
    /// what is compared runs side by side.
    #[must_use]
    pub fn scenarios(&self, time: Duration, common: &Scenario) -> Vec<Scenario> {
        let amount = Amount::Time(time);
        let common = Scenario { amount, direction: Direction::Send, ..common.clone() };
        let scenarios = along(vec![common], &self.devices, |it, device| it.device = device);
        let scenarios = along(scenarios, &self.napi, |it, napi| it.napi = napi);
        // Of these each is for some devices and nothing to the others.
        let scenarios = along(scenarios, &self.io_uring, |it, io_uring| {
            it.io_uring = io_uring && it.device.is_tun();
        });
        let scenarios = along(scenarios, &self.transforms, |it, transform| {
            if it.device == DeviceKind::Tunnel {
                it.transform = transform;
            }
        });
        let scenarios = along(scenarios, &self.udp_offload, |it, udp_offload| {
            it.udp_offload = udp_offload || it.device != DeviceKind::Tunnel;
        });
        let scenarios = along(scenarios, &self.zero_copy, |it, lent| it.zero_copy = lent);
        let scenarios = along(scenarios, &self.connections, |it, count| it.connections = count);
        let scenarios = along(scenarios, &self.write_len_bytes, |it, len| it.write_len_bytes = len);
        let scenarios = along(scenarios, &self.modes, |it, mode| {
            it.mode = mode;
            it.coalescing = Scenario::coalescing_of(mode);
            it.offload = mode == TransmitMode::Lso;
        });
        let timed = if self.times.contains(&false) { Times::Beside } else { Times::On };
        let mut scenarios = along(scenarios, &self.times, |it, is_timed| {
            it.times = if is_timed { timed } else { Times::Off };
        });
        scenarios.retain(|scenario| scenario.check().is_ok() && is_worth_running(scenario));
        // What is nothing to a device makes no other scenario there.
        each_once(scenarios)
    }
}

/// Every scenario with every value of an axis.
fn along<T: Copy>(
    scenarios: Vec<Scenario>,
    values: &[T],
    set: impl Fn(&mut Scenario, T),
) -> Vec<Scenario> {
    let each =
        scenarios.iter().flat_map(|scenario| values.iter().map(move |value| (scenario, value)));
    let with = |(scenario, value): (&Scenario, &T)| {
        let mut scenario = scenario.clone();
        set(&mut scenario, *value);
        scenario
    };
    each.map(with).collect()
}

/// Threaded NAPI is for frames that the kernel is to coalesce; super-frames pass it by.
fn is_worth_running(scenario: &Scenario) -> bool {
    !(scenario.napi && scenario.mode == TransmitMode::Lso)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> Axes {
        Axes {
            devices: vec![DeviceKind::Wire, DeviceKind::Tap],
            modes: vec![TransmitMode::Single, TransmitMode::Multidata, TransmitMode::Lso],
            write_len_bytes: vec![16 << 10, 64 << 10],
            connections: vec![1, 10],
            zero_copy: vec![false, true],
            napi: vec![false, true],
            io_uring: vec![false],
            transforms: vec![TransformKind::Null],
            udp_offload: vec![true],
            times: vec![true],
        }
    }

    #[test]
    fn a_scheme_without_a_form_is_left_out_and_told() {
        let common = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        let devices = vec![DeviceKind::Xdp, DeviceKind::Packet, DeviceKind::Tunnel];
        let axes = Axes { devices, modes: TransmitMode::ALL.to_vec(), ..axes() };
        let scenarios = axes.scenarios(Duration::from_millis(10), &common);
        let modes = |device: DeviceKind| {
            let mut modes: Vec<_> = scenarios
                .iter()
                .filter(|it| it.device == device && !it.napi)
                .map(|it| it.mode.name())
                .collect();
            modes.dedup();
            modes.truncate(5);
            modes
        };
        assert_eq!(modes(DeviceKind::Xdp)[..2], ["single", "multidata"]);
        let packet = ["single", "contiguous", "replicated", "multidata", "lso"];
        assert_eq!(modes(DeviceKind::Packet), packet);
        assert_eq!(modes(DeviceKind::Tunnel)[..3], ["single", "chain", "multidata"]);
        let told = axes.left_out(&common);
        assert_eq!(told.len(), 3 + 1 + 2, "{told:?}");
        assert!(told[0].starts_with("--mode chain is not for --device xdp"), "{}", told[0]);
    }

    #[test]
    fn a_switch_of_one_device_is_nothing_to_the_others() {
        let common = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        let axes = Axes {
            devices: vec![DeviceKind::Wire, DeviceKind::Tap, DeviceKind::Tunnel],
            modes: vec![TransmitMode::Multidata],
            write_len_bytes: vec![64 << 10],
            connections: vec![1],
            zero_copy: vec![false],
            napi: vec![false],
            io_uring: vec![false, true],
            transforms: vec![TransformKind::Null, TransformKind::ChaChaPoly],
            udp_offload: vec![true, false],
            times: vec![true],
        };
        let scenarios = axes.scenarios(Duration::from_millis(10), &common);
        let names: Vec<String> = scenarios.iter().map(Scenario::name).collect();
        let wanted = [
            "wire send multidata",
            "tap send multidata",
            "tap io-uring send multidata",
            "tunnel send multidata",
            "tunnel one-a-call send multidata",
            "tunnel chacha20poly1305 send multidata",
            "tunnel chacha20poly1305 one-a-call send multidata",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn every_combination_is_sound_and_has_a_name_of_its_own() {
        let common = Scenario::stream(DeviceKind::Wire, Direction::Send, TransmitMode::Multidata);
        let scenarios = axes().scenarios(Duration::from_millis(10), &common);
        // Two lengths, two numbers of connections, lent or not: 8 places. The wire takes all three
        // schemes there; the TAP three, and with NAPI two.
        assert_eq!(scenarios.len(), 8 * (3 + 3 + 2));
        assert!(scenarios.iter().all(|scenario| scenario.check().is_ok()));
        assert!(scenarios.iter().all(|scenario| scenario.times == Times::On));
        let beside = Axes { times: vec![false, true], ..axes() };
        let beside = beside.scenarios(Duration::from_millis(10), &common);
        assert_eq!(beside.len(), 2 * scenarios.len(), "each has a name of its own");
        assert_eq!([beside[0].times, beside[1].times], [Times::Off, Times::Beside]);
        assert_eq!(beside[1].name(), format!("{} timed", beside[0].name()));
        let mut twice = axes();
        twice.modes.extend(axes().modes);
        twice.connections.push(1);
        assert_eq!(twice.scenarios(Duration::from_millis(10), &common), scenarios);
        let mut names: Vec<String> = scenarios.iter().map(Scenario::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), scenarios.len());
    }
}
