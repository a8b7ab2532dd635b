use super::{Empty, Flame, MAX_TOWERS};
use crate::attribution::story::{Actor, FUTEX, HOG, IDLE, MS, RECEIVE, SERVER, Story, WORKER, at};
use crate::attribution::{Entry, Hop, Judged};
use crate::clock::{ClockAnchor, DurNs, MonoNs};
use crate::event::Fact;
use crate::journey::{JourneyId, Outcome};
use crate::pipeline::Output;
use crate::stack::{FrameFact, Function, ModuleFact, Nameless, StackEnd, StackFact, Taken, TakenFact};
use crate::summary::RunSummary;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, proptest};
use quick_xml::events::Event;

/// A check that waits from 1 ms to 861 ms for a mutex, which the worker holds.
fn behind(holder: impl FnOnce(&mut Story)) -> Judged {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).wakes(861 * MS, WORKER, SERVER).runs(861 * MS + 5, SERVER);
    holder(&mut story);
    story.evidence.tell_hops();
    story.judge()
}

fn slow() -> Judged {
    behind(|story| {
        story.runs(500, WORKER).sleeps(900 * MS, WORKER, 1, FUTEX);
    })
}

fn healthy() -> Judged {
    let mut story = Story::served(3 * MS);
    story.sleeps(4 * MS, SERVER, 1, RECEIVE);
    story.evidence.tell_hops();
    story.judge()
}

fn flame(checks: impl IntoIterator<Item = Judged>) -> Flame {
    let mut flame = Flame::new();
    let mut count = 0;
    for (number, mut judged) in (1..).zip(checks) {
        judged.journey.id = JourneyId(number);
        flame.push(&Output::Journey(Box::new(judged)));
        count = number;
    }
    flame.push(&Output::Summary(RunSummary { checks: count, ..RunSummary::default() }));
    flame
}

/// Levels and time of each line.
fn lines(folded: &str) -> Vec<(Vec<&str>, u64)> {
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(levels, time)| (levels.split(';').collect(), time.parse().unwrap())).collect()
}

fn total(folded: &str) -> u64 {
    lines(folded).iter().map(|(_, time)| time).sum()
}

fn widest(flame: &Flame) -> String {
    let folded = flame.delay().unwrap().folded();
    let widest = lines(&folded).into_iter().max_by_key(|(_, time)| *time).unwrap();
    widest.0.join(";")
}

#[test]
fn a_mutex_has_its_waiter_and_its_owner_in_one_tower() {
    let tower = "thread;hold;app.futex;thread server;do_futex_[k];futex_wait_[k];__futex_wait_[k];futex_do_wait_[k];\
                 waker worker";
    assert_eq!(widest(&flame([slow()])), tower);
}

#[test]
fn each_wait_that_is_followed_is_a_level_and_each_sleeper_has_its_stack() {
    let judged = behind(|story| {
        story.runs(500, WORKER).sleeps(900, WORKER, 2, "io_schedule folio_wait_bit_common folio_wait_writeback");
        story.wakes_in(860 * MS, IDLE, WORKER, 5).runs(860 * MS + 9, WORKER);
    });
    let tower = "thread;hold;app.futex;storage.writeback;thread server;do_futex_[k];futex_wait_[k];__futex_wait_[k];\
                 futex_do_wait_[k];waker worker;folio_wait_writeback_[k];folio_wait_bit_common_[k];io_schedule_[k]";
    assert_eq!(widest(&flame([judged])), tower);
}

#[test]
fn who_had_the_cpu_is_no_waker() {
    let judged = behind(|story| {
        story.runs(500, WORKER).preempted(900, WORKER, HOG).runs_after(860 * MS, WORKER, HOG);
    });
    assert!(widest(&flame([judged])).ends_with("waker worker;instead hog"));
}

#[test]
fn the_width_is_the_time_of_the_slow_checks_to_the_nanosecond() {
    let folded = flame([slow(), healthy(), slow()]).delay().unwrap().folded();
    assert_eq!(total(&folded), 2 * slow().journey.elapsed().0);
    assert!(folded.contains("unexplained;"), "{folded}");
}

#[test]
fn a_check_that_is_told_often_while_it_is_open_counts_once_as_it_was_told_last() {
    let open = |us: u64| {
        let mut judged = slow();
        judged.journey.outcome = Outcome::Open;
        judged.ledger.entries.truncate(1);
        judged.ledger.entries[0].to = judged.ledger.entries[0].from.after(DurNs(us));
        judged.ledger.gaps.clear();
        judged
    };
    let mut flame = Flame::new();
    let mut tell = |judged: Judged| {
        flame.push(&Output::Journey(Box::new(judged)));
        total(&flame.delay().unwrap().folded())
    };
    assert_eq!((tell(open(50)), tell(open(70))), (50, 70));
    assert_eq!((tell(slow()), tell(open(1))), (slow().journey.elapsed().0, slow().journey.elapsed().0 + 1));
}

