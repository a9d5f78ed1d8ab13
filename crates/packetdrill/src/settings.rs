//! What scripts set before they begin, by the names of Linux's sysctls.
//!
//! A command in backticks is a shell command where a script runs against Linux. Against this stack
//! every `net.ipv4.name=value` in it is looked up in the table here; names that are not in it
//! concern nothing that this stack has, and are passed over. The lines of a command that are no
//! assignments are not run, but a shell script beside the script (`../common/defaults.sh`) is read for
//! assignments where it is named. In the midst of a script they hold for sockets that are opened from then on.
//! Settings that Linux does not have are written in a comment, `// stack: name=value`.

use posix::{FastOpenKeys, HostConfig, SynCookieMode};
use std::path::Path;
use tcp::{Algorithm, Idle};
use tcp::{Config, EcnMode, Pacing, PathProbing};
use time::Duration;

type Apply = fn(&mut Config, i64);

/// Settings that are one number.
const NUMBERS: &[(&str, Apply)] = &[
    ("tcp_sack", |config, value| config.sack = value != 0),
    ("tcp_dsack", |config, value| config.duplicate_reports = value != 0),
    ("tcp_early_retrans", |config, value| config.tail_loss_probes = value != 0),
    ("tcp_timestamps", |config, value| config.timestamps = value != 0),
    ("tcp_window_scaling", |config, value| config.window_scaling = value != 0),
    ("tcp_syn_retries", |config, value| config.syn_retries = value as u32),
    ("tcp_retries2", |config, value| config.retries = value as u32),
    ("tcp_rto_max_ms", |config, value| {
        config.rtt.rto_max = Duration::from_millis(value.clamp(1_000, 120_000) as u64);
    }),
    ("tcp_rto_min_us", |config, value| {
        config.rtt.rto_min = Duration::from_micros(value.max(1) as u64);
    }),
    ("tcp_synack_retries", |config, value| config.syn_ack_retries = value as u32),
    ("tcp_orphan_retries", |config, value| config.orphan_retries = value as u32),
    ("user_timeout_option", |config, value| config.user_timeout_option = value != 0),
    ("tcp_fin_timeout", |config, value| config.fin_wait_2 = Duration::from_secs(value as u64)),
    ("time_wait_ms", |config, value| config.time_wait = Duration::from_millis(value as u64)),
    ("timestamps_required", |config, value| config.timestamps_required = value != 0),
    ("stretch_acks", |config, value| config.stretch_acks = value != 0),
    ("deferred_acks_max_local", |config, value| config.deferred_acks_max_local = value as u8),
    ("deferred_acks_max_remote", |config, value| config.deferred_acks_max_remote = value as u8),
    ("deferred_acks_interval_ms", |config, value| {
        config.deferred_acks_interval = Duration::from_millis(value as u64);
    }),
    ("quick_acks", |config, value| config.quick_acks = value as u32),
    ("send_buffer_bytes", |config, value| {
        config.send_buffer_bytes = value as usize;
        config.send_buffer_bytes_initial = value as usize;
    }),
    ("receive_buffer_bytes", |config, value| {
        config.receive_buffer_bytes = value as usize;
        config.receive_buffer_bytes_initial = value as usize;
    }),
    ("minshall", |config, value| config.minshall = value != 0),
    ("nodelay", |config, value| config.nodelay = value != 0),
    ("tcp_mtu_probing", |config, value| {
        config.path_probing = match value {
            0 => PathProbing::Off,
            1 => PathProbing::OnBlackHole,
            _ => PathProbing::Always,
        };
    }),
    ("quick_acks_each", |config, value| config.quick_acks_each = value != 0),
    ("push_bursts", |config, value| config.push_bursts = value != 0),
    ("challenge_acks_per_second", |config, value| {
        config.challenge_acks_per_second = value as u32;
    }),
    ("tcp_ecn", |config, value| {
        config.ecn = match value {
            0 => EcnMode::Off,
            // 4 asks for ECN, and only answers with what is more accurate.
            1 | 4 => EcnMode::Request,
            _ => EcnMode::Accept,
        };
    }),
    ("tcp_slow_start_after_idle", |config, value| {
        config.congestion.idle = if value == 0 { Idle::Keep } else { Idle::Decay };
    }),
    ("hystart", |config, value| config.congestion.hystart = value != 0),
    ("initial_window_segments", |config, value| {
        config.congestion.initial_window_segments = value as u32;
    }),
    ("pacing", |config, value| {
        config.pacing = if value == 0 { Pacing::Off } else { Pacing::On };
    }),
];

