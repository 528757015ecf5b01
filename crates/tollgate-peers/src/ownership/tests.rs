//! Tests of the holders of partitions.
#![allow(clippy::cast_possible_truncation, reason = "numbers of partitions and nodes are small")]

use super::*;

fn addresses(numbers: &[usize]) -> Vec<Address> {
    numbers.iter().map(|it| Address { host: format!("10.0.0.{it}"), port: 7379 }).collect()
}

fn node(number: usize, list: &[usize], incarnation: u64) -> Ownership {
    let mut node = Ownership::new(incarnation);
    node.set_list(addresses(list), addresses(&[number]).first(), Timestamp::EPOCH);
    node
}

/// Passes the holdings of one node to another.
fn tell(from: &Ownership, to: &mut Ownership) {
    for (partition, known) in from.known.iter().enumerate() {
        to.learn(partition, &known.holding, Timestamp::EPOCH);
    }
}

fn claim(by: &Ownership, from: &mut Ownership) {
    let Some(me) = &by.me else { return };
    let holder = from.me.clone();
    let wanted: Vec<u8> =
        by.wanted().filter(|(_, it)| Some(*it) == holder.as_ref()).map(|(it, _)| it as u8).collect();
    from.grant(me, &wanted, Timestamp::EPOCH);
}

fn held(node: &Ownership) -> usize {
    (0..PARTITIONS).filter(|&it| node.is_held(it)).count()
}

#[test]
fn a_node_that_joins_gets_its_partitions_with_their_sources() {
    let mut nodes = [node(0, &[0, 1], 10), node(1, &[0, 1], 11)];
    for it in &mut nodes {
        assert!(it.take_unknown(Timestamp::EPOCH));
    }
    assert_eq!(held(&nodes[0]) + held(&nodes[1]), PARTITIONS);
    let mut third = node(2, &[0, 1, 2], 12);
    for old in &mut nodes {
        tell(old, &mut third);
        claim(&third, old);
        tell(old, &mut third);
    }
    assert_eq!(held(&nodes[0]) + held(&nodes[1]) + held(&third), PARTITIONS);
    assert!(held(&third) > 60);
    for partition in (0..PARTITIONS).filter(|&it| third.is_held(it)) {
        assert_eq!(third.known[partition].holding.sources.len(), 1);
        assert_eq!(third.list_owner(partition), third.me.as_ref().map(|it| &it.address));
    }
    // The old nodes have the old list, and do not claim anything back.
    assert_eq!(nodes[0].wanted().count() + nodes[1].wanted().count(), 0);
}

#[test]
fn a_restarted_process_knows_that_its_states_are_lost() {
    let (mut one, mut other) = (node(0, &[0, 1], 10), node(1, &[0, 1], 11));
    one.take_unknown(Timestamp::EPOCH);
    other.take_unknown(Timestamp::EPOCH);
    tell(&one, &mut other);
    let mut restarted = node(0, &[0, 1], 99);
    tell(&other, &mut restarted);
    assert_eq!(held(&restarted), held(&one));
    let own = (0..PARTITIONS).find(|&it| restarted.is_held(it)).unwrap();
    let Holding { term, sources, .. } = &*restarted.known[own].holding;
    assert_eq!((*term, sources[0].incarnation), (2, 10));
}

#[test]
fn two_holders_after_a_takeover_become_one_with_the_other_as_source() {
    let (mut cut, mut rest) = (node(0, &[0, 1], 10), node(1, &[0, 1], 11));
    cut.take_unknown(Timestamp::EPOCH);
    rest.take_unknown(Timestamp::EPOCH);
    tell(&cut, &mut rest);
    rest.set_list(addresses(&[1]), addresses(&[1]).first(), Timestamp::EPOCH);
    let lost = cut.me.clone().unwrap();
    assert!(rest.take_over(&lost, Timestamp::EPOCH));
    assert_eq!(held(&rest), PARTITIONS);
    assert!(held(&cut) > 0);
    tell(&rest, &mut cut);
    assert_eq!(held(&cut), 0);
    tell(&cut, &mut rest);
    let taken = rest.known.iter().filter(|it| it.holding.sources.contains(&lost)).count();
    assert!(taken > 60, "{taken}");
}

