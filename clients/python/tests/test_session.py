"""Decisions of the client itself, on a clock that the test sets."""

from __future__ import annotations

import unittest

from tollgate_client import Allow, Decision, Deny, LocalLimit, TollgateError
from tollgate_client._outage import MAX_KEYS
from tollgate_client._session import FAILURES_TO_OPEN, MAX_REMEMBERED, PROBE_INTERVAL, Session, limit_check

REFUSED = {"allowed": False, "limit": "l", "retry_after_ms": 30_000, "limits": []}


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Sessions(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = Clock()

    def session(self, rule=None, remember=1.0) -> Session:
        return Session(rule or Allow(), remember, self.clock)

    def test_a_refusal_is_repeated_for_at_most_the_time_to_remember(self) -> None:
        session, check = self.session(), limit_check("l", "ann", 1)
        session.decide_from(check, REFUSED)
        self.clock.now += 0.75
        self.assertAlmostEqual(session.decide_without_call(check).retry_after, 29.25)
        self.assertIsNone(session.decide_without_call(limit_check("l", "bob", 1)))
        self.assertIsNone(session.decide_without_call(limit_check("l", "ann", 2)), "another cost is another question")
        self.clock.now += 0.25
        self.assertIsNone(session.decide_without_call(check))

    def test_a_refusal_is_never_repeated_after_its_wait(self) -> None:
        session, check = self.session(remember=60), limit_check("l", "ann", 1)
        session.decide_from(check, {**REFUSED, "retry_after_ms": 500})
        self.clock.now += 0.5
        self.assertIsNone(session.decide_without_call(check))

    def test_remembered_refusals_are_bounded(self) -> None:
        session = self.session()
        for it in range(MAX_REMEMBERED + 10):
            session.decide_from(limit_check("l", str(it), 1), REFUSED)
        self.assertEqual(len(session._refusals), MAX_REMEMBERED)

    def test_a_server_that_fails_is_called_once_per_interval(self) -> None:
        session, check = self.session(Deny()), limit_check("l", "ann", 1)
        for _ in range(FAILURES_TO_OPEN):
            self.assertIsNone(session.decide_without_call(check))
            session.record_failure()
        self.assertFalse(session.decide_without_call(check).allowed)
        self.clock.now += PROBE_INTERVAL
        self.assertIsNone(session.decide_without_call(check), "this call probes")
        self.assertFalse(session.decide_without_call(check).allowed, "the others do not")
        session.record_answer()
        self.assertIsNone(session.decide_without_call(check))

    def test_a_local_limit_admits_its_count_and_refills(self) -> None:
        rule = LocalLimit(3, per=0.3)
        admitted = [rule.decide("k", 1, 5.0).allowed for _ in range(4)]
        self.assertEqual(admitted, [True, True, True, False])
        self.assertAlmostEqual(rule.decide("k", 2, 5.0).retry_after, 0.2)
        self.assertTrue(rule.decide("k", 2, 5.2).allowed)
        self.assertEqual(rule.decide("k", 4, 5.2).reason, "never")
        for it in range(MAX_KEYS + 10):
            rule.decide(str(it), 1, 6.0)
        self.assertEqual(len(rule._full_at), MAX_KEYS)

    def test_an_answer_that_is_no_decision_is_an_error(self) -> None:
        for body in ({}, {"allowed": True, "limits": [{}]}, {"allowed": True, "limits": 5}, {"allowed": False, "retry_after_ms": "x"}):
            with self.assertRaises(TollgateError):
                self.session().decide_from(limit_check("l", "ann", 1), body)

    def test_a_decision_is_not_a_truth_value(self) -> None:
        with self.assertRaises(TypeError):
            bool(Decision(allowed=False))


if __name__ == "__main__":
    unittest.main()
