//! The built command in a network of the test's own: files over a named TAP with a kernel socket at
//! the other end, and what happens where the driver is closed.
//!
//! There is no test harness, because namespaces must be entered before any thread starts. The
//! output has the harness's form, and a filter on the command line works as usual. What the
//! machine does not grant is announced as `CANNOT RUN`, never passed over in silence.

mod ends;
mod files;
mod ground;
mod permission;
mod ping;
mod tunnel;

use linux::Sandbox;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_file_goes_to_a_kernel_socket", files::goes_to_a_kernel_socket),
    ("a_file_comes_from_a_kernel_socket", files::comes_from_a_kernel_socket),
    ("a_file_goes_over_a_packet_socket", files::over_a_packet_socket),
    ("an_empty_file_travels_too", files::empty_travels_too),
    (
        "a_file_is_sent_at_the_rate_that_was_asked_for",
        files::is_sent_at_the_rate_that_was_asked_for,
    ),
    ("a_capture_holds_what_was_sent", files::capture_holds_what_was_sent),
    ("a_ping_is_answered_while_receiving", files::ping_is_answered),
    ("echoes_of_the_kernel_are_timed", ping::echoes_are_timed),
    ("a_host_that_does_not_answer_is_told", ping::nobody_answers),
    ("an_interrupted_ping_shows_what_came", ping::interruption_shows_what_came_until_then),
    ("a_refused_connection_is_told", files::refused_connection),
    ("a_reset_leaves_no_file", files::reset_leaves_no_file),
    ("a_full_disk_leaves_no_file", files::full_disk_leaves_no_file),
    ("an_unwritten_file_is_no_orderly_end", ends::unwritten_file_is_no_orderly_end),
    ("a_full_disk_is_no_orderly_end", ends::full_disk_is_no_orderly_end),
    ("a_file_that_shrinks_is_told", ends::shrunken_file_is_told),
    ("a_file_that_grows_is_sent_as_it_was", ends::grown_file_is_sent_as_it_was),
    ("an_interruption_resets_the_connection", ends::interruption_resets_the_connection),
    ("a_device_that_goes_is_told", ends::device_that_goes_is_told),
    ("somebody_elses_address_is_told", ends::somebody_elses_address_is_told),
    ("an_interruption_leaves_no_file", files::interruption_leaves_no_file),
    ("an_address_or_device_in_use_is_told", files::in_use),
    ("an_address_that_is_not_ours_is_told", files::not_ours),
    ("a_device_that_is_down_is_told", files::device_down),
    ("a_file_goes_through_a_tunnel", tunnel::a_file_goes_through),
    ("a_tunnel_outlives_lost_datagrams", tunnel::lost_datagrams),
    ("a_tunnel_needs_the_same_key_at_both_ends", tunnel::another_key),
    ("a_key_file_that_will_not_do_is_told", tunnel::bad_key_files),
    ("a_device_without_permission_is_told", permission::device_is_closed),
    ("without_a_tap_the_main_job_runs_over_the_wire", permission::falls_back_to_the_wire),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let tests: Vec<&Test> = TESTS
        .iter()
        .filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter.as_str())))
        .collect();
    if arguments.iter().any(|argument| argument == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let started = Instant::now();
    let entered = Sandbox::enter().map_err(|error| error.to_string());
    let ready = entered.and_then(|_| ground::make_device());
    let mut failed = 0;
    for (name, test) in &tests {
        let passed = match &ready {
            Err(why) => {
                ground::cannot_run(name, why);
                true
            }
            Ok(()) => catch_unwind(AssertUnwindSafe(test)).is_ok(),
        };
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {failed} failed; 0 ignored; 0 measured; \
         0 filtered out; finished in {:.2}s\n",
        tests.len() - failed,
        started.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
