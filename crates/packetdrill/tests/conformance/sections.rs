//! Which sections RFCs and drafts have, so that a script does not cite one that does not exist, nor a call of
//! POSIX under the name of another. Who cites one for the first time adds what he has looked up.

/// The user's calls of RFC 9293, 3.9.1, by their last number.
const CALLS: [&str; 7] = ["OPEN", "SEND", "RECEIVE", "CLOSE", "STATUS", "ABORT", "FLUSH"];

/// Sections of each RFC; all of RFC 9293's chapter 3 below its second level.
const SECTIONS: &[(u16, &str)] = &[
    (791, "3.1 3.2"),
    (1122, "3.2.2.1 3.3.2 3.3.3 4.1.3 4.1.3.1 4.1.3.3 4.2.3.9"),
    (1191, "2 3 4 5 6 6.1 6.2 6.3 6.4 6.5 6.6"),
    (1337, "2 3"),
    (1812, "5.2.7.1"),
    (1858, "3 4"),
    (2018, "2 3 4 5 6 7 8"),
    (2525, "2.17"),
    (2861, "3.1 3.2"),
    (2883, "3 4 4.1 4.2 4.3 5"),
    (3042, "2"),
    (3168, "5 5.3 6.1 6.1.1 6.1.1.1 6.1.2 6.1.3 6.1.4 6.1.5 6.1.6"),
    (3465, "2 2.1 2.2 2.3"),
    (3522, "3.1 3.2"),
    (3708, "2"),
    (4291, "2.5.5.2"),
    (4443, "3.1 3.4"),
    (4821, "7.1 7.2 7.3 7.4 7.5 7.6 7.7 7.8"),
    (4987, "3.6"),
    (5461, "2.2 4"),
    (5482, "3 3.1"),
    (5681, "2 3.1 3.2 4.1 4.2 4.3"),
    (5682, "2.1 3.1"),
    (5722, "4"),
    (5927, "4.1 5.2 7"),
    (5961, "3.1 3.2 4.1 4.2 5.1 5.2 7"),
    (6093, "2 3 4 5 6"),
    (6191, "2"),
    (6298, "2 2.1 2.2 2.3 2.4 2.5 3 4 5 5.1 5.2 5.3 5.4 5.5 5.6 5.7"),
    (6528, "3"),
    (6582, "3.1 3.2"),
    (6633, "3"),
    (6675, "2 3 4 5 5.1"),
    (6691, "2 3 4 5"),
    (6928, "2"),
    (7112, "5"),
    (7323, "1.3 2 2.1 2.2 2.3 3 3.1 3.2 4 4.1 4.2 4.3 5 5.1 5.2 5.3 5.4 5.5"),
    (7413, "3 4.1.1 4.1.2 4.1.3 4.2.1 4.2.2 7.3 A.1"),
    (7661, "4.1 4.2 4.3 4.4 4.5"),
    (8200, "4.5 5 8.3"),
    (8201, "4 5.1 5.2 5.3 5.4 5.5"),
    (8899, "4.6.2"),
    (8985, "3.2 6.2 7.1 7.2 7.3 7.4 7.4.1 7.4.2"),
    (9002, "7.7"),
    (
        9293,
        "3.1 3.2 3.3.1 3.3.2 3.4 3.4.1 3.4.2 3.4.3 3.5 3.5.1 3.5.2 3.5.3 3.6 3.6.1 3.7 3.7.1 3.7.2 3.7.3 \
         3.7.4 3.7.5 3.8 3.8.1 3.8.2 3.8.3 3.8.4 3.8.5 3.8.6 3.8.6.1 3.8.6.2 3.8.6.2.1 3.8.6.2.2 3.8.6.3 \
         3.9.1 3.9.1.1 3.9.1.2 3.9.1.3 3.9.1.4 3.9.1.5 3.9.1.6 3.9.1.7 3.9.1.8 3.9.1.9 3.9.2 3.9.2.1 \
         3.9.2.2 3.9.2.3 3.10.1 3.10.2 3.10.3 3.10.4 3.10.5 3.10.6 3.10.7 3.10.7.1 3.10.7.2 3.10.7.3 \
         3.10.7.4 3.10.8 A.1 A.2 A.3 A.4",
    ),
    (9406, "4.2 4.3"),
    (9438, "4.1 4.2 4.3 4.4 4.5 4.6 4.7 4.8 4.9 4.10 5.8"),
    (9937, "6.1 6.2"),
];

/// The same of drafts that no RFC has come of yet: of the newest version when they were first cited.
const DRAFTS: &[(&str, &str)] = &[(
    "draft-ietf-ccwg-bbr",
    "5.2.1 5.3.1 5.3.1.1 5.3.1.2 5.3.1.3 5.3.2 5.3.3 5.3.3.1 5.3.3.2 5.3.3.3 5.3.3.4 5.3.4 5.3.4.3 5.3.4.4 5.4.1 5.5.5 \
     5.5.10 5.5.10.1 5.5.10.2 5.5.10.3 5.5.11 5.6.1 5.6.2 5.6.3 5.6.4 5.6.4.1 5.6.4.2 5.6.4.3 5.6.4.4 5.6.4.5 5.6.4.6 \
     5.6.4.7",
)];

/// What is wrong with the references of the comment that a script opens with: it says `RFC <number>,
/// <section>`, or a draft's name in the place of the number, at least once, with a section that there is.
pub(crate) fn wrong(text: &str) -> Option<String> {
    let comment = text.lines().map_while(|line| line.strip_prefix("//"));
    let comment = comment.map(str::trim).collect::<Vec<_>>().join(" ");
    let mut count = 0;
    for (at, _) in comment.match_indices(", ") {
        let Some((document, sections)) = document(&comment[..at]) else { continue };
        let is_of_one = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
        let section = comment[at + 2..].split(|letter| !is_of_one(letter)).next().unwrap_or("");
        let section = section.trim_end_matches('.');
        if !section.contains(|letter: char| letter.is_ascii_digit()) {
            continue;
        }
        count += 1;
        if !sections.split(' ').any(|known| known == section) {
            return Some(format!(
                "tests/conformance/sections.rs knows no section {section} of {document}"
            ));
        }
    }
    for (index, call) in CALLS.iter().enumerate() {
        let of_another = |(at, _): (usize, &str)| {
            let before = comment[..at].trim_end().rsplit(' ').next().unwrap_or("");
            before.starts_with("3.9.1.") && before != format!("3.9.1.{}", index + 1)
        };
        if comment.match_indices(&format!("({call})")).any(of_another) {
            return Some(format!("{call} is RFC 9293, 3.9.1.{}", index + 1));
        }
    }
    match count {
        0 => Some("the opening comment names no \"RFC <number>, <section>\"".to_owned()),
        _ => None,
    }
}

/// The document that a text ends with, and the sections that are known of it: none of one that nobody has cited.
fn document(text: &str) -> Option<(String, &'static str)> {
    let (before, last) = text.rsplit_once(' ').unwrap_or(("", text));
    if last.starts_with("draft-") {
        let known = DRAFTS.iter().find(|(draft, _)| *draft == last);
        return Some((last.to_owned(), known.map_or("", |(_, sections)| sections)));
    }
    let number = last.parse::<u16>().ok().filter(|_| before.ends_with("RFC"))?;
    let known = SECTIONS.iter().find(|(rfc, _)| *rfc == number);
    Some((format!("RFC {number}"), known.map_or("", |(_, sections)| sections)))
}
