//! Tests that the tokens of a key only grow, whatever the clock, other keys and ceilings do.

use super::*;
use crate::fixture::{permit, token};
use proptest::prelude::*;

/// Returns a moment at which the wall clock shows `wall_us` microseconds.
fn at(wall_us: u64) -> Now {
    Now::new(BootTime::from_us(wall_us), wall_us)
}

#[test]
fn follows_the_clock_and_never_falls_back_with_it() {
    // (wall clock in µs, expected token)
    let cases = [(100, 1_001), (1_000, 1_002), (5_000, 5_000), (5_000, 5_001), (4_000, 5_002), (0, 5_003)];
    let mut tokens = Tokens::new(1_000);
    for (wall_us, expected) in cases {
        assert_eq!(tokens.issue(b"k", None, at(wall_us), 0).map(Token::get), Ok(expected));
    }
    assert_eq!(tokens.high(), 5_003);
}

/// A new reader's token is larger than those of all earlier grants of the stripe (its group of keys), except those of
/// readers. The token of any other grant is larger than all tokens, unless it is a permit that joins other permits.
#[test]
fn readers_come_after_all_that_were_no_readers() {
    let mut tokens = Tokens::new(100);
    let read = |tokens: &mut Tokens, proposal| {
        let floor = tokens.last_ordered(b"k");
        tokens.issue_above(floor, b"k", Mode::Shared, Some(token(proposal)), at(1_000), 0).map(Token::get)
    };
    assert_eq!(read(&mut tokens, 300), Ok(300));
    assert_eq!((tokens.last(b"k"), tokens.last_ordered(b"k")), (300, 100));
    assert_eq!(read(&mut tokens, 200), Ok(200), "one round trip, whatever readers had");
    assert_eq!(read(&mut tokens, 100), Ok(301));
    // A permit that joins others may have a smaller token than earlier readers; later readers get larger tokens than
    // that permit.
    let permit = permit(1, 3);
    assert_eq!(tokens.issue_above(100, b"k", permit, Some(token(150)), at(1_000), 0).map(Token::get), Ok(150));
    assert_eq!((tokens.last_ordered(b"k"), read(&mut tokens, 150), read(&mut tokens, 151)), (150, Ok(302), Ok(151)));
    // If a reader's token is raised, later readers need not exceed it. If another grant's is, they must.
    tokens.raise(b"k", Mode::Shared, token(400), at(1_000), 0).unwrap();
    assert_eq!((tokens.last(b"k"), tokens.last_ordered(b"k")), (400, 150));
    tokens.raise(b"k", permit, token(350), at(1_000), 0).unwrap();
    assert_eq!(tokens.last_ordered(b"k"), 350);
    assert_eq!(
        tokens.issue(b"k", Some(token(380)), at(1_000), 0).map(Token::get),
        Ok(401),
        "a writer comes after readers"
    );
    assert_eq!(tokens.last_ordered(b"k"), 401);
    for known in [|tokens: &mut Tokens| tokens.raise_floor(450), |tokens: &mut Tokens| tokens.observe(b"k", token(450))]
    {
        let mut tokens = tokens.clone();
        assert_eq!(read(&mut tokens, 500), Ok(500));
        known(&mut tokens);
        assert_eq!((tokens.last_ordered(b"k"), read(&mut tokens, 450)), (450, Ok(501)));
        tokens.raise_floor(600);
        assert_eq!(tokens.last_ordered(b"k"), 600);
    }
}

#[test]
fn unrelated_keys_do_not_disturb_each_other() {
    let mut tokens = Tokens::new(10);
    tokens.observe(b"a", token(1_000_000));
    assert_ne!(stripe(b"a", TOKEN_STRIPES), stripe(b"b", TOKEN_STRIPES));
    assert_eq!(tokens.issue(b"b", None, at(20), 0).map(Token::get), Ok(20));
}

#[test]
fn the_end_of_the_token_space_is_a_refusal() {
    let mut tokens = Tokens::new(TOKEN_LIMIT - 2);
    assert_eq!(tokens.issue(b"k", None, at(0), 0).map(Token::get), Ok(TOKEN_LIMIT - 1));
    assert_eq!(tokens.issue(b"k", None, at(0), 0), Err(Refusal::TokensExhausted));
    assert_eq!(Tokens::new(u64::MAX).issue(b"k", None, at(0), 0), Err(Refusal::TokensExhausted));
}

