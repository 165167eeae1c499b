"""Asset checks: table contracts, failure rate, stale ids."""
