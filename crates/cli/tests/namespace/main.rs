//! The built command in a network of the test's own: files over a named TAP with a kernel socket at
//! the other end, and what happens where the driver is closed.

mod ends;
mod files;
mod ground;
#[path = "../../../linux/tests/network/mod.rs"]
mod network;
mod permission;
mod ping;
mod tunnel;

use std::process::ExitCode;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_file_goes_to_a_kernel_socket", files::goes_to_a_kernel_socket),
    ("a_file_comes_from_a_kernel_socket", files::comes_from_a_kernel_socket),
    ("a_file_goes_over_a_packet_socket", files::over_a_packet_socket),
    ("a_file_goes_over_a_tun", files::over_a_tun),
    ("the_mode_follows_the_device", files::mode_follows_the_device),
    ("a_file_is_sent_as_it_was_asked_for", files::is_sent_as_it_was_asked_for),
    ("an_empty_file_travels_too", files::empty_travels_too),
    ("a_file_that_is_echoed_does_not_stand", files::echoed_file_does_not_stand),
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
    ("what_was_ignored_stays_ignored", ends::ignored_signals_stay_ignored),
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
    network::run(TESTS, || network::enter().and_then(|()| ground::make_device()))
}
