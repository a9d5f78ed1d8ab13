use super::*;
use clap::CommandFactory;

fn job(words: &str) -> Result<Job, String> {
    let words = ["multidata"].into_iter().chain(words.split_whitespace());
    match CommandLine::try_parse_from(words).map_err(|error| error.to_string())?.verb {
        Verb::Bench(arguments) => arguments.job(),
        verb => Err(format!("{verb:?} is not bench")),
    }
}

#[test]
fn the_command_line_is_sound() {
    CommandLine::command().debug_assert();
}

#[test]
fn without_arguments_it_is_the_main_job() {
    let job = job("bench").unwrap();
    assert!(job.may_use_wire);
    assert_eq!(job.output.runs, 3);
    assert_eq!(job.scenarios, bench::plan::default_job(Duration::from_secs(1)));
}

#[test]
fn every_option_of_a_stream_reaches_its_scenario() {
    let job =
        job("bench stream --device tun --offload on --napi on --peer kernel --direction both \
         --mode lso,multidata --connections 3 --bytes 64M --write-size 8K --send-buffer 1M \
         --receive-buffer 2M --mtu 9000 --ipv6 --runs 2 --json out.json --pin --zero-copy --io-uring on \
         --squeues 2 --rate 100M")
        .unwrap();
    assert!(!job.may_use_wire);
    assert_eq!(job.output.runs, 2);
    assert_eq!(job.output.json, Some(PathBuf::from("out.json")));
    let lso = Scenario {
        transform: TransformKind::Null,
        udp_offload: true,
        trust_checksums: false,
        workload: Workload::Stream,
        device: DeviceKind::Tun,
        offload: true,
        tso: true,
        napi: true,
        io_uring: true,
        queue_packets: None,
        direction: Direction::Both,
        mode: TransmitMode::Lso,
        connections: 3,
        workers: bench::workload::stream::Workers::Threads,
        mtu_bytes: 9_000,
        amount: Amount::Bytes(64 << 20),
        write_len_bytes: 8_192,
        datagram_len_bytes: None,
        times: bench::scenario::Times::Off,
        zero_copy: true,
        copy_in: multidata::CopyIn::default(),
        coalescing: multidata::Coalescing::default(),
        largest_cached_len_bytes: None,
        label: None,
        send_buffer_bytes: Some(1 << 20),
        receive_buffer_bytes: Some(2 << 20),
        ipv6: true,
        outbound: bench::scenario::Outbound::On,
        pin: true,
        squeues: 2,
        queues: 1,
        receive_blocks: None,
        spreading: None,
        rate: Some(100_000_000),
        capture: None,
    };
    let multidata = Scenario { mode: TransmitMode::Multidata, ..lso.clone() };
    assert_eq!(job.scenarios, [lso, multidata]);
}

#[test]
fn what_a_list_names_twice_is_measured_as_often_as_all_others() {
    for (words, lists) in [
        ("stream --device wire", "--mode single,multidata --multidata-outbound on,off"),
        ("stream --device tunnel", "--transform null,chacha20poly1305 --udp-offload on,off"),
        ("stream --device packet", "--blocks off,1ms"),
        ("stream --device tap", "--io-uring on,off"),
        ("rr --device wire", "--layout R1S0F0,R2S0F0 --placement core,other"),
        ("transmit", "--device wire,tap --connections 1,2 --write-size 4K,8K --zero-copy on,off"),
        ("transmit --mode multidata", "--device tap --napi off,on --times off,on"),
        ("receive", "--device wire,tap --connections 1,2 --coalesce 1,2 --hold-off off,50us"),
        ("receive", "--layout R1S0F0,R2S0F0 --placement core,other --polling off,always"),
        ("many", "--device wire,tap --direction send,receive --connections 1,2 --napi off,on"),
        ("copyin --device wire", "--write-size 4K,8K --policy old,first-mss --datagram 1000,2000"),
    ] {
        let scenarios = |lists: &str| job(&format!("bench {words} {lists}")).unwrap().scenarios;
        let once = scenarios(lists);
        assert!(once.len() > 1, "{words}");
        for list in lists.split(' ').filter(|word| !word.starts_with("--")) {
            let twice = lists.replace(list, &format!("{list},{list}"));
            assert_eq!(scenarios(&twice), once, "{words} {twice}");
        }
    }
    let bench = |words: &str| match CommandLine::try_parse_from(words.split(' ')).unwrap().verb {
        Verb::Bench(arguments) => arguments.workload.unwrap(),
        verb => panic!("{verb:?}"),
    };
    let BenchVerb::Latency(latency) = bench("multidata bench latency --load send,idle,send") else {
        panic!("not latency");
    };
    assert_eq!(latency.loads(), [bench::latency::Load::Send, bench::latency::Load::Idle]);
    let BenchVerb::Loss(loss) = bench("multidata bench loss --loss 1,0,1.0 --rtt 1,20,1") else {
        panic!("not loss");
    };
    assert_eq!(crate::loss_verb::cells(&loss).len(), 2 * 2);
}