#[test]
fn plausible_up_to_clock_plus_skew_or_last() {
    let mut tokens = Tokens::new(10);
    assert!(tokens.plausible(b"k", token(3_000), 1_000, 2));
    assert!(!tokens.plausible(b"k", token(3_001), 1_000, 2));
    tokens.observe(b"k", token(9_000));
    assert!(tokens.plausible(b"k", token(9_000), 1_000, 2));
    assert!(!tokens.plausible(b"k", token(9_001), 1_000, 2));
}

#[test]
fn each_proposal_has_its_token() {
    // (last, clock, skew ms, ceiling, proposal, issued)
    let cases = [
        (10, 5_000, 1, 9_000, 5_500, Ok(5_500)),
        (10, 5_000, 1, 9_000, 11, Ok(11)),
        (10, 5_000, 1, 9_000, 10, Ok(11)),
        (10, 5_000, 1, 9_000, 9, Ok(11)),
        (10, 5_000, 1, 9_000, 6_000, Ok(6_000)),
        (10, 5_000, 1, 9_000, 6_001, Ok(11)),
        (10, 5_000, 1, 5_400, 5_500, Ok(11)),
        (10, 5_000, 1, 9_000, TOKEN_LIMIT - 1, Ok(11)),
        (8_000, 5_000, 1, 9_000, 5_500, Ok(8_001)),
        (9_000, 5_000, 1, 9_000, 5_500, Err(Refusal::NotYet)),
    ];
    for (last, wall_us, skew_ms, ceiling, proposal, expected) in cases {
        let mut tokens = Tokens::new(last);
        tokens.set_ceiling(ceiling);
        let issued = tokens.issue(b"k", Token::new(proposal), at(wall_us), skew_ms).map(Token::get);
        assert_eq!(issued, expected, "{last} {proposal}");
    }
}

/// Tries several incarnations of one node, with small numbers and every combination of clock and number of grants.
/// Whatever the clock does between two incarnations, no token is issued twice, tokens only grow, and none exceeds the
/// ceiling on the disk.
#[test]
fn every_small_history_of_lives() {
    fn live(saved: u64, highest: u64, lives: u32) {
        if lives == 0 {
            return;
        }
        for wall_us in [0, 40, 1_000_000_000] {
            for grants in 0..4 {
                let mut tokens = Tokens::new(saved.max(wall_us));
                // The write may fail, so that the ceiling on the disk stays the earlier incarnation's; or it succeeds.
                for ceiling in [saved, tokens.wanted_ceiling(wall_us, 0)] {
                    tokens.set_ceiling(ceiling);
                    let mut last = highest;
                    for _ in 0..grants {
                        match tokens.issue(b"k", None, at(wall_us), 0) {
                            Ok(token) => {
                                assert!(token.get() > last && token.get() <= ceiling);
                                last = token.get();
                            }
                            Err(refusal) => assert_eq!(refusal, Refusal::NotYet),
                        }
                    }
                    live(ceiling.max(saved), last, lives - 1);
                }
            }
        }
    }
    live(100, 100, 3);
}

#[test]
fn starts_alone_raise_the_ceiling_hardly() {
    let mut ceiling = 1_000_000;
    for _ in 0..1_000 {
        ceiling = Tokens::new(ceiling).wanted_ceiling(0, 0).max(ceiling);
    }
    assert!(ceiling <= 1_000_000 + CEILING_LEAD + 1_000 * START_LEAD, "{ceiling}");
}