/// Applies all settings found in a command or a comment.
pub(crate) fn apply(text: &str, config: &mut HostConfig) {
    let mut rest = text;
    while let Some(equals) = rest.find('=') {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = &rest[..equals];
        let name = &before[before.rfind(|c| !is_name(c)).map_or(0, |at| at + 1)..];
        let after = &rest[equals + 1..];
        apply_one(name, value_at(&before[..before.len() - name.len()], after), config);
        rest = after;
    }
}

/// The value at the begin of `after`. The quote that ends it stands behind `=` or `before` the name.
fn value_at<'a>(before: &str, after: &'a str) -> &'a str {
    let is_quote = |c: char| matches!(c, '"' | '\'');
    let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
    let end = match (after.strip_prefix(is_quote), word.find(is_quote)) {
        (Some(quoted), _) => return quoted.split(is_quote).next().unwrap_or(""),
        (None, Some(_)) => after.find(is_quote),
        (None, None) => after.find(|c: char| c.is_whitespace() || matches!(c, ';' | '\\')),
    };
    &after[..end.unwrap_or(after.len())]
}

/// What is written to a sysctl's file (`echo 0 > /proc/sys/net/ipv4/tcp_sack`), as assignments.
fn echoes(command: &str) -> String {
    let mut found = String::new();
    for line in command.split(['\n', ';', '&']) {
        let Some((value, path)) =
            line.trim().strip_prefix("echo ").and_then(|it| it.split_once('>'))
        else {
            continue;
        };
        let value = value.trim().trim_matches(|c| matches!(c, '"' | '\''));
        if let Some((_, name)) = path.trim().rsplit_once('/') {
            found.push_str(&format!("\n{name}=\"{value}\""));
        }
    }
    found
}

/// The longest shell script that is read.
const SHELL_SCRIPT_BYTES_MAX: u64 = 65_536;

/// Applies all settings found in a command and in the shell scripts that it runs.
pub(crate) fn apply_command(command: &str, directory: &Path, config: &mut HostConfig) {
    let mut text = String::new();
    for word in command.split_inclusive(char::is_whitespace) {
        match shell_script(&directory.join(word.trim())) {
            Some(script) => text.push_str(&script),
            None => text.push_str(word),
        }
    }
    let text = with_products(&text);
    apply(&text, config);
    apply(&echoes(&text), config);
}

/// A shell script, without its comments.
fn shell_script(path: &Path) -> Option<String> {
    let len = path.extension().filter(|it| *it == "sh").and(path.metadata().ok())?.len();
    let text = std::fs::read_to_string(path).ok().filter(|_| len <= SHELL_SCRIPT_BYTES_MAX)?;
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    Some(lines.flat_map(|line| [line, "\n"]).collect())
}

/// What the shell makes of `$((a*b*c))`.
fn with_products(text: &str) -> String {
    let mut pieces = text.split("$((");
    let mut whole = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let (inside, behind) = piece.split_once("))").unwrap_or((piece, ""));
        let factors = inside.split('*').map(|factor| factor.trim().parse::<u64>().ok());
        let product = factors.reduce(|left, right| left?.checked_mul(right?)).flatten();
        whole.push_str(&product.map_or_else(|| inside.to_owned(), |product| product.to_string()));
        whole.push_str(behind);
    }
    whole
}