#[test]
fn offload_and_mode_follow_from_each_other() {
    let modes = |words: &str| -> Vec<(TransmitMode, bool)> {
        let job = job(words).unwrap();
        job.scenarios.iter().map(|scenario| (scenario.mode, scenario.offload)).collect()
    };
    use TransmitMode::{Chain, Contiguous, Lso, Multidata, Single};
    let blocks = Contiguous(device::Contiguous::FRAMES);
    let short = device::Contiguous::PAYLOAD.with_frames_max(9).unwrap();
    assert_eq!(
        modes("bench stream --mode single,chain,contiguous,replicated:9"),
        [Single, Chain, blocks, Contiguous(short)].map(|mode| (mode, false))
    );
    assert_eq!(modes("bench stream"), [(Single, false), (Multidata, false)]);
    assert_eq!(modes("bench stream --offload on"), [(Lso, true)]);
    assert_eq!(modes("bench stream --mode lso"), [(Lso, true)]);
    assert_eq!(modes("bench stream --mode single,lso"), [(Single, false), (Lso, true)]);
    assert_eq!(modes("bench stream --mode single,single --offload on"), [(Single, true)]);
    assert_eq!(modes("bench rr"), [(Multidata, false)]);
    let tunnel =
        "bench stream --device tunnel --transform null,chacha20poly1305 --udp-offload on,off";
    let names: Vec<String> = job(tunnel).unwrap().scenarios.iter().map(Scenario::name).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    assert_eq!(names[3], "tunnel chacha20poly1305 one-a-call send single");
    assert_eq!(names[4], "tunnel send multidata");
    let tunnel =
        "bench stream --device tunnel --transform chacha20poly1305 --trust-checksums off,on";
    let names: Vec<String> = job(tunnel).unwrap().scenarios.iter().map(Scenario::name).collect();
    assert_eq!(names[2], "tunnel chacha20poly1305 send multidata");
    assert_eq!(names[3], "tunnel chacha20poly1305 trusting send multidata");
    let sockets = "bench stream --device packet --squeues 2 --queues 2 --blocks off,1ms";
    let scenarios = job(sockets).unwrap().scenarios;
    assert_eq!(scenarios[2].name(), "packet 2 squeues 2 queues send multidata");
    assert_eq!(scenarios[3].name(), "packet 2 squeues 2 queues blocks-1ms send multidata");
    assert_eq!(scenarios[3].receive_blocks, Some(Duration::from_millis(1)));
    let sockets = "bench receive --device packet,wire --coalesce adaptive --blocks off,1ms,5ms";
    let names: Vec<String> = job(sockets).unwrap().scenarios.iter().map(Scenario::name).collect();
    assert_eq!(names.len(), 4, "a wire has no blocks: {names:?}");
    assert_eq!(names[2], "packet blocks-5ms receive multidata up adaptive");
}

#[test]
fn the_other_end_and_the_device_agree() {
    assert_eq!(job("bench stream --peer self").unwrap().scenarios[0].device, DeviceKind::Wire);
    for (words, part) in [
        ("bench stream --device wire --peer kernel", "--peer kernel needs"),
        ("bench stream --device tap --peer self", "--peer self needs"),
        ("bench stream --device wire --napi on", "--napi"),
        ("bench stream --device tunnel --peer kernel", "--peer kernel needs"),
        ("bench stream --device tunnel --offload on", "--offload"),
        ("bench stream --device tunnel --mode lso", "--offload"),
        ("bench stream --device tun --transform chacha20poly1305", "--device tunnel"),
        ("bench stream --udp-offload off", "--device tunnel"),
        ("bench stream --device tap --blocks 1ms", "--device packet"),
        ("bench stream --device packet --blocks 50us", "whole milliseconds"),
        ("bench stream --device packet --queues 2", "--squeues 2"),
        ("bench stream --device tunnel --trust-checksums on", "--transform chacha20poly1305"),
        ("bench stream --mode lso --offload off", "--offload on"),
        ("bench stream --connections 0", "--connections"),
        ("bench stream --capture new --json ./new", "--capture new and --json ./new are one file"),
        ("bench stream --mtu 60", "--mtu"),
        ("bench stream --bytes 1M --seconds 1", "cannot be used with"),
        ("bench stream --bytes 10MB", "not a unit"),
        ("bench stream --bytes 0", "moves nothing"),
        ("bench stream --seconds soon", "not a number of seconds"),
        ("bench stream --mode train", "the modes are single, chain, contiguous"),
        ("bench stream --mode contiguous:44", "1 to 43"),
        ("bench stream --runs 0", "not in"),
        ("bench many --device wire,packet --queue 5000", "--queue needs"),
        ("bench --bytes 4", "unexpected argument"),
        ("nothing", "unrecognized subcommand"),
    ] {
        let sentence = job(words).unwrap_err();
        assert!(sentence.contains(part), "{words}: {sentence}");
    }
}

