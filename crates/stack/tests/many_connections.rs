//! Life cycles by the ten thousand, and floods, in virtual time; `examples/soak.rs` runs the million.

mod scale;

use scale::{churn, flood};

// Both in one test: each counts all that the process allocates.
#[test]
fn memory_comes_back_after_many_connections_and_a_flood_keeps_nobody_waiting() {
    let churn = churn(50_000);
    println!("{churn:?}");
    assert_eq!((churn.opened, churn.sockets_left, churn.time_wait_left), (50_000, 0, 0));
    assert_eq!(churn.blocks_left_bytes, 0);
    let kept_bytes = churn.after_bytes.saturating_sub(churn.before_bytes);
    assert!(kept_bytes < 600_000, "{churn:?}");
    assert!(churn.peak_bytes - churn.before_bytes > 4_000_000, "TIME-WAIT takes something");

    let flood = flood(50_000);
    println!("{flood:?}");
    assert!(flood.half_open_max <= 1_024, "{flood:?}");
    assert!(flood.cookies_sent > 40_000, "{flood:?}");
    assert!(flood.bytes_alone > 30_000_000, "{flood:?}");
    assert!(flood.bytes_under_flood * 10 >= flood.bytes_alone * 8, "{flood:?}");
    assert!(flood.grown_bytes < 2_000_000, "{flood:?}");
}
