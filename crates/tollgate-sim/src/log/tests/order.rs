//! Several inputs, and lines that are late.

use proptest::prelude::*;

use super::*;

fn inputs(logs: &[String]) -> Vec<Input> {
    let input = |(number, log): (usize, &String)| {
        Input::new(format!("{number}.log"), io::Cursor::new(log.clone().into_bytes()))
    };
    logs.iter().enumerate().map(input).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn several_logs_come_as_a_stable_sort_of_all_their_lines_has_them(
        logs in proptest::collection::vec(proptest::collection::vec(0_u64..50, 0..60), 1..5),
    ) {
        let path = |log: usize, place: usize| format!("/{log}/{place}");
        let text: Vec<String> = logs
            .iter()
            .enumerate()
            .map(|(log, times)| times.iter().enumerate().map(|(place, at)| line(*at, &path(log, place))).collect())
            .collect();
        let mut expected: Vec<(u64, String)> = logs
            .iter()
            .enumerate()
            .flat_map(|(log, times)| times.iter().enumerate().map(move |(place, at)| (*at, path(log, place))))
            .collect();
        expected.sort_by_key(|(at, _)| *at);
        let seen = read(inputs(&text), &ReadOptions::default()).unwrap();
        let came: Vec<_> =
            seen.entries.iter().map(|it| ((it.at - DAY) / 1_000_000, it.path().to_owned())).collect();
        prop_assert_eq!(came, expected);
        prop_assert_eq!(seen.tally.late, 0);
        prop_assert_eq!(seen.tally.lines, seen.entries.len() as u64);
    }
}

#[test]
fn lines_later_than_the_buffer_are_counted_and_time_does_not_go_back() {
    let in_order: String = (10..5_000).map(|second| line(second, "/")).collect();
    let log = in_order + &line(3, "/late");
    let seen = read(one(log), &ReadOptions::default().reorder(100)).unwrap();
    assert!(seen.entries.is_sorted_by_key(|it| it.at));
    assert_eq!((seen.tally.late, seen.tally.lines, seen.entries.len()), (1, 4_991, 4_991));
    let late = seen.entries.iter().find(|it| it.path() == "/late").unwrap();
    assert!(late.at > DAY + 1_000_000_000, "{}", late.at);
}

#[test]
fn rotated_files_may_be_given_in_any_order() {
    let part = |from: u64| (from..from + 3_000).map(|second| line(second, "/")).collect::<String>();
    let seen =
        read(inputs(&[part(6_000), part(0), part(3_000)]), &ReadOptions::default().reorder(10)).unwrap();
    let times: Vec<_> = seen.entries.iter().map(|it| (it.at - DAY) / 1_000_000).collect();
    assert_eq!(times, (0..9_000).collect::<Vec<_>>());
    assert_eq!(seen.tally.late, 0);
}