/// The commands before a script's first other event, with or without a time. Comments and options may stand before
/// them.
pub(crate) fn first_commands(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = behind_comments(rest);
        let behind_time =
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || "+.*~".contains(c));
        let inside = behind_time.trim_start().strip_prefix('`');
        let Some((command, behind)) = inside.and_then(|it| it.split_once('`')) else {
            return found;
        };
        found.push(command);
        rest = behind;
    }
}

/// What follows comments and options.
fn behind_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let end = match rest {
            _ if rest.starts_with("/*") => "*/",
            _ if rest.starts_with("//") || rest.starts_with("--") || rest.starts_with('#') => "\n",
            _ => return rest,
        };
        rest = rest.split_once(end).map_or("", |(_, behind)| behind).trim_start();
    }
}

fn apply_one(name: &str, value: &str, config: &mut HostConfig) {
    let number = match value.trim().strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => value.trim().parse().ok(),
    };
    if let Some((_, apply)) = NUMBERS.iter().find(|(known, _)| *known == name)
        && let Some(number) = number
    {
        apply(&mut config.tcp, number);
    }
    match (name, number) {
        ("tcp_fastopen", Some(bits)) => config.fast_open = bits as i32,
        ("tcp_keepalive_time", Some(s)) => config.keepalive.idle = keepalive_time(s),
        ("tcp_keepalive_intvl", Some(s)) => config.keepalive.interval = keepalive_time(s),
        ("tcp_keepalive_probes", Some(count)) => {
            config.keepalive.count = count.clamp(1, 127) as u32;
        }
        ("tcp_fastopen_key", _) => {
            let keys = value.parse::<FastOpenKeys>().ok();
            config.listen.fast_open.keys = keys.or(config.listen.fast_open.keys);
        }
        _ => {}
    }
    let sizes: Vec<usize> = value.split_whitespace().filter_map(|text| text.parse().ok()).collect();
    let last = value.split_whitespace().last().and_then(|text| text.parse::<usize>().ok());
    match (name, last) {
        // The least, the default and the largest size: what can be announced follows the largest.
        ("tcp_rmem", Some(bytes)) => {
            config.tcp.receive_buffer_bytes = bytes;
            // Half of what Linux calls the buffer is for payload.
            let initial = sizes.get(1).map_or(bytes, |initial| initial / 2);
            config.tcp.receive_buffer_bytes_initial = initial.min(bytes);
        }
        ("tcp_wmem", Some(bytes)) => {
            config.tcp.send_buffer_bytes = bytes;
            config.tcp.send_buffer_bytes_initial = *sizes.get(1).unwrap_or(&bytes);
        }
        ("tcp_max_syn_backlog", Some(count)) => config.listen.half_open_max = count,
        ("tcp_syncookies", Some(0)) => config.listen.syn_cookies = SynCookieMode::Never,
        ("tcp_syncookies", Some(1)) => config.listen.syn_cookies = SynCookieMode::WhenFull,
        ("tcp_syncookies", Some(_)) => config.listen.syn_cookies = SynCookieMode::Always,
        _ => {}
    }
    if name == "tcp_congestion_control"
        && let Some(algorithm) =
            Algorithm::ALL.into_iter().find(|algorithm| algorithm.kernel_name() == value.trim())
    {
        config.tcp.congestion.algorithm = algorithm;
    }
}

/// Within what TCP_KEEPIDLE and TCP_KEEPINTVL take.
fn keepalive_time(seconds: i64) -> Duration {
    Duration::from_secs(seconds.clamp(1, 32_767) as u64)
}

