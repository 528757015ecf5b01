"""Both clients against a real server."""

from __future__ import annotations

import asyncio
import unittest

from server import Server
from tollgate_client import ApiError, AsyncTollgate, Deny, LocalLimit, Refused, Tollgate, Unavailable

# Calls may be slow on a busy machine; only the tests of outages want an early end.
TIMEOUT = 30.0


class WithServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def client(self, **options) -> Tollgate:
        client = Tollgate(self.server.url, **{"timeout": TIMEOUT, **options})
        self.addCleanup(client.close)
        return client

    def test_a_refusal_says_which_limit_and_how_long(self) -> None:
        client = self.client(remember=0)
        first, second, third = (client.check("/search", user="ann") for _ in range(3))
        self.assertEqual([it.allowed for it in (first, second, third)], [True, True, False])
        self.assertEqual((second.limits[0].remaining, third.limit), (0, "search"))
        self.assertTrue(1700 < third.retry_after <= 1800, third)
        self.assertFalse(third.remembered)

    def test_a_refusal_is_remembered_until_units_are_returned(self) -> None:
        client = self.client(remember=600)
        for _ in range(2):
            client.check_limit("search", "bob")
        self.assertFalse(client.check_limit("search", "bob").remembered)
        again = client.check_limit("search", "bob")
        self.assertTrue(again.remembered and again.retry_after <= 1800, again)
        self.assertTrue(client.grant("search", "bob", 1).allowed)
        self.assertTrue(client.check_limit("search", "bob").allowed)

    def test_a_permit_holds_its_slot_until_the_block_ends(self) -> None:
        client = self.client(remember=0)
        with client.permit("/exports", user="ann", renew_every=60) as permit:
            with self.assertRaises(Refused) as refused:
                client.permit("/exports", user="ann")
            self.assertEqual(refused.exception.decision.limit, "exports")
            self.assertEqual(client.renew(permit.decision), 1)
        with client.permit_limit("exports", "ann"):
            pass

    def test_an_error_in_the_block_releases_the_slot(self) -> None:
        client = self.client(remember=0)
        with self.assertRaises(ZeroDivisionError), client.permit("/exports", user="eve"):
            1 / 0
        self.assertTrue(client.check("/exports", user="eve").allowed)

    def test_the_final_cost_replaces_the_charge(self) -> None:
        client = self.client()
        with client.permit("/chat", user="ann", cost=10) as permit:
            permit.settle(30)
        self.assertEqual(client.peek("tokens", "ann").limits[0].remaining, 70)

    def test_a_queue_makes_permits_wait(self) -> None:
        client = self.client()
        waits = [client.check("/reports", user="ann").wait for _ in range(3)]
        self.assertEqual(waits[0], 0)
        self.assertTrue(0 < waits[1] <= 60 < waits[2] <= 120, waits)
        for _ in range(3):
            client.permit("/mails", user="ann").release()

    def test_a_mistake_is_an_error_that_says_what_to_change(self) -> None:
        with self.assertRaises(ApiError) as error:
            self.client().check_limit("serach", "ann")
        self.assertEqual(error.exception.status, 404)
        self.assertIn("search", error.exception.detail)

    def test_the_asyncio_client_does_the_same(self) -> None:
        async def run() -> None:
            async with AsyncTollgate(self.server.url, timeout=TIMEOUT, remember=600) as client:
                decisions = [await client.check("/search", user="dan") for _ in range(4)]
                self.assertEqual([it.allowed for it in decisions], [True, True, False, False])
                self.assertTrue(decisions[3].remembered)
                async with await client.permit("/exports", user="dan", renew_every=60):
                    with self.assertRaises(Refused):
                        await client.permit("/exports", user="dan")
                async with await client.permit("/chat", user="dan", cost=5) as permit:
                    await permit.settle(50)
                self.assertEqual((await client.peek("tokens", "dan")).limits[0].remaining, 50)
                answers = await asyncio.gather(*(client.check_limit("tokens", "eve", cost=10) for _ in range(20)))
                self.assertEqual(sum(it.allowed for it in answers), 10)

        asyncio.run(run())


class WithoutServer(unittest.TestCase):
    """A port where no server listens: discovered by starting one and stopping it."""

    @classmethod
    def setUpClass(cls) -> None:
        server = Server()
        cls.url = server.url
        server.stop()

    def test_the_outage_rule_decides(self) -> None:
        with Tollgate(self.url) as client:
            decision = client.check("/search", user="ann")
            self.assertTrue(decision.allowed and decision.degraded and decision.id is None)
            client.settle(decision, 5)
            self.assertEqual(client.release(decision), 0)
            with client.permit("/search", user="ann"):
                pass
        with Tollgate(self.url, on_outage=Deny()) as client:
            self.assertFalse(client.check("/search").allowed)
        with Tollgate(self.url, on_outage=LocalLimit(2, per=3600)) as client:
            allowed = [client.check("/search", user="ann").allowed for _ in range(3)]
            self.assertEqual(allowed, [True, True, False])
            self.assertTrue(client.check("/search", user="bob").allowed)

    def test_operations_without_a_rule_raise(self) -> None:
        with Tollgate(self.url) as client, self.assertRaises(Unavailable):
            client.peek("search", "ann")


if __name__ == "__main__":
    unittest.main()