#[test]
fn what_is_charged_while_events_were_lost_is_not_believed() {
    let judged = behind(|story| {
        story.lost_events = 1;
    });
    let folded = flame([judged]).delay().unwrap().folded();
    let whole = slow().journey.elapsed().0;
    assert_eq!(folded, format!("unexplained;events were lost while the check was under way {whole}\n"));
}

#[test]
fn the_drawing_is_dated_where_a_clock_tells_the_time() {
    let mut dated = flame([slow()]);
    assert!(!dated.delay().unwrap().note.contains("1970"));
    let clock = ClockAnchor { mono: MonoNs(0), unix_ns: 1_600_000_000_000_000_000 };
    dated.push(&Output::Fact(Fact::Clock(clock)));
    assert!(dated.delay().unwrap().note.starts_with("2020-09-13T12:26:40Z; "));
}

#[test]
fn a_differential_graph_compares_one_check_with_one() {
    let graph = flame((0..10).map(|_| healthy()).chain([slow(), slow()])).diff().unwrap();
    let folded = graph.folded();
    let counts = folded.lines().map(|line| {
        let mut words = line.rsplit(' ').map(str::parse::<u64>);
        (words.next().unwrap().unwrap(), words.next().unwrap().unwrap())
    });
    let (now, before) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
    assert_eq!((now, before), (slow().journey.elapsed().0, healthy().journey.elapsed().0), "{folded}");
    let svg = graph.svg().unwrap();
    assert!(
        svg.contains("<title>app.futex (860 ms, 99.78%; healthy 0 ns)</title>"),
        "told of every level, not the top alone"
    );
    assert!(svg.contains("<title>app.on_cpu (1.88 ms, 0.22%; healthy 2.89 ms)</title>"), "{svg}");
    assert!(svg.contains("a slow check (the full width, 862 ms) against a healthy one (2.90 ms)"), "{svg}");
}

#[test]
fn slow_checks_are_compared_with_healthy_ones_of_their_own_kind_only() {
    let mut other = healthy();
    other.journey.signature = 1;
    assert_eq!(flame([slow(), other.clone()]).diff().unwrap_err(), Empty::NoHealthy { slow: 1 });
    let mut alone = slow();
    alone.journey.signature = 2;
    let graph = flame([slow(), healthy(), other, alone]).diff().unwrap();
    assert!(graph.note.contains("means of 1 slow and 1 healthy checks, 1 slow left out"), "{}", graph.note);
}

#[test]
fn nothing_to_draw_is_said_with_what_to_do() {
    assert_eq!(flame([]).delay().unwrap_err(), Empty::NoCheck);
    assert_eq!(flame([healthy(), healthy()]).delay().unwrap_err(), Empty::NoSlow { checks: 2 });
    assert_eq!(flame([healthy()]).diff().unwrap_err(), Empty::NoSlow { checks: 1 });
    for empty in [Empty::NoCheck, Empty::NoSlow { checks: 2 }, Empty::NoHealthy { slow: 1 }] {
        let said = empty.to_string();
        assert!(said.contains("whylag replay") || said.contains("--kind delay"), "{said}");
    }
}

#[test]
fn beyond_very_many_towers_time_counts_for_its_custody() {
    let template = slow();
    let entry = template.ledger.entries.iter().max_by_key(|entry| entry.time()).unwrap();
    let many = (0..MAX_TOWERS + 2_000).map(|number| {
        let hop = Hop { comm: format!("t{number}"), ..entry.hops[0].clone() };
        Entry { hops: vec![hop], ..entry.clone() }
    });
    let mut judged = template.clone();
    judged.ledger.entries = many.collect();
    judged.ledger.gaps.clear();
    let flame = flame([judged]);
    let folded = flame.delay().unwrap().folded();
    assert_eq!(folded.lines().count(), MAX_TOWERS + 1);
    assert!(folded.contains("thread;of many different towers "), "it says so");
    assert_eq!(total(&folded), entry.time().0 * (MAX_TOWERS as u64 + 2_000));
}

#[test]
fn a_thread_and_what_stands_on_it_are_one_block_whatever_stands_beside_them() {
    let template = slow();
    let entry = template.ledger.entries.iter().max_by_key(|entry| entry.time()).unwrap();
    let with = |comm: &str, frames: &[&str]| {
        let frames = frames.iter().map(|frame| (*frame).to_owned()).collect();
        Entry {
            hops: vec![Hop { comm: comm.to_owned(), frames, ..entry.hops[0].clone() }],
            offender: None,
            ..entry.clone()
        }
    };
    let mut judged = template.clone();
    judged.ledger.entries = vec![with("server", &[]), with("server", &["futex_wait"]), with("server-2", &[])];
    let svg = flame([judged]).delay().unwrap().svg().unwrap();
    assert_eq!(svg.matches("<title>thread server (1.72 s").count(), 1, "{svg}");
}

