//! Where a job runs: what a reader needs in order to judge its figures.

use crate::results::Host;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Describes this machine and this process; what cannot be found out is left empty.
#[must_use]
pub fn describe(arguments: &[String]) -> Host {
    let started_unix_s =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let machine = linux::cpu::Host::describe();
    Host {
        started_unix_s,
        date: date_of(started_unix_s),
        kernel: machine.kernel,
        cpu: machine.cpu_model,
        cpus: machine.cpus,
        memory_bytes: machine.memory_bytes,
        program: format!("multidata {}", env!("CARGO_PKG_VERSION")),
        profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        arguments: arguments.to_vec(),
        devices: BTreeMap::new(),
        complete: false,
    }
}

/// The civil date of a Unix time, after Howard Hinnant's `civil_from_days`.
fn date_of(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_767_225_599, "2025-12-31"),
            (1_767_225_600, "2026-01-01"),
        ] {
            assert_eq!(date_of(unix_s), date);
        }
    }
}
