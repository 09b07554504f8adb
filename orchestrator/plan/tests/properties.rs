//! What holds for every size, duration, region and text, not only for those that somebody thought of.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use plan::{MIB, PlanErrors, Profiles, TestPlan, duration, limits, parse, parse_bytes, schedule, size};
use proptest::prelude::*;

const UNITS: [(&str, u128); 14] = [
    ("B", 1),
    ("KB", 1000),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
];

/// A plan of the demo's kind with these numbers.
fn plan_of(workers: u32, disks: u32, footprints: &str) -> Result<TestPlan, PlanErrors> {
    let yaml = format!(
        "name: p\ntarget: {{provider: local}}\nworkers: {{count: {workers}, disks: {disks}, memory: 1TiB}}\n\
         footprints: [{footprints}]\nprecondition: 0s\nsample: 1s\nworkloads: [4k-random-read]\n"
    );
    parse("p.yaml", &yaml, &Profiles::shipped())
}

/// What must hold for any text: an answer, and problems that point into the text.
fn check_answer(bytes: &[u8]) {
    let profiles = Profiles::shipped();
    match parse_bytes("p.yaml", bytes, &profiles) {
        Ok(plan) => {
            assert!(!plan.footprints.is_empty() && plan.total_disks() > 0 && plan.sample_seconds > 0);
            assert!(plan.footprints.iter().all(|footprint| plan.region_bytes(footprint) >= MIB));
            let schedule = schedule(&plan, plan::FillRate::assumed());
            assert!(!schedule.render(&plan).is_empty() && schedule.total_seconds > 0);
        }
        Err(errors) => check_errors(&errors, bytes),
    }
}

fn check_errors(errors: &PlanErrors, bytes: &[u8]) {
    assert!(!errors.problems().is_empty());
    let lines = bytes.split(|byte| *byte == b'\n' || *byte == b'\r').count();
    for problem in errors.problems() {
        assert!((1..=lines + 1).contains(&problem.line) && problem.column >= 1, "{problem:?}");
        assert!(!problem.found.is_empty() && !problem.allowed.is_empty(), "{problem:?}");
    }
    assert!(!errors.to_string().is_empty());
    let mut text = String::new();
    miette::GraphicalReportHandler::new().render_report(&mut text, errors).unwrap();
    assert!(serde_json::to_string(errors).unwrap().starts_with("{\"file\":\"p.yaml\""));
}

