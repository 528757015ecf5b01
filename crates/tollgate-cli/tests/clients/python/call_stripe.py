"""stripe: retries a 429 only where `stripe-should-retry` says so, and waits as long as it likes."""

import report
import stripe

client = stripe.StripeClient("sk_test_nobody", base_addresses={"api": report.url()}, max_network_retries=8)
report.calls(lambda: client.v1.balance.retrieve())