/// Settings in comments `// stack: name=value`.
pub(crate) fn apply_comments(text: &str, config: &mut HostConfig) {
    for line in text.lines() {
        if let Some(settings) = line.trim().strip_prefix("//")
            && let Some(settings) = settings.trim().strip_prefix("stack:")
        {
            apply(settings, config);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A directory of this test's own, with the shell script `defaults.sh` in it.
    fn with_script(name: &str, text: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a place for files");
        std::fs::write(directory.join("defaults.sh"), text).expect("room");
        directory
    }

    #[test]
    fn what_a_shell_script_sets_holds_unless_the_command_sets_it_again() {
        let text = "#!/bin/sh\n# sysctl -q net.ipv4.tcp_sack=0\nsysctl -q net.ipv4.tcp_timestamps=0\n\
            sysctl -q net.ipv4.tcp_wmem=\"4096 $((256*1024)) 4194304\"\n\
            sysctl -q net.ipv4.tcp_fastopen=0x70403\n";
        let directory = with_script("settings", text);
        let mut config = crate::host_config();
        config.tcp.send_buffer_bytes_initial = 1;
        let command = "./defaults.sh\n ./missing.sh ./set.py /proc/sys/net/ipv4/tcp_timestamps=1\\
            /proc/sys/net/ipv4/tcp_fastopen_key=1-2-3-4";
        apply_command(command, &directory, &mut config);
        std::fs::remove_dir_all(&directory).expect("it is there");
        assert!(config.tcp.timestamps && config.tcp.sack);
        assert_eq!(config.tcp.send_buffer_bytes_initial, 256 << 10);
        assert_eq!(config.fast_open, 0x70403);
        let keys = config.listen.fast_open.keys.expect("a key");
        assert_eq!((keys.primary[4], keys.backup), (2, None));
    }

    #[test]
    fn the_first_commands_are_found_in_what_nobody_else_reads() {
        let text = "// A `comment`\n/* and\nanother */\n--a=b --c\n\n`one\ntwo` 0 odd(...) `three`";
        assert_eq!(first_commands(text), ["one\ntwo"]);
        assert_eq!(first_commands("0 close(3) = 0\n`late`"), [""; 0]);
        assert_eq!(first_commands("/* `open"), [""; 0]);
        assert_eq!(
            first_commands("// \n 0 `a=1`\n+0 `b=2`\n+0 socket(...) = 3\n`late`"),
            ["a=1", "b=2"]
        );
    }

    #[test]
    fn sizes_are_found_in_every_way_to_write_them() {
        for command in [
            "sysctl -w net.ipv4.tcp_rmem=\"4096 87380 6291456\" net.ipv4.tcp_sack=0",
            "sysctl -w \"net.ipv4.tcp_rmem=4096 87380 6291456\" \"net.ipv4.tcp_sack=0\"",
            "sysctl -qw 'net.ipv4.tcp_rmem=4096 87380 6291456'; sysctl net.ipv4.tcp_sack=0",
            "echo 4096 87380 6291456 > /proc/sys/net/ipv4/tcp_rmem\necho 0 > /proc/sys/net/ipv4/tcp_sack",
            "echo '4096 87380 6291456' >/proc/sys/net/ipv4/tcp_rmem && echo \"0\" > /proc/sys/net/ipv4/tcp_sack",
        ] {
            let mut config = crate::host_config();
            apply_command(command, Path::new("."), &mut config);
            let sizes = (config.tcp.receive_buffer_bytes, config.tcp.receive_buffer_bytes_initial);
            assert_eq!(sizes, (6_291_456, 43_690), "{command}");
            assert!(!config.tcp.sack, "{command}");
        }
    }

    // What a script sets holds against the habits, which come first.
    #[test]
    fn paths_are_probed_where_a_script_for_linux_asks_for_it() {
        let mut config = crate::host_config();
        crate::apply_linux_habits(&mut config);
        assert_eq!(config.tcp.path_probing, PathProbing::Off);
        apply_command("sysctl -q net.ipv4.tcp_mtu_probing=1", Path::new("."), &mut config);
        assert_eq!(config.tcp.path_probing, PathProbing::OnBlackHole);
    }
}