#[test]
fn a_process_that_began_without_its_predecessor_learns_of_it() {
    for (former, later) in [(10, 99), (99, 10)] {
        let (mut one, mut other) = (node(0, &[0, 1], former), node(1, &[0, 1], 11));
        one.take_unknown(Timestamp::EPOCH);
        tell(&one, &mut other);
        let mut restarted = node(0, &[0, 1], later);
        restarted.take_unknown(Timestamp::EPOCH);
        for _ in 0..2 {
            tell(&other, &mut restarted);
            let own = (0..PARTITIONS).find(|&it| restarted.is_held(it)).unwrap();
            let Holding { term, sources, .. } = &*restarted.known[own].holding;
            assert_eq!((*term, sources.len(), sources[0].incarnation), (2, 1, former));
        }
    }
}

#[test]
fn sources_are_bounded_and_those_forgotten_count_as_lost() {
    let process = |number: u64| {
        let address = addresses(&[number as usize])[0].clone();
        Arc::new(Process { address, incarnation: number })
    };
    let mut holding = Holding::default();
    for number in 1..100 {
        holding = holding.next(&process(number));
    }
    assert_eq!(holding.sources.len(), MAX_SOURCES);
    assert_eq!(holding.sources[0].incarnation, LOST_INCARNATION);
    assert_eq!(
        holding.sources[1..].iter().map(|it| it.incarnation).collect::<Vec<_>>(),
        (84..99).collect::<Vec<_>>()
    );
}

/// Random lists, claims, and messages that are lost, late and repeated: no partition has two holders.
#[test]
fn one_holder_at_a_time() {
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let everyone = [0, 1, 2, 3];
        let mut nodes: Vec<_> = (0..4).map(|it| node(it, &everyone, it as u64)).collect();
        for it in &mut nodes {
            it.take_unknown(Timestamp::EPOCH);
        }
        // Holdings that are under way: receiver, partition, holding.
        let mut messages: Vec<(usize, usize, Arc<Holding>)> = Vec::new();
        let mut claims: Vec<(usize, Arc<Process>, u8)> = Vec::new();
        for step in 0..3_000 {
            let at = rng.usize(..4);
            match rng.u8(..8) {
                0 if step % 10 == 0 => {
                    let mut list: Vec<_> = everyone.into_iter().filter(|_| rng.u8(..4) > 0).collect();
                    if list.is_empty() {
                        list.push(at);
                    }
                    let here = addresses(&[at]);
                    nodes[at].set_list(addresses(&list), here.first(), Timestamp::EPOCH);
                }
                0..3 => {
                    let partition = rng.usize(..PARTITIONS);
                    let news = Arc::clone(&nodes[at].known[partition].holding);
                    messages.push((rng.usize(..4), partition, news));
                }
                3..5 => {
                    let (me, wanted) = (nodes[at].me.clone().unwrap(), nodes[at].wanted());
                    if let Some((partition, holder)) = wanted.last() {
                        let to = everyone[holder.incarnation as usize];
                        claims.push((to, me, partition as u8));
                    }
                }
                5 if !claims.is_empty() => {
                    // Not removed: the claim may be repeated.
                    let (to, by, partition) = claims[rng.usize(..claims.len())].clone();
                    nodes[to].grant(&by, &[partition], Timestamp::EPOCH);
                }
                _ if !messages.is_empty() => {
                    let (to, partition, news) = messages.swap_remove(rng.usize(..messages.len()));
                    nodes[to].learn(partition, &news, Timestamp::EPOCH);
                }
                _ => {}
            }
            for partition in 0..PARTITIONS {
                let holders = nodes.iter().filter(|it| it.is_held(partition)).count();
                assert!(holders <= 1, "seed {seed}, step {step}: {holders} holders of {partition}");
            }
        }
    }
}
