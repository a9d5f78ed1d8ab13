use super::*;

fn subject() -> Subject {
    Subject { first_seed: 700, twice: false, build: "this".to_owned() }
}

/// What the seed at this distance brought: another sum for each, and the fourth fails.
fn verdict(distance: u64) -> Verdict {
    let seed = 700 + distance;
    if distance == 3 {
        return Verdict::Failed(Box::new(Failure {
            seed,
            at: time::Instant::ZERO,
            property: "it holds".to_owned(),
            what: "it did not".to_owned(),
            host: None,
            flow: None,
            frames: Vec::new(),
        }));
    }
    let counters = RunCounters { established: 1 << distance, frames: 3, ..RunCounters::ZERO };
    let links = LinkCounters { link_marked: 1 << (2 * distance), ..LinkCounters::ZERO };
    let span = Duration::from_nanos(1_000_000_001 * distance);
    let took = Duration::from_millis(10 - distance);
    Verdict::Held(Box::new(Report { seed, counters, links, span, hash: 0 }), took)
}

/// The figures but for those of time and sittings, which differ between counts of the same.
fn sums(count: &Count) -> Value {
    let mut file: Value = serde_json::from_str(&count.to_json()).expect("it is JSON");
    for name in ["seconds", "cpu_seconds", "sittings"] {
        file.as_object_mut().and_then(|all| all.remove(name)).expect("it is there");
    }
    file
}

fn resume(text: &str) -> Result<Count, String> {
    Count::resume(text, None, false, "this")
}

#[test]
fn a_count_cut_in_pieces_has_the_sums_of_one() {
    let mut whole = Count::new(subject());
    (0..6).for_each(|distance| whole.add(distance, verdict(distance)));
    let mut cut = Count::new(subject());
    for (begin, order) in [(0, vec![1, 0, 2, 5]), (3, vec![3]), (4, vec![5, 4])] {
        assert_eq!(cut.seeds(), begin);
        order.into_iter().for_each(|distance| cut.add(distance, verdict(distance)));
        cut = resume(&cut.to_json()).expect("it can be gone on with");
    }
    assert_eq!(sums(&cut), sums(&whole));
    assert_eq!((cut.seeds(), cut.failed(), cut.sittings), (6, 1, 4));
    let file = sums(&cut);
    assert_eq!((&file["first_seed"], &file["slowest_seed"]), (&json!(700), &json!(700)));
    assert_eq!((&file["established"], &file["link_marked"]), (&json!(55), &json!(1_301)));
    assert_eq!(
        file["failures"],
        json!([{"seed": 703, "property": "it holds", "what": "it did not"}])
    );
}

#[test]
fn what_waits_for_a_seed_before_it_is_in_no_file_and_run_again() {
    let mut count = Count::new(subject());
    for distance in [0, 2, 3] {
        count.add(distance, verdict(distance));
    }
    // A failure is one, whatever the order; the file has it when its turn has come.
    assert_eq!((count.seeds(), count.failed()), (1, 1));
    let resumed = resume(&count.to_json()).expect("it can be gone on with");
    assert_eq!((resumed.seeds(), resumed.failed()), (1, 0));
    let mut first = Count::new(subject());
    first.add(0, verdict(0));
    assert_eq!(sums(&resumed), sums(&first));
}

#[test]
fn the_time_of_earlier_sittings_is_added() {
    let mut file: Value = serde_json::from_str(&Count::new(subject()).to_json()).expect("JSON");
    file["seconds"] = json!(1_000.5);
    file["cpu_seconds"] = json!(2_000.25);
    let [clock, cpu] = resume(&file.to_string()).expect("it can be gone on with").took();
    assert!(clock > Duration::from_millis(1_000_500) && clock < Duration::from_secs(1_100));
    assert!(cpu > Duration::from_millis(2_000_250) && cpu < Duration::from_secs(2_100));
}

#[test]
fn what_is_no_count_of_this_is_refused_with_what_to_do() {
    let text = Count::new(subject()).to_json();
    let refused = |text: &str, seed, twice, build: &str| {
        let sentence = Count::resume(text, seed, twice, build).err().expect("it is refused");
        assert!(sentence.contains("name another file"), "{sentence}");
        sentence
    };
    for torn in ["", "seeds 5", &text[..text.len() / 2]] {
        assert!(refused(torn, None, false, "this").contains("no figures of simulate"));
    }
    // As written before counts could be gone on with.
    let old = json!({ "seeds": 5, "established": 400, "failures": [] }).to_string();
    assert!(refused(&old, None, false, "this").contains("of which build"));
    assert!(refused(&text, None, false, "other").contains("the build this, this is other"));
    assert!(refused(&text, Some(701), false, "this").contains("its first seed is 700, not 701"));
    assert!(refused(&text, None, true, "this").contains("without --twice"));
    assert!(Count::resume(&text, Some(700), false, "this").is_ok());
    for name in ["seeds", "established", "link_marked", "seconds", "failures", "first_seed"] {
        let mut file: Value = serde_json::from_str(&text).expect("JSON");
        file[name] = json!(-1);
        assert!(refused(&file.to_string(), None, false, "this").contains(name));
    }
}

#[test]
fn a_file_is_replaced_and_never_half_of_one() {
    let directory = std::env::temp_dir().join(format!("simulate-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("figures.json");
    let link = directory.join("link.json");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    replace(&path, "old and long").expect("it is written");
    // Who looks at the old one sees all of it, whatever comes.
    let mut old = File::open(&path).expect("it is there");
    replace(&link, "new").expect("it is written");
    let mut text = String::new();
    old.read_to_string(&mut text).expect("it can be read");
    assert_eq!(text, "old and long");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "new");
    assert!(link.is_symlink());
    assert_eq!(std::fs::read_dir(&directory).expect("it is there").count(), 2);
    replace(Path::new("/dev/null"), "nothing").expect("a device is written to");
    std::fs::remove_dir_all(directory).expect("it was ours");
}

#[test]
fn an_executable_has_one_name() {
    let name = build().expect("it can be read");
    assert_eq!(name.len(), 16);
    assert_eq!(build().expect("it can be read"), name);
}