/// A hostile client raises the token of its own key as far as it can. Then the node restarts. Other keys start where
/// they would have started without that client, and that key starts above all its tokens.
#[test]
fn one_keys_outlier_stays_with_its_stripe() {
    let (wall_us, skew_ms, year) = (1 << 50, 2_000, FENCE_SPAN_US);
    let mut tokens = Tokens::new(wall_us);
    tokens.set_ceiling(tokens.wanted_ceiling(wall_us, skew_ms));
    let evil = token(wall_us + year);
    assert_eq!(tokens.raise(b"evil", Mode::Exclusive, evil, at(wall_us), skew_ms), Err(Refusal::NotYet));
    let (ceilings, change) = tokens.stripe_ceilings();
    assert_eq!(
        tokens.raise(b"evil", Mode::Exclusive, evil, at(wall_us), skew_ms),
        Err(Refusal::NotYet),
        "not on the disk yet"
    );
    tokens.stripes_saved(change);
    assert_eq!(tokens.raise(b"evil", Mode::Exclusive, evil, at(wall_us), skew_ms), Ok(()));
    assert!(tokens.issue(b"evil", None, at(wall_us), skew_ms).unwrap() > evil, "its own ceiling leaves room");
    let further = token(evil.get() + 1);
    assert_eq!(
        tokens.raise(b"evil", Mode::Exclusive, further, at(wall_us), skew_ms),
        Err(Refusal::FenceTooFar { max: evil.get() })
    );
    let ceiling = tokens.wanted_ceiling(wall_us, skew_ms);
    assert!(ceiling < wall_us + 10_000_000, "{ceiling}");
    let mut later = Tokens::new(ceiling.max(wall_us));
    later.restore_stripes(&ceilings);
    later.set_ceiling(later.wanted_ceiling(wall_us, skew_ms));
    assert!(later.issue(b"other", None, at(wall_us), skew_ms).unwrap().get() < wall_us + 10_000_000);
    assert_eq!(later.issue(b"evil", None, at(wall_us), skew_ms), Err(Refusal::NotYet));
    later.stripes_saved(later.stripe_changes());
    assert!(later.issue(b"evil", None, at(wall_us), skew_ms).unwrap() > evil);
}

#[test]
fn what_was_refused_and_never_came_again_is_forgotten() {
    let mut tokens = Tokens::new(1_000);
    tokens.set_ceiling(tokens.wanted_ceiling(1_000, 0));
    let far = token(FENCE_SPAN_US);
    assert_eq!(tokens.raise(b"k", Mode::Exclusive, far, at(1_000), 0), Err(Refusal::NotYet));
    tokens.stripes_saved(tokens.stripe_changes());
    tokens.sweep_stripes(BootTime::from_us(1_000).plus_ms(9_999));
    assert_eq!(tokens.stripe_ceilings().0.len(), 1);
    tokens.sweep_stripes(BootTime::from_us(1_000).plus_ms(10_000));
    assert_eq!(tokens.stripe_ceilings().0, []);
    assert_eq!(tokens.raise(b"k", Mode::Exclusive, far, at(1_000), 0), Err(Refusal::NotYet), "from the beginning");
    tokens.stripes_saved(tokens.stripe_changes());
    tokens.raise(b"k", Mode::Exclusive, far, at(1_000), 0).unwrap();
    tokens.sweep_stripes(BootTime::from_us(u64::MAX));
    assert_eq!(tokens.stripe_ceilings().0.len(), 1, "one that was used is kept");
    tokens.set_ceiling(far.get() + ISSUED_LEAD);
    tokens.sweep_stripes(BootTime::from_us(1_000));
    assert_eq!(tokens.stripe_ceilings().0, [], "until the node's own has passed it");
}

/// The clock of another node is a day ahead, and the token of every locked key is raised to the one that node issued.
/// The node's own ceiling follows after a few refusals, so all succeed.
#[test]
fn where_clocks_are_apart_the_nodes_ceiling_follows() {
    let (wall_us, day) = (1 << 50, 86_400_000_000);
    let mut tokens = Tokens::with_stripes(wall_us, 1 << 10, 2);
    tokens.set_ceiling(tokens.wanted_ceiling(wall_us, 0));
    let mut refused = 0;
    for n in 0..2_000_u64 {
        let token = token(wall_us + day + n);
        let mut tries = 0;
        while let Err(refusal) = tokens.raise(&n.to_le_bytes(), Mode::Exclusive, token, at(wall_us + n), 0) {
            assert_eq!(refusal, Refusal::NotYet);
            (refused, tries) = (refused + 1, tries + 1);
            assert!(tries < 3);
            tokens.set_ceiling(tokens.wanted_ceiling(wall_us + n, 0));
            tokens.stripes_saved(tokens.stripe_changes());
        }
    }
    assert!(refused < 10, "{refused}");
    // But the ceiling follows no further than clocks may differ.
    let further = token(wall_us + 3 * day);
    let mut ends: Vec<_> = (0..4_u8).map(|n| tokens.raise(&[n], Mode::Exclusive, further, at(wall_us), 0)).collect();
    ends.dedup();
    assert_eq!(ends, [Err(Refusal::NotYet), Err(Refusal::FenceTooFar { max: tokens.ceiling() })]);
}