#[test]
fn files_travel_over_a_named_device() {
    let words = "multidata send data.bin [fd00::1]:7000 --device tap0 --address fd00::2/64";
    let Verb::Send(send) = CommandLine::try_parse_from(words.split(' ')).unwrap().verb else {
        panic!("not send");
    };
    assert_eq!(send.to, "[fd00::1]:7000".parse().unwrap());
    assert_eq!(send.link.device.as_deref(), Some("tap0"));
    for words in [
        "multidata send data.bin 10.0.0.1 --device tap0 --address 10.0.0.2/24",
        "multidata send data.bin 10.0.0.1:7 --device tap0 --address 10.0.0.2/33",
        "multidata receive 10.0.0.2:7 data.bin --address 10.0.0.2/24",
        "multidata send data.bin 10.0.0.1:7 --device tap0 --address 10.0.0.2/24 --checksums",
        "multidata receive 10.0.0.2:7 data.bin --address 10.0.0.2/24 --tunnel 10.1.0.1:9",
        "multidata receive 10.0.0.2:7 data.bin --address 10.0.0.2/24 --device t --tunnel 10.1.0.1:9 \
         --key-file k",
    ] {
        assert!(CommandLine::try_parse_from(words.split(' ')).is_err(), "{words}");
    }
}

/// What is wrong with the way a file is to travel.
fn complaint(words: &str) -> String {
    let words = ["multidata"].into_iter().chain(words.split_whitespace());
    match CommandLine::try_parse_from(words).unwrap().verb {
        Verb::Send(arguments) => arguments.check(),
        Verb::Receive(arguments) => arguments.check(),
        verb => panic!("{verb:?} takes no file"),
    }
    .err()
    .unwrap_or_default()
}

#[test]
fn addresses_that_cannot_stand_together_are_named() {
    let over = "--device tap0 --address 10.0.0.2/24";
    assert_eq!(complaint(&format!("send f 8.8.8.8:7 {over} --gateway 10.0.0.1")), "");
    assert_eq!(complaint(&format!("receive 0.0.0.0:7 f {over}")), "");
    assert_eq!(complaint("send f 10.0.0.2:7 --device t --address 10.0.0.3/31"), "");
    assert_eq!(complaint("send f 10.0.0.2:7 --device t --address dhcp"), "");
    assert_eq!(complaint("receive [::]:7 f --device t --address slaac"), "");
    let within = "--tunnel 192.0.2.1:7100 --key-file k --address 10.0.0.2/24";
    assert_eq!(complaint(&format!("send f 10.0.0.1:7 {within}")), "");
    assert_eq!(complaint(&format!("receive 10.0.0.2:7 f {within}")), "");
    assert!(complaint(&format!("send f 10.0.0.1:7 {within} --offload on")).contains("for devices"));
    for (words, part) in [
        ("send f 10.0.0.1:0 OVER", "port above 0"),
        ("send f 0.0.0.0:7 OVER", "cannot be connected to"),
        ("send f 10.0.0.255:7 OVER", "cannot be connected to"),
        ("send f 224.0.0.1:7 OVER", "cannot be connected to"),
        ("send f [fd00::1]:7 OVER", "two IP versions"),
        ("send f 8.8.8.8:7 OVER --gateway 10.1.0.1", "--gateway 10.1.0.1 is not on the network"),
        ("send f 8.8.8.8:7 OVER --gateway fd00::1", "--gateway fd00::1 is not on the network"),
        ("send f 10.0.0.1:7 OVER --mode lso --offload off", "--offload on"),
        ("send f 10.0.0.1:7 --device tap0 --address 0.0.0.0/0", "one host"),
        ("send f 10.0.0.1:7 --device tap0 --address 10.0.0.255/24", "one host"),
        ("send f [fd00::1]:7 --device t --address dhcp", "two IP versions"),
        ("send f 10.0.0.1:7 --device t --address slaac", "two IP versions"),
        ("send f 8.8.8.8:7 --device t --address dhcp --gateway 10.0.0.1", "brings its own"),
        ("send f 10.0.0.1:7 --tunnel 0.0.0.0:9 --key-file k --address 10.0.0.2/24", "at a host"),
        (
            "send f 10.0.0.1:7 --tunnel 10.1.0.1:0 --key-file k --address 10.0.0.2/24",
            "port above 0",
        ),
        ("send f 10.0.0.1:7 --tunnel 10.1.0.1:9 --key-file k --address dhcp", "in a tunnel"),
        ("send f 10.0.0.1:7 OVER --key-file k", "--key-file goes with --tunnel"),
        ("send f 10.0.0.1:7 OVER --capture f", "FILE f and --capture f are one file"),
        ("receive 10.0.0.2:7 f OVER --capture ./f", "FILE f and --capture ./f are one file"),
        (
            "receive 10.0.0.2:7 k --tunnel 10.1.0.1:9 --key-file k --address 10.0.0.2/24",
            "--key-file k and FILE k are one file",
        ),
        ("receive 10.0.0.3:7 f --device t --address dhcp", "not at this stack's"),
        ("receive 10.0.0.2:0 f OVER", "port above 0"),
        ("receive 10.0.0.3:7 f OVER", "not at this stack's --address 10.0.0.2/24"),
        ("receive [::]:7 f OVER", "not at this stack's"),
    ] {
        let sentence = complaint(&words.replace("OVER", over));
        assert!(sentence.contains(part), "{words}: {sentence}");
    }
}