proptest! {
    #[test]
    fn a_size_is_exact_or_refused(whole in 0_u64..1_000_000, fraction in "[0-9]{0,6}", unit in prop::sample::select(&UNITS[..])) {
        let (name, factor) = unit;
        let text = if fraction.is_empty() { format!("{whole}{name}") } else { format!("{whole}.{fraction}{name}") };
        let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap());
        let digits: u128 = format!("{whole}{fraction}").parse().unwrap();
        let exact = (digits * factor).is_multiple_of(scale).then(|| digits * factor / scale);
        match (size::parse(&text), exact) {
            (Ok(bytes), Some(exact)) => prop_assert_eq!(u128::from(bytes), exact),
            (Err(size::SizeError::Fraction { .. }), None) => {}
            (Err(size::SizeError::TooLarge), _) => prop_assert!(digits * factor / scale > u128::from(u64::MAX)),
            other => prop_assert!(false, "{}: {:?}", text, other),
        }
    }

    #[test]
    fn sizes_are_read_back(bytes in any::<u64>(), shift in 0_u32..64) {
        let bytes = bytes >> shift << (shift / 2);
        prop_assert_eq!(size::parse(&size::exact(bytes)), Ok(bytes));
        prop_assert_eq!(size::parse(&bytes.to_string()), Ok(bytes));
    }

    #[test]
    fn an_approximate_size_is_at_most_a_hundredth_of_its_unit_below(bytes in any::<u64>(), shift in 0_u32..64) {
        let bytes = bytes >> shift;
        let text = size::approximate(bytes);
        let number: f64 = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap();
        let unit = UNITS.iter().find(|(name, _)| *name == text.trim_start_matches(|c: char| !c.is_ascii_alphabetic())).unwrap().1;
        let exact = bytes as f64 / unit as f64;
        prop_assert!(number <= exact * (1.0 + 1e-12) && exact - number < 0.010_000_1, "{} is {}", text, exact);
        prop_assert!(number < 1024.0);
    }

    #[test]
    fn a_unit_without_b_is_refused_with_both_readings(whole in 1_u32..10_000, unit in "[KMGTPEkmgtpe]") {
        let error = size::parse(&format!("{whole}{unit}")).unwrap_err().to_string();
        let upper = unit.to_uppercase();
        let (decimal, binary) = (format!("{whole}{upper}B "), format!("{whole}{upper}iB "));
        prop_assert!(error.contains(&decimal) && error.contains(&binary), "{}", error);
    }

    #[test]
    fn any_text_as_a_size_or_duration_is_an_answer(text in "\\PC{0,30}|[-0-9.]{0,40}[ a-zA-Z]{0,4}") {
        if let Ok(bytes) = size::parse(&text) {
            prop_assert!(text.starts_with(|c: char| c.is_ascii_digit()), "{} is {}", text, bytes);
        }
        if let Ok(seconds) = duration::parse(&text) {
            prop_assert_eq!(duration::parse(&duration::exact(seconds)), Ok(seconds));
        }
    }

    #[test]
    fn durations_are_read_back(seconds in 0_u64..=10 * 7 * 24 * 3600) {
        prop_assert_eq!(duration::parse(&duration::exact(seconds)), Ok(seconds));
    }

    #[test]
    fn a_duration_is_the_sum_of_its_parts(hours in 0_u64..100, minutes in 0_u64..100, seconds in 0_u64..100) {
        let expected = hours * 3600 + minutes * 60 + seconds;
        prop_assert_eq!(duration::parse(&format!("{hours}h{minutes}m{seconds}s")), Ok(expected));
        prop_assert_eq!(duration::parse(&format!("{hours}h {minutes}m {seconds}s")), Ok(expected));
        prop_assert_eq!(duration::parse(&format!("{expected}s")), Ok(expected));
    }

    #[test]
    fn a_region_is_the_largest_whole_share(workers in 1_u32..=1024, disks in 1_u32..=64, bytes in limits::FOOTPRINT_BYTES) {
        let total = u64::from(workers) * u64::from(disks);
        match plan_of(workers, disks, &size::exact(bytes)) {
            Ok(plan) => {
                let footprint = &plan.footprints[0];
                prop_assert_eq!(footprint.bytes, bytes);
                let region = plan.region_bytes(footprint);
                prop_assert_eq!(region % MIB, 0);
                prop_assert_eq!(plan.effective_bytes(footprint), region * total);
                prop_assert!(region * total <= bytes && bytes - region * total < total * MIB);
                prop_assert_eq!(plan.disk_bytes(), region);
            }
            Err(errors) => {
                prop_assert!(bytes < total * MIB);
                let smallest = format!("at least {}", size::exact(total * MIB));
                prop_assert!(errors.to_string().contains(&smallest), "{}", errors);
            }
        }
    }

    #[test]
    fn the_smallest_footprint_that_is_named_is_accepted(workers in 1_u32..=1024, disks in 1_u32..=64) {
        let smallest = u64::from(workers) * u64::from(disks) * MIB;
        let plan = plan_of(workers, disks, &size::exact(smallest)).unwrap();
        prop_assert_eq!(plan.region_bytes(&plan.footprints[0]), MIB);
        prop_assert!(smallest == MIB || plan_of(workers, disks, &size::exact(smallest - 1)).is_err());
    }

    #[test]
    fn footprints_come_ascending_and_their_regions_differ(workers in 1_u32..8, disks in 1_u32..8, mib in prop::collection::vec(1_u64..2000, 1..8)) {
        let footprints: Vec<String> = mib.iter().map(|mib| format!("{mib}MiB")).collect();
        let total = u64::from(workers) * u64::from(disks);
        let mut regions: Vec<u64> = mib.iter().map(|mib| mib / total).collect();
        regions.sort_unstable();
        let valid = regions[0] > 0 && regions.windows(2).all(|pair| pair[0] < pair[1]);
        match plan_of(workers, disks, &footprints.join(", ")) {
            Ok(plan) => {
                let found: Vec<u64> = plan.footprints.iter().map(|footprint| plan.region_bytes(footprint) / MIB).collect();
                prop_assert_eq!(found, regions);
                prop_assert!(valid);
            }
            Err(_) => prop_assert!(!valid),
        }
    }

    #[test]
    fn random_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check_answer(&bytes);
    }

    #[test]
    fn random_yaml_is_an_answer(text in "([ \\-:,#&*!|>'\"%@`?\\[\\]{}~a-c0-9.\n\t]|name|count|workers|: |\n  |- |---|\\.\\.\\.|&a|\\*a|é|\u{FEFF}|\r){0,120}") {
        check_answer(text.as_bytes());
    }

    #[test]
    fn a_mutated_plan_is_an_answer(
        example in prop::sample::select(plan::examples().collect::<Vec<_>>()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, edit()), 1..6),
    ) {
        let mut bytes = plan::example(example).unwrap().as_bytes().to_vec();
        for (at, remove, insert) in edits {
            let at = at.index(bytes.len() + 1);
            let end = bytes.len().min(at + remove);
            bytes.splice(at..end, insert);
        }
        check_answer(&bytes);
    }
}

/// A file of the largest size made of one token is answered as well: no quadratic time, no deep recursion.
#[test]
fn a_mebibyte_of_one_token_is_an_answer() {
    let tokens = [
        "[",
        "{",
        "- ",
        "a: ",
        "a:\n",
        "- a\n",
        "? ",
        "\n",
        " ",
        "\t",
        "'",
        "\"",
        "|",
        "#",
        "&a ",
        "*a ",
        "!",
        "%",
        "@",
        "---\n",
        "...\n",
        "x",
        "é",
        "\0",
        "\r",
        "\\",
        "a: b\n",
        "&a a: b\n",
        "{a: b},",
        "[a,",
        "\u{FEFF}",
        "- - ",
        "x\n  ",
        "\"\\x",
        "<<: ",
        "? - ",
    ];
    for token in tokens {
        check_answer(token.repeat(limits::MAX_YAML_BYTES / token.len()).as_bytes());
        let within = format!("name: [{}]\n", token.repeat(100_000 / token.len()));
        check_answer(within.as_bytes());
    }
}

/// What a mutation inserts: nothing, bytes, something that YAML or a plan gives a meaning, or a number.
fn edit() -> impl Strategy<Value = Vec<u8>> {
    let tokens = [
        ":",
        "- ",
        "\n",
        "\n  ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "!!str ",
        "'",
        "\"",
        "|\n",
        "#",
        "0",
        "-1",
        "2.5",
        "99999999999",
        "16EB",
        "1MiB",
        "4K",
        "0s",
        "8d",
        "none",
        "zero",
        "per-footprint",
        "hot-spot",
        "streams: 9\n",
        "read_unwritten: true\n",
    ];
    prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 1..6),
        prop::sample::select(tokens.to_vec()).prop_map(|token| token.as_bytes().to_vec()),
        any::<u32>().prop_map(|number| number.to_string().into_bytes()),
    ]
}