/// Clocks differ, a hostile client raises the tokens of its key far ahead, and the node restarts again and again. The
/// node's ceiling follows the clocks, not the client.
#[test]
fn starts_do_not_add_up_what_the_ceiling_followed() {
    let (wall_us, hour) = (1 << 50, 3_600_000_000);
    let mut ceiling = wall_us;
    let mut stripes = vec![];
    for _ in 0..10 {
        let mut tokens = Tokens::with_stripes(ceiling, 1 << 10, 2);
        tokens.restore_stripes(&stripes);
        tokens.set_ceiling(ceiling);
        let raise = |tokens: &mut Tokens, key: &[u8], to: u64| {
            while tokens.raise(key, Mode::Exclusive, token(to), at(wall_us), 0) == Err(Refusal::NotYet) {
                tokens.set_ceiling(tokens.wanted_ceiling(wall_us, 0));
                tokens.stripes_saved(tokens.stripe_changes());
            }
        };
        raise(&mut tokens, b"evil", wall_us + FENCE_SPAN_US);
        for key in 0..10_u8 {
            raise(&mut tokens, &[key], wall_us + hour);
        }
        ceiling = tokens.ceiling();
        stripes = tokens.stripe_ceilings().0;
    }
    assert!(ceiling < wall_us + 2 * hour, "{}", ceiling - wall_us);
}

/// A client that may lock a key and raise its token does both in turn. That does not drive the node's own ceiling far
/// ahead of the clock.
#[test]
fn raising_and_granting_in_turn_drives_nothing_ahead() {
    let wall_us = 1 << 50;
    let mut tokens = Tokens::new(wall_us);
    let mut ceiling = tokens.wanted_ceiling(wall_us, 0);
    for _ in 0..1_000 {
        tokens.set_ceiling(ceiling);
        let token = token(ceiling);
        let _ = tokens.raise(b"evil", Mode::Exclusive, token, at(wall_us), 0);
        let _ = tokens.issue(b"evil", None, at(wall_us), 0);
        tokens.stripes_saved(tokens.stripe_changes());
        ceiling = tokens.wanted_ceiling(wall_us, 0).max(ceiling);
    }
    assert!(ceiling <= wall_us + CEILING_LEAD + ISSUED_LEAD + 1_000, "{}", ceiling - wall_us);
}

#[test]
fn a_raised_floor_is_below_every_later_token() {
    let mut tokens = Tokens::new(10);
    tokens.raise_floor(5_000);
    assert_eq!(tokens.issue(b"k", None, at(20), 0).map(Token::get), Ok(5_001));
    tokens.raise_floor(1);
    assert_eq!(tokens.issue(b"k", None, at(20), 0).map(Token::get), Ok(5_002));
}

proptest! {
    #[test]
    fn strictly_grows_whatever_clock_and_neighbours_do(
        steps in prop::collection::vec((0u8..6, 0u64..1 << 40, any::<bool>()), 1..200),
    ) {
        let mut tokens = Tokens::new(0);
        let mut seen = std::collections::HashMap::new();
        for (key, value, learn) in steps {
            let key = [key];
            let before = seen.get(&key).copied().unwrap_or(0);
            if learn {
                if let Some(token) = Token::new(value) {
                    tokens.observe(&key, token);
                    seen.insert(key, before.max(value));
                }
            } else {
                let token = tokens.issue(&key, Token::new(value ^ 5), at(value), 3).unwrap().get();
                prop_assert!(token > before);
                seen.insert(key, token);
            }
        }
    }
}