#[test]
fn layouts_and_placements_reach_their_scenarios() {
    let all = job("bench receive").unwrap();
    assert_eq!((all.reading, all.scenarios.len()), (Reading::Receive, 2 * (1 + 6 * 2 + 1)));
    let laid_out = job("bench receive --layout R2S0F0,R1S2F1 --placement core,other,anywhere \
         --connections 1,8 --seconds 0.2")
    .unwrap();
    assert_eq!(laid_out.reading, Reading::Layouts);
    assert_eq!(laid_out.scenarios.len(), 2 * 3 * 2);
    let names: Vec<String> = laid_out.scenarios.iter().map(Scenario::name).collect();
    assert_eq!(names[0], "wire receive multidata up adaptive by R2S0F0 at core");
    assert_eq!(names[11], "wire receive x8 multidata up adaptive by R1S2F1 at anywhere");
    let polled = job("bench receive --layout R1S0F0 --polling off,adaptive,always").unwrap();
    let names: Vec<String> = polled.scenarios.iter().map(Scenario::name).collect();
    assert_eq!(names.len(), 3);
    assert_eq!(names[2], "wire receive multidata up adaptive by R1S0F0 at core polling always");
    for (words, part) in [
        ("bench receive --polling off", "--layout"),
        ("bench receive --layout R1S2F1 --polling often", "adaptive"),
        ("bench receive --placement core", "--layout"),
        ("bench receive --layout R2", "R1S8F1"),
        ("bench receive --layout R1S2F1 --placement near", "anywhere"),
        ("bench receive --layout R1S2F1 --pin", "--pin"),
        ("bench receive --device tunnel --layout R1S2F1", "tunnel"),
    ] {
        let sentence = job(words).unwrap_err();
        assert!(sentence.contains(part), "{words}: {sentence}");
    }
}

#[test]
fn every_option_of_a_copy_in_reaches_its_scenarios() {
    let all = job("bench copyin").unwrap();
    assert!(all.may_use_wire);
    assert_eq!(all.reading, Reading::CopyIn);
    assert_eq!(all.scenarios.len(), 2 * 4 * 14);
    let napi = job("bench copyin --napi on").unwrap();
    assert!(napi.scenarios.iter().all(|it| it.napi == (it.device == DeviceKind::Tap)));
    let both = job("bench copyin --device wire --policy old --datagram 1472,9000").unwrap();
    assert_eq!(both.scenarios.len(), 3 * 4);
    let of_datagrams = both.scenarios.iter().filter(|it| it.datagram_len_bytes == Some(1_472));
    assert_eq!(of_datagrams.count(), 4);
    let job = job("bench copyin --device wire --write-size 48K --policy old,first-whole-folded \
         --send-buffer 64K --largest-block 32K --low-water 8K --largest-cached 16K --seconds 2")
    .unwrap();
    assert_eq!(job.scenarios.len(), 2);
    let Scenario { copy_in, .. } = &job.scenarios[1];
    assert_eq!((copy_in.block_len_bytes_max, copy_in.low_water_bytes), (32 << 10, 8 << 10));
    assert!(copy_in.fold_checksum && !job.scenarios[0].copy_in.fold_checksum);
    for scenario in &job.scenarios {
        assert_eq!(scenario.write_len_bytes, 48 << 10);
        assert_eq!(scenario.largest_cached_len_bytes, Some(16 << 10));
        assert_eq!(scenario.send_buffer_bytes, Some(64 << 10));
        assert_eq!(scenario.amount, Amount::Time(Duration::from_secs(2)));
    }
}