#[test]
fn the_drawing_says_its_unit_and_fits_its_reader() {
    let svg = flame([slow(), healthy()]).delay().unwrap().svg().unwrap();
    assert!(svg.contains("the delay of 1 slow check of 2; the full width is 862 ms"));
    assert!(svg.contains("<title>app.futex (860 ms, 99.78%)</title>"), "{svg}");
    assert!(svg.contains("<title>futex_do_wait (860 ms, "), "the mark of the kernel is not shown");
    assert!(!svg.contains("samples, "), "the unit is time");
    assert!(
        svg.contains(">futex_do_wait</text>") && !svg.contains('\u{e000}'),
        "labels are whole, and without numbers"
    );
    assert!(svg.contains("prefers-color-scheme: dark"));
    for outside in ["src=", "@import", "url(http", "xlink:href"] {
        assert!(!svg.contains(outside), "it needs nothing from outside: {outside}");
    }
}

#[test]
fn times_that_no_recording_holds_are_an_error() {
    let mut judged = slow();
    judged.ledger.entries[0].to.0 = u64::MAX;
    let flame = flame([judged.clone(), judged, healthy()]);
    assert!(flame.delay().unwrap().svg().is_err());
    assert!(flame.diff().unwrap().svg().is_err());
}

/// A text is well formed: tags match, and no character stands there that XML does not know.
fn texts(document: &str) -> Result<Vec<String>, String> {
    let mut reader = quick_xml::Reader::from_str(document);
    let (mut texts, mut in_text) = (Vec::new(), false);
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(start) => in_text = matches!(start.name().as_ref(), b"text" | b"title"),
            Event::Text(text) if in_text => texts.push(text.decode().map_err(|error| error.to_string())?.into_owned()),
            Event::Eof => break,
            _ => {}
        }
    }
    let stray = document.chars().find(|c| (c.is_control() && *c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}'));
    stray.map_or(Ok(texts), |stray| Err(format!("{stray:?}")))
}

fn name() -> impl Strategy<Value = String> {
    let piece = proptest::prop_oneof![
        any::<String>(),
        proptest::sample::select(vec![
            "<script>alert(1)</script>",
            "]]>",
            "'\"",
            "&amp;",
            ";",
            "\n",
            " 12",
            "--",
            "\u{0}\u{1b}[2J",
            "</title>",
            "_[k]",
            "(",
            "\u{feff}\u{ffff}",
        ])
        .prop_map(str::to_owned),
    ];
    vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Names come from other people's processes.
    #[test]
    fn no_name_breaks_out(thread in name(), function in name(), device in name(), reason in name()) {
        let mut judged = slow();
        let longest = judged.ledger.entries.iter_mut().max_by_key(|entry| entry.time()).unwrap();
        longest.hops[0] = Hop { comm: thread, frames: vec![function], ..longest.hops[0].clone() };
        longest.hops.truncate(1);
        let offender = longest.offender.as_mut().unwrap();
        (offender.task, offender.comm, offender.device) = Default::default();
        offender.device = device;
        judged.ledger.gaps[0].reason = reason;
        let whole = judged.journey.elapsed().0;
        let flame = flame([judged, healthy()]);
        let folded = flame.delay().unwrap().folded();
        prop_assert_eq!(total(&folded), whole);
        prop_assert!(lines(&folded).iter().all(|(levels, _)| levels.len() <= 6), "{}", folded);
        for graph in [flame.delay().unwrap(), flame.diff().unwrap()] {
            let svg = graph.svg().unwrap();
            let texts = texts(&svg);
            prop_assert!(texts.is_ok(), "{texts:?}");
            prop_assert!(!svg.contains('\u{e000}'), "no number of a block is left");
            prop_assert_eq!(svg.matches("<script").count(), 1, "only the drawing's own");
            prop_assert_eq!(svg.matches("</title>").count(), svg.matches(")</title>").count());
        }
    }
}

#[test]
fn workers_of_one_name_are_one_level() {
    let mut story = Story::served(862 * MS);
    let twin = Actor(800, 899, "worker");
    story.sleeps(MS, SERVER, 1, FUTEX).wakes(400 * MS, WORKER, SERVER).runs(400 * MS + 5, SERVER);
    story.sleeps(400 * MS + 9, SERVER, 1, FUTEX).wakes(861 * MS, twin, SERVER).runs(861 * MS + 5, SERVER);
    story.runs(500, WORKER).sleeps(900 * MS, WORKER, 1, FUTEX).runs(500, twin).sleeps(900 * MS, twin, 1, FUTEX);
    story.evidence.tell_hops();
    let folded = flame([story.judge()]).delay().unwrap().folded();
    let futex = lines(&folded).into_iter().filter(|(levels, _)| levels.contains(&"app.futex")).count();
    assert_eq!(futex, 1, "{folded}");
}

/// A stack of one function each, said as a run says it.
fn say_stack(flame: &mut Flame, id: u32, functions: &[&str]) {
    let function = |name: &&str| Function { name: (*name).to_owned(), file: String::new(), line: 0 };
    let frame = |(number, name): (u32, &&str)| FrameFact {
        id: id * 10 + number,
        module: None,
        address: 1,
        functions: vec![function(name)],
        unknown: None,
    };
    let frames: Vec<_> = (0..).zip(functions).map(frame).collect();
    let ids = frames.iter().map(|frame| frame.id).collect();
    flame.push(&Output::Fact(Fact::Stack(StackFact { id, frames: ids, end: StackEnd::Entry })));
    frames.into_iter().for_each(|frame| flame.push(&Output::Fact(Fact::Frame(frame))));
}

/// The worker's samples: a third in one function, the rest in another, one of those in the kernel.
fn behind_a_sampled_holder() -> Judged {
    behind(|story| {
        story.runs(500, WORKER).sleeps(900 * MS, WORKER, 1, FUTEX);
        let since = at(MS);
        let wait = TakenFact { task: SERVER.id(), why: Taken::Wait { since }, user: Some(1), kernel: Vec::new() };
        story.fact(861 * MS + 5, Fact::Taken(wait));
        let clear_page = story.address("clear_page");
        for (us, user, kernel) in
            [(100 * MS, 2, Vec::new()), (200 * MS, 3, Vec::new()), (300 * MS, 3, vec![clear_page])]
        {
            let period = DurNs::from_millis(10);
            let why = Taken::Sample { period };
            story.fact(us, Fact::Taken(TakenFact { task: WORKER.id(), why, user: Some(user), kernel }));
        }
    })
}

#[test]
fn waiter_and_holder_of_a_mutex_are_in_one_tower_with_their_code() {
    let judged = behind_a_sampled_holder();
    let whole = judged.journey.elapsed();
    let mut flame = flame([judged]);
    // Names may come after the check.
    say_stack(&mut flame, 1, &["lock_inventory", "serve", "main"]);
    say_stack(&mut flame, 2, &["hash", "rebuild"]);
    say_stack(&mut flame, 3, &["sort", "rebuild"]);
    let folded = flame.delay().unwrap().folded();
    assert_eq!(total(&folded), whole.0, "exact to the nanosecond: {folded}");
    let waits = "thread server;main;serve;lock_inventory;";
    let towers: Vec<_> = lines(&folded).into_iter().filter(|(levels, _)| levels.contains(&"waker worker")).collect();
    assert_eq!(towers.len(), 3, "{folded}");
    for (levels, time) in &towers {
        let tower = levels.join(";");
        assert!(tower.contains(waits) && tower.contains("futex_do_wait_[k];waker worker;rebuild;"), "{tower}");
        // 860 ms in three equal parts.
        assert!(time.abs_diff(860_000_000 / 3) < 1_000_000, "{tower} {time}");
    }
    assert!(folded.contains("rebuild;sort;clear_page_[k] "), "{folded}");
}

#[test]
fn a_source_file_is_told_and_cannot_leave_its_title() {
    let mut flame = flame([behind_a_sampled_holder()]);
    say_stack(&mut flame, 1, &["main"]);
    let hostile = Function { name: "main".to_owned(), file: "a\"&b</title><script>x".to_owned(), line: 7 };
    let frame = FrameFact { id: 10, module: Some(1), address: 64, functions: vec![hostile], unknown: None };
    flame.push(&Output::Fact(Fact::Frame(frame)));
    let svg = flame.delay().unwrap().svg().unwrap();
    texts(&svg).unwrap();
    assert!(svg.contains("; at a&quot;&amp;b&lt;/title&gt;&lt;script&gt;x:7)</title>"), "{svg}");
}

#[test]
fn a_frame_without_a_name_says_its_place_and_why() {
    let mut flame = flame([behind_a_sampled_holder()]);
    let module = ModuleFact { id: 1, name: "libshop.so".to_owned(), build_id: String::new() };
    let unknown = Some(Nameless::NoSymbol);
    let frame = FrameFact { id: 9, module: Some(1), address: 0x1234, functions: Vec::new(), unknown };
    flame.push(&Output::Fact(Fact::Module(module)));
    flame.push(&Output::Fact(Fact::Frame(frame)));
    flame.push(&Output::Fact(Fact::Stack(StackFact { id: 1, frames: vec![9], end: StackEnd::Entry })));
    let folded = flame.delay().unwrap().folded();
    assert!(folded.contains("thread server;libshop.so+0x1234 (no symbol);"), "{folded}");
}
